"""The best tokens found by blocks, beside those found among all."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.decoding.beam import likeliest


@pytest.mark.parametrize("vocab_size", [5, 64, 200, 640, 1024])
@pytest.mark.parametrize("values", [3, 1000], ids=["many equal", "few equal"])
@pytest.mark.parametrize("number", [1, 8])
def test_equals_the_best_of_all(vocab_size, values, number):
    logits = np.random.default_rng(0).integers(0, values, (3, 2, vocab_size)).astype(np.float32)
    logits *= 20 / values
    best, tokens, normaliser = likeliest(tf.constant(logits), number)
    expected = np.argsort(-logits, axis=-1, kind="stable")[..., :number]
    np.testing.assert_array_equal(tokens, expected)
    np.testing.assert_array_equal(best, np.take_along_axis(logits, expected, -1))
    np.testing.assert_array_equal(normaliser, tf.reduce_logsumexp(logits, -1, keepdims=True))


def test_what_cannot_be_chosen_is_not():
    """As with the logits that fill the last block, which are minus infinity in float16."""
    logits = np.full((1, 1, 640), -np.inf, np.float32)
    logits[..., :4] = [1, 3, 2, 3]
    best, tokens, normaliser = likeliest(tf.constant(logits), 3)
    assert tokens.numpy().tolist() == [[[1, 3, 2]]]
    assert best.numpy().tolist() == [[[3, 3, 2]]]
    np.testing.assert_allclose(normaliser, [[[np.log(np.exp([1, 3, 2, 3]).sum())]]], rtol=1e-6)
