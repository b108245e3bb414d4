"""The letters n, d, a before and after a sub-layer."""

import numpy as np
import pytest
from layer_checks import check_layer, random_tensor

from t2t_keras.layers import PrePostProcess

X = random_tensor(2, 5, 8)
RESIDUAL = random_tensor(2, 5, 8, seed=1)


@pytest.mark.parametrize(
    ("settings", "inputs", "weights"),
    [
        ({"sequence": "n"}, (X,), 2),
        ({"sequence": "none"}, (X,), 0),
        ({"sequence": "dan", "dropout": 0.1, "norm_epsilon": 1e-3}, (X, RESIDUAL), 2),
        (
            {"sequence": "da", "dropout": 0.1, "dropout_broadcast_dims": (1,)},
            (X, RESIDUAL),
            0,
        ),
    ],
)
def test_contract(settings, inputs, weights, tmp_path):
    check_layer(PrePostProcess, settings, inputs, weights=weights, tmp_path=tmp_path)


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


@pytest.mark.parametrize("sequence", ["x", "nn", "nad n", "None"])
def test_wrong_sequence(sequence):
    with pytest.raises(ValueError, match=f"of the letters n, d, a .* got '{sequence}'"):
        PrePostProcess(sequence=sequence)


def test_residual_needed():
    with pytest.raises(ValueError, match="adds a residual, and none was given"):
        PrePostProcess(sequence="da")(X)
