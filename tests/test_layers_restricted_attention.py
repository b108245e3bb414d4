"""Restricted attention equals full attention under a mask, alone and in encoder and decoder; its memory."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from layer_checks import assert_same, check_layer, random_tensor, randomise

from t2t_keras.layers import (
    AttentionMask,
    Dropout,
    MultiHeadAttention,
    RestrictedAttention,
    SharedEmbedding,
    TransformerDecoder,
    TransformerEncoder,
    keep_mask_scope,
    mask_bias,
    segment_bias,
)

SMALL = {"num_heads": 2, "filter_size": 12}
SEGMENTS = np.array([[1] * 20 + [2] * 13 + [3] * 5 + [0] * 2, [1] * 3 + [2] * 37])


def neighbours(i, r, causal):
    """Returns the r positions that position i sees, some of them perhaps outside the sequence."""
    first = i - r + 1 if causal else i - r // 2
    return range(first, first + r)


def near(length, r, causal):
    """Returns who sees whom, boolean [1, T, S]."""
    seen = np.zeros((1, length, length), bool)
    for i in range(length):
        for j in neighbours(i, r, causal):
            if 0 <= j < length:
                seen[0, i, j] = True
    return seen


def pair_of_layers(r, causal=False, *, hidden=8, **settings):
    """Makes restricted and full attention with the same random weights."""
    ours = RestrictedAttention(num_heads=2, neighborhood=r, causal=causal, **settings)
    full = MultiHeadAttention(num_heads=2, **settings)
    for layer in (ours, full):
        layer.build((None, None, hidden))
    randomise(ours)
    full.set_weights(ours.get_weights())
    return ours, full


def in_order_of_neighbours(weights, r, causal):
    """Takes the weights of the neighbours: [B, H, T, S] -> [B, H, T, r]."""
    weights = np.asarray(weights)
    length = weights.shape[2]
    wanted = np.zeros((*weights.shape[:3], r), "float32")
    for i in range(length):
        for place, j in enumerate(neighbours(i, r, causal)):
            if 0 <= j < length:
                wanted[:, :, i, place] = weights[:, :, i, j]
    return wanted


@pytest.mark.parametrize(
    ("settings", "weights"),
    [
        ({"num_heads": 2, "neighborhood": 3}, 4),
        ({"num_heads": 2, "neighborhood": 9, "causal": True}, 4),
        (
            {
                "num_heads": 4,
                "neighborhood": 34,
                "key_channels": 4,
                "value_channels": 4,
                "max_relative_position": 2,
                "dropout": 0.1,
                "dropout_broadcast_dims": (0, 1),
            },
            6,
        ),
    ],
)
def test_contract(settings, weights, tmp_path):
    check_layer(
        RestrictedAttention,
        settings,
        (random_tensor(2, 35, 8),),
        weights=weights,
        tmp_path=tmp_path,
        call={"return_attention_weights": True},
    )


# Blocks have 32 queries or r / 2 of them: one that is not full, some that are, windows of several.
@pytest.mark.parametrize("r", [1, 2, 3, 8, 33, 65, 96, 130, 400])
@pytest.mark.parametrize("causal", [False, True])
def test_equals_full_attention_under_a_mask(r, causal):
    ours, full = pair_of_layers(r, causal)
    for length in (1, 7, 32, 33, 100):
        x = random_tensor(2, length, 8)
        mask = np.repeat(near(length, r, causal), 2, axis=0)
        wanted, full_weights = full(x, mask=mask, return_attention_weights=True)
        output, weights = ours(x, return_attention_weights=True)
        np.testing.assert_allclose(output, wanted, atol=2e-6)
        assert weights.dtype == "float32"
        in_order = in_order_of_neighbours(full_weights, r, causal)
        np.testing.assert_allclose(weights, in_order, atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("relative", [0, 3])
def test_masks_biases_and_segments(causal, relative):
    length, r = 40, 9
    ours, full = pair_of_layers(r, causal, max_relative_position=relative)
    x = random_tensor(2, length, 8)
    mask = np.arange(length) < np.array([[31], [40]])
    mask[1, [3, 17]] = False  # not at the end alone
    bias = random_tensor(2, 1, 1, length, seed=3)
    of_heads = random_tensor(1, 2, 1, length, seed=4)
    of_rows = random_tensor(2, 1, 1, 1, seed=5)
    band = mask_bias(near(length, r, causal))
    seen = (near(length, r, causal) & mask[:, None]).any(-1)  # rows that see something
    assert not seen.all()
    for ours_call, full_bias, rows in (
        ({"mask": mask}, mask_bias(mask), seen),
        ({"mask": mask, "bias": bias}, mask_bias(mask) + bias, seen),
        ({"bias": of_heads}, of_heads, slice(None)),
        ({"bias": of_rows}, of_rows, slice(None)),
        ({"segments": SEGMENTS}, segment_bias(SEGMENTS), slice(None)),
        ({"segments": SEGMENTS, "bias": bias}, segment_bias(SEGMENTS) + bias, slice(None)),
    ):
        output, wanted = ours(x, **ours_call), full(x, bias=band + full_bias)
        np.testing.assert_allclose(np.asarray(output)[rows], np.asarray(wanted)[rows], atol=2e-6)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_nothing_to_look_at_looks_evenly_at_the_neighbours(policy):
    layer = RestrictedAttention(num_heads=2, neighborhood=4, dtype=policy)
    x = random_tensor(1, 35, 8)
    output, weights = layer(x, mask=np.zeros((1, 35), bool), return_attention_weights=True)
    third, half = 1 / 3, 1 / 2
    wanted = np.full((35, 4), 1 / 4)  # two before, itself, one after
    wanted[0] = [0, 0, half, half]
    wanted[1] = [0, third, third, third]
    wanted[-1] = [third, third, third, 0]
    np.testing.assert_allclose(weights, np.broadcast_to(wanted, (1, 2, 35, 4)), rtol=1e-6)
    assert np.isfinite(np.asarray(ops.cast(output, "float32"))).all()


def test_the_mask_that_a_tensor_carries():
    ids = np.array([[3, 4, 0, 2], [5, 0, 0, 0]])
    carried = SharedEmbedding(vocab_size=9, hidden_size=8)(ids)
    layer = RestrictedAttention(num_heads=2, neighborhood=3)
    bare = np.asarray(carried)
    assert_same(layer(carried), layer(bare, mask=ids != 0), atol=1e-6)
    assert np.abs(np.asarray(layer(bare)) - np.asarray(layer(carried))).max() > 1e-4


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("causal", [False, True])
def test_equals_full_attention_in_16_bits(policy, causal):
    ours, full = pair_of_layers(9, causal, dtype=policy)
    x = random_tensor(2, 70, 8)
    wanted = full(x, mask=np.repeat(near(70, 9, causal), 2, axis=0))
    output = ours(x)
    assert output.dtype == ours.compute_dtype
    # Sums of products in another order: some results fall to the next number of that precision.
    spacing = 2.0**-8 if policy == "mixed_bfloat16" else 2.0**-11
    scale = np.abs(np.asarray(ops.cast(wanted, "float32"))).max()
    assert_same(output, wanted, atol=2 * spacing * scale)


@pytest.mark.parametrize(
    ("causal", "relative", "xla"),
    [(False, 0, False), (True, 0, True), (False, 3, True), (True, 3, False)],
)
def test_gradients_equal_those_of_full_attention(causal, relative, xla):
    length, r = 67, 9
    ours, full = pair_of_layers(r, causal, max_relative_position=relative)
    x = tf.constant(random_tensor(2, length, 8))
    upstream = random_tensor(2, length, 8, seed=1)
    mask = np.arange(length) < np.array([[67], [50]])
    upstream *= mask[..., None]
    pairs = near(length, r, causal) & mask[:, None]

    def gradients(layer, mask):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(layer(x, mask=mask) * upstream)
        sources = [x, *(v.value for v in layer.trainable_variables)]
        return [tf.convert_to_tensor(g) for g in tape.gradient(loss, sources)]

    ours_by_xla = tf.function(lambda: gradients(ours, mask), jit_compile=True)
    found = ours_by_xla() if xla else gradients(ours, mask)
    for mine, wanted in zip(found, gradients(full, pairs), strict=True):
        np.testing.assert_allclose(mine, wanted, atol=3e-6 * max(1, np.abs(wanted).max()))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_lengths_not_known_beforehand(jit_compile):
    layer = RestrictedAttention(num_heads=2, neighborhood=66, max_relative_position=2)
    layer.build((None, None, 8))

    @tf.function(
        input_signature=[tf.TensorSpec((None, None, 8)), tf.TensorSpec((None, None), tf.bool)],
        jit_compile=jit_compile,
    )
    def call(x, mask):
        return layer(x, mask=mask, return_attention_weights=True)

    for length in (1, 33, 70):
        x, mask = random_tensor(2, length, 8), np.arange(length) < np.array([[length], [3]])
        wanted = layer(x, mask=mask, return_attention_weights=True)
        assert_same(call(x, mask), wanted, atol=2e-6)


@pytest.mark.parametrize("shape", [(2, 0, 8), (0, 5, 8)])
def test_nothing_in_nothing_out(shape):
    layer = RestrictedAttention(num_heads=2, neighborhood=3)
    output, weights = layer(np.zeros(shape, "float32"), return_attention_weights=True)
    assert output.shape == shape
    assert weights.shape == (shape[0], 2, shape[1], 3)


def largest_tensor(layer, length):
    """Returns the size of the largest tensor in the graph of the layer's output and gradients."""

    @tf.function
    def gradients(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(layer(x, training=True))
        return tape.gradient(loss, [x, *(v.value for v in layer.trainable_variables)])

    graph = gradients.get_concrete_function(tf.TensorSpec((1, length, 4))).graph
    outputs = [t for operation in graph.get_operations() for t in operation.outputs]
    return max(t.shape.num_elements() or 0 for t in outputs if t.shape.rank is not None)


@pytest.mark.parametrize("causal", [False, True])
def test_no_tensor_has_all_pairs_of_positions(causal):
    settings = {"num_heads": 1, "dropout": 0.1, "max_relative_position": 2}
    ours = RestrictedAttention(neighborhood=16, causal=causal, **settings)
    full = MultiHeadAttention(**settings)
    for layer in (ours, full):
        layer.build((None, None, 4))
    sizes = [largest_tensor(ours, length) for length in (1024, 2048)]
    assert sizes[1] <= 2 * sizes[0]
    assert sizes[0] <= 1024 * (16 + 32)
    assert largest_tensor(full, 1024) >= 1024**2


def test_a_weight_that_is_kept_is_scaled_by_dropout():
    shapes = []

    def keep_all(shape, rate):
        shapes.append(list(shape))
        return tf.ones(shape, bool)

    layer = RestrictedAttention(
        num_heads=2, neighborhood=5, dropout=0.2, dropout_broadcast_dims=(0, 1)
    )
    x = random_tensor(3, 40, 8)
    with keep_mask_scope(keep_all):
        output, weights = layer(x, training=True, return_attention_weights=True)
    assert_same(output, np.asarray(layer(x)) / 0.8, atol=1e-6)
    np.testing.assert_allclose(np.sum(weights, -1), 1, rtol=1e-5)  # those before dropout
    ((batch, heads, *_),) = shapes
    assert (batch, heads) == (1, 1)
    assert isinstance(layer.dropout, Dropout)


@pytest.mark.parametrize("relative", [0, 2])
def test_a_cache_gives_what_the_whole_sentence_gives(relative):
    layer = RestrictedAttention(
        num_heads=2, neighborhood=3, causal=True, max_relative_position=relative
    )
    x = random_tensor(2, 9, 8)
    whole = layer(x)
    cache = layer.empty_cache(2)
    for i in range(9):
        new = layer.keys_and_values(x[:, i : i + 1])
        cache = {name: ops.concatenate([cache[name], new[name]], 2) for name in new}
        step = layer(x[:, i : i + 1], cache=cache)
        np.testing.assert_allclose(step[:, 0], whole[:, i], atol=1e-6)


def test_weights_of_one_fit_the_other(tmp_path):
    x = random_tensor(1, 5, 8)

    def model(neighborhood):
        symbol = keras.Input((None, 8))
        encoder = TransformerEncoder(num_layers=1, neighborhood=neighborhood, **SMALL)
        return keras.Model(symbol, encoder(symbol))

    full, ours = model(0), model(9)
    names = [[w.path.split("/", 1)[1] for w in m.weights] for m in (ours, full)]
    assert names[0] == names[1]
    full.save_weights(str(tmp_path / "full.weights.h5"))
    ours.load_weights(str(tmp_path / "full.weights.h5"))
    assert_same(ours(x), full(x), atol=1e-6)  # all five see all


@pytest.mark.parametrize(
    ("settings", "call", "wanted"),
    [
        ({"neighborhood": 0}, {}, "neighborhood must be 1 or more, got 0"),
        (
            {"neighborhood": 2, "dropout_broadcast_dims": (0, 2)},
            {},
            r"may be 0 and 1 \(batch, heads\), got \[0, 2\]",
        ),
        (
            {"neighborhood": 2},
            {"bias": np.zeros((1, 1, 5, 5), "float32")},
            r"must be \[B, H, 1, T\], got shape \(1, 1, 5, 5\)",
        ),
        (
            {"neighborhood": 2},
            {"mask": np.ones((1, 5, 5), bool)},
            r"must be \[B, T\], got shape \(1, 5, 5\)",
        ),
        (
            {"neighborhood": 2},
            {"attention_mask": AttentionMask(neighborhood=(1, 1))},
            "but the mask has one",
        ),
        ({"neighborhood": 2}, {"attention_mask": AttentionMask(causal=True)}, "cannot be causal"),
        ({"neighborhood": 2}, {"memory": np.zeros((1, 3, 8), "float32")}, "a memory was given"),
    ],
)
def test_wrong_use(settings, call, wanted):
    with pytest.raises(ValueError, match=wanted):
        RestrictedAttention(num_heads=2, **settings)(random_tensor(1, 5, 8), **call)


# In encoder and decoder


def pair_of_stacks(stack, *shapes, **settings):
    ours = stack(num_layers=2, neighborhood=5, **SMALL, **settings)
    full = stack(num_layers=2, **SMALL, **settings)
    for layer in (ours, full):
        layer.build(*shapes)
    randomise(ours)
    full.set_weights(ours.get_weights())
    return ours, full


def test_encoder_equals_one_with_a_mask():
    x = random_tensor(2, 40, 8)
    ours, full = pair_of_stacks(TransformerEncoder, x.shape, remove_padding=True)
    mask = np.arange(40) < np.array([[40], [33]])
    band = mask_bias(near(40, 5, False))
    output, weights = ours(x, mask=mask, return_attention_weights=True)
    wanted = np.asarray(full(x, mask=mask, bias=band))
    np.testing.assert_allclose(np.asarray(output)[mask], wanted[mask], atol=2e-5)
    assert [w.shape for w in weights] == [(2, 2, 40, 5)] * 2
    assert_same(ours(x, segments=SEGMENTS), full(x, segments=SEGMENTS, bias=band), atol=2e-5)
    with pytest.raises(ValueError, match="cannot be causal"):
        ours(x, causal=True)


def test_decoder_equals_one_with_a_mask():
    x, memory = random_tensor(2, 40, 8), random_tensor(2, 40, 8, seed=1)
    ours, full = pair_of_stacks(TransformerDecoder, x.shape, memory.shape)
    mask = np.arange(40) < np.array([[40], [33]])
    band = mask_bias(near(40, 5, True))
    output, own, other = ours(x, memory, memory_mask=mask, return_attention_weights=True)
    assert_same(output, full(x, memory, memory_mask=mask, bias=band), atol=2e-5)
    assert [w.shape for w in own] == [(2, 2, 40, 5)] * 2
    assert [w.shape for w in other] == [(2, 2, 40, 40)] * 2
    packing = {"segments": SEGMENTS, "memory_segments": SEGMENTS}
    assert_same(ours(x, memory, **packing), full(x, memory, bias=band, **packing), atol=2e-5)
    with pytest.raises(ValueError, match="must be causal"):
        ours(x, memory, causal=False)
