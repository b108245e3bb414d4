"""Decoder layer and decoder stack."""

import keras
import numpy as np
import pytest
from layer_checks import assert_same, random_tensor

from t2t_keras.layers import (
    AttentionMask,
    DecoderCache,
    MultiHeadAttention,
    SharedEmbedding,
    TransformerDecoder,
    TransformerDecoderLayer,
    mask_bias,
    proximity_bias,
)

X = random_tensor(2, 5, 8)
MEMORY = random_tensor(2, 3, 8, seed=1)
MASK = np.array([[1, 1, 0], [1, 0, 0]], bool)
SMALL = {"num_heads": 2, "filter_size": 12}
POSTNORM = {"preprocess_sequence": "none", "postprocess_sequence": "dan"}


def test_attention_weights_of_every_layer():
    decoder = TransformerDecoder(num_layers=3, **SMALL)
    _, own, other = decoder(X, MEMORY, memory_mask=MASK, return_attention_weights=True)
    assert [w.shape for w in own] == [(2, 2, 5, 5)] * 3
    assert [w.shape for w in other] == [(2, 2, 5, 3)] * 3
    for layer in (*own, *other):
        np.testing.assert_allclose(np.sum(layer, -1), 1, rtol=1e-5)
    for layer in own:
        assert (np.asarray(layer)[..., ~np.tri(5, dtype=bool)] == 0).all()
    for layer in other:
        assert (np.asarray(layer).transpose(0, 3, 1, 2)[~MASK] == 0).all()


def test_causal_or_not():
    decoder = TransformerDecoder(num_layers=2, **SMALL)
    changed = X.copy()
    changed[:, 3:] *= -1
    ours, theirs = (np.asarray(decoder(x, MEMORY)) for x in (X, changed))
    np.testing.assert_allclose(ours[:, :3], theirs[:, :3], atol=1e-6)
    ours, theirs = (np.asarray(decoder(x, MEMORY, causal=False)) for x in (X, changed))
    assert np.abs(ours[:, 0] - theirs[:, 0]).max() > 1e-3


def test_the_mask_that_the_memory_carries():
    ids = np.array([[3, 4, 0], [5, 0, 0]])
    memory = SharedEmbedding(vocab_size=9, hidden_size=8)(ids)
    for layer in (TransformerDecoder(num_layers=2, **SMALL), TransformerDecoderLayer(**SMALL)):
        implicit = layer(X, memory, return_attention_weights=True)
        explicit = layer(X, np.asarray(memory), memory_mask=ids != 0, return_attention_weights=True)
        assert_same(implicit, explicit, atol=1e-6)


def test_memory_mask_and_bias_say_the_same():
    layer = TransformerDecoderLayer(**SMALL)
    by_mask = layer(X, MEMORY, memory_mask=MASK)
    by_bias = AttentionMask(bias=mask_bias(MASK))
    assert_same(layer(X, MEMORY, memory_attention_mask=by_bias), by_mask, atol=1e-6)


class OwnAttention(MultiHeadAttention):
    """A user's, whose queries have a bias and an activation."""

    def build(self, query_shape, memory_shape=None):
        super().build(query_shape, memory_shape)
        self.q = keras.layers.Dense(8, "tanh", bias_initializer="ones", name="q")
        self.q.build(query_shape)


class OwnLayer(TransformerDecoderLayer):
    """A user's, with that attention and a feed-forward network for [B, T, D] only."""

    def attention(self, name, relative=False):
        return OwnAttention.from_config(super().attention(name, relative).get_config())

    def feed_forward(self, name):
        return keras.layers.EinsumDense("btd,df->btf", (None, 8), name=name)


class OwnDecoder(TransformerDecoder):
    """A user's, with those layers."""

    layer_class = OwnLayer


@pytest.mark.parametrize(
    ("decoder_class", "settings", "near"),
    [
        (TransformerDecoder, {}, True),
        (TransformerDecoder, POSTNORM, False),
        (TransformerDecoder, {"max_relative_position": 2}, False),
        (TransformerDecoder, {"max_relative_position": 2}, True),
        (TransformerDecoder, {"key_channels": 4}, False),
        (OwnDecoder, {}, False),
    ],
)
def test_steps_give_what_the_whole_sentence_gives(decoder_class, settings, near):
    decoder = decoder_class(num_layers=2, **SMALL, **settings)
    own = AttentionMask(causal=True, bias=proximity_bias(5) if near else None)
    whole = decoder(X, MEMORY, attention_mask=own, memory_mask=MASK)
    source = {"memory": decoder.memory_caches(MEMORY), "memory_bias": mask_bias(MASK)}
    kept = decoder.empty_caches(2)
    for i in range(5):
        bias = proximity_bias(i + 1)[:, :, -1:] if near else None
        cache = DecoderCache(kept, bias=bias, joint_kernels=decoder.joint_kernels(), **source)
        step = decoder(X[:, i : i + 1], MEMORY, cache=cache)
        kept = cache.kept
        np.testing.assert_allclose(step[:, 0], whole[:, i], atol=1e-5)


@pytest.mark.parametrize("settings", [{}, {"max_relative_position": 2}])
def test_hypotheses_see_those_positions_that_the_bias_shows(settings):
    """Three hypotheses of two positions; at the second, all go on from one of the first."""
    decoder = TransformerDecoder(num_layers=2, **SMALL, **settings)
    decoder.build(X.shape, MEMORY.shape)
    first = random_tensor(2, 3, 8, seed=2)
    second = random_tensor(2, 3, 8, seed=3)
    origin = [2, 0, 2]
    source = {"memory": decoder.memory_caches(MEMORY), "memory_bias": mask_bias(MASK)}
    own = np.eye(3, dtype=bool)[None]  # each sees itself alone
    distances = np.zeros((3, 3), int), np.tile([-1] * 3 + [0] * 3, (3, 1))
    cache = DecoderCache(
        decoder.empty_caches(2), bias=mask_bias(own), distance=distances[0], **source
    )
    decoder(first, MEMORY, cache=cache)
    seen = np.concatenate([own[:, origin], own], 2)  # [1, 3, 6]
    cache = DecoderCache(cache.kept, bias=mask_bias(seen), distance=distances[1], **source)
    together = decoder(second, MEMORY, cache=cache)
    for k in range(3):
        alone = np.stack([first[:, origin[k]], second[:, k]], 1)  # [B, T, D]
        whole = decoder(alone, MEMORY, memory_mask=MASK)
        np.testing.assert_allclose(together[:, k], whole[:, 1], atol=1e-5)
