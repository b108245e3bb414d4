"""The feed-forward network, and the letters n, d, a before and after a sub-layer."""

import numpy as np
import pytest
from layer_checks import random_tensor

from t2t_keras.layers import FeedForward, PrePostProcess

X = random_tensor(2, 5, 8)
RESIDUAL = random_tensor(2, 5, 8, seed=1)


def test_feed_forward_by_hand():
    layer = FeedForward(filter_size=2)
    layer.build((None, None, 1))
    layer.conv1.kernel.assign([[1, -1]])
    layer.conv1.bias.assign([0, 2])
    layer.conv2.kernel.assign([[10], [100]])
    layer.conv2.bias.assign([0.5])
    x = np.array([[[3], [-1], [0]]], "float32")  # relu: [3, 0], [0, 3], [0, 2]
    np.testing.assert_allclose(layer(x)[0, :, 0], [30.5, 300.5, 200.5])


def test_feed_forward_dropout_acts_between_the_matrices_in_training_only():
    layer = FeedForward(filter_size=400, dropout=0.25)
    layer.build((None, None, 1))
    layer.conv1.kernel.assign(np.ones((1, 400)))
    layer.conv2.kernel.assign(np.ones((400, 1)))
    x = np.ones((1, 1, 1), "float32")
    assert float(layer(x)[0, 0, 0]) == 400
    survivors = float(layer(x, training=True)[0, 0, 0]) * 0.75
    assert survivors == pytest.approx(round(survivors), abs=1e-3)
    assert 250 < survivors < 350  # 300 expected, standard deviation 8.7


def normalised(x, epsilon=1e-6):
    x = x.astype(float)
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)


@pytest.mark.parametrize(
    ("sequence", "wanted"),
    [
        ("none", X),
        ("", X),
        ("n", normalised(X)),
        ("a", X + RESIDUAL),
        ("dan", normalised(X + RESIDUAL)),
        ("na", normalised(X) + RESIDUAL),
        ("nda", normalised(X) + RESIDUAL),
        ("aa", X + 2 * RESIDUAL),
    ],
)
def test_letters_in_order(sequence, wanted):
    output = PrePostProcess(sequence=sequence, dropout=0.5)(X, RESIDUAL)
    np.testing.assert_allclose(output, wanted, atol=1e-5)


def test_epsilon_is_added_to_the_variance():
    x = np.array([[[1e-3, -1e-3]]], "float32")  # variance 1e-6
    output = PrePostProcess(sequence="n")(x)
    np.testing.assert_allclose(output[0, 0], [0.5**0.5, -(0.5**0.5)], rtol=1e-5)


def test_dropout_spares_the_residual():
    output = np.asarray(PrePostProcess(sequence="da", dropout=0.5)(X, RESIDUAL, training=True))
    dropped = np.isclose(output, RESIDUAL)
    np.testing.assert_allclose(output[~dropped], (2 * X + RESIDUAL)[~dropped], rtol=1e-5)
    assert 20 < dropped.sum() < 60  # of 80
