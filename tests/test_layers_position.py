"""Sinusoids in T2T's form, and learned positions."""

import math

import numpy as np
import pytest
from layer_checks import check_layer, random_tensor

from t2t_keras.layers import PositionEncoding, timing_signal

X = random_tensor(2, 5, 8)


@pytest.mark.parametrize(
    ("settings", "weights"),
    [
        ({}, 0),
        ({"kind": "emb", "max_length": 9}, 1),
        ({"kind": "emb", "max_length": 3}, 1),
    ],
)
def test_contract(settings, weights, tmp_path):
    check_layer(PositionEncoding, settings, (X,), weights=weights, tmp_path=tmp_path)


def test_timing_signal_by_hand():
    """Four timescales from 1 to 1e4, sines then cosines; position 3."""
    scales = [1, 1e4 ** (1 / 3), 1e4 ** (2 / 3), 1e4]
    wanted = [math.sin(3 / s) for s in scales] + [math.cos(3 / s) for s in scales]
    np.testing.assert_allclose(timing_signal(4, 8)[3], wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("channels", "wanted"),
    [
        (1, [0]),
        (2, [math.sin(1), math.cos(1)]),
        (3, [math.sin(1), math.cos(1), 0]),
        (5, [math.sin(1), math.sin(1e-4), math.cos(1), math.cos(1e-4), 0]),
    ],
)
def test_few_and_odd_channels(channels, wanted):
    np.testing.assert_allclose(timing_signal(2, channels)[1], wanted, rtol=1e-5, atol=1e-7)


def test_far_positions():
    """Float32 holds an angle of 2000 to 1e-4."""
    position, half = 2000, 256
    scales = 1e4 ** (np.arange(half) / (half - 1))
    wanted = np.concatenate([np.sin(position / scales), np.cos(position / scales)])
    np.testing.assert_allclose(timing_signal(2001, 512)[-1], wanted, atol=5e-4)


@pytest.mark.parametrize("settings", [{}, {"kind": "emb", "max_length": 4}])
def test_start_continues(settings):
    layer = PositionEncoding(**settings)
    whole = np.asarray(layer(X))
    for i in range(5):
        np.testing.assert_allclose(layer(X[:, i : i + 1], start=i)[:, 0], whole[:, i], atol=1e-6)


def test_past_the_table_nothing_is_added():
    layer = PositionEncoding(kind="emb", max_length=3)
    output = np.asarray(layer(X))
    np.testing.assert_allclose(output[:, :3], X[:, :3] + np.asarray(layer.table), rtol=1e-6)
    np.testing.assert_array_equal(output[:, 3:], X[:, 3:])


def test_a_mask_passes_through():
    from t2t_keras.layers import MultiHeadAttention, SharedEmbedding

    embedded = SharedEmbedding(vocab_size=7, hidden_size=8)(np.array([[3, 1, 0]]))
    x = PositionEncoding()(embedded)
    _, weights = MultiHeadAttention(num_heads=1)(x, return_attention_weights=True)
    assert (np.asarray(weights)[..., 2] == 0).all()


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"kind": "sine"}, "'timing' or 'emb', got 'sine'"),
        ({"kind": "emb"}, "max_length of 1 or more, got 0"),
    ],
)
def test_wrong_settings(settings, wanted):
    with pytest.raises(ValueError, match=wanted):
        PositionEncoding(**settings)
