"""Attention biases: large negative numbers where attention must not look.

T2T adds -1e9 to such logits instead of removing them, and so do we: a row that may look nowhere
attends evenly everywhere, as in T2T.
"""

from __future__ import annotations

from keras import ops

MASKED = -1e9


def mask_bias(mask):
    """Turns a boolean mask (True: may be attended) into a float32 attention bias.

    Args:
        mask: [B, S] for one set of keys per example, or [B, T, S] for one per query.

    Returns:
        [B, 1, 1, S] or [B, 1, T, S], 0 where the mask is True and -1e9 elsewhere.
    """
    blocked = ops.cast(ops.logical_not(ops.cast(mask, "bool")), "float32") * MASKED
    if len(blocked.shape) == 2:
        blocked = ops.expand_dims(blocked, 1)  # [B, 1, S]
    return ops.expand_dims(blocked, 1)


def causal_bias(length):
    """Returns the [1, 1, T, T] float32 bias that hides the future (T2T's lower triangle)."""
    position = ops.arange(length)
    future = ops.expand_dims(position, 0) > ops.expand_dims(position, 1)  # [T, T]
    return ops.cast(future, "float32")[None, None] * MASKED


def segment_bias(segments, memory_segments=None):
    """Turns the numbers of packed sequences into the bias that keeps them apart.

    T2T's `attention_bias_same_segment`: padding, number 0, sees padding.

    Args:
        segments: [B, T] int, the number of the sequence that each query belongs to.
        memory_segments: [B, S] int, the same for the keys; `segments` if absent.

    Returns:
        [B, 1, T, S] float32, 0 where both numbers are equal and -1e9 elsewhere.
    """
    keys = segments if memory_segments is None else memory_segments
    return mask_bias(ops.equal(ops.expand_dims(segments, 2), ops.expand_dims(keys, 1)))


def proximity_bias(length):
    """Returns the [1, 1, T, T] bias -log(1 + |i - j|) (T2T's `attention_bias_proximal`)."""
    position = ops.cast(ops.arange(length), "float32")
    distance = ops.abs(ops.expand_dims(position, 0) - ops.expand_dims(position, 1))
    return -ops.log1p(distance)[None, None]
