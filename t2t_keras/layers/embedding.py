"""Token embedding and softmax with a shared table (section 3.4 of the paper)."""

from __future__ import annotations

import keras
from keras import ops

from t2t_keras.ids import PAD_ID
from t2t_keras.layers.masks import MASKED
from t2t_keras.precision import fixed, multiply

BLOCK = 64
"""Decoding pads the vocabulary to a multiple of this, and finds the top k block by block."""


@keras.saving.register_keras_serializable("t2t_keras")
class SharedEmbedding(keras.layers.Layer):
    """Token embedding whose table is also the softmax matrix: T2T's symbol modality.

    Rows are drawn from N(0, D^-0.5) and multiplied by sqrt(D) when looked up; padding embeds
    to zeros. `logits` multiplies with the transposed table, without bias.

    Args:
        vocab_size: V.
        hidden_size: D.
        scale_by_sqrt_depth: True multiplies lookups by sqrt(D) (T2T's
            `multiply_embedding_mode` "sqrt_depth").

    Call arguments:
        ids: [B, T] int.
        reverse: True returns the logits [B, T, V] of `ids` [B, T, D] instead, as Keras's
            `ReversibleEmbedding` does, so that a functional model can predict with the table.

    Returns:
        [B, T, D], scaled in float32 in any compute dtype.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        hidden_size: int,
        scale_by_sqrt_depth: bool = True,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # rows are cast, not the table
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.scale_by_sqrt_depth = scale_by_sqrt_depth

    def build(self, ids_shape=None):
        self.table = self.add_weight(
            shape=(self.vocab_size, self.hidden_size),
            initializer=keras.initializers.RandomNormal(stddev=self.hidden_size**-0.5),
            name="table",
        )
        self.built = True

    def call(self, ids, reverse=False):
        if reverse:
            return self.logits(ops.cast(ids, self.compute_dtype))
        ids = ops.cast(ids, "int32")  # Keras builds a loaded model with float inputs
        x = ops.take(self.table, ids, axis=0)  # [B, T, D]
        if self.scale_by_sqrt_depth:
            x = x * self.hidden_size**0.5
        x = x * ops.expand_dims(ops.cast(ids != PAD_ID, x.dtype), -1)
        return ops.cast(x, self.compute_dtype)

    def matrix(self, block: int = BLOCK):
        """Returns {"kernel": [D, V'], "bias": [V']}, computed once for many calls of `logits`.

        V' is V rounded up to a multiple of `block`; the logits of the added ids are -1e9 (-inf in
        float16).
        """
        missing = -self.vocab_size % block

        def kernel():
            transposed = ops.transpose(ops.cast(self.table, self.compute_dtype))
            return ops.pad(transposed, [[0, 0], [0, missing]])

        is_token = ops.arange(self.vocab_size + missing) < self.vocab_size
        return {
            "kernel": fixed(self, kernel),
            "bias": ops.cast(ops.where(is_token, 0.0, MASKED), self.compute_dtype),
        }

    def logits(self, x, matrix=None):
        """Returns the logits of the next token: [B, T, D] -> [B, T, V], in the compute dtype.

        Args:
            matrix: from the method `matrix`; faster for many calls. The result is then [B, T, V'].
        """
        if matrix is None:
            return ops.matmul(x, ops.transpose(ops.cast(self.table, self.compute_dtype)))
        return multiply(x, matrix["kernel"]) + matrix["bias"]

    def compute_mask(self, ids, previous_mask=None):
        # Not by the dtype: ids are floats in a `Sequential` without an `Input`.
        is_reverse = len(ids.shape) > 2
        return previous_mask if is_reverse else ids != PAD_ID

    def compute_output_shape(self, ids_shape):
        return (*ids_shape, self.hidden_size)

    def compute_output_spec(self, *args, **kwargs):
        # By tracing: the shape depends on `reverse`.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self):
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "scale_by_sqrt_depth": self.scale_by_sqrt_depth,
        }
