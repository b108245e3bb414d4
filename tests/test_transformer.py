"""The network's settings against a numpy Transformer, cached steps against the whole sentence, packed rows."""

import functools
import itertools

import keras
import numpy as np
import pytest
from layer_checks import random_tensor
from networks import SMALL, SOURCE, numpy_logits, small_model

import t2t_keras as t2t
from t2t_keras.data.records import pack
from t2t_keras.errors import UserError
from t2t_keras.layers import AttentionMask, TransformerDecoder, TransformerEncoder

TARGETS = np.array([[4, 8, 0, 1, 0], [3, 9, 5, 7, 1], [1, 0, 0, 0, 0], [6, 1, 0, 0, 0]], np.int32)
"""With padding within a sentence."""

RELATIVE = "self_attention_type=dot_product_relative"
VARIANTS = {
    "prenorm": "",
    "postnorm": "layer_preprocess_sequence=none,layer_postprocess_sequence=dan",
    "norm_everywhere": "layer_postprocess_sequence=dan",
    "odd_hidden_size": "hidden_size=15,num_heads=3",
    "two_channels": "hidden_size=2,num_heads=1",
    "key_and_value_channels": "attention_key_channels=8,attention_value_channels=24",
    "depths": "num_encoder_layers=2,num_decoder_layers=3",
    "two_vocabularies": "",
    "two_vocabularies_shared_embedding": "shared_embedding=true",
    "shared_embedding": "shared_embedding=true,shared_embedding_and_softmax_weights=false",
    "nothing_shared": "shared_embedding_and_softmax_weights=false",
    "vocab_divisor": "vocab_divisor=8",
    "vocab_divisor_makes_sizes_equal": "vocab_divisor=8",
    "no_target_space": "use_target_space_embedding=false",
    "proximity_bias": "proximity_bias=true",
    "unidirectional_encoder": "unidirectional_encoder=true",
    "unidirectional_proximity": "unidirectional_encoder=true,proximity_bias=true",
    "embedding_not_multiplied": "multiply_embedding_mode=none",
    "no_positions": "pos=none",
    "positions_of_the_paper": "pos=timing_paper",
    "odd_positions_of_the_paper": "pos=timing_paper,hidden_size=15,num_heads=3",
    "learned_positions": "pos=emb,max_length=9",
    "past_learned_positions": "pos=emb,max_length=4",
    "padding_kept": "use_pad_remover=false",
    "relative": f"{RELATIVE},max_relative_position=2,pos=none",
    "relative_proximity": f"{RELATIVE},max_relative_position=3,proximity_bias=true",
}
OTHER_SIZES = {
    **dict.fromkeys(["two_vocabularies", "two_vocabularies_shared_embedding"], (23, 31)),
    "vocab_divisor": (23, 31),
    "vocab_divisor_makes_sizes_equal": (21, 23),
}
"""Sizes of the two vocabularies where they are not 23."""

every_variant = pytest.mark.parametrize("name", VARIANTS)


@functools.cache
def variant(name):
    overrides = f"num_hidden_layers={2 if name == 'prenorm' else 1},{VARIANTS[name]}"
    return small_model(overrides, *OTHER_SIZES.get(name, (23, 23)), target_space_id=5)


@functools.cache
def logits_of(name):
    return np.asarray(variant(name)({"inputs": SOURCE, "targets": TARGETS}))


@every_variant
def test_logits_equal_numpy_and_every_variable_has_one_t2t_name(name):
    model, ours = variant(name), logits_of(name)
    wanted = numpy_logits(model, SOURCE, TARGETS)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, wanted, atol=1e-5 * np.abs(wanted).max())
    named = t2t.checkpoints.t2t_variables(model)
    assert len({id(variable) for variable in named.values()}) == len(named)
    assert {id(v) for v in named.values()} == {id(v) for v in model.trainable_variables}


@pytest.mark.parametrize("with_kernels", [True, False])
def test_logits_of_a_step_beyond_the_vocabulary(with_kernels):
    model, whole = variant("vocab_divisor"), logits_of("vocab_divisor")
    source, caches = model.encode_source(SOURCE), model.empty_caches(len(SOURCE))
    last = np.zeros((len(SOURCE), 1), np.int32)
    kernels = model.step_kernels() if with_kernels else None
    logits, _ = model.decode_step(last, 0, caches, source, kernels=kernels)
    vocab_size = whole.shape[-1]
    np.testing.assert_allclose(logits[:, 0, :vocab_size], whole[:, 0], atol=2e-5)
    assert logits.shape[-1] == (64 if with_kernels else vocab_size)
    np.testing.assert_allclose(logits[..., vocab_size:], -1e9)


@pytest.mark.parametrize("name", ["prenorm", "proximity_bias", "relative"])
def test_hypotheses_that_go_on_from_others(name):
    model = variant(name)
    sentences = len(SOURCE)
    source, caches = model.encode_source(SOURCE), model.empty_caches(sentences)
    tokens = np.random.default_rng(5).integers(2, 11, (3, sentences, 2), np.int32)
    ancestors = [[[0], [1]], [[0, 0], [1, 1]], [[1, 1, 0], [1, 1, 1]]]
    last = np.zeros((sentences, 2), np.int32)
    for position in range(3):
        seen = np.array(ancestors[position])[..., None] == np.arange(2)  # [2, position + 1, 2]
        visible = np.tile(seen.reshape(1, 2, -1), (sentences, 1, 1))
        logits, caches = model.decode_step(last, position, caches, source, visible)
        last = tokens[position]
    for k, (at_first, at_second) in enumerate([(1, 0), (1, 1)]):
        targets = np.stack([tokens[0, :, at_first], tokens[1, :, at_second]], 1)
        targets = np.pad(targets, [(0, 0), (0, 1)], constant_values=2)
        whole = np.asarray(model({"inputs": SOURCE, "targets": targets}))
        np.testing.assert_allclose(logits[:, k], whole[:, 2], atol=2e-5)


def test_encode_and_decode_are_the_two_halves():
    model = variant("prenorm")
    memory = model.encode(SOURCE)
    assert memory.shape == (4, 6, 16)
    logits = model.decode(TARGETS, memory, source_mask=SOURCE != 0)
    np.testing.assert_array_equal(logits, model({"inputs": SOURCE, "targets": TARGETS}))


def test_attention_weights_on_request():
    model = variant("depths")  # 2 encoder layers, 3 decoder layers
    inputs = {"inputs": SOURCE, "targets": TARGETS}
    logits, weights = model(inputs, return_attention_weights=True)
    np.testing.assert_array_equal(logits, model(inputs))
    assert {kind: [w.shape for w in layers] for kind, layers in weights.items()} == {
        "encoder": [(4, 2, 6, 6)] * 2,
        "decoder": [(4, 2, 5, 5)] * 3,
        "encdec": [(4, 2, 5, 6)] * 3,
    }
    for layer in (*weights["encoder"], *weights["decoder"], *weights["encdec"]):
        np.testing.assert_allclose(np.sum(layer, -1), 1, atol=1e-5)
    padded = SOURCE[:3] == 0
    for layer in (*weights["encoder"], *weights["encdec"]):
        rows = np.asarray(layer)[:3].transpose(0, 3, 1, 2)  # [B, S, H, T]
        assert (rows[padded] == 0).all()
        np.testing.assert_allclose(np.asarray(layer)[3], 1 / 6, atol=1e-6)  # only padding: evenly
    for layer in weights["decoder"]:
        assert (np.asarray(layer)[..., ~np.tri(5, dtype=bool)] == 0).all()


def test_starting_weights_are_t2ts():
    """N(0, D^-0.5) for the table, uniform in +-sqrt(6 / (in + out)) for matrices, zero biases."""
    keras.utils.set_random_seed(1)
    sizes = "hidden_size=128,filter_size=256,num_hidden_layers=1,num_heads=4"
    hp = t2t.registry.hparams("transformer_base", sizes)
    model = t2t.Transformer(hp, source_vocab_size=500, target_vocab_size=500)
    named = t2t.checkpoints.t2t_variables(model)
    matrices = [np.asarray(v) for v in named.values() if len(v.shape) == 2]
    assert len({float(m[0, 0]) for m in matrices}) == len(matrices)  # no two have the same numbers
    table = np.asarray(named["transformer/symbol_modality_500_128/shared"])
    assert np.std(table) == pytest.approx(128**-0.5, rel=0.02)
    for name, variable in named.items():
        value = np.asarray(variable)
        if name.endswith("/kernel"):
            bound = (6 / sum(value.shape)) ** 0.5
            assert 0.97 * bound < np.abs(value).max() <= bound, name
            assert np.std(value) == pytest.approx(bound / 3**0.5, rel=0.05), name
        elif name.endswith(("/bias", "layer_norm_bias")):
            assert (value == 0).all(), name
        elif name.endswith("layer_norm_scale"):
            assert (value == 1).all(), name
    make = t2t.transformer.kernel_initializer(hp.override("initializer=uniform,initializer_gain=2"))
    assert 0.19 < np.abs(make((99, 9))).max() <= 0.2


@pytest.mark.parametrize("name", t2t.registry.list_hparams())
def test_every_set_is_a_network_that_is_offered(name):
    t2t.transformer.check_settings(t2t.registry.hparams(name))


@pytest.mark.parametrize(
    ("overrides", "sizes", "wanted"),
    [
        ("num_heads=3", {}, "multiple of num_heads=3, got 16"),
        ("attention_key_channels=7", {}, "attention_key_channels .* multiple of num_heads=2, got 7"),
        ("pos=emb,max_length=0", {}, "max_length must be 1 or more, got 0"),
        (RELATIVE, {}, "max_relative_position must be 1 or more"),
        (f"{RELATIVE},max_relative_position=2,attention_key_channels=8", {}, "to be equal, got 8 and 16"),
        ("", {"source_vocab": 1}, "source_vocab_size must be 2 or more"),
        ("", {"target_vocab": 0}, "target_vocab_size must be 2 or more"),
        ("", {"target_space_id": 32}, "target_space_id must be from 0 to 31, got 32"),
        ("", {"target_space_id": -1}, "target_space_id must be from 0 to 31, got -1"),
    ],
)  # fmt: skip
def test_what_is_not_offered_is_one_line(overrides, sizes, wanted, refused):
    with refused(wanted):
        small_model(overrides, **sizes)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("hard_attention_k", 2), ("causal_decoder_self_attention", False)),
        *(("attention_variables_3d", True), ("num_area_layers", 1)),
    ],
)
def test_a_record_of_another_network_is_refused(name, value):
    """`from_dict` takes what tensor2tensor recorded; the model must not act as if it were not."""
    hp = t2t.registry.hparams("transformer_base", SMALL)
    recorded = t2t.settings.HParams.from_dict({**hp.to_dict(), name: value})
    with pytest.raises(UserError, match=rf"{name} must be \w+, got {value} \("):
        t2t.Transformer(recorded, source_vocab_size=23, target_vocab_size=23)


def dropout_masks(overrides):
    """Returns the shapes of the dropout masks of attention and feed-forward network, in order of use."""
    shapes = []

    def keep_all(shape, rate):
        shapes.append(tuple(int(size) for size in shape))
        return np.ones(shape, bool)

    model = small_model(f"layer_prepostprocess_dropout=0.0,{overrides}")
    with t2t.layers.keep_mask_scope(keep_all):
        model({"inputs": SOURCE, "targets": TARGETS}, training=True)
    return shapes


SHARED = "attention_dropout=0.1,relu_dropout=0.0,attention_dropout_broadcast_dims=[0,1]"


@pytest.mark.parametrize(
    ("overrides", "of_self"),
    [(SHARED, (1, 1)), (f"{RELATIVE},max_relative_position=2,{SHARED}", (len(SOURCE), 2))],
)
def test_relative_attention_shares_no_dropout_mask(overrides, of_self):
    """T2T's `dot_product_attention_relative` does not see `attention_dropout_broadcast_dims`."""
    source, target = SOURCE.shape[1], TARGETS.shape[1]
    self_attention = [(*of_self, source, source), (*of_self, target, target)]
    assert dropout_masks(overrides) == [*self_attention, (1, 1, target, source)]


@pytest.mark.parametrize(
    ("axes", "of_encoder", "of_decoder"),
    [
        ("1", (1, 1, 24), ("B", 1, 24)),
        ("1,use_pad_remover=false", ("B", 1, 24), ("B", 1, 24)),
        ("[0,-2]", (1, 1, 24), (1, 1, 24)),
        ("0", (1, "N", 24), (1, "T", 24)),
        ("[1,2]", (1, 1, 1), ("B", 1, 1)),
        ("-1", ("B", "S", 1), ("B", "T", 1)),
    ],
)
def test_relu_dropout_of_the_encoder_counts_axes_as_the_pad_remover_leaves_them(
    axes, of_encoder, of_decoder
):
    """T2T's makes [1, tokens, F] of [B, S, F]: axis 1 is all tokens, and axis 0 is nothing."""
    sizes = {"B": len(SOURCE), "S": SOURCE.shape[1], "T": TARGETS.shape[1], "N": SOURCE.size}
    wanted = [tuple(sizes.get(n, n) for n in shape) for shape in (of_encoder, of_decoder)]
    overrides = f"attention_dropout=0.0,relu_dropout=0.1,relu_dropout_broadcast_dims={axes}"
    assert dropout_masks(overrides) == wanted


# Packed rows: each pair is as if alone, except for what T2T's shift of targets lets through

LENGTH = 16
PAIRS = [
    {"inputs": [5, 9, 3, 7, 1], "targets": [4, 8, 6, 1]},
    {"inputs": [4, 1], "targets": [3, 9, 5, 7, 2, 1]},
    {"inputs": [2, 8, 6, 1], "targets": [6, 1]},
    {"inputs": [7, 7, 3, 2, 9, 4, 5, 1], "targets": [8, 8, 4, 2, 3, 1]},
    {"inputs": [1], "targets": [1]},
    {"inputs": [3, 4, 1], "targets": [9, 2, 2, 5, 6, 3, 1]},
]


def padded(rows, length):
    """Rows as a batch [rows, length] of each field."""
    return {
        name: np.array([row[name] + [0] * (length - len(row[name])) for row in rows], np.int32)
        for name in rows[0]
    }


def packed(spacing=0):
    """Packs the pairs: a batch [rows, LENGTH], and where each pair stands, (row, number)."""
    rows = list(pack(PAIRS, LENGTH, spacing))
    batch, everywhere = padded(rows, LENGTH), itertools.product(range(len(rows)), range(1, 5))
    pairs = {
        (row, number): {
            side: list(batch[side][row][batch[f"{side}_segmentation"][row] == number])
            for side in PAIRS[0]
        }
        for row, number in everywhere
    }
    places = [place for pair in PAIRS for place in pairs if pairs[place] == pair]
    assert len(places) == len(PAIRS) == len(set(places))
    assert len(rows) < len(PAIRS) - 1
    return batch, places


APART = padded(PAIRS, LENGTH)
"""Every pair in a row of its own."""


def by_numpy(model, batch):
    return numpy_logits(model, batch["inputs"], batch["targets"], batch)


@every_variant
def test_packed_logits_equal_numpy(name):
    model = variant(name)
    batch, _ = packed()
    tokens = batch["targets"] != 0
    ours, wanted = np.asarray(model(batch))[tokens], by_numpy(model, batch)[tokens]
    np.testing.assert_allclose(ours, wanted, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("spacing", [1, 0])
@pytest.mark.parametrize("name", ["prenorm", "learned_positions", "proximity_bias", "relative"])
def test_with_spacing_a_pair_is_as_if_alone(name, spacing):
    """T2T shifts the row: without spacing, a pair sees the end of the one before it first.

    T2T's encoder that looks back does so across pairs, as the one in NumPy above.
    """
    model = variant(name)
    batch, places = packed(spacing)
    logits = np.asarray(model(batch))
    assert {number for _, number in places} > {1}
    for pair, (row, number), wanted in zip(PAIRS, places, np.asarray(model(APART)), strict=True):
        ours = logits[row][batch["targets_segmentation"][row] == number]
        difference = np.abs(ours - wanted[: len(pair["targets"])]).max()
        assert difference < 2e-5 if spacing or number == 1 else difference > 1e-2


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_keeps_pairs_apart(dtype):
    model = small_model(dtype=dtype)
    batch, _ = packed()
    wanted = by_numpy(model, batch)
    ours = np.asarray(model(batch))
    tokens = batch["targets"] != 0
    assert np.isfinite(ours).all()
    tolerance = 0.1 if dtype == "mixed_bfloat16" else 0.02
    np.testing.assert_allclose(ours[tokens], wanted[tokens], atol=tolerance * np.abs(wanted).max())


def test_a_batch_that_is_packed_by_half_is_refused():
    batch, _ = packed()
    del batch["targets_position"]
    with pytest.raises(UserError, match=r"A packed batch must have .*; got no targets_position"):
        variant("prenorm")(batch)
    memory = variant("prenorm").encode(batch["inputs"])
    with pytest.raises(ValueError, match="must be given together"):
        variant("prenorm").decode(batch["targets"], memory, segments=batch["targets_segmentation"])


STACK = {"num_heads": 2, "filter_size": 12, "num_layers": 2}
X, MEMORY = random_tensor(2, 5, 8), random_tensor(2, 4, 8, seed=1)
SEGMENTS = np.array([[1, 1, 2, 2, 0], [1, 2, 2, 2, 3]])
MEMORY_SEGMENTS = np.array([[1, 2, 2, 0], [1, 1, 2, 3]])


@pytest.mark.parametrize("causal", [True, False])
def test_a_decoder_of_its_own_keeps_segments_apart(causal):
    decoder = TransformerDecoder(**STACK)
    own = AttentionMask(segments=SEGMENTS, causal=causal)
    other = AttentionMask(segments=SEGMENTS, key_segments=MEMORY_SEGMENTS)
    together = np.asarray(decoder(X, MEMORY, attention_mask=own, memory_attention_mask=other))
    for row in (0, 1):
        for number in (1, 2):
            own, other = SEGMENTS[row] == number, MEMORY_SEGMENTS[row] == number
            apart = decoder(X[row][own][None], MEMORY[row][other][None], causal=causal)
            np.testing.assert_allclose(together[row][own], apart[0], atol=1e-5)


def test_segments_come_in_symbolic_models_too():
    x, segments = keras.Input((None, 8)), keras.Input((None,), dtype="int32")
    encoder = TransformerEncoder(**STACK)
    same = keras.ops.equal(segments[:, :, None], segments[:, None, :])
    model = keras.Model([x, segments], encoder(x, attention_mask=same))
    wanted = encoder(X, attention_mask=AttentionMask(segments=SEGMENTS))
    np.testing.assert_allclose(model([X, SEGMENTS]), wanted, atol=1e-6)
