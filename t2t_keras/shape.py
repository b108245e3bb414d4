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


# Small operations of a decoding step. oneDNN, which TensorFlow replaces its own by, needs fifty
# microseconds to begin one of them, and a step has a hundred.

FEW_QUERIES = 16


def _are_few(queries) -> bool:
    known = isinstance(queries, int) and keras.backend.backend() == "tensorflow"
    return known and queries <= FEW_QUERIES


def matmul(x, y, transpose=False):
    """Multiplies [..., T, C] with [..., C, S]; with `transpose`, with [..., S, C].

    The product of one query goes past oneDNN, except in float16, for which TensorFlow has none. (That of
    several is much slower without.)
    """
    has_own = keras.backend.standardize_dtype(x.dtype) != "float16"
    if x.shape[-2] == 1 and has_own and keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=x.dtype, adj_y=transpose)
    return ops.matmul(x, ops.swapaxes(y, -1, -2) if transpose else y)


def softmax(logits):
    """Returns the softmax over the last axis of [..., T, S]; of few queries, past oneDNN."""
    if _are_few(logits.shape[-2]):
        import tensorflow as tf

        powers = tf.exp(logits - tf.reduce_max(logits, -1, keepdims=True))
        return powers / tf.reduce_sum(powers, -1, keepdims=True)
    return ops.softmax(logits, axis=-1)


def transpose(x, axes, queries):
    """Permutes the axes of a tensor; if its `queries`, T, are few, past oneDNN, which has floats alone."""
    if not _are_few(queries):
        return ops.transpose(x, axes)
    import tensorflow as tf

    @tf.custom_gradient
    def permuted(x):
        integer = {2: tf.int16, 4: tf.int32, 8: tf.int64}[x.dtype.size]
        y = tf.bitcast(tf.transpose(tf.bitcast(x, integer), axes), x.dtype)
        return y, lambda upstream: tf.transpose(upstream, tf.math.invert_permutation(axes))

    return permuted(x)


def appended(values, new, place=None):
    """Joins values [B, K, S, ...] and new ones [B, K, n, ...] along S; or writes these into them.

    Args:
        place: scalar int32, the first of the n places of values that the new ones are written to.
    """
    if place is None:
        return ops.concatenate([values, new], 2)
    return ops.slice_update(values, [0, 0, place, *[0] * (len(values.shape) - 3)], new)
