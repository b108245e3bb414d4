"""Outputs drawn at random."""

import numpy as np
import pytest
from networks import log_probabilities, search_model
from test_greedy import SOURCE

import t2t_keras as t2t
from t2t_keras.decoding.search import keep_likeliest
from t2t_keras.errors import UserError

pytestmark = pytest.mark.usefixtures("eagerly")

MANY = np.tile(SOURCE[:1], (2000, 1))


def first_tokens(**settings):
    ids, _ = t2t.decoding.sample(search_model(), MANY, seed=1, max_lengths=[1] * 2000, **settings)
    return np.bincount(np.asarray(ids)[:, 0], minlength=23) / 2000


def test_tokens_come_as_often_as_they_are_likely():
    p = np.exp(log_probabilities(search_model(), SOURCE[:1], [[]]))[0]
    deviation = np.sqrt(p * (1 - p) / 2000)
    assert (np.abs(first_tokens() - p) < 5 * deviation + 1e-3).all()


def test_temperature():
    log_p = log_probabilities(search_model(), SOURCE[:1], [[]])[0]
    sharper = np.exp(2 * log_p) / np.exp(2 * log_p).sum()
    deviation = np.sqrt(sharper * (1 - sharper) / 2000)
    assert (np.abs(first_tokens(temperature=0.5) - sharper) < 5 * deviation + 1e-3).all()
    likeliest = np.eye(23)[log_p.argmax()]
    np.testing.assert_array_equal(first_tokens(temperature=1e-4), likeliest)


def test_among_the_likeliest():
    log_p = log_probabilities(search_model(), SOURCE[:1], [[]])[0]
    order = np.argsort(-log_p)
    assert set(np.flatnonzero(first_tokens(top_k=3))) == set(order[:3])
    enough = np.cumsum(np.exp(log_p[order]))
    number = int(np.searchsorted(enough, 0.8)) + 1
    assert set(np.flatnonzero(first_tokens(top_p=0.8))) <= set(order[:number])
    assert first_tokens(top_p=1e-6)[order[0]] == 1


def test_kept_logits():
    logits = np.log(np.array([[0.5, 0.1, 0.3, 0.1], [0.1, 0.2, 0.3, 0.4]], np.float32))
    kept = np.asarray(keep_likeliest(logits, 0, np.float32(0.7))) > -1e6
    np.testing.assert_array_equal(kept, [[1, 0, 1, 0], [0, 0, 1, 1]])
    kept = np.asarray(keep_likeliest(logits, 1, None)) > -1e6
    np.testing.assert_array_equal(kept, [[1, 0, 0, 0], [0, 0, 0, 1]])


def test_what_is_cut_off_stays_so_however_low_the_temperature():
    logits = np.log(np.array([[0.5, 0.1, 0.3, 0.1]], np.float32)) / np.float32(1e-9)
    for top_k, top_p in ((2, None), (0, np.float32(0.7))):
        kept = np.asarray(keep_likeliest(logits, top_k, top_p))
        assert kept.argmax() == 0
        assert (kept[0, [1, 3]] < -1e38).all()


def test_one_seed_one_draw():
    settings = {"extra_length": 4, "temperature": 2.0}
    first, again, other = (
        np.asarray(t2t.decoding.sample(search_model(), SOURCE, seed=seed, **settings)[0])
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_scores_are_the_models_log_probabilities():
    model = search_model()
    ids, scores = t2t.decoding.sample(model, SOURCE, seed=2, top_k=5, extra_length=3)
    np.testing.assert_allclose(scores, t2t.decoding.score(model, SOURCE, ids), rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"temperature": 0}, "temperature must be more than 0, got 0"),
        ({"top_k": -1}, "top_k must be 0 or more, got -1"),
        ({"top_p": 0}, r"top_p must be in \(0, 1\], got 0"),
    ],
)
def test_wrong_settings(settings, words):
    with pytest.raises(UserError, match=words):
        t2t.decoding.sample(None, SOURCE, seed=0, **settings)
