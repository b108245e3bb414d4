"""Shapes of tensors in graphs that do not know all of them."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops


def shape_of(x) -> list[Any]:
    """The sizes of a tensor: `ops.shape`, but one operation for all that a graph does not know.

    Keras makes four for each: an eighth of all operations in the training step of a small model.
    """
    settled = None not in x.shape or isinstance(x, keras.KerasTensor)
    if settled or keras.backend.backend() != "tensorflow":
        return list(ops.shape(x))
    import tensorflow as tf  # here alone, for what Keras has no operation; absent under JAX

    sizes = tf.unstack(tf.shape(x))
    return [known or size for known, size in zip(x.shape, sizes, strict=True)]
