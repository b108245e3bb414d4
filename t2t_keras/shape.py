"""Sizes of tensors, places in them and small products: in TensorFlow with fewer operations than Keras's."""

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


def matmul(x, y, transpose=False):
    """Multiplies [..., T, C] with [..., C, S]; with `transpose`, with [..., S, C].

    The products of one query, in a step of greedy decoding, take microseconds, and oneDNN needs fifty to
    begin one. TensorFlow never replaces this operation by oneDNN's; it has none in float16.
    """
    one_query = x.shape[-2] == 1 and keras.backend.standardize_dtype(x.dtype) != "float16"
    if one_query and keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=x.dtype, adj_y=transpose)
    return ops.matmul(x, ops.swapaxes(y, -1, -2) if transpose else y)


def softmax(logits):
    """Returns the softmax over the last axis; of one query, as `matmul`, without oneDNN."""
    if logits.shape[-2] == 1 and keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        powers = tf.exp(logits - tf.reduce_max(logits, -1, keepdims=True))
        return powers / tf.reduce_sum(powers, -1, keepdims=True)
    return ops.softmax(logits, axis=-1)


def appended(values, new, place=None):
    """Joins values [B, K, S, ...] and new ones [B, K, n, ...] along S; or writes these into them.

    Args:
        place: scalar int32, the first of the n places of values that the new ones are written to.
    """
    if place is None:
        return ops.concatenate([values, new], 2)
    return ops.slice_update(values, [0, 0, place, *[0] * (len(values.shape) - 3)], new)
