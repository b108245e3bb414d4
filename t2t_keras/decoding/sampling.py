"""Outputs drawn at random, as likely as the model says they are."""

from __future__ import annotations

import tensorflow as tf

from t2t_keras.decoding.single import follow
from t2t_keras.decoding.state import as_ids, output_limits
from t2t_keras.errors import UserError
from t2t_keras.open_graph import open_graph_of_model


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
