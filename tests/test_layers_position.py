"""Sinusoids in T2T's form and in the paper's, and learned positions."""

import math

import numpy as np
import pytest
from layer_checks import random_tensor

from t2t_keras.layers import PositionEncoding, timing_signal

X = random_tensor(2, 5, 8)


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


def formula_of_the_paper(position, channels):
    """Returns the sinusoids of section 3.5, channel by channel."""
    row = []
    for channel in range(channels):
        i = channel // 2
        angle = position / 10000 ** (2 * i / channels)
        row.append(math.sin(angle) if channel == 2 * i else math.cos(angle))
    return row


@pytest.mark.parametrize("channels", [1, 2, 3, 8, 15, 512])
def test_the_formula_of_the_paper(channels):
    wanted = [formula_of_the_paper(position, channels) for position in range(3, 9)]
    signal = timing_signal(6, channels, start=3, kind="timing_paper")
    assert signal.dtype == "float32"
    np.testing.assert_allclose(signal, wanted, rtol=1e-5, atol=1e-6)


def test_t2ts_frequencies_are_others_than_the_papers():
    """They differ by up to 3.5 % with 512 channels, in whatever order the channels stand."""
    i = np.arange(256)
    paper, t2t = 1e4 ** -(2 * i / 512), 1e4 ** -(i / 255)
    assert np.max(1 - t2t / paper) == pytest.approx(0.0353, abs=1e-4)
    np.testing.assert_allclose(timing_signal(2, 512)[1, :256], np.sin(t2t), rtol=1e-4)
    ours = timing_signal(2, 512, kind="timing_paper")[1, ::2]
    np.testing.assert_allclose(ours, np.sin(paper), rtol=1e-4)


def test_far_positions():
    """Float32 holds an angle of 2000 to 1e-4."""
    position, half = 2000, 256
    scales = 1e4 ** (np.arange(half) / (half - 1))
    wanted = np.concatenate([np.sin(position / scales), np.cos(position / scales)])
    np.testing.assert_allclose(timing_signal(2001, 512)[-1], wanted, atol=5e-4)
    wanted = formula_of_the_paper(position, 512)
    np.testing.assert_allclose(timing_signal(2001, 512, kind="timing_paper")[-1], wanted, atol=5e-4)


@pytest.mark.parametrize(
    "settings", [{}, {"kind": "timing_paper"}, {"kind": "emb", "max_length": 4}]
)
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
    "settings", [{}, {"kind": "timing_paper"}, {"kind": "emb", "max_length": 3}]
)
def test_given_positions(settings):
    x = random_tensor(2, 5, 7)
    position = np.array([[0, 1, 2, 0, 1], [4, 3, 0, 0, 0]])
    layer = PositionEncoding(**settings)
    straight = np.asarray(layer(np.zeros((1, 5, 7), "float32")))[0]
    np.testing.assert_allclose(layer(x, position=position), x + straight[position], atol=1e-6)
