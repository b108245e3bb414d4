"""What greedy and beam search share: the encoded source and the caches of a step."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.ids import EOS_ID, PAD_ID
from t2t_keras.layers import mask_bias


class Source(NamedTuple):
    """What every step looks at and none changes."""

    memory_caches: list[dict[str, Any]]  # per layer {"k", "v"}: [B, H, S, C]
    memory_bias: Any  # [B, 1, 1, S]


def encode_source(model, ids) -> Source:
    """Runs the encoder on [B, S] ids and projects its output for every decoder layer."""
    memory = model.encode(ids)
    return Source(model.decoder.memory_caches(memory), mask_bias(ids != PAD_ID))


def cache_invariants(caches: list[dict[str, Any]]) -> list[dict[str, tf.TensorShape]]:
    """The shapes that stay fixed while caches grow: [rows, H, t, C] with rows and t open."""
    return [
        {
            name: tf.TensorShape([None, array.shape[1], None, array.shape[3]])
            for name, array in cache.items()
        }
        for cache in caches
    ]


def clear_after_eos(ids):
    """Sets everything after the first end of sentence along the last axis to padding."""
    ended = tf.cast(ids == EOS_ID, ids.dtype)
    before = tf.cumsum(ended, axis=-1, exclusive=True)
    return tf.where(before > 0, PAD_ID, ids)


def as_ids(ids):
    """Converts anything array-like to int32 token ids."""
    return tf.cast(tf.convert_to_tensor(ids), tf.int32)
