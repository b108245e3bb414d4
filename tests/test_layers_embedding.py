"""The table that embeds tokens and predicts them."""

import keras
import numpy as np
import pytest
from layer_checks import check_layer, random_tensor

from t2t_keras.layers import SharedEmbedding

IDS = np.array([[3, 1, 0], [0, 6, 2]], "int32")


@pytest.mark.parametrize("scale", [True, False])
def test_contract(scale, tmp_path):
    settings = {"vocab_size": 7, "hidden_size": 4, "scale_by_sqrt_depth": scale}
    check_layer(SharedEmbedding, settings, (IDS,), weights=1, tmp_path=tmp_path)


@pytest.mark.parametrize(("scale", "factor"), [(True, 2.0), (False, 1.0)])
def test_lookup_and_logits(scale, factor):
    layer = SharedEmbedding(vocab_size=7, hidden_size=4, scale_by_sqrt_depth=scale)
    embedded = np.asarray(layer(IDS))
    table = np.asarray(layer.table)
    np.testing.assert_allclose(embedded[0, 0], factor * table[3], rtol=1e-6)
    assert (embedded[IDS == 0] == 0).all()
    x = random_tensor(2, 3, 4)
    np.testing.assert_allclose(layer.logits(x), x @ table.T, rtol=1e-5)
    np.testing.assert_array_equal(layer(x, reverse=True), layer.logits(x))


@pytest.mark.parametrize(
    "dtype", ["int32", "float32"]
)  # Keras makes the ids of a `Sequential` floats
def test_carries_a_mask(dtype):
    layer = SharedEmbedding(vocab_size=7, hidden_size=4)
    np.testing.assert_array_equal(layer.compute_mask(IDS.astype(dtype)), IDS != 0)
    x = random_tensor(2, 3, 4)
    np.testing.assert_array_equal(layer.compute_mask(x, IDS != 0), IDS != 0)


def test_functional_softmax():
    layer = SharedEmbedding(vocab_size=7, hidden_size=4)
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, layer(layer(ids), reverse=True))
    assert model.output_shape == (None, None, 7)
    np.testing.assert_array_equal(model(IDS), layer.logits(layer(IDS)))


def test_padding_gets_no_gradient():
    import tensorflow as tf

    layer = SharedEmbedding(vocab_size=7, hidden_size=4)
    layer.build()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(IDS))
    gradient = tf.convert_to_tensor(tape.gradient(loss, layer.table.value))
    np.testing.assert_allclose(gradient[:, 0], [0, 2, 2, 2, 0, 0, 2])


def test_start():
    keras.utils.set_random_seed(0)
    layer = SharedEmbedding(vocab_size=1000, hidden_size=64)
    layer.build()
    assert np.std(layer.table) == pytest.approx(1 / 8, rel=0.02)
    assert np.mean(layer.table) == pytest.approx(0, abs=0.005)
