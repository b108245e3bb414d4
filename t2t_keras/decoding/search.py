"""Greedy and sampled decoding, and what they share with beam search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.errors import UserError
from t2t_keras.ids import EOS_ID, PAD_ID
from t2t_keras.open_graph import open_graph_of_model

# ----------------------------------------------------------------------------
# What all searches share: limits of length, sentences that are done, ids in and out.


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


# ----------------------------------------------------------------------------
# Searches that follow one hypothesis a sentence.


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


# ----------------------------------------------------------------------------
# Greedy search: the likeliest token at every step.


def greedy(
    model, inputs, *, extra_length: int = 100, max_lengths=None, min_length: int = 0, prefix=None
):
    """Decodes by taking the likeliest token at every step: T2T's `_greedy_infer`.

    Args:
        model: a `Transformer` or an `Ensemble`.
        inputs: [B, S] source ids with their end of sentence, padded with 0.
        extra_length: at most S + extra_length tokens come out, S with padding.
        max_lengths: [B] int, the most tokens of each output, instead of S + extra_length.
        min_length: tokens that must stand before the end of sentence.
        prefix: [B, P] int, padded with 0: the tokens that outputs begin with, at no cost.

    Returns:
        ids [B, L] int32, 0 after the first end of sentence, and scores [B] float32: the sum of
        the log-probabilities up to and including it.
    """
    inputs = as_ids(inputs)
    limits = output_limits(inputs, extra_length, max_lengths)
    return _greedy(model, inputs, limits, None if prefix is None else as_ids(prefix), min_length)


@open_graph_of_model
def _greedy(model, inputs, limits, prefix, min_length: int):
    def likeliest(logits, rows, i):
        return tf.argmax(logits, -1, tf.int32)

    return follow(model, inputs, limits, prefix, min_length, likeliest)


# ----------------------------------------------------------------------------
# Outputs drawn at random, as likely as the model says they are.


def sample(
    model,
    inputs,
    *,
    seed: int,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    extra_length: int = 100,
    max_lengths=None,
    min_length: int = 0,
    prefix=None,
):
    """Draws every token from the model's distribution (T2T's `sampling_method` "random").

    The same seed draws the same for a sentence at the same place of the batch.

    Args:
        model: a `Transformer` or an `Ensemble`.
        inputs: [B, S] source ids with their end of sentence, padded with 0.
        seed: an int or a scalar int tensor.
        temperature: logits are divided by it (T2T's `sampling_temp`); below 1: likelier tokens.
        top_k: draw among that many likeliest tokens (T2T's `sampling_keep_top_k`); 0: among all.
        top_p: draw among the likeliest tokens that reach this probability together; 1: among all.
        extra_length: at most S + extra_length tokens come out, S with padding.
        max_lengths: [B] int, the most tokens of each output, instead of S + extra_length.
        min_length: tokens that must stand before the end of sentence.
        prefix: [B, P] int, padded with 0: the tokens that outputs begin with, at no cost.

    Returns:
        ids [B, L] int32, 0 after the first end of sentence, and scores [B] float32: the model's
        log-probability of each, whatever temperature and choice it was drawn by.

    Raises:
        UserError: `temperature`, `top_k` or `top_p` is out of range.
    """
    if temperature <= 0:
        raise UserError(f"temperature must be more than 0, got {temperature}.")
    if top_k < 0:
        raise UserError(f"top_k must be 0 or more, got {top_k}.")
    if not 0 < top_p <= 1:
        raise UserError(f"top_p must be in (0, 1], got {top_p}.")
    inputs = as_ids(inputs)
    return _sample(
        model,
        inputs,
        output_limits(inputs, extra_length, max_lengths),
        None if prefix is None else as_ids(prefix),
        tf.cast(seed, tf.int64),
        tf.cast(temperature, tf.float32),
        top_k,
        None if top_p == 1 else tf.cast(top_p, tf.float32),
        min_length,
    )


@open_graph_of_model
def _sample(model, inputs, limits, prefix, seed, temperature, top_k: int, top_p, min_length: int):
    batch = tf.shape(inputs)[0]

    def draw(logits, rows, i):
        logits = keep_likeliest(logits / temperature, top_k, top_p)
        # Gumbel's noise on the logits makes the largest one a draw from their softmax. It is made
        # for the whole batch, so that who has left changes nothing for the others.
        uniform = tf.random.stateless_uniform(
            [batch, logits.shape[-1]], tf.stack([seed, tf.cast(i, tf.int64)]), minval=1e-20
        )
        noise = -tf.math.log(-tf.math.log(tf.gather(uniform, rows)))
        return tf.argmax(logits + noise, -1, tf.int32)

    return follow(model, inputs, limits, prefix, min_length, draw)


def keep_likeliest(logits, top_k: int, top_p):
    """Makes all but the likeliest tokens impossible: those of `sample`'s top_k and top_p.

    Logits [b, V] that were divided by a low temperature reach far: below any fixed -INFINITY.
    """
    vocab_size = logits.shape[-1]
    if top_k and top_k < vocab_size:
        least = tf.math.top_k(logits, top_k).values[:, -1:]
        logits = tf.where(logits < least, tf.float32.min, logits)
    if top_p is not None:
        ordered = tf.math.top_k(logits, vocab_size).values
        p = tf.nn.softmax(ordered)
        before = tf.cumsum(p, axis=-1, exclusive=True)  # the likeliest token always stays
        least = tf.reduce_min(tf.where(before < top_p, ordered, tf.float32.max), -1, keepdims=True)
        logits = tf.where(logits < least, tf.float32.min, logits)
    return logits
