"""Searches that follow one hypothesis a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.decoding.state import (
    clear_after_eos,
    forced_ids,
    gather_rows,
    longest_output,
    not_too_early,
    open_shapes,
    put_rows,
    time_to_leave,
)
from t2t_keras.ids import EOS_ID, PAD_ID

Choose = Callable[[Any, Any, Any], Any]
"""`choose(logits, rows, i)`: tokens [b] int32 from logits [b, V] of the sentences `rows` [b]."""


class Live(NamedTuple):
    """All that is kept of the sentences still followed."""

    rows: Any  # [b] int32, their places in the batch
    ids: Any  # [b, i + 1] int32, a first 0 before the tokens chosen
    score: Any  # [b] float32, sum of log-probabilities up to the end of sentence
    ended: Any  # [b] bool
    caches: list[dict[str, Any]]  # per layer {"k", "v"}: [b, H, i, C]
    source: Any  # of `model.encode_source`
    limits: Any  # [b] int32, the most tokens
    forced: Any  # [b, longest] int32, tokens to choose, 0 where free; () if all are


class Search(NamedTuple):
    """The state of the loop."""

    i: Any  # scalar int32, tokens chosen
    live: Live
    ids: Any  # [B, longest] int32, results of those that have left
    scores: Any  # [B] float32


def follow(model, inputs, limits, prefix, min_length: int, choose: Choose):
    """Chooses token after token until every sentence has ended or is as long as it may be.

    Args:
        model: a `Transformer` or an `Ensemble`.
        inputs: [B, S] int32.
        limits: [B] int32, the most tokens of each output.
        prefix: [B, P] int32 or None, the tokens that outputs begin with; they cost nothing, as in T2T.
        min_length: tokens that must stand before the end of sentence.
        choose: which token comes next.

    Returns:
        ids [B, L] int32, 0 after the first end of sentence, and scores [B] float32, the model's
        log-probability of what was chosen.
    """
    batch, longest = tf.shape(inputs)[0], longest_output(limits)
    kernels = model.step_kernels()

    def step(search):
        live = search.live
        last = live.ids[:, -1][:, None]
        logits, caches = model.decode_step(
            last, search.i, live.caches, live.source, kernels=kernels
        )
        logits = logits[:, 0]  # [b, 1, V] -> [b, V]
        token = choose(not_too_early(logits, search.i, min_length), live.rows, search.i)
        log_p = tf.gather(logits, token, batch_dims=1) - tf.reduce_logsumexp(logits, -1)
        if prefix is not None:
            forced = live.forced[:, search.i]
            token = tf.where(forced == PAD_ID, token, forced)
            log_p = tf.where(forced == PAD_ID, log_p, 0.0)
        live = live._replace(
            ids=tf.concat([live.ids, token[:, None]], 1),
            score=live.score + tf.where(live.ended, 0.0, log_p),
            ended=live.ended | (token == EOS_ID),
            caches=caches,
        )
        return leave(search._replace(i=search.i + 1, live=live))

    def leave(search):
        """Takes out of the search what is done."""
        at_limit = search.i >= search.live.limits
        done = at_limit | search.live.ended
        return tf.cond(
            time_to_leave(done, at_limit), lambda: take_out(search, done), lambda: search
        )

    def take_out(search, done):
        leaving, staying = (tf.cast(tf.where(mask)[:, 0], tf.int32) for mask in (done, ~done))
        rows, ids, score = gather_rows(search.live[:3], leaving)
        return search._replace(
            live=gather_rows(search.live, staying),
            ids=put_rows(search.ids, rows, ids[:, 1:]),
            scores=tf.tensor_scatter_nd_update(search.scores, rows[:, None], score),
        )

    live = Live(
        rows=tf.range(batch),
        ids=tf.fill([batch, 1], PAD_ID),
        score=tf.zeros([batch]),
        ended=tf.zeros([batch], tf.bool),
        caches=model.empty_caches(batch),
        source=model.encode_source(inputs),
        limits=limits,
        forced=forced_ids(prefix, longest),
    )
    start = leave(
        Search(tf.constant(0), live, tf.fill([batch, longest], PAD_ID), tf.zeros([batch]))
    )
    (search,) = tf.while_loop(
        lambda search: tf.size(search.live.rows) > 0,
        lambda search: (step(search),),
        (start,),
        shape_invariants=(_invariants(start),),
    )
    return clear_after_eos(search.ids[:, : search.i]), search.scores


def _invariants(search: Search) -> Search:
    """Sentences leave (axis 0), ids grow (1), and so do caches (2)."""
    live = search.live
    return Search(
        i=tf.TensorShape([]),
        live=open_shapes(live, 0)._replace(
            ids=open_shapes(live.ids, 0, 1), caches=open_shapes(live.caches, 0, 2)
        ),
        ids=search.ids.shape,
        scores=search.scores.shape,
    )
