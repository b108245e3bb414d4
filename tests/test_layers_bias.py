"""Attention biases, written out."""

import numpy as np

from t2t_keras.layers import causal_bias, mask_bias, proximity_bias

NO = -1e9


def test_mask_of_keys():
    bias = mask_bias(np.array([[True, False], [True, True]]))
    np.testing.assert_array_equal(bias, [[[[0, NO]]], [[[0, 0]]]])
    assert bias.dtype == "float32"


def test_mask_of_keys_for_each_query():
    bias = mask_bias(np.array([[[1, 0, 1], [0, 0, 1]]]))
    np.testing.assert_array_equal(bias, [[[[0, NO, 0], [NO, NO, 0]]]])


def test_causal():
    np.testing.assert_array_equal(causal_bias(3), [[[[0, NO, NO], [0, 0, NO], [0, 0, 0]]]])


def test_proximity():
    a, b = -np.log(2), -np.log(3)
    np.testing.assert_allclose(proximity_bias(3), [[[[0, a, b], [a, 0, a], [b, a, 0]]]], rtol=1e-6)
