"""Encoder layer and encoder stack."""

import keras
import numpy as np
import pytest
from layer_checks import assert_same, random_tensor

from t2t_keras.layers import (
    AttentionMask,
    MultiHeadAttention,
    SharedEmbedding,
    TransformerEncoder,
    TransformerEncoderLayer,
    proximity_bias,
)

X = random_tensor(2, 5, 8)
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], bool)
SMALL = {"num_heads": 2, "filter_size": 12}
POSTNORM = {"preprocess_sequence": "none", "postprocess_sequence": "dan"}


def test_attention_weights_of_every_layer():
    encoder = TransformerEncoder(num_layers=3, **SMALL)
    _, weights = encoder(X, mask=MASK, return_attention_weights=True)
    assert [w.shape for w in weights] == [(2, 2, 5, 5)] * 3
    for layer in weights:
        np.testing.assert_allclose(np.sum(layer, -1), 1, rtol=1e-5)
        assert (np.asarray(layer).transpose(0, 3, 1, 2)[~MASK] == 0).all()


@pytest.mark.parametrize(
    "embedding",
    [
        keras.layers.Embedding(9, 8, mask_zero=True),
        SharedEmbedding(vocab_size=9, hidden_size=8),
    ],
)
@pytest.mark.parametrize(
    "layer",
    [
        lambda: TransformerEncoder(num_layers=2, remove_padding=True, **SMALL),
        lambda: TransformerEncoderLayer(**SMALL),
    ],
)
def test_an_implicit_mask_equals_an_explicit_one(embedding, layer):
    ids = np.array([[3, 4, 5, 0, 0], [1, 2, 6, 7, 8]])
    layer = layer()
    carried = embedding(ids)
    bare = np.asarray(carried)
    assert_same(layer(carried), layer(bare, mask=ids != 0), atol=1e-6)
    assert np.abs(np.asarray(layer(bare)) - np.asarray(layer(carried))).max() > 1e-4


def test_padding_does_not_reach_tokens():
    encoder = TransformerEncoder(num_layers=2, **SMALL)
    other = np.where(MASK[..., None], X, 100).astype("float32")
    ours, theirs = (np.asarray(encoder(x, mask=MASK)) for x in (X, other))
    np.testing.assert_allclose(ours[MASK], theirs[MASK], atol=1e-5)


def test_remove_padding_zeroes_the_feed_forward_output_there():
    settings = {**SMALL, "num_layers": 1, **POSTNORM, "postprocess_sequence": "a"}
    kept = TransformerEncoder(**settings)
    removed = TransformerEncoder(**settings, remove_padding=True)
    kept(X), removed(X)
    for variable in kept.trainable_variables:
        variable.assign(variable + 0.1)  # biases too
    removed.set_weights(kept.get_weights())
    ours, theirs = (np.asarray(encoder(X, mask=MASK)) for encoder in (removed, kept))
    np.testing.assert_allclose(ours[MASK], theirs[MASK], atol=1e-5)
    attention = np.asarray(kept.layer_0.self_attention(X, mask=MASK))
    np.testing.assert_allclose(ours[~MASK], (X + attention)[~MASK], atol=1e-5)


def test_causal_sees_no_later_position():
    encoder = TransformerEncoder(num_layers=2, **SMALL)
    changed = X.copy()
    changed[:, 3:] *= -1
    ours, theirs = (np.asarray(encoder(x, causal=True)) for x in (X, changed))
    np.testing.assert_allclose(ours[:, :3], theirs[:, :3], atol=1e-6)
    assert np.abs(ours[:, 3] - theirs[:, 3]).max() > 1e-3


def test_mask_and_bias_both_count():
    layer = TransformerEncoderLayer(**SMALL)
    near = AttentionMask(keys=MASK, bias=proximity_bias(5))
    _, weights = layer(X, attention_mask=near, return_attention_weights=True)
    _, plain = layer(X, mask=MASK, return_attention_weights=True)
    assert (np.asarray(weights).transpose(0, 3, 1, 2)[~MASK] == 0).all()
    # Multiplied by 1 / (1 + distance) before the softmax.
    position = np.arange(5)
    nearness = 1 / (1 + np.abs(position[:, None] - position))
    wanted = np.asarray(plain) * nearness
    np.testing.assert_allclose(weights, wanted / wanted.sum(-1, keepdims=True), atol=1e-6)


class Uniform(MultiHeadAttention):
    def keys_and_values(self, memory):
        projected = super().keys_and_values(memory)
        return {"k": 0 * projected["k"], "v": projected["v"]}


class UniformLayer(TransformerEncoderLayer):
    def attention(self, name, relative=False):
        return Uniform.from_config(super().attention(name, relative).get_config())


class UniformEncoder(TransformerEncoder):
    layer_class = UniformLayer


def test_a_subclass_brings_its_own_attention():
    _, weights = UniformEncoder(num_layers=2, **SMALL)(X, return_attention_weights=True)
    for layer in weights:
        np.testing.assert_allclose(layer, np.full((2, 2, 5, 5), 1 / 5), rtol=1e-6)
