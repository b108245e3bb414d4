"""The position-wise feed-forward network (section 3.3 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence

import keras
from keras import ops

from t2t_keras.layers.dropout import Dropout
from t2t_keras.shape import shape_of


@keras.saving.register_keras_serializable("t2t_keras")
class FeedForward(keras.layers.Layer):
    """relu(x W1 + b1) W2 + b2, with dropout after the relu: T2T's `dense_relu_dense`.

    Args:
        filter_size: F, the inner depth.
        dropout: rate on the inner activations (T2T's `relu_dropout`).
        dropout_broadcast_dims: axes of [B, T, F] along which dropout is shared.
        kernel_initializer: of both matrices.

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
        super().__init__(**kwargs)
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
            dtype=self.dtype_policy,
            name=name,
        )

    def call(self, x, training=False):
        # As rows of a matrix, which takes a graph of unknown sizes far fewer operations.
        rows = x if self.dropout.broadcast_dims else ops.reshape(x, (-1, x.shape[-1]))
        y = self.conv2(self.dropout(self.conv1(rows), training=training))
        return ops.reshape(y, shape_of(x))

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "filter_size": self.filter_size,
            "dropout": self.dropout.rate,
            "dropout_broadcast_dims": list(self.dropout.broadcast_dims),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
