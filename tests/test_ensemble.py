"""Several models that decode as one."""

import numpy as np
import pytest
from networks import SOURCE, search_model, small_model

import t2t_keras as t2t
from t2t_keras.decoding import Ensemble
from t2t_keras.errors import UserError

OTHER = "num_hidden_layers=2,hidden_size=8,shared_embedding_and_softmax_weights=false"


def test_one_model_twice_is_that_model(eagerly):
    model = search_model()
    for search in (t2t.decoding.greedy, t2t.decoding.beam_search):
        ids, scores = search(model, SOURCE, extra_length=4)
        both_ids, both_scores = search(Ensemble([model, model]), SOURCE, extra_length=4)
        np.testing.assert_array_equal(both_ids, ids)
        np.testing.assert_allclose(both_scores, scores, rtol=1e-5)


def test_probabilities_are_averaged(eagerly):
    models = [search_model(), small_model(OTHER, seed=1, spread=3.0)]
    ids, scores = t2t.decoding.greedy(Ensemble(models), SOURCE, extra_length=2)
    targets = np.asarray(ids)
    batch = {"inputs": SOURCE, "targets": targets}
    p = np.mean([np.exp(m(batch) - _normaliser(m(batch))) for m in models], 0)
    for row, tokens, score in zip(p, targets, scores, strict=True):
        length = int(np.sum(tokens != 0))
        np.testing.assert_array_equal(row.argmax(-1)[:length], tokens[:length])
        chosen = row[np.arange(length), tokens[:length]]
        np.testing.assert_allclose(np.log(chosen).sum(), score, rtol=1e-4)
    np.testing.assert_allclose(
        t2t.decoding.score(Ensemble(models), SOURCE, targets), scores, rtol=1e-4
    )


def _normaliser(logits):
    return np.log(np.exp(np.asarray(logits)).sum(-1, keepdims=True))


def test_what_cannot_be_one():
    with pytest.raises(UserError, match="sizes, got 23 and 23, 23 and 31"):
        Ensemble([search_model(), small_model(target_vocab=31, overrides=OTHER)])
    with pytest.raises(UserError, match="got 23, 24: leave out"):
        Ensemble([search_model(), small_model(overrides=f"{OTHER},vocab_divisor=8")])
    with pytest.raises(UserError, match="got none"):
        Ensemble([])
