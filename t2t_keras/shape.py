"""Sizes, gathers and small products of tensors, in TensorFlow with fewer operations than Keras's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"


def shape_of(x) -> list[Any]:
    """Returns the sizes of a tensor as `ops.shape` does: ints, or scalar tensors where unknown.

    It adds two operations for all unknown sizes together; Keras adds four for each of them, an eighth
    of the operations in the training step of a small model.
    """
    is_known = None not in x.shape or isinstance(x, keras.KerasTensor)
    if is_known or not ON_TENSORFLOW:
        return list(ops.shape(x))
    import tensorflow as tf  # only here: Keras has no such operation, and JAX needs no TensorFlow

    sizes = tf.unstack(tf.shape(x))
    return [known or size for known, size in zip(x.shape, sizes, strict=True)]


def take(values, index):
    """Gathers along an axis, with a separate index for each row: TensorFlow's `gather`.

    Args:
        values: [B, ..., N, ...].
        index: [B, ..., M] int32; its last axis replaces the axis N of `values`.

    Returns:
        [B, ..., M, ...].
    """
    axis = len(index.shape) - 1
    if ON_TENSORFLOW:
        import tensorflow as tf  # one operation; Keras's takes a dozen

        return tf.gather(values, index, batch_dims=axis)
    index = ops.reshape(index, (*index.shape, *[1] * (len(values.shape) - axis - 1)))
    return ops.take_along_axis(values, index, axis)


# Small operations of a decoding step. TensorFlow replaces its own by oneDNN's, which take fifty
# microseconds each to start, and a step has a hundred of them.

FEW_QUERIES = 16


def matmul(x, y, transpose=False):
    """Multiplies [..., T, C] with [..., C, S]; with `transpose`, with [..., S, C].

    The product of a single query bypasses oneDNN, except in float16, which TensorFlow's own product
    lacks. (The product of several queries is much slower without oneDNN.)
    """
    has_kernel = keras.backend.standardize_dtype(x.dtype) != "float16"
    if x.shape[-2] == 1 and has_kernel and ON_TENSORFLOW:
        import tensorflow as tf

        return tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=x.dtype, adj_y=transpose)
    return ops.matmul(x, ops.swapaxes(y, -1, -2) if transpose else y)


def softmax(logits):
    """Returns the softmax over the last axis of [..., T, S]; few queries bypass oneDNN."""
    queries = logits.shape[-2]
    if ON_TENSORFLOW and queries is not None and queries <= FEW_QUERIES:
        import tensorflow as tf

        powers = tf.exp(logits - tf.reduce_max(logits, -1, keepdims=True))
        return powers / tf.reduce_sum(powers, -1, keepdims=True)
    return ops.softmax(logits, axis=-1)


def transpose(x, axes, queries):
    """Permutes the axes of a tensor; if its `queries` (T) are few, as integers, which bypass oneDNN."""
    if not (ON_TENSORFLOW and isinstance(queries, int) and queries <= FEW_QUERIES):
        return ops.transpose(x, axes)
    import tensorflow as tf

    @custom_gradient
    def permuted(x):
        integer = {2: tf.int16, 4: tf.int32, 8: tf.int64}[x.dtype.size]
        y = tf.bitcast(tf.transpose(tf.bitcast(x, integer), axes), x.dtype)
        return y, lambda upstream: tf.transpose(upstream, tf.math.invert_permutation(axes))

    return permuted(x)


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keras's `ops.custom_gradient` of a function with one output, without a leak on TensorFlow.

    TensorFlow registers what it makes in a graph for ever, and with it the whole graph. Here one gradient
    is registered, and the graph keeps the functions that it calls.
    """
    if not ON_TENSORFLOW:
        return ops.custom_gradient(function)
    import tensorflow as tf

    @functools.wraps(function)
    def call(*inputs):
        if tf.executing_eagerly():
            return tf.custom_gradient(function)(*inputs)
        given = [tf.convert_to_tensor(x) for x in inputs]
        y, backward = function(*given)
        with y.graph.gradient_override_map({"IdentityN": _registered()}):  # for `tf.gradients`
            outputs = tf.identity_n([y, *given])
        y.graph.add_to_collection(outputs[0].name, backward)
        # for a `GradientTape`, which saw an identity
        tf.__internal__.record_gradient(_registered(), [y, *given], (), outputs)
        return outputs[0]

    return call


@functools.cache
def _registered() -> str:
    """Registers the gradient of all functions of `custom_gradient`; returns its name."""
    import tensorflow as tf

    name = "T2TKerasCustomGradient"

    @tf.RegisterGradient(name)
    def gradient(op, upstream, *unused):
        y = op.outputs[0]
        # A graph inside of another may begin with that one's collections: its own are the last.
        backward = y.graph.get_collection(y.name)[-1]
        return [None, *tf.nest.flatten(backward(upstream))]

    return name


def grown(values, new, i=None):
    """Appends [B, K, n, ...] to [B, K, S, ...] along S, whatever its number i."""
    return ops.concatenate([values, new], 2)


def written(values, new, i):
    """Writes [B, K, n, ...] into [B, K, S, ...] as its block number i of n."""
    place = i * shape_of(new)[2]
    return ops.slice_update(values, [0, 0, place, *[0] * (len(values.shape) - 3)], new)
