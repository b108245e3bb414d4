"""The Transformer with restricted self-attention: logits and searches against numpy, and its settings."""

import numpy as np
import pytest
from networks import SMALL, log_probabilities, numpy_logits, search_model, small_model

import t2t_keras as t2t
from t2t_keras.errors import UserError

RESTRICTED = "self_attention_type=restricted,restricted_neighborhood=3"
SOURCE = np.array([[5, 9, 3, 7, 6, 8, 1], [4, 1, 0, 0, 0, 0, 0]], np.int32)
TARGETS = np.array([[7, 3, 9, 9, 4, 1], [6, 8, 1, 0, 0, 0]], np.int32)


@pytest.mark.parametrize("neighborhood", [1, 2, 3, 50])
def test_logits(neighborhood):
    restricted = f"self_attention_type=restricted,restricted_neighborhood={neighborhood}"
    model = small_model(f"num_hidden_layers=1,{restricted}")
    logits = model({"inputs": SOURCE, "targets": TARGETS})
    np.testing.assert_allclose(logits, numpy_logits(model, SOURCE, TARGETS), atol=2e-5)


def test_of_everything_it_is_the_full_network():
    full = small_model()
    model = small_model("self_attention_type=restricted,restricted_neighborhood=50")
    model.set_weights(full.get_weights())
    batch = {"inputs": SOURCE, "targets": TARGETS}
    np.testing.assert_allclose(model(batch), full(batch), atol=2e-5)
    narrow = small_model(RESTRICTED)
    narrow.set_weights(full.get_weights())
    assert np.abs(np.asarray(narrow(batch)) - np.asarray(full(batch))).max() > 1e-2


def test_packed_rows():
    packing = {
        "inputs_segmentation": np.array([[1, 1, 1, 2, 2, 2, 2], [1, 1, 0, 0, 0, 0, 0]]),
        "inputs_position": np.array([[0, 1, 2, 0, 1, 2, 3], [0, 1, 0, 0, 0, 0, 0]]),
        "targets_segmentation": np.array([[1, 1, 2, 2, 2, 2], [1, 1, 1, 0, 0, 0]]),
        "targets_position": np.array([[0, 1, 0, 1, 2, 3], [0, 1, 2, 0, 0, 0]]),
    }
    model = small_model(RESTRICTED)
    logits = np.asarray(model({"inputs": SOURCE, "targets": TARGETS, **packing}))
    tokens = TARGETS != 0
    wanted = numpy_logits(model, SOURCE, TARGETS, packing)
    np.testing.assert_allclose(logits[tokens], wanted[tokens], atol=2e-5)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_searches_score_as_the_whole_network(search):
    model = search_model(RESTRICTED)
    if search == "greedy":
        ids, scores = t2t.decoding.greedy(model, SOURCE, extra_length=4)
    else:
        beam = {"beam_size": 3, "alpha": 0.0, "extra_length": 4}
        ids, scores = (x[:, 0] for x in t2t.decoding.beam_search(model, SOURCE, **beam))
    ids = np.asarray(ids)
    assert ids.shape[1] > 3  # some positions are out of sight
    wanted = np.zeros(len(SOURCE))
    for place in range(ids.shape[1]):
        log_p = log_probabilities(model, SOURCE, ids[:, :place])
        chosen = log_p[np.arange(len(ids)), ids[:, place]]
        wanted += np.where(ids[:, place] == 0, 0, chosen)
        if search == "greedy":
            best = ids[:, place] != 0
            np.testing.assert_array_equal(log_p.argmax(-1)[best], ids[best, place])
    np.testing.assert_allclose(scores, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("overrides", "wanted"),
    [
        ("restricted_neighborhood=0", "restricted_neighborhood must be 1 or more, got 0"),
        ("proximity_bias=true", "restricted needs proximity_bias=false, got true"),
        ("unidirectional_encoder=true", "restricted needs unidirectional_encoder=false, got true"),
        (
            "attention_dropout_broadcast_dims=[0,2]",
            r"takes attention_dropout_broadcast_dims of 0 and 1 \(batch, heads\), got 0,2",
        ),
    ],
)
def test_what_does_not_go_with_it(overrides, wanted):
    hp = t2t.registry.hparams("transformer_base", SMALL).override(RESTRICTED)
    with pytest.raises(UserError, match=wanted):
        t2t.Transformer(hp.override(overrides), source_vocab_size=23, target_vocab_size=23)
