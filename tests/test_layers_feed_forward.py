"""The feed-forward network."""

import numpy as np
import pytest
from layer_checks import check_layer, random_tensor

from t2t_keras.layers import FeedForward

X = random_tensor(2, 5, 8)


@pytest.mark.parametrize(
    "settings",
    [{"filter_size": 12}, {"filter_size": 3, "dropout": 0.2, "dropout_broadcast_dims": (1,)}],
)
def test_contract(settings, tmp_path):
    check_layer(FeedForward, settings, (X,), weights=4, tmp_path=tmp_path)


def test_by_hand():
    layer = FeedForward(filter_size=2)
    layer.build((None, None, 1))
    layer.conv1.kernel.assign([[1, -1]])
    layer.conv1.bias.assign([0, 2])
    layer.conv2.kernel.assign([[10], [100]])
    layer.conv2.bias.assign([0.5])
    x = np.array([[[3], [-1], [0]]], "float32")  # relu: [3, 0], [0, 3], [0, 2]
    np.testing.assert_allclose(layer(x)[0, :, 0], [30.5, 300.5, 200.5])


def test_dropout_acts_between_the_matrices_in_training_only():
    layer = FeedForward(filter_size=400, dropout=0.25)
    layer.build((None, None, 1))
    layer.conv1.kernel.assign(np.ones((1, 400)))
    layer.conv2.kernel.assign(np.ones((400, 1)))
    x = np.ones((1, 1, 1), "float32")
    assert float(layer(x)[0, 0, 0]) == 400
    survivors = float(layer(x, training=True)[0, 0, 0]) * 0.75
    assert survivors == pytest.approx(round(survivors), abs=1e-3)
    assert 250 < survivors < 350  # 300 expected, standard deviation 8.7
