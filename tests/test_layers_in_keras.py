"""What layers make of masks, ranks and memories, beside Keras's own attention, on any backend."""

import os

import keras
import numpy as np
import pytest
from layer_checks import MEMORY, X, random_tensor
from toy import python

from t2t_keras import layers
from t2t_keras.layers.sublayers import SeededMasks

IDS, SOURCE = np.array([[3, 4, 5, 0, 0], [6, 7, 8, 9, 1]]), np.array([[2, 3, 0], [4, 0, 0]])
SMALL = {"num_heads": 2, "filter_size": 12}
STACK = {**SMALL, "num_layers": 2}
RANDOM = np.random.default_rng(0)


def array(x):
    return keras.ops.convert_to_numpy(x)


def embedded(ids):
    return keras.layers.Embedding(10, 8, mask_zero=True)(ids)


def mask_of(x):
    return array(x._keras_mask)  # as Keras's documentation reads it


def pair():
    """Our attention and Keras's own with the same kernels."""
    ours = layers.MultiHeadAttention(num_heads=2)
    ours(X, MEMORY)
    theirs = keras.layers.MultiHeadAttention(num_heads=2, key_dim=4, use_bias=False)
    theirs(X, MEMORY)
    kernels = [array(layer.kernel) for layer in (ours.q, ours.k, ours.v)]
    kernels = [kernel.reshape(8, 2, 4) for kernel in kernels]
    theirs.set_weights([*kernels, array(ours.output_transform.kernel).reshape(2, 4, 8)])
    return ours, theirs


@pytest.mark.parametrize(
    "shape", [(5, 3), (2, 5, 3), (1, 5, 3), (2, 1, 3), (2, 2, 5, 3), (1, 2, 1, 3)]
)
def test_attention_masks_are_kerass(shape):
    ours, theirs = pair()
    mask = RANDOM.random(shape) < 0.6
    mask[..., 0] = True  # Keras's attention to nothing is another one
    np.testing.assert_allclose(
        array(ours(X, MEMORY, attention_mask=mask)),
        array(theirs(X, MEMORY, attention_mask=np.broadcast_to(mask, np.broadcast_shapes(shape, (5, 3))))),
        atol=1e-5,
    )  # fmt: skip


def test_masks_that_tensors_carry_are_kerass():
    ours, theirs = pair()
    embedding = keras.layers.Embedding(10, 8, mask_zero=True)
    seen = RANDOM.random((2, 5, 3)) < 0.6
    seen[..., 0] = True
    for call in ({}, {"attention_mask": seen}):
        query, memory = embedding(IDS), embedding(SOURCE)  # Keras's attention takes masks off
        mine, wanted = ours(query, memory, **call), theirs(query, memory, **call)
        real = IDS > 0  # Keras hides everything from a query that is padding
        np.testing.assert_allclose(array(mine)[real], array(wanted)[real], atol=1e-5)
        np.testing.assert_array_equal(mask_of(mine), real)
    alone, wanted = ours(embedding(IDS)), theirs(embedding(IDS), embedding(IDS))
    np.testing.assert_allclose(array(alone)[real], array(wanted)[real], atol=1e-5)
    np.testing.assert_allclose(array(ours(array(embedding(IDS)), query_mask=real)), array(alone))


class Passing(layers.TransformerDecoder):
    def call(self, *args, **kwargs):
        return super().call(*args, **kwargs)


ALL = [
    (layers.MultiHeadAttention, {"num_heads": 2}, False),
    (layers.MultiHeadAttention, {"num_heads": 2}, True),
    (layers.TransformerEncoderLayer, SMALL, False),
    (layers.TransformerEncoder, STACK, False),
    (layers.TransformerDecoderLayer, SMALL, False),
    (layers.TransformerDecoderLayer, SMALL, True),
    (layers.TransformerDecoder, STACK, True),
    (Passing, STACK, True),
]


@pytest.mark.parametrize(("layer_class", "settings", "has_memory"), ALL)
def test_the_mask_of_an_output_is_the_querys(layer_class, settings, has_memory):
    given = (embedded(IDS), embedded(SOURCE))[: 1 + has_memory]
    output = layer_class(**settings)(*given)
    np.testing.assert_array_equal(mask_of(output), IDS > 0)
    keys = 3 if has_memory and layer_class is layers.MultiHeadAttention else 5
    output = layer_class(**settings)(*given, attention_mask=np.ones((2, 5, keys), bool))
    assert keras.layers.GlobalAveragePooling1D()(output).shape == (2, 8)
    symbols = [keras.Input((None,), dtype="int32") for _ in given]
    embedding, layer = keras.layers.Embedding(10, 8, mask_zero=True), layer_class(**settings)
    pooled = keras.layers.GlobalAveragePooling1D()(layer(*map(embedding, symbols)))
    longer = [np.pad(ids, [[0, 0], [0, 2]]) for ids in (IDS, SOURCE)]
    model = keras.Model(symbols, pooled)
    short = array(model([IDS, SOURCE][: 1 + has_memory]))
    np.testing.assert_allclose(array(model(longer[: 1 + has_memory])), short, atol=1e-5)
    if not has_memory:
        stacked = keras.Sequential([embedding, layer, keras.layers.GlobalAveragePooling1D()])
        np.testing.assert_allclose(array(stacked(longer[0])), short, atol=1e-5)


@pytest.mark.parametrize(("layer_class", "settings", "has_memory"), ALL[2:])
@pytest.mark.parametrize("pairs", [None, np.ones((2, 5, 5), bool)])
def test_no_position_sees_what_x_masks(layer_class, settings, has_memory, pairs):
    """Padding on the left, whose embedding changes nothing; beside a mask of pairs, too."""
    layer, embedding = layer_class(**settings), keras.layers.Embedding(10, 8, mask_zero=True)
    outputs = []
    for _ in range(2):
        x = embedding(np.array(IDS)[:, ::-1])
        outputs.append(layer(x, *(MEMORY,) * has_memory, attention_mask=pairs))
        embedding.embeddings.assign(embedding.embeddings + 3 * np.eye(10, 8) * np.eye(10, 1))
    real = np.array(IDS)[:, ::-1] > 0
    np.testing.assert_allclose(array(outputs[0])[real], array(outputs[1])[real], atol=1e-5)


@pytest.mark.parametrize(("layer_class", "settings", "has_memory"), ALL[4:])
def test_decoders_are_causal_unless_told_otherwise(layer_class, settings, has_memory):
    layer, memory = layer_class(**settings), (MEMORY,) * has_memory
    other = np.concatenate([X[:, :4], random_tensor(2, 1, 8, seed=2)], 1)
    hidden = array(layer(X, *memory)) - array(layer(other, *memory))
    assert np.abs(hidden[:, :4]).max() == 0
    assert np.abs(hidden[:, 4]).max() > 0.1
    seen = array(layer(X, *memory, causal=False)) - array(layer(other, *memory, causal=False))
    assert np.abs(seen[:, :4]).max() > 1e-4
    by_mask = layer(X, *memory, attention_mask=np.tril(np.ones((5, 5), bool)), causal=False)
    np.testing.assert_allclose(array(by_mask), array(layer(X, *memory)), atol=1e-6)


def called(layer_class, settings, *tensors, **call):
    return lambda: layer_class(**settings)(*tensors, **call)


def then(first, second):
    layer = layers.TransformerDecoderLayer(**SMALL)
    layer(*first)
    return lambda: layer(*second)


ATTENTION = layers.MultiHeadAttention, {"num_heads": 2}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (called(*ATTENTION, X, attention_mask=np.ones((2, 5, 5), "float32")), "attention_mask must be boolean"),
        (called(*ATTENTION, X, attention_mask=np.ones((2, 5), bool)), r"mask must broadcast to \[T, S\]"),
        (called(*ATTENTION, X, MEMORY, attention_mask=np.ones((2, 5, 5), bool)), r"B, T, S = \(2, 5, 3\), got"),
        (called(*ATTENTION, X, attention_mask=np.ones((3, 5, 5), bool)), "mask must broadcast"),
        (called(*ATTENTION, X, attention_mask=True), "mask must broadcast"),
        (called(*ATTENTION, X, MEMORY, mask=np.ones((2, 3), bool)), "with a memory, give memory_mask"),
        (called(*ATTENTION, random_tensor(2, 3, 5, 8)), r"query must be \[B, T, D\], got shape \(2, 3, 5, 8\)"),
        (called(*ATTENTION, X, random_tensor(2, 8)), r"memory must be \[B, S, D\], got shape \(2, 8\)"),
        (called(layers.TransformerEncoder, STACK, random_tensor(2, 3, 5, 8)), r"\[B, T, D\]"),
        (called(layers.TransformerDecoder, STACK, X, attention_mask=np.ones((2, 4, 4), bool)), "mask must broadcast"),
        (then((X, MEMORY), (X,)), "built with memory but called without it"),
        (then((X,), (X, MEMORY)), "built without memory but called with it"),
    ],
)  # fmt: skip
def test_what_is_not_taken_is_an_error_in_words(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_an_attention_mask_says_all():
    assert layers.TransformerDecoder(**STACK)(X, return_attention_weights=True)[2] == []
    layer, carried = layers.MultiHeadAttention(num_heads=2), embedded(IDS)
    bare = keras.ops.convert_to_tensor(array(carried))
    everything = layer(carried, attention_mask=layers.AttentionMask())
    np.testing.assert_allclose(array(everything), array(layer(bare)), atol=1e-6)
    causal = layer(X, attention_mask=layers.AttentionMask(causal=True))
    hidden = layers.AttentionMask(bias=np.triu(np.full((5, 5), -1e9), 1)[None, None])
    np.testing.assert_allclose(array(causal), array(layer(X, attention_mask=hidden)), atol=1e-6)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="others derive custom gradients")
def test_a_gradient_in_training_has_a_gradient_as_in_inference():
    import torch

    encoder, x = layers.TransformerEncoder(**STACK), torch.tensor(X, requires_grad=True)
    seconds = []
    for training in (False, True):
        (first,) = torch.autograd.grad(
            (encoder(x, training=training) ** 2).sum(), x, create_graph=True
        )
        seconds += torch.autograd.grad((first**2).sum(), x)
    np.testing.assert_allclose(*seconds, rtol=1e-3, atol=1e-3)


def test_with_remat_a_layer_is_computed_again_with_the_same_dropout_masks():
    def trained(remat):
        keras.utils.set_random_seed(1)
        rates = dict.fromkeys(("prepostprocess_dropout", "attention_dropout", "relu_dropout"), 0.4)
        encoder = layers.TransformerEncoder(num_layers=1, remat=True, **SMALL, **rates)
        x = keras.Input((None, 8))
        model = keras.Model(x, encoder(x))
        model.compile("sgd", "mse")
        layer, calls = encoder.layers[0], []
        call, encoder.remat = layer.call, remat

        def counted(*args, **kwargs):
            calls.append(1)
            if remat:
                return call(*args, **kwargs)
            with layers.keep_mask_scope(SeededMasks(encoder.mask_seed)):
                return call(*args, **kwargs)

        layer.call = counted
        model.train_on_batch(X, X)
        return model.get_weights(), len(calls)

    (weights, once), (again, calls) = trained(False), trained(True)
    for wanted, found in zip(weights, again, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    masks = SeededMasks(keras.random.SeedGenerator(1))
    assert keras.ops.any(masks((64,), 0.5) != masks((64,), 0.5))  # every call its own
    if keras.backend.backend() != "jax":  # where it is the compiled function that computes again
        assert calls == once + 1


@pytest.mark.skipif("KERAS_BACKEND" in os.environ, reason="this is one of the other backends")
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_on_other_backends(backend):
    pytest.importorskip(backend)
    done = python("-m", "pytest", "-q", __file__, env={**os.environ, "KERAS_BACKEND": backend})
    assert done.returncode == 0, done.stdout[-3000:]
