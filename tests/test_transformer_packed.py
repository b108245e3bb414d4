"""Packed rows: each pair is as if alone, except for what T2T's shift of targets lets through."""

import functools

import keras
import numpy as np
import pytest
from layer_checks import random_tensor
from networks import numpy_logits, small_model

from t2t_keras.data.records import pack
from t2t_keras.errors import UserError
from t2t_keras.layers import AttentionMask, TransformerDecoder, TransformerEncoder, segment_bias

LENGTH = 16
PAIRS = [
    {"inputs": [5, 9, 3, 7, 1], "targets": [4, 8, 6, 1]},
    {"inputs": [4, 1], "targets": [3, 9, 5, 7, 2, 1]},
    {"inputs": [2, 8, 6, 1], "targets": [6, 1]},
    {"inputs": [7, 7, 3, 2, 9, 4, 5, 1], "targets": [8, 8, 4, 2, 3, 1]},
    {"inputs": [1], "targets": [1]},
    {"inputs": [3, 4, 1], "targets": [9, 2, 2, 5, 6, 3, 1]},
]

VARIANTS = {
    "prenorm": "",
    "postnorm": "layer_preprocess_sequence=none,layer_postprocess_sequence=dan",
    "separate_tables": "shared_embedding_and_softmax_weights=false",
    "positions_of_the_paper": "pos=timing_paper",
    "learned_positions": "pos=emb,max_length=9",
    "no_positions": "pos=none",
    "odd_hidden_size": "hidden_size=15,num_heads=3",
    "padding_kept": "use_pad_remover=false",
    "proximity_bias": "proximity_bias=true",
    "unidirectional_encoder": "unidirectional_encoder=true",
    "relative": "self_attention_type=dot_product_relative,max_relative_position=2,pos=none",
}

every_variant = pytest.mark.parametrize("name", VARIANTS)


@functools.cache
def variant(name):
    """A model of `VARIANTS`, not to be changed; the plain one has two layers."""
    layers = 2 if name == "prenorm" else 1
    return small_model(f"num_hidden_layers={layers},{VARIANTS[name]}", target_space_id=5)


def padded(rows, length=LENGTH):
    """Rows as a batch [rows, length] of each field."""
    return {
        name: np.array([row[name] + [0] * (length - len(row[name])) for row in rows], np.int32)
        for name in rows[0]
    }


def packed(spacing=0, pairs=PAIRS):
    """Packs the pairs: a batch [rows, LENGTH], and where each pair stands, (row, number)."""
    rows = list(pack(pairs, LENGTH, spacing))
    batch, places = padded(rows), []
    for pair in pairs:
        places += [
            (r, number)
            for r in range(len(rows))
            for number in range(1, max(rows[r]["inputs_segmentation"]) + 1)
            if all(
                list(batch[side][r][batch[f"{side}_segmentation"][r] == number]) == pair[side]
                for side in ("inputs", "targets")
            )
        ]
    assert len(places) == len(pairs) == len(set(places))
    assert len(rows) < len(pairs) - 1
    return batch, places


APART = padded(PAIRS)
"""Every pair in a row of its own."""


def by_numpy(model, batch):
    return numpy_logits(model, batch["inputs"], batch["targets"], batch)


def of_pair(values, batch, place):
    row, number = place
    return np.asarray(values)[row][batch["targets_segmentation"][row] == number]


@every_variant
def test_logits_equal_numpy(name):
    """Logits at padding may be anything."""
    model = variant(name)
    batch, _ = packed()
    tokens = batch["targets"] != 0
    ours, wanted = np.asarray(model(batch))[tokens], by_numpy(model, batch)[tokens]
    np.testing.assert_allclose(ours, wanted, atol=1e-5 * np.abs(wanted).max())


SEES_EARLIER_SOURCES = "unidirectional_encoder"
"""T2T's encoder that looks back does so across pairs; see below."""


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != SEES_EARLIER_SOURCES])
def test_with_spacing_a_pair_is_as_if_alone(name):
    model = variant(name)
    batch, places = packed(spacing=1)
    logits = model(batch)
    for pair, place, wanted in zip(PAIRS, places, np.asarray(model(APART)), strict=True):
        wanted = wanted[: len(pair["targets"])]
        np.testing.assert_allclose(of_pair(logits, batch, place), wanted, atol=2e-5)


def test_without_spacing_a_pair_begins_with_the_end_of_the_one_before():
    """T2T shifts the row: the pair sees an end of sentence first, where a lone one sees zeros."""
    model = variant("prenorm")
    batch, places = packed()
    logits = model(batch)
    for pair, place, alone_logits in zip(PAIRS, places, np.asarray(model(APART)), strict=True):
        ours = of_pair(logits, batch, place)
        after_nothing = alone_logits[: len(pair["targets"])]
        if place[1] == 1:
            np.testing.assert_allclose(ours, after_nothing, atol=2e-5)
            continue
        # The end of sentence of the pair before as a row of its own kind: given to the decoder
        # with the segment and the position of the pair's first target.
        source, target = len(pair["inputs"]), len(pair["targets"])
        shifted = {
            "inputs": pair["inputs"],
            "targets": [1, *pair["targets"]],
            "inputs_segmentation": [2] * source,
            "inputs_position": range(source),
            "targets_segmentation": [1] + [2] * target,
            "targets_position": [0, *range(target)],
        }
        shifted = {name: np.array([ids], np.int32) for name, ids in shifted.items()}
        np.testing.assert_allclose(ours, by_numpy(model, shifted)[0, 1:], atol=2e-5)
        assert np.abs(ours - after_nothing).max() > 1e-2
    assert [number == 1 for _, number in places].count(True) == 2


def changed(batch, side, row, column):
    other = {name: array.copy() for name, array in batch.items()}
    other[side][row, column] = 11
    return other


def test_nothing_of_a_pair_reaches_another_but_its_last_target():
    model = variant("prenorm")
    batch, _ = packed()
    segments = {side: batch[f"{side}_segmentation"][0] for side in ("inputs", "targets")}
    assert max(segments["inputs"]) == 4
    before = np.asarray(model(batch))
    for side in ("inputs", "targets"):
        for column in np.flatnonzero(segments[side] == 2):
            after = np.asarray(model(changed(batch, side, 0, column)))
            np.testing.assert_array_equal(after[1:], before[1:])
            last = side == "targets" and segments[side][column + 1] == 3
            for number in (1, 3, 4):
                there = segments["targets"] == number
                difference = np.abs(after - before)[0, there].max()
                assert difference > 1e-3 if last and number == 3 else difference < 1e-5


def test_a_unidirectional_encoder_sees_earlier_pairs_of_its_row():
    """T2T's lower triangle alone: pairs are not kept apart there, only later ones are hidden."""
    model = variant(SEES_EARLIER_SOURCES)
    batch, _ = packed(spacing=1)
    segments = batch["inputs_segmentation"][0]
    memory = model.encode(batch["inputs"], segments=segments[None])
    other = changed(batch, "inputs", 0, 0)
    after = model.encode(other["inputs"], segments=segments[None])
    difference = np.abs(np.asarray(memory) - np.asarray(after))[0].max(-1)
    assert (difference[segments > 0] > 1e-4).all()
    last = changed(batch, "inputs", 0, np.flatnonzero(segments == 2)[-1])
    after = model.encode(last["inputs"], segments=segments[None])
    np.testing.assert_allclose(after[0][segments == 1], memory[0][segments == 1], atol=1e-5)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_keeps_pairs_apart(dtype):
    model = small_model("num_hidden_layers=1", dtype=dtype)
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
    model = variant("prenorm")
    memory = model.encode(batch["inputs"])
    with pytest.raises(ValueError, match="must be given together"):
        model.decode(batch["targets"], memory, segments=batch["targets_segmentation"])


def test_a_saved_model_takes_packed_rows(tmp_path):
    model = small_model("num_hidden_layers=1")
    batch, _ = packed()
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(batch), model(batch))


SMALL = {"num_heads": 2, "filter_size": 12, "num_layers": 2}
X, MEMORY = random_tensor(2, 5, 8), random_tensor(2, 4, 8, seed=1)
SEGMENTS = np.array([[1, 1, 2, 2, 0], [1, 2, 2, 2, 3]])
MEMORY_SEGMENTS = np.array([[1, 2, 2, 0], [1, 1, 2, 3]])


def test_an_encoder_of_its_own_keeps_segments_apart():
    encoder = TransformerEncoder(**SMALL)
    together = np.asarray(encoder(X, attention_mask=AttentionMask(segments=SEGMENTS)))
    for row, first, last in ((0, 0, 2), (0, 2, 4), (1, 0, 1), (1, 1, 4), (1, 4, 5)):
        part = X[row : row + 1, first:last]
        np.testing.assert_allclose(together[row, first:last], encoder(part)[0], atol=1e-5)


def test_segments_tell_the_encoder_where_padding_is():
    settings = {**SMALL, "num_layers": 1, "preprocess_sequence": "none"}
    settings["postprocess_sequence"] = "a"
    kept, removed = (TransformerEncoder(**settings, remove_padding=r) for r in (False, True))
    kept(X), removed(X)
    kept.layer_0.ffn.set_weights([w + 0.1 for w in kept.layer_0.ffn.get_weights()])
    removed.set_weights(kept.get_weights())
    tokens = SEGMENTS > 0
    mask = AttentionMask(segments=SEGMENTS, nonpadding=tokens)
    ours, theirs = (np.asarray(e(X, attention_mask=mask)) for e in (removed, kept))
    np.testing.assert_array_equal(ours[tokens], theirs[tokens])
    attention = kept.layer_0.self_attention(
        X, attention_mask=AttentionMask(bias=segment_bias(SEGMENTS))
    )
    np.testing.assert_allclose(ours[~tokens], (X + np.asarray(attention))[~tokens], atol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
def test_a_decoder_of_its_own_keeps_segments_apart(causal):
    decoder = TransformerDecoder(**SMALL)
    own = AttentionMask(segments=SEGMENTS, causal=causal)
    other = AttentionMask(segments=SEGMENTS, key_segments=MEMORY_SEGMENTS)
    together = decoder(X, MEMORY, attention_mask=own, memory_attention_mask=other)
    together = np.asarray(together)
    for row in (0, 1):
        for number in (1, 2):
            own, other = SEGMENTS[row] == number, MEMORY_SEGMENTS[row] == number
            apart = decoder(X[row][own][None], MEMORY[row][other][None], causal=causal)
            np.testing.assert_allclose(together[row][own], apart[0], atol=1e-5)


def test_segments_come_in_symbolic_models_too():
    x, segments = keras.Input((None, 8)), keras.Input((None,), dtype="int32")
    encoder = TransformerEncoder(**SMALL)
    same = keras.ops.equal(segments[:, :, None], segments[:, None, :])
    model = keras.Model([x, segments], encoder(x, attention_mask=same))
    wanted = encoder(X, attention_mask=AttentionMask(segments=SEGMENTS))
    np.testing.assert_allclose(model([X, SEGMENTS]), wanted, atol=1e-6)
