"""The likeliest tokens of a large vocabulary, without passes over all of its logits."""

from __future__ import annotations

import tensorflow as tf

from t2t_keras.layers.embedding import BLOCK


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
