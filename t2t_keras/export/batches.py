"""Rows of a request of any size, a bounded number at a time, inside a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf


def in_batches(
    run: Callable[[tf.Tensor], Sequence[tf.Tensor]],
    lengths: tf.Tensor,
    empty: Sequence[tf.Tensor],
    *,
    most_rows: int,
    most_tokens: int,
) -> list[tf.Tensor]:
    """Runs a function on rows of about the same length together, the longest first.

    Args:
        run: takes the numbers of b rows, [b] int32, and returns tensors [b, ...].
        lengths: [B] int32, tokens of each row; B may be 0.
        empty: what `run` would return for no rows; an axis of size 0 may have any size.
        most_rows: rows taken at once.
        most_tokens: and so many tokens, padding included; a longer row is taken alone.

    Returns:
        The results of all rows in their order, [B, ...]. Where axes differ between batches, 0
        fills up.
    """
    order = tf.argsort(lengths, direction="DESCENDING", stable=True)
    descending = tf.gather(lengths, order)

    shapes = [tf.TensorShape([size or None for size in tensor.shape]) for tensor in empty]

    def step(begin, done):
        rows = tf.clip_by_value(most_tokens // tf.maximum(descending[begin], 1), 1, most_rows)
        rows = tf.minimum(rows, tf.size(order) - begin)
        new = run(order[begin : begin + rows])
        stacked = [_stacked(*both) for both in zip(done, new, strict=True)]
        return begin + rows, list(map(tf.ensure_shape, stacked, shapes))

    _, done = tf.while_loop(
        lambda begin, done: begin < tf.size(order),
        step,
        (tf.constant(0), list(empty)),
        shape_invariants=(tf.TensorShape([]), shapes),
        parallel_iterations=1,
    )
    place = tf.math.invert_permutation(order)
    return [tf.gather(tensor, place) for tensor in done]


def _stacked(first, second):
    """[a, ...] and [b, ...] -> [a + b, ...]; the other axes are as long as the longer one."""
    size = tf.maximum(tf.shape(first)[1:], tf.shape(second)[1:])
    return tf.concat([_filled(first, size), _filled(second, size)], 0)


def _filled(tensor, size):
    missing = size - tf.shape(tensor)[1:]
    return tf.pad(tensor, tf.pad(missing[:, None], [[1, 0], [1, 0]]))
