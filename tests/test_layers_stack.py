"""Encoder and decoder: masks, weights, caches, and parts of a user's own."""

import keras
import numpy as np
import pytest
from layer_checks import MEMORY, WITH_WEIGHTS, X, assert_same

from t2t_keras import layers

MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], bool)
MEMORY_MASK = np.array([[1, 1, 0], [1, 0, 0]], bool)
SMALL = {"num_heads": 2, "filter_size": 12}
POSTNORM = {"preprocess_sequence": "none", "postprocess_sequence": "dan"}


class OnlyMe(layers.MultiHeadAttention):
    def logit_bias(self, mask, query, keys):
        return -1e9 * (1 - np.eye(5, dtype="float32"))


class OneOfThree(layers.TransformerEncoderLayer):
    def attention(self, name):
        attention_class = OnlyMe if self.name == "layer_1" else layers.MultiHeadAttention
        return attention_class(num_heads=2, name=name)


def test_each_attention_of_a_stack_has_its_own_bias():
    encoder_class = type("Own", (layers.TransformerEncoder,), {"layer_class": OneOfThree})
    weights = np.asarray(encoder_class(num_layers=3, **SMALL)(X, **WITH_WEIGHTS)[1])
    assert [np.allclose(w, np.eye(5)) for w in weights] == [False, True, False]


@pytest.mark.parametrize(
    "embedding",
    [
        keras.layers.Embedding(9, 8, mask_zero=True),
        layers.SharedEmbedding(vocab_size=9, hidden_size=8),
    ],
)
def test_an_implicit_mask_equals_an_explicit_one(embedding):
    ids, source = np.array([[3, 4, 5, 0, 0], [1, 2, 6, 7, 8]]), np.array([[3, 4, 0], [5, 0, 0]])
    carried, memory = embedding(ids), embedding(source)
    bare, bare_memory = np.asarray(carried), np.asarray(memory)
    whole = {**SMALL, "num_layers": 2}
    encoder = layers.TransformerEncoder(remove_padding=True, **whole)
    for layer in (encoder, layers.TransformerEncoderLayer(**SMALL)):
        assert_same(layer(carried), layer(bare, mask=ids != 0), atol=1e-6)
        assert np.abs(np.asarray(layer(bare)) - np.asarray(layer(carried))).max() > 1e-4
    for layer in (layers.TransformerDecoder(**whole), layers.TransformerDecoderLayer(**SMALL)):
        explicit = layer(X, bare_memory, memory_mask=source != 0, **WITH_WEIGHTS)
        assert_same(layer(X, memory, **WITH_WEIGHTS), explicit, atol=1e-6)
        by_bias = layers.AttentionMask(bias=layers.mask_bias(source != 0))
        by_bias = layer(X, bare_memory, memory_attention_mask=by_bias, **WITH_WEIGHTS)
        assert_same(by_bias, explicit, atol=1e-6)


def test_no_token_sees_padding_nor_in_a_causal_encoder_later_tokens():
    encoder = layers.TransformerEncoder(num_layers=2, **SMALL)
    later = np.tile([False, False, False, True, True], (2, 1))
    for changed, call in ((~MASK, {"mask": MASK}), (later, {"causal": True})):
        other = np.where(changed[..., None], -X, X)
        ours, theirs = (np.asarray(encoder(x, **call)) for x in (X, other))
        np.testing.assert_allclose(ours[~changed], theirs[~changed], atol=1e-5)
        assert np.abs(ours[changed] - theirs[changed]).max() > 1e-3


SEGMENTS = np.array([[1, 1, 2, 0, 0], [1, 2, 2, 2, 3]])
PACKED = layers.AttentionMask(segments=SEGMENTS, nonpadding=MASK)


@pytest.mark.parametrize("mask", [{"mask": MASK}, {"attention_mask": PACKED}])
def test_remove_padding_zeroes_the_feed_forward_output_there(mask):
    settings = {**SMALL, "num_layers": 1, **POSTNORM, "postprocess_sequence": "a"}
    kept = layers.TransformerEncoder(**settings)
    removed = layers.TransformerEncoder(**settings, remove_padding=True)
    kept(X), removed(X)
    for variable in kept.trainable_variables:
        variable.assign(variable + 0.1)  # biases too
    removed.set_weights(kept.get_weights())
    ours, theirs = (np.asarray(encoder(X, **mask)) for encoder in (removed, kept))
    np.testing.assert_allclose(ours[MASK], theirs[MASK], atol=1e-5)
    attention = np.asarray(kept.layer_0.self_attention(X, **mask))
    np.testing.assert_allclose(ours[~MASK], (X + attention)[~MASK], atol=1e-5)


# Parts of a user's own


class Uniform(layers.MultiHeadAttention):
    def keys_and_values(self, memory):
        projected = super().keys_and_values(memory)
        return {"k": 0 * projected["k"], "v": projected["v"]}


class UniformLayer(layers.TransformerEncoderLayer):
    def attention(self, name):
        return Uniform.from_config(super().attention(name).get_config())


def test_a_subclass_brings_its_own_attention():
    _, weights = UniformLayer(**SMALL)(X, **WITH_WEIGHTS)
    np.testing.assert_allclose(weights, np.full((2, 2, 5, 5), 1 / 5), rtol=1e-6)


def test_add_loss_has_no_gradient_with_remat():
    encoder = layers.TransformerEncoder(num_layers=1, remat=True, **SMALL)
    encoder.build(X.shape)
    encoder.layer_0.ffn.activity_regularizer = keras.regularizers.L2()
    with pytest.raises(Exception, match="remat to False"):
        encoder(X, training=True)


class OwnAttention(layers.MultiHeadAttention):
    """Its queries have a bias and an activation."""

    def build(self, query_shape, memory_shape=None):
        super().build(query_shape, memory_shape)
        self.q = keras.layers.Dense(8, "tanh", bias_initializer="ones", name="q")
        self.q.build(query_shape)


class OwnLayer(layers.TransformerDecoderLayer):
    """With that attention and a feed-forward network for [B, T, D] only."""

    def attention(self, name):
        return OwnAttention.from_config(super().attention(name).get_config())

    def feed_forward(self, name):
        return keras.layers.EinsumDense("btd,df->btf", (None, 8), name=name)


class OwnDecoder(layers.TransformerDecoder):
    layer_class = OwnLayer


# Steps of decoding


@pytest.mark.parametrize(
    ("decoder_class", "settings", "near"),
    [
        (layers.TransformerDecoder, {}, True),
        (layers.TransformerDecoder, POSTNORM, False),
        (layers.TransformerDecoder, {"max_relative_position": 2}, False),
        (layers.TransformerDecoder, {"max_relative_position": 2}, True),
        (layers.TransformerDecoder, {"key_channels": 4}, False),
        (OwnDecoder, {}, False),
    ],
)
def test_steps_give_what_the_whole_sentence_gives(decoder_class, settings, near):
    decoder = decoder_class(num_layers=2, **SMALL, **settings)
    own = layers.AttentionMask(causal=True, bias=layers.proximity_bias(5) if near else None)
    whole = decoder(X, MEMORY, attention_mask=own, memory_mask=MEMORY_MASK)
    source = {"memory": decoder.memory_caches(MEMORY), "memory_bias": layers.mask_bias(MEMORY_MASK)}
    kept = [layer.self_attention.empty_cache(2) for layer in decoder.layers]
    for i in range(5):
        bias = layers.proximity_bias(i + 1)[:, :, -1:] if near else None
        joint = [layer.self_attention.joint_kernel() for layer in decoder.layers]
        cache = layers.DecoderCache(kept, bias=bias, joint_kernels=joint, **source)
        step = decoder(X[:, i : i + 1], MEMORY, cache=cache)
        kept = cache.kept
        np.testing.assert_allclose(step[:, 0], whole[:, i], atol=1e-5)


def test_padding_of_keras_stays_hidden_beside_an_attention_mask():
    ids, shown = keras.Input((None,), dtype="int32"), keras.Input((None, None), dtype="bool")
    x = layers.SharedEmbedding(vocab_size=12, hidden_size=8)(ids)
    model = keras.Model([ids, shown], layers.TransformerEncoder(num_layers=1, **SMALL)(x, shown))
    rows = ([5, 6, 7], [5, 6, 7, 0, 0])
    alone, padded = (model([np.array([r]), np.ones((1, len(r), len(r)), bool)]) for r in rows)
    np.testing.assert_allclose(padded[:, :3], alone, atol=1e-5)
