"""Attention masks and the biases of them, written out."""

import keras
import numpy as np
import pytest
from layer_checks import assert_same, random_tensor

from t2t_keras.layers import (
    AttentionMask,
    MultiHeadAttention,
    causal_bias,
    mask_bias,
    proximity_bias,
    segment_bias,
)

NO = -1e9
A, B = -np.log(2), -np.log(3)
SEGMENTS, KEY_SEGMENTS = np.array([[1, 2, 0]]), np.array([[1, 1, 2, 0]])
THREE = np.zeros((1, 3, 8), "float32")


@pytest.mark.parametrize(
    ("bias", "wanted"),
    [
        (lambda: mask_bias(np.array([[True, False], [True, True]])), [[[[0, NO]]], [[[0, 0]]]]),
        (lambda: mask_bias(np.array([[[1, 0, 1], [0, 0, 1]]])), [[[[0, NO, 0], [NO, NO, 0]]]]),
        (lambda: causal_bias(3), [[[[0, NO, NO], [0, 0, NO], [0, 0, 0]]]]),
        (lambda: proximity_bias(3), [[[[0, A, B], [A, 0, A], [B, A, 0]]]]),
        (lambda: segment_bias(SEGMENTS), [[[[0, NO, NO], [NO, 0, NO], [NO, NO, 0]]]]),
        (
            lambda: segment_bias(SEGMENTS, KEY_SEGMENTS),
            [[[[0, 0, NO, NO], [NO, NO, 0, NO], [NO, NO, NO, 0]]]],
        ),
    ],
)
def test_biases(bias, wanted):
    np.testing.assert_allclose(bias(), wanted, rtol=1e-6)
    assert bias().dtype == "float32"


@pytest.mark.parametrize(
    ("mask", "wanted"),
    [
        (AttentionMask(keys=np.array([[1, 1, 0]])), [[0, 0, NO]]),
        (AttentionMask(causal=True), [[0, NO, NO], [0, 0, NO], [0, 0, 0]]),
        (AttentionMask(proximity=True), [[0, A, B], [A, 0, A], [B, A, 0]]),
        (
            AttentionMask(segments=SEGMENTS, keys=np.array([[0, 0, 0]])),
            [[0, NO, NO], [NO, 0, NO], [NO, NO, 0]],
        ),
        (
            AttentionMask(proximity=True, causal=True, distance=np.array([[-2, 0, 1]])),
            [[B, 0, A + NO]],
        ),
        (
            AttentionMask(causal=True, keys=np.array([[0, 1, 1]]), bias=np.ones((1, 1, 1, 3))),
            [[1 + NO, 1 + NO, 1 + NO], [1 + NO, 1, 1 + NO], [1 + NO, 1, 1]],
        ),
    ],
)
def test_the_bias_of_a_mask(mask, wanted):
    assert mask
    bias = np.asarray(mask.dense_bias(THREE, THREE))
    np.testing.assert_allclose(bias.reshape(bias.shape[-2:]), wanted, rtol=1e-6)


def test_an_empty_mask():
    for mask in (AttentionMask(), AttentionMask(causal=False)):
        assert mask.dense_bias(THREE, THREE) is None


def test_functional_models_save_a_mask_without_tensors(tmp_path):
    mask, x = AttentionMask(causal=True, proximity=True), keras.Input((5, 8))
    model = keras.Model(x, MultiHeadAttention(num_heads=2)(x, attention_mask=mask))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    values = random_tensor(2, 5, 8)
    assert_same(again(values), model(values), atol=1e-6)
    assert AttentionMask.from_config(mask.get_config()) == mask
    with pytest.raises(ValueError, match=r"AttentionMask with tensors \(keys\) cannot be saved"):
        AttentionMask(keys=SEGMENTS).get_config()


def test_attention_makes_its_bias_of_a_mask_once():
    x, layer = random_tensor(2, 5, 8), MultiHeadAttention(num_heads=2)
    wanted = layer(
        x,
        attention_mask=AttentionMask(bias=causal_bias(5) + proximity_bias(5)),
        return_attention_weights=True,
    )
    mask = AttentionMask(causal=True, proximity=True)
    prepared = layer.prepare(mask, x)
    assert layer.prepare(prepared, x) is prepared
    for each in (mask, prepared):
        ours = layer(x, attention_mask=each, return_attention_weights=True)
        assert_same(ours, wanted, atol=1e-7)
