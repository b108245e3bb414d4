"""Greedy search: the likeliest token at every step."""

from __future__ import annotations

import tensorflow as tf

from t2t_keras.decoding.single import follow
from t2t_keras.decoding.state import as_ids, output_limits
from t2t_keras.open_graph import open_graph_of_model


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
