"""Greedy search: the likeliest token at every step."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.decoding.state import as_ids, cache_invariants, clear_after_eos, encode_source
from t2t_keras.ids import EOS_ID, PAD_ID


class Greedy(NamedTuple):
    """The state of the search. i tokens have been chosen, and a first 0 stands before them."""

    i: Any  # scalar int32
    ids: Any  # [B, i + 1] int32
    score: Any  # [B] float32, sum of log-probabilities up to the end of sentence
    ended: Any  # [B] bool
    caches: list[dict[str, Any]]  # per layer {"k", "v"}: [B, H, i, C]


def greedy(model, inputs, *, extra_length: int = 50):
    """Decodes by taking the likeliest token at every step: T2T's `_greedy_infer`.

    Args:
        model: a `Transformer`.
        inputs: [B, S] source ids with their end of sentence, padded with 0.
        extra_length: at most S + extra_length tokens come out, S with padding.

    Returns:
        ids [B, L] int32, 0 after the first end of sentence, and scores [B] float32: the sum of
        the log-probabilities up to and including it.
    """
    return _greedy(model, as_ids(inputs), tf.convert_to_tensor(extra_length, tf.int32))


@tf.function(reduce_retracing=True)
def _greedy(model, inputs, extra_length):
    batch, source_length = tf.unstack(tf.shape(inputs))
    decode_length = source_length + extra_length
    source = encode_source(model, inputs)

    def go_on(state):
        return (state.i < decode_length) & ~tf.reduce_all(state.ended)

    def step(state):
        logits, caches = model.decode_step(state.ids[:, -1:], state.i, state.caches, *source)
        log_p = tf.nn.log_softmax(logits[:, 0])  # [B, 1, V] -> [B, V]
        best = tf.argmax(log_p, -1, tf.int32)
        return Greedy(
            i=state.i + 1,
            ids=tf.concat([state.ids, best[:, None]], 1),
            score=state.score + tf.where(state.ended, 0.0, tf.reduce_max(log_p, -1)),
            ended=state.ended | (best == EOS_ID),
            caches=caches,
        )

    start = Greedy(
        i=tf.constant(0),
        ids=tf.fill([batch, 1], PAD_ID),
        score=tf.zeros([batch]),
        ended=tf.zeros([batch], tf.bool),
        caches=model.decoder.empty_caches(batch),
    )
    invariants = Greedy(
        i=tf.TensorShape([]),
        ids=tf.TensorShape([None, None]),
        score=tf.TensorShape([None]),
        ended=tf.TensorShape([None]),
        caches=cache_invariants(start.caches),
    )
    (last,) = tf.while_loop(
        go_on, lambda state: (step(state),), (start,), shape_invariants=(invariants,)
    )
    return clear_after_eos(last.ids[:, 1:]), last.score
