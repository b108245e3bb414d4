"""Beam search with T2T's scores, its order and its way to stop."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.decoding.search import (
    INFINITY,
    as_ids,
    forced_ids,
    gather_rows,
    longest_output,
    open_shapes,
    output_limits,
    put_rows,
    time_to_leave,
)
from t2t_keras.errors import UserError
from t2t_keras.ids import EOS_ID, PAD_ID
from t2t_keras.layers.embedding import BLOCK
from t2t_keras.open_graph import open_graph_of_model

NOT_FORCED = -1e9
"""T2T's log p of another token than the one that must come: below `-INFINITY`, of no hypothesis."""

PRUNED_EVERY = 8
"""So many steps apart, keys that no hypothesis sees any more leave the caches."""


class Beams(NamedTuple):
    """The hypotheses of b sentences. i tokens have been chosen, and a first 0 stands before them."""

    alive_ids: Any  # [b, K, i + 1] int32, best first
    alive_log_p: Any  # [b, K] float32, sums of log-probabilities
    visible: Any  # [b, K, S] bool, which of the cached keys each alive one sees
    finished_ids: Any  # [b, K, i + 1] int32, 0 after the end of sentence
    finished_scores: Any  # [b, K] float32, -INFINITY where `finished` is False
    finished: Any  # [b, K] bool


class Live(NamedTuple):
    """All that is kept of the sentences still searched."""

    rows: Any  # [b] int32, their places in the batch
    beams: Beams
    caches: list[dict[str, Any]]  # per layer {"k", "v"}: [b, H, S, C]
    source: Any  # of `model.encode_source`
    limits: Any  # [b] int32, the most tokens
    forced: Any  # [b, longest] int32, tokens to choose, 0 where free; () if all are


class Search(NamedTuple):
    """The state of the loop."""

    i: Any  # scalar int32, tokens chosen
    live: Live
    ids: Any  # [B, K', longest] int32, results of those that have left
    scores: Any  # [B, K'] float32


def beam_search(
    model,
    inputs,
    *,
    beam_size: int = 4,
    alpha: float = 0.6,
    extra_length: int = 100,
    top_beams: int = 1,
    max_lengths=None,
    min_length: int = 0,
    prefix=None,
):
    """Decodes with beam search (section 6.1 of the paper; T2T's `beam_search`).

    A finished hypothesis of n tokens scores log p / ((5 + n) / 6)^alpha. The search of a sentence
    ends when no alive hypothesis can beat its best finished one (with top_beams > 1: its worst
    finished one), or at its maximum length. A sentence without a finished hypothesis returns its
    alive ones with their plain log p, as in T2T. What is found does not depend on the other
    sentences, save by the padded length S.

    Args:
        model: a `Transformer` or an `Ensemble`.
        inputs: [B, S] source ids with their end of sentence, padded with 0.
        beam_size: K.
        alpha: weight of the length penalty; below 0 it favours short outputs, and a search may
            end before the best is found.
        extra_length: at most S + extra_length tokens come out, S with padding.
        top_beams: K', how many hypotheses to return, at most K.
        max_lengths: [B] int, the most tokens of each output, instead of S + extra_length.
        min_length: tokens that must stand before the end of sentence.
        prefix: [B, P] int, padded with 0: the tokens that outputs begin with. They cost nothing,
            and count in the length of the penalty.

    Returns:
        ids [B, K', L] int32, best first, 0 after the first end of sentence, and scores
        [B, K'] float32.

    Raises:
        UserError: `top_beams` or `alpha` is out of range. (A tensor's value is not looked at.)
    """
    if not 1 <= top_beams <= beam_size:
        raise UserError(f"top_beams must be from 1 to beam_size={beam_size}, got {top_beams}.")
    if not tf.is_tensor(alpha) and not math.isfinite(alpha):
        raise UserError(f"alpha must be a number, got {alpha}.")
    inputs = as_ids(inputs)
    return _beam_search(
        model,
        inputs,
        output_limits(inputs, extra_length, max_lengths),
        tf.convert_to_tensor(alpha, tf.float32),
        None if prefix is None else as_ids(prefix),
        beam_size,
        top_beams,
        min_length,
    )


@open_graph_of_model
def _beam_search(
    model, inputs, limits, alpha, prefix, beam_size: int, top_beams: int, min_length: int
):
    batch, longest = tf.shape(inputs)[0], longest_output(limits)
    kernels = model.step_kernels()

    def step(search):
        live = search.live
        beams, logits, caches = next_logits(
            model, live.beams, search.i, live.caches, live.source, kernels
        )
        forced = None if prefix is None else live.forced[:, search.i]
        beams = advance(beams, search.i, logits, alpha, forced, min_length)
        search = search._replace(i=search.i + 1, live=live._replace(beams=beams, caches=caches))
        return leave(search if model.keys_need_positions else prune_now_and_then(search))

    def prune_now_and_then(search):
        live = search.live
        beams, caches = tf.cond(
            search.i % PRUNED_EVERY == 0,
            lambda: prune(live.beams, live.caches),
            lambda: (live.beams, live.caches),
        )
        return search._replace(live=live._replace(beams=beams, caches=caches))

    def leave(search):
        """Takes out of the search what is done."""
        beams, limits = search.live.beams, search.live.limits
        best_alive = best_possible(beams, limits, alpha)
        to_beat = beams.finished_scores[:, 0 if top_beams == 1 else -1]
        at_limit = search.i >= limits
        done = at_limit | (to_beat > best_alive)
        return tf.cond(
            time_to_leave(done, at_limit), lambda: take_out(search, done), lambda: search
        )

    def take_out(search, done):
        leaving, staying = (tf.cast(tf.where(mask)[:, 0], tf.int32) for mask in (done, ~done))
        rows = tf.gather(search.live.rows, leaving)
        ids, scores = results(gather_rows(search.live.beams, leaving))
        return search._replace(
            live=gather_rows(search.live, staying),
            ids=put_rows(search.ids, rows, ids[:, :top_beams, 1:]),
            scores=put_rows(search.scores, rows, scores[:, :top_beams]),
        )

    live = Live(
        rows=tf.range(batch),
        beams=first_beams(batch, beam_size),
        caches=model.empty_caches(batch),
        source=model.encode_source(inputs),
        limits=limits,
        forced=forced_ids(prefix, longest),
    )
    start = leave(
        Search(
            i=tf.constant(0),
            live=live,
            ids=tf.fill([batch, top_beams, longest], PAD_ID),
            scores=tf.zeros([batch, top_beams]),
        )
    )
    (search,) = tf.while_loop(
        lambda search: tf.size(search.live.rows) > 0,
        lambda search: (step(search),),
        (start,),
        shape_invariants=(_invariants(start),),
    )
    return search.ids[:, :, : search.i], search.scores


def length_penalty(length, alpha):
    """((5 + length) / 6)^alpha, of Wu et al. 2016."""
    return tf.pow((5.0 + tf.cast(length, tf.float32)) / 6.0, alpha)


def first_beams(batch, beam_size: int) -> Beams:
    """The state before the first token: one hypothesis a sentence, the others impossible."""
    nothing = tf.zeros([batch, beam_size, 1], tf.int32)
    log_p = tf.constant([[0.0] + [-INFINITY] * (beam_size - 1)])
    return Beams(
        alive_ids=nothing,
        alive_log_p=tf.tile(log_p, [batch, 1]),
        visible=tf.zeros([batch, beam_size, 0], tf.bool),
        finished_ids=nothing,
        finished_scores=tf.fill([batch, beam_size], -INFINITY),
        finished=tf.zeros([batch, beam_size], tf.bool),
    )


def best_possible(beams: Beams, limits, alpha):
    """The best score [b] that an alive hypothesis can still end with: at the limit [b], as it is."""
    return beams.alive_log_p[:, 0] / length_penalty(limits, alpha)


def results(beams: Beams):
    """The ids [b, K, i + 1] of what was found, and its scores [b, K]."""
    any_finished = tf.reduce_any(beams.finished, axis=1)
    ids = tf.where(any_finished[:, None, None], beams.finished_ids, beams.alive_ids)
    return ids, tf.where(any_finished[:, None], beams.finished_scores, beams.alive_log_p)


def next_logits(model, beams: Beams, i, caches, source, kernels):
    """The logits [b, K, V] of token number i, and what they leave behind.

    Returns:
        `beams`, whose hypotheses now see keys of their own too, logits, grown caches.
    """
    batch, beam_size = tf.shape(beams.alive_log_p)[0], beams.alive_log_p.shape[1]
    own = tf.tile(tf.eye(beam_size, dtype=tf.bool)[None], [batch, 1, 1])
    beams = beams._replace(visible=tf.concat([beams.visible, own], 2))
    last = beams.alive_ids[:, :, -1]
    logits, caches = model.decode_step(last, i, caches, source, beams.visible, kernels)
    return beams, logits, caches


def prune(beams: Beams, caches):
    """Takes out of the caches what no alive hypothesis of a sentence sees.

    Hypotheses soon have most of their past in common, so that few keys stay. All sentences keep
    as many, the most that one needs.
    """
    seen = tf.reduce_any(beams.visible, axis=1)  # [b, S]
    number = tf.reduce_max(tf.math.count_nonzero(seen, axis=1, dtype=tf.int32))
    kept = tf.argsort(tf.cast(~seen, tf.int32), stable=True)[:, :number]
    visible, caches = tf.nest.map_structure(
        lambda tensor: tf.gather(tensor, kept, axis=2, batch_dims=1), (beams.visible, caches)
    )
    return beams._replace(visible=visible), caches


def advance(beams: Beams, i, logits, alpha, forced=None, min_length: int = 0) -> Beams:
    """Chooses token number i of every hypothesis from its logits [b, K, V].

    Args:
        forced: [b] int32, tokens that must come next; 0 where any may.
    """
    beam_size = beams.alive_log_p.shape[1]
    origin, token, scores = ranked(beams, i, logits, alpha, forced, min_length)
    ids = tf.concat([_gather(beams.alive_ids, origin), token[:, :, None]], 2)  # [b, 2K, i + 2]
    ends = token == EOS_ID

    alive_scores = scores + tf.where(ends, -INFINITY, 0.0)
    _, kept = tf.math.top_k(alive_scores, beam_size)  # [b, K]

    all_scores = tf.concat([beams.finished_scores, scores + tf.where(ends, 0.0, -INFINITY)], 1)
    all_ids = tf.concat([tf.pad(beams.finished_ids, [[0, 0], [0, 0], [0, 1]]), ids], 1)
    finished_scores, best = tf.math.top_k(all_scores, beam_size)  # of [b, 3K]
    return Beams(
        alive_ids=_gather(ids, kept),
        alive_log_p=_gather(scores * length_penalty(i + 1, alpha), kept),
        visible=_gather(beams.visible, _gather(origin, kept)),
        finished_ids=_gather(all_ids, best),
        finished_scores=finished_scores,
        finished=_gather(tf.concat([beams.finished, ends], 1), best),
    )


def ranked(beams: Beams, i, logits, alpha, forced, min_length: int):
    """The 2K best of what the K hypotheses can become by token number i, best first.

    Even if K of them end here, K stay alive.

    Returns:
        [b, 2K] each: the hypothesis that it goes on from, the token, and the score.
    """
    beam_size = beams.alive_log_p.shape[1]
    tokens, log_p = candidates(logits, beam_size, i, forced, min_length)  # [b, K, n]
    number = log_p.shape[2]
    summed = log_p + beams.alive_log_p[:, :, None]
    flat = tf.reshape(summed / length_penalty(i + 1, alpha), [-1, beam_size * number])
    scores, chosen = tf.math.top_k(flat, 2 * beam_size)
    return chosen // number, _gather(tf.reshape(tokens, [-1, beam_size * number]), chosen), scores


def candidates(logits, beam_size: int, i, forced, min_length: int):
    """The 2K likeliest tokens of every hypothesis (or a few more): [b, K, n], and their log p.

    More cannot be among the 2K best of a sentence, so that only these few are ever normalised and
    compared. They stand in the order of the vocabulary, which decides among equals as in T2T.
    """
    # One more, where the end of sentence may not be among them.
    best, tokens, normaliser = likeliest(logits, 2 * beam_size + bool(min_length))
    if min_length:
        best = tf.where((tokens == EOS_ID) & (i < min_length), -INFINITY, best)
    order = tf.argsort(tokens)
    tokens = tf.gather(tokens, order, batch_dims=2)
    log_p = tf.gather(best, order, batch_dims=2) - normaliser
    if forced is not None:
        first = tf.range(tokens.shape[2]) == 0
        free = (forced == PAD_ID)[:, None, None]
        tokens = tf.where(free, tokens, tf.where(first, forced[:, None, None], PAD_ID))
        log_p = tf.where(free, log_p, tf.where(first, 0.0, NOT_FORCED))
    return tokens, log_p


def _gather(values, index):
    """values [b, N, ...] at index [b, M] -> [b, M, ...]."""
    return tf.gather(values, index, axis=1, batch_dims=1)


def _invariants(search: Search) -> Search:
    """Sentences leave (axis 0), ids grow (2), and so do caches (2) and nothing of the source."""
    live = search.live
    return Search(
        i=tf.TensorShape([]),
        live=open_shapes(live, 0)._replace(
            beams=open_shapes(live.beams, 0, 2), caches=open_shapes(live.caches, 0, 2)
        ),
        ids=search.ids.shape,
        scores=search.scores.shape,
    )


# ----------------------------------------------------------------------------
# The likeliest tokens of a large vocabulary, without passes over all of its logits.


def likeliest(logits, number: int):
    """Returns the best tokens of logits [b, K, V], and what normalises these.

    The maxima of blocks of tokens serve both: the best tokens stand in the blocks of the best
    maxima, and the largest of these maxima is taken off before the exponentials.

    Returns:
        values and tokens [b, K, number] (V, if that is less), best first, of equal ones the first
        of the vocabulary, and the logarithms of the sums of exponentials [b, K, 1].
    """
    hypotheses, vocab_size = logits.shape[1:]
    if vocab_size % BLOCK or vocab_size // BLOCK <= number:
        normaliser = tf.reduce_logsumexp(logits, -1, keepdims=True)
        return *tf.math.top_k(logits, min(number, vocab_size)), normaliser
    blocks = tf.reshape(logits, [-1, hypotheses, vocab_size // BLOCK, BLOCK])
    maxima = tf.reduce_max(blocks, -1)  # [b, K, V / BLOCK]
    largest = tf.reduce_max(maxima, -1, keepdims=True)
    sums = tf.reduce_sum(tf.exp(logits - largest), -1, keepdims=True)
    # In the order of the vocabulary, for `top_k` to find the first of equal ones.
    chosen = tf.sort(tf.math.top_k(maxima, number).indices)
    few = tf.reshape(tf.gather(blocks, chosen, batch_dims=2), [-1, hypotheses, number * BLOCK])
    values, places = tf.math.top_k(few, number)
    tokens = tf.gather(chosen, places // BLOCK, batch_dims=2) * BLOCK + places % BLOCK
    return values, tokens, largest + tf.math.log(sums)
