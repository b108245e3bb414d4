"""What stands before and after every sub-layer: normalisation, dropout, residual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.layer_norm import LayerNorm


@keras.saving.register_keras_serializable("t2t_keras")
class PrePostProcess(keras.layers.Layer):
    """Applies a sequence of letters to a tensor: T2T's `layer_prepostprocess`.

    "n" normalises (layer normalisation), "d" drops out, "a" adds the residual; "none" does
    nothing. The paper is "none" before and "dan" after each sub-layer, LayerNorm(x +
    Dropout(Sublayer(x))); T2T's base is "n" before and "da" after.

    Args:
        sequence: the letters, in order.
        dropout: rate of "d".
        dropout_broadcast_dims: axes of [B, T, D] along which dropout is shared.
        norm_epsilon: added to the variance.

    Call arguments:
        x: [B, T, D].
        residual: [B, T, D], needed by "a".

    Returns:
        [B, T, D].
    """

    def __init__(
        self,
        *,
        sequence: str,
        dropout: float = 0.0,
        dropout_broadcast_dims: Sequence[int] = (),
        norm_epsilon: float = 1e-6,
        **kwargs,
    ):
        super().__init__(**kwargs)
        letters = "" if sequence == "none" else sequence
        if set(letters) - set("nda") or letters.count("n") > 1:
            raise ValueError(
                f"sequence must be 'none' or of the letters n, d, a with one n at most, got {sequence!r}."
            )
        self.sequence = sequence
        self.letters = letters
        self.norm_epsilon = norm_epsilon
        self.dropout = Dropout(
            dropout,
            broadcast_dims=dropout_broadcast_dims,
            dtype=self.dtype_policy,
            name="dropout",
        )
        self.layer_norm: Any = (
            LayerNorm(epsilon=norm_epsilon, dtype=self.dtype_policy, name="layer_norm")
            if "n" in letters
            else None
        )
        self.supports_masking = True

    def build(self, x_shape, residual_shape=None):
        if self.layer_norm is not None:
            self.layer_norm.build(x_shape)
        self.built = True

    def call(self, x, residual=None, training=False):
        for letter in self.letters:
            if letter == "n":
                x = self.layer_norm(x)
            elif letter == "d":
                x = self.dropout(x, training=training)
            elif residual is None:
                raise ValueError(f"sequence {self.sequence!r} adds a residual, and none was given.")
            else:
                x = x + residual
        return x

    def compute_output_shape(self, x_shape, residual_shape=None):
        return x_shape

    def get_config(self):
        return {
            **super().get_config(),
            "sequence": self.sequence,
            "dropout": self.dropout.rate,
            "dropout_broadcast_dims": list(self.dropout.broadcast_dims),
            "norm_epsilon": self.norm_epsilon,
        }
