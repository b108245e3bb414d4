"""Beam search with T2T's scores, its order and its way to stop."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.decoding.state import as_ids, cache_invariants, encode_source
from t2t_keras.ids import EOS_ID

INFINITY = 1e7
"""T2T's score of what cannot be chosen, negated."""


class Beams(NamedTuple):
    """The state of the search. i tokens have been chosen, and a first 0 stands before them."""

    i: Any  # scalar int32
    alive_ids: Any  # [B, K, i + 1] int32, best first
    alive_log_p: Any  # [B, K] float32, sums of log-probabilities
    finished_ids: Any  # [B, K, i + 1] int32, 0 after the end of sentence
    finished_scores: Any  # [B, K] float32, -INFINITY where `finished` is False
    finished: Any  # [B, K] bool
    caches: list[dict[str, Any]]  # per layer {"k", "v"}: [B*K, H, i, C]


def beam_search(
    model,
    inputs,
    *,
    beam_size: int = 4,
    alpha: float = 0.6,
    extra_length: int = 50,
    top_beams: int = 1,
):
    """Decodes with beam search (section 6.1 of the paper; T2T's `beam_search`).

    A finished hypothesis of n tokens scores log p / ((5 + n) / 6)^alpha. The search ends when no
    alive hypothesis of any sentence can beat the best finished one (with top_beams > 1: the
    worst finished one of the whole batch), or at the maximum length. A sentence without a
    finished hypothesis returns its alive ones with their plain log p, as in T2T.

    Args:
        model: a `Transformer`.
        inputs: [B, S] source ids with their end of sentence, padded with 0.
        beam_size: K.
        alpha: weight of the length penalty.
        extra_length: at most S + extra_length tokens come out, S with padding.
        top_beams: how many hypotheses to return, at most K.

    Returns:
        ids [B, top_beams, L] int32, best first, 0 after the first end of sentence, and scores
        [B, top_beams] float32.
    """
    if not 1 <= top_beams <= beam_size:
        raise ValueError(f"top_beams must be from 1 to beam_size={beam_size}, got {top_beams}.")
    return _beam_search(
        model,
        as_ids(inputs),
        tf.convert_to_tensor(extra_length, tf.int32),
        tf.convert_to_tensor(alpha, tf.float32),
        beam_size,
        top_beams,
    )


@tf.function(reduce_retracing=True)
def _beam_search(model, inputs, extra_length, alpha, beam_size: int, top_beams: int):
    batch, source_length = tf.unstack(tf.shape(inputs))
    decode_length = source_length + extra_length
    source = encode_source(model, inputs)
    longest_penalty = length_penalty(decode_length, alpha)

    def go_on(beams):
        best_alive = beams.alive_log_p[:, 0] / longest_penalty
        if top_beams > 1:
            to_beat = tf.reduce_min(beams.finished_scores)
        else:
            to_beat = tf.reduce_max(beams.finished_scores, axis=1)
        return (beams.i < decode_length) & ~tf.reduce_all(to_beat > best_alive)

    def step(beams):
        logits, caches = model.decode_step(
            beams.alive_ids[:, :, -1], beams.i, beams.caches, *source
        )
        return advance(beams._replace(caches=caches), logits, alpha)

    start = first_beams(model, batch, beam_size)
    (beams,) = tf.while_loop(
        go_on, lambda beams: (step(beams),), (start,), shape_invariants=(_invariants(start),)
    )
    any_finished = tf.reduce_any(beams.finished, axis=1)
    ids = tf.where(any_finished[:, None, None], beams.finished_ids, beams.alive_ids)
    scores = tf.where(any_finished[:, None], beams.finished_scores, beams.alive_log_p)
    return ids[:, :top_beams, 1:], scores[:, :top_beams]


def length_penalty(length, alpha):
    """((5 + length) / 6)^alpha, of Wu et al. 2016."""
    return tf.pow((5.0 + tf.cast(length, tf.float32)) / 6.0, alpha)


def first_beams(model, batch, beam_size: int) -> Beams:
    """The state before the first token: one hypothesis a sentence, the others impossible."""
    nothing = tf.zeros([batch, beam_size, 1], tf.int32)
    log_p = tf.constant([[0.0] + [-INFINITY] * (beam_size - 1)])
    return Beams(
        i=tf.constant(0),
        alive_ids=nothing,
        alive_log_p=tf.tile(log_p, [batch, 1]),
        finished_ids=nothing,
        finished_scores=tf.fill([batch, beam_size], -INFINITY),
        finished=tf.zeros([batch, beam_size], tf.bool),
        caches=model.decoder.empty_caches(batch * beam_size),
    )


def advance(beams: Beams, logits, alpha) -> Beams:
    """Chooses the next token of every hypothesis from its logits [B, K, V]."""
    beam_size, vocab_size = beams.alive_log_p.shape[1], logits.shape[-1]
    log_p = tf.nn.log_softmax(logits) + beams.alive_log_p[:, :, None]  # [B, K, V]
    penalty = length_penalty(beams.i + 1, alpha)
    flat = tf.reshape(log_p / penalty, [-1, beam_size * vocab_size])  # [B, K, V] -> [B, K*V]
    # 2K candidates: even if K of them end here, K stay alive.
    scores, chosen = tf.math.top_k(flat, 2 * beam_size)  # [B, 2K]
    origin = chosen // vocab_size
    token = chosen % vocab_size
    ids = tf.concat([_gather(beams.alive_ids, origin), token[:, :, None]], 2)  # [B, 2K, i + 2]
    ends = token == EOS_ID

    alive_scores = scores + tf.where(ends, -INFINITY, 0.0)
    _, kept = tf.math.top_k(alive_scores, beam_size)  # [B, K]
    kept_origin = _gather(origin, kept)

    all_scores = tf.concat([beams.finished_scores, scores + tf.where(ends, 0.0, -INFINITY)], 1)
    all_ids = tf.concat([tf.pad(beams.finished_ids, [[0, 0], [0, 0], [0, 1]]), ids], 1)
    finished_scores, best = tf.math.top_k(all_scores, beam_size)  # of [B, 3K]
    return Beams(
        i=beams.i + 1,
        alive_ids=_gather(ids, kept),
        alive_log_p=_gather(scores * penalty, kept),
        finished_ids=_gather(all_ids, best),
        finished_scores=finished_scores,
        finished=_gather(tf.concat([beams.finished, ends], 1), best),
        caches=_gather_caches(beams.caches, kept_origin),
    )


def _gather(values, index):
    """values [B, N, ...] at index [B, M] -> [B, M, ...]."""
    return tf.gather(values, index, axis=1, batch_dims=1)


def _gather_caches(caches, origin):
    """Reorders caches of [B*K, ...] so that each hypothesis has that of its origin [B, K]."""
    batch, beam_size = tf.unstack(tf.shape(origin))
    rows = tf.reshape(origin + beam_size * tf.range(batch)[:, None], [-1])  # [B*K]
    return [{name: tf.gather(array, rows) for name, array in cache.items()} for cache in caches]


def _invariants(beams: Beams) -> Beams:
    sequences = tf.TensorShape([None, beams.alive_ids.shape[1], None])
    scores = tf.TensorShape([None, beams.alive_ids.shape[1]])
    return Beams(
        i=tf.TensorShape([]),
        alive_ids=sequences,
        alive_log_p=scores,
        finished_ids=sequences,
        finished_scores=scores,
        finished=scores,
        caches=cache_invariants(beams.caches),
    )
