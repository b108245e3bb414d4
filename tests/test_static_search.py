"""Searches in tensors of fixed sizes beside those whose tensors grow, by XLA and operation by operation."""

import golden
import networks
import numpy as np
import pytest
from networks import search_model, small_model
from test_ensemble import OTHER

import t2t_keras as t2t
from t2t_keras.decoding import DecodeSettings, Ensemble, static_search
from t2t_keras.decoding.static_search import StaticSearch
from t2t_keras.errors import UserError

SOURCE = networks.SOURCE[:3]
"""Without the sentence of nothing but padding, which attends to padding, and here there is more of it."""

BY_XLA = ("base_prenorm", "relative")
"""Models whose search is compiled, which takes seconds; the others run operation by operation."""

BEAM = {"beam_size": 3, "top_beams": 3}


@pytest.fixture
def eagerly(eagerly, monkeypatch):
    """Operations one by one, and less room, so that a few tokens are more than that."""
    monkeypatch.setattr(static_search, "ROOM", 4)


def both(search, *args, **settings):
    """Checks that both ways find the same, and returns the ids."""
    ids, scores = search(*args, **settings)
    found, found_scores = search(*args, **settings, xla=True)
    np.testing.assert_array_equal(found, ids)
    np.testing.assert_allclose(found_scores, scores, rtol=1e-5)
    return np.asarray(ids)


@pytest.mark.parametrize("name", golden.MODELS)
def test_all_beams_of_tensor2tensor(name, request):
    if name not in BY_XLA:
        request.getfixturevalue("eagerly")
    case = golden.load(name)
    assert case.search_error(case.model(), xla=True) <= golden.RELATIVE


def test_one_graph_for_all_sizes_by_xla():
    """Three sentences and four, in one block and in two."""
    model = search_model()
    both(t2t.decoding.beam_search, model, SOURCE[:, :5], **BEAM, extra_length=7)
    both(t2t.decoding.beam_search, model, SOURCE[[0, 1, 2, 0]], **BEAM, extra_length=7, alpha=0.3)
    limits = {"min_length": 34, "max_lengths": [40, 36, 0]}
    ids = both(t2t.decoding.beam_search, model, SOURCE, **BEAM, **limits)
    assert ids.shape == (3, 3, 40)
    both(t2t.decoding.greedy, model, SOURCE, extra_length=6)


@pytest.mark.parametrize(
    "overrides",
    [
        "proximity_bias=true",
        "self_attention_type=dot_product_relative,max_relative_position=4",
    ],
)
def test_networks(overrides, eagerly):
    """Some count the positions of keys, which stand before room for others here."""
    limits = {"min_length": 6, "max_lengths": [9, 7, 0]}
    both(t2t.decoding.beam_search, search_model(overrides), SOURCE, **BEAM, **limits)
    both(t2t.decoding.greedy, search_model(overrides), SOURCE, **limits)


def test_a_prefix(eagerly):
    prefix = np.array([[7, 3, 8], [9, 0, 0], [0, 0, 0]])
    for search in (t2t.decoding.beam_search, t2t.decoding.greedy):
        ids = both(search, search_model(), SOURCE, extra_length=5, prefix=prefix)
        assert (np.reshape(ids[0], -1)[:3] == prefix[0]).all()


def test_an_ensemble(eagerly):
    models = Ensemble([search_model(), small_model(OTHER, seed=1, spread=3.0)])
    both(t2t.decoding.beam_search, models, SOURCE, extra_length=4)


def test_there_are_few_shapes(eagerly, monkeypatch):
    """Whatever the sentences, their lengths and the limit: one for each block of the output."""
    shapes, extend = set(), StaticSearch.extend

    def counted(self, source, limits, prefix, state):
        shapes.add((*source["memory_bias"].shape, *state.hypotheses.visible.shape))
        return extend(self, source, limits, prefix, state)

    monkeypatch.setattr(StaticSearch, "extend", counted)
    for rows, length, extra in (([0, 1, 2], 6, 4), ([0, 1, 2, 0], 5, 7), ([2, 1, 0], 6, 9)):
        source = SOURCE[rows, :length]
        t2t.decoding.beam_search(
            search_model(), source, beam_size=2, extra_length=extra, min_length=9, xla=True
        )
    assert shapes == {(4, 1, 1, 8, 4, 2, 2 * room) for room in (0, 4, 8, 12)[:4]}


def test_what_xla_does_not_compile():
    with pytest.raises(UserError, match="a search with logits_processors: leave out xla or"):
        t2t.decoding.greedy(search_model(), SOURCE, logits_processors=[max], xla=True)
    with pytest.raises(UserError, match="a search with sampling: leave out xla or"):
        DecodeSettings(xla=True, sampling_method="random", beam_size=1)
