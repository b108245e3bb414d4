"""The network's settings against a numpy Transformer, and cached steps against the whole sentence."""

import functools

import keras
import numpy as np
import pytest
from networks import SMALL, SOURCE, numpy_logits, small_model

import t2t_keras as t2t
from t2t_keras.errors import UserError

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
    "depths": "num_encoder_layers=1,num_decoder_layers=3",
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

ONLY_IN_THE_ENCODER = ["no_target_space", "padding_kept"]
ONLY_IN_THE_ENCODER += ["unidirectional_encoder", "unidirectional_proximity"]

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


DECODED = [(name, True) for name in VARIANTS if name not in ONLY_IN_THE_ENCODER]
WITHOUT_KERNELS = ["prenorm", "key_and_value_channels", "vocab_divisor", "relative"]


@pytest.mark.parametrize(
    ("name", "with_kernels"), [*DECODED, *((name, False) for name in WITHOUT_KERNELS)]
)
def test_cached_decoding_equals_the_whole_sentence(name, with_kernels):
    model, whole = variant(name), logits_of(name)
    source = model.encode_source(SOURCE)
    caches = model.empty_caches(len(SOURCE))
    last = np.zeros((len(SOURCE), 1), np.int32)
    kernels = model.step_kernels() if with_kernels else None
    vocab_size = whole.shape[-1]
    for position in range(TARGETS.shape[1]):
        logits, caches = model.decode_step(last, position, caches, source, kernels=kernels)
        np.testing.assert_allclose(logits[:, 0, :vocab_size], whole[:, position], atol=2e-5)
        assert logits.shape[-1] == (64 if with_kernels else vocab_size)
        np.testing.assert_allclose(logits[..., vocab_size:], -1e9)
        last = TARGETS[:, position : position + 1]


POSITIONS = ["no_positions", "learned_positions", "past_learned_positions"]


@pytest.mark.parametrize(
    "name",
    [
        "prenorm",
        "key_and_value_channels",
        "proximity_bias",
        *POSITIONS,
        "relative",
        "relative_proximity",
    ],
)
def test_hypotheses_that_go_on_from_others(name):
    """Two hypotheses a sentence; at the third position both go on from the second."""
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
    model = variant("depths")  # 1 encoder layer, 3 decoder layers
    inputs = {"inputs": SOURCE, "targets": TARGETS}
    logits, weights = model(inputs, return_attention_weights=True)
    np.testing.assert_array_equal(logits, model(inputs))
    shapes = {kind: [w.shape for w in layers] for kind, layers in weights.items()}
    assert shapes == {
        "encoder": [(4, 2, 6, 6)],
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
    hp = t2t.registry.hparams(
        "transformer_base", "hidden_size=128,filter_size=256,num_hidden_layers=1,num_heads=4"
    )
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


@pytest.mark.parametrize("name", t2t.registry.list_hparams())
def test_every_set_is_a_network_that_is_offered(name):
    t2t.transformer.check_settings(t2t.registry.hparams(name))


@pytest.mark.parametrize(
    ("overrides", "wanted"),
    [
        ("num_heads=3", "multiple of num_heads=3, got 16"),
        ("attention_key_channels=7", "attention_key_channels .* multiple of num_heads=2, got 7"),
        ("pos=emb,max_length=0", "max_length must be 1 or more, got 0"),
        (RELATIVE, "max_relative_position must be 1 or more"),
        (f"{RELATIVE},max_relative_position=2,attention_key_channels=8", "to be equal, got 8 and 16"),
    ],
)  # fmt: skip
def test_settings_that_do_not_go_together_are_one_line(overrides, wanted):
    hp = t2t.registry.hparams("transformer_base", SMALL).override(overrides)
    with pytest.raises(UserError, match=wanted) as error:
        t2t.Transformer(hp, source_vocab_size=23, target_vocab_size=23)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ({"source_vocab_size": 1}, "source_vocab_size must be 2 or more"),
        ({"target_vocab_size": 0}, "target_vocab_size must be 2 or more"),
        ({"target_space_id": 32}, "target_space_id must be from 0 to 31, got 32"),
        ({"target_space_id": -1}, "target_space_id must be from 0 to 31, got -1"),
    ],
)
def test_a_size_that_is_not_offered_is_one_line(sizes, wanted):
    arguments = {"source_vocab_size": 23, "target_vocab_size": 23, **sizes}
    with pytest.raises(UserError, match=wanted):
        t2t.Transformer(t2t.registry.hparams("transformer_base", SMALL), **arguments)


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

    model = small_model(f"num_hidden_layers=1,layer_prepostprocess_dropout=0.0,{overrides}")
    with t2t.layers.keep_mask_scope(keep_all):
        model({"inputs": SOURCE, "targets": TARGETS}, training=True)
    return shapes


def test_relative_attention_shares_no_dropout_mask():
    """T2T's `dot_product_attention_relative` does not see `attention_dropout_broadcast_dims`."""
    (batch, source), target = SOURCE.shape, TARGETS.shape[1]
    shared = "attention_dropout=0.1,relu_dropout=0.0,attention_dropout_broadcast_dims=[0,1]"
    relative = f"{RELATIVE},max_relative_position=2,{shared}"
    assert dropout_masks(shared) == [
        (1, 1, source, source), (1, 1, target, target), (1, 1, target, source),
    ]  # fmt: skip
    assert dropout_masks(relative) == [
        (batch, 2, source, source), (batch, 2, target, target), (1, 1, target, source),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("axes", "of_encoder", "of_decoder"),
    [
        ("1", (1, 1, 24), ("B", 1, 24)),
        ("[0,-2]", (1, 1, 24), (1, 1, 24)),
        ("0", ("N", 24), (1, "T", 24)),
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
    if axes == "1":
        kept = dropout_masks(f"{overrides},use_pad_remover=false")
        assert kept == [(len(SOURCE), 1, 24), (len(TARGETS), 1, 24)]
