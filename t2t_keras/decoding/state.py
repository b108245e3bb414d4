"""What all searches share: limits of length, sentences that are done, ids in and out."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from t2t_keras.ids import EOS_ID, PAD_ID

INFINITY = 1e7
"""T2T's score of what cannot be chosen, negated."""

SHARE_TO_LEAVE = 8
"""Sentences that are done leave the batch when they are one in so many of those in it."""


def output_limits(inputs, extra_length, max_lengths):
    """The most tokens of each output, [B] int32: S + extra_length (T2T's), or `max_lengths`."""
    batch, source_length = tf.unstack(tf.shape(inputs))
    if max_lengths is None:
        return tf.fill([batch], tf.maximum(source_length + tf.cast(extra_length, tf.int32), 0))
    return tf.ensure_shape(tf.cast(max_lengths, tf.int32), [None]) + tf.zeros([batch], tf.int32)


def longest_output(limits):
    """The width of results: 1 or more, which a scatter wants."""
    return tf.maximum(tf.reduce_max(limits), 1)


def forced_ids(prefix, longest):
    """`prefix` [B, P] as wide as the longest output, 0 where a token is free; () without one."""
    if prefix is None:
        return ()
    prefix = prefix[:, :longest]
    return tf.pad(prefix, [[0, 0], [0, longest - tf.shape(prefix)[1]]])


def not_too_early(logits, i, min_length: int):
    """Logits [..., V] of token number i, without an end of sentence before `min_length` tokens."""
    if not min_length:
        return logits
    too_early = tf.where(i < min_length, -INFINITY, 0.0)
    return logits + too_early * tf.one_hot(EOS_ID, logits.shape[-1])


def time_to_leave(done, urgent):
    """Whether sentences that are done [b] should leave the batch: all of them, or enough.

    Args:
        done: [b] bool; what was found for such a sentence stays as it is.
        urgent: [b] bool; such a sentence must not go on.
    """
    number = tf.math.count_nonzero(done, dtype=tf.int32)
    enough = number * SHARE_TO_LEAVE >= tf.size(done)
    return (number > 0) & (enough | tf.reduce_any(urgent))


def gather_rows(state, rows):
    """The rows [n] of every tensor of a nested structure."""
    return tf.nest.map_structure(lambda tensor: tf.gather(tensor, rows), state)


def open_shapes(state, *axes: int):
    """The shapes of a nested structure of tensors, with certain axes (where there are) left open.

    That is what `tf.while_loop` wants to know of a state that grows, or whose sentences leave.
    """

    def shape(tensor):
        sizes = list(tensor.shape)
        return tf.TensorShape([None if n in axes else size for n, size in enumerate(sizes)])

    return tf.nest.map_structure(shape, state)


def put_rows(results, rows, values):
    """Writes values [n, ..., w] into the rows [n] of results [B, ..., L], from the left."""
    missing = tf.shape(results)[-1] - tf.shape(values)[-1]
    padding = [[0, 0]] * (len(values.shape) - 1) + [[0, missing]]
    return tf.tensor_scatter_nd_update(results, rows[:, None], tf.pad(values, padding))


def clear_after_eos(ids):
    """Sets everything after the first end of sentence along the last axis to padding."""
    ended = tf.cast(ids == EOS_ID, ids.dtype)
    before = tf.cumsum(ended, axis=-1, exclusive=True)
    return tf.where(before > 0, PAD_ID, ids)


def as_ids(ids) -> Any:
    """Converts anything array-like to int32 token ids."""
    return tf.cast(tf.convert_to_tensor(ids), tf.int32)
