"""The shape of a tensor in a graph of unknown sizes, with few operations."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops


def shape_of(x) -> list[Any]:
    """Returns the sizes of a tensor as `ops.shape` does: ints, or scalar tensors where unknown.

    It makes two operations for all unknown sizes; Keras makes four for each of them, an eighth of
    the operations in the training step of a small model.
    """
    is_known = None not in x.shape or isinstance(x, keras.KerasTensor)
    if is_known or keras.backend.backend() != "tensorflow":
        return list(ops.shape(x))
    import tensorflow as tf  # only here: Keras has no such operation, and JAX needs no TensorFlow

    sizes = tf.unstack(tf.shape(x))
    return [known or size for known, size in zip(x.shape, sizes, strict=True)]
