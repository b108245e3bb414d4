"""Greedy search: the likeliest token at every step."""

from __future__ import annotations

import tensorflow as tf

from t2t_keras.decoding.state import as_ids, cache_invariants, clear_after_eos, encode_source
from t2t_keras.ids import EOS_ID, PAD_ID


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

    def go_on(i, ended, *_):
        return (i < decode_length) & ~tf.reduce_all(ended)

    def step(i, ended, score, ids, caches):
        last = tf.cond(i > 0, lambda: ids[:, -1:], lambda: tf.fill([batch, 1], PAD_ID))
        logits, caches = model.decode_step(last, i, caches, *source)  # [B, 1, V]
        log_p = tf.nn.log_softmax(logits[:, 0])  # [B, V]
        best = tf.argmax(log_p, -1, tf.int32)
        score += tf.where(ended, 0.0, tf.reduce_max(log_p, -1))
        return i + 1, ended | (best == EOS_ID), score, tf.concat([ids, best[:, None]], 1), caches

    caches = model.decoder.empty_caches(batch)
    _, _, score, ids, _ = tf.while_loop(
        go_on,
        step,
        (tf.constant(0), tf.zeros([batch], tf.bool), tf.zeros([batch]), tf.zeros([batch, 0], tf.int32), caches),
        shape_invariants=(
            tf.TensorShape([]),
            tf.TensorShape([None]),
            tf.TensorShape([None]),
            tf.TensorShape([None, None]),
            cache_invariants(caches),
        ),
    )
    return clear_after_eos(ids), score
