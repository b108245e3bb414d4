"""The parts around and after attention: feed-forward, layer normalisation, dropout and residual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from t2t_keras.layers.dropout import Dropout
from t2t_keras.precision import dense, dtype_config, policy_of_part
from t2t_keras.shape import shape_of


@keras.saving.register_keras_serializable("t2t_keras")
class FeedForward(keras.layers.Layer):
    """The position-wise feed-forward network (section 3.3), relu(x W1 + b1) W2 + b2: T2T's `dense_relu_dense`.

    Args:
        filter_size: F, the inner depth.
        dropout: rate on the inner activations (T2T's `relu_dropout`).
        dropout_broadcast_dims: axes of [B, T, F] along which dropout is shared.
        kernel_initializer: initializer of both matrices.

    Shapes: [B, T, D] in, [B, T, D] out.
    """

    def __init__(
        self,
        *,
        filter_size: int,
        dropout: float = 0.0,
        dropout_broadcast_dims: Sequence[int] = (),
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        # Not within the dense layers' own: 8-bit matrices are made of variables as they are.
        super().__init__(autocast=False, **kwargs)
        if filter_size < 1:
            raise ValueError(f"filter_size must be 1 or more, got {filter_size}.")
        self.filter_size = filter_size
        self.dropout = Dropout(
            dropout,
            broadcast_dims=dropout_broadcast_dims,
            dtype=self.dtype_policy,
            name="dropout",
        )
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.supports_masking = True

    def build(self, input_shape):
        hidden = input_shape[-1]
        self.conv1 = self._dense("conv1", self.filter_size, "relu")
        self.conv1.build((None, None, hidden))
        self.conv2 = self._dense("conv2", hidden, None)
        self.conv2.build((None, None, self.filter_size))
        self.built = True

    def _dense(self, name, units, activation):
        initializer = self.kernel_initializer
        return keras.layers.Dense(
            units,
            activation=activation,
            kernel_initializer=initializer.clone(),
            dtype=policy_of_part(self, name),
            name=name,
        )

    def call(self, x, training=False):
        # On [B*T, D] a dense layer adds far fewer operations to a graph of unknown sizes.
        rows = x if self.dropout.broadcast_dims else ops.reshape(x, (-1, x.shape[-1]))
        y = dense(self.conv2, self.dropout(dense(self.conv1, rows), training=training))
        known = all(x.shape[1:])  # in a decoding step: -1 then needs no operation
        return ops.reshape(y, (-1, *x.shape[1:]) if known else shape_of(x))

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "dtype": dtype_config(self),
            "filter_size": self.filter_size,
            "dropout": self.dropout.rate,
            "dropout_broadcast_dims": list(self.dropout.broadcast_dims),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


@keras.saving.register_keras_serializable("t2t_keras")
class LayerNorm(keras.layers.LayerNormalization):
    """Layer normalisation over the last axis with a faster gradient than Keras's: T2T's `layer_norm`.

    Shapes: [..., D] in, the same out; computed in float32 in any compute dtype.
    """

    def call(self, inputs):
        x, gamma, beta = (ops.cast(t, "float32") for t in (inputs, self.gamma, self.beta))
        return ops.cast(_normalised(self.epsilon)(x, gamma, beta), self.compute_dtype)


def _normalised(epsilon: float):
    """Returns a function that normalises x [..., D] with gamma [D] and beta [D].

    With h = (x - mean) / deviation and g = gamma dy, its gradient is
    dx = (g - mean(g) - h mean(g h)) / deviation: few passes over x, and only h is kept for it.
    """

    @ops.custom_gradient
    def normalised(x, gamma, beta):
        centred = x - _mean(x)
        inverse = ops.rsqrt(_mean(ops.square(centred)) + epsilon)
        h = centred * inverse

        def backward(*args, upstream=None):  # on PyTorch, Keras passes the gradient by name
            dy = args[-1] if upstream is None else upstream
            g = dy * gamma
            dx = (g - _mean(g) - h * _mean(g * h)) * inverse
            rows = list(range(len(x.shape) - 1))
            return dx, ops.sum(dy * h, rows), ops.sum(dy, rows)

        return h * gamma + beta, backward

    return normalised


def _mean(x):
    return ops.mean(x, -1, keepdims=True)


@keras.saving.register_keras_serializable("t2t_keras")
class PrePostProcess(keras.layers.Layer):
    """Pre- or post-processing of a sub-layer, given by letters: T2T's `layer_prepostprocess`.

    "n" is layer normalisation, "d" is dropout, "a" adds the residual; "none" does nothing. The
    paper has "none" before and "dan" after each sub-layer, LayerNorm(x + Dropout(Sublayer(x)));
    T2T's base set has "n" before and "da" after.

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
                f"sequence must be 'none' or letters of n, d, a with at most one n, got {sequence!r}."
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
