"""Sizes of tensors, rows and places in them, with few operations in a graph of unknown sizes."""

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


def take(values, index):
    """Takes places along an axis by an index of their own in each row: TensorFlow's `gather`.

    Args:
        values: [B, ..., N, ...].
        index: [B, ..., M] int32, whose last axis stands where values have N.

    Returns:
        [B, ..., M, ...].
    """
    axis = len(index.shape) - 1
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf  # one operation; Keras's takes a dozen

        return tf.gather(values, index, batch_dims=axis)
    index = ops.reshape(index, (*index.shape, *[1] * (len(values.shape) - axis - 1)))
    return ops.take_along_axis(values, index, axis)


def appended(values, new, place=None):
    """Joins values [B, K, S, ...] and new ones [B, K, n, ...] along S; or writes these into them.

    Args:
        place: scalar int32, the first of the n places of values that the new ones are written to.
    """
    if place is None:
        return ops.concatenate([values, new], 2)
    return ops.slice_update(values, [0, 0, place, *[0] * (len(values.shape) - 3)], new)
