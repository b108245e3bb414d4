"""The beam search written down: it must be the one that `beam_search` makes."""

import functools
import itertools

import numpy as np
import pytest
from networks import SOURCE, log_probabilities, search_model, small_model
from test_beam import Sentence

import t2t_keras as t2t
from t2t_keras.decoding import DecodeSettings, Ensemble
from t2t_keras.inspection.search import decode, trace_beam_search
from t2t_keras.text import ByteTextEncoder, TokenTextEncoder

WORDS = TokenTextEncoder(vocab_list=[f"w{n}" for n in range(2, 23)])
SENTENCES = [[int(i) for i in row if i] for row in SOURCE[:3]]
LIMIT = 9

every_sentence = pytest.mark.parametrize("row", range(len(SENTENCES)))


@functools.cache
def trace(row, beam_size=3, alpha=0.6, **options):
    options = {"max_length": LIMIT, **options}
    return trace_beam_search(
        search_model(), WORDS, SENTENCES[row], beam_size=beam_size, alpha=alpha, **options
    )


def found(ids, score):
    """A sentence's ids [1, L] and scores [1] as a trace has them."""
    return [int(i) for i in ids[0] if i], pytest.approx(float(score[0]), rel=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"alpha": 0.0, "max_length": 3},
        {"beam_size": 2, "alpha": 1.5, "min_length": 4},
    ],
)
def test_finds_what_beam_search_finds(options):
    """The traced search has the ids and score of `beam_search`."""
    traces = [trace(row, **options) for row in range(len(SENTENCES))]
    of_search = t2t.decoding.beam_search(
        search_model(),
        SOURCE[:3],
        beam_size=traces[0].beam_size,
        alpha=traces[0].alpha,
        max_lengths=[traces[0].limit] * 3,
        min_length=options.get("min_length", 0),
    )
    for seen, ids, score in zip(traces, *of_search, strict=True):
        assert (seen.ids, seen.score) == found(ids, score)


@every_sentence
def test_every_step_is_that_of_a_search_in_plain_python(row):
    """Candidates, scores and what is kept, with all log-probabilities by the numpy Transformer."""
    seen, sentence = trace(row), Sentence(beam_size=3)
    for number, step in enumerate(seen.steps):
        alive = sentence.alive
        rows = np.repeat([SENTENCES[row]], len(alive), 0)
        log_p = log_probabilities(search_model(), rows, [ids for _, ids in alive])
        total = (log_p + np.array([p for p, _ in alive])[:, None]).ravel()
        penalty = ((6 + number) / 6) ** 0.6
        sentence.grow(log_p, penalty)
        wanted = [
            (place // log_p.shape[1], [*alive[place // log_p.shape[1]][1], place % log_p.shape[1]])
            for place in np.argsort(-total, kind="stable")[:6]
        ]
        assert [(c.parent, c.ids) for c in step] == wanted
        kept = [ids for _, ids in sentence.alive] + [ids for _, ids in sentence.finished]
        for candidate, (parent, ids) in zip(step, wanted, strict=True):
            of_parent = total.reshape(log_p.shape)[parent, ids[-1]]
            assert candidate.log_p == pytest.approx(of_parent, rel=1e-5)
            assert candidate.score == pytest.approx(of_parent / penalty, rel=1e-5)
            assert candidate.kept == (ids in kept)
            assert candidate.ended == (ids[-1] == 1)
    wanted = [(score, ids) for score, ids in sentence.finished if ids]
    assert [h.ids for h in seen.finished] == [ids for _, ids in wanted]
    assert [h.score for h in seen.finished] == pytest.approx([s for s, _ in wanted], rel=1e-5)
    assert all(h.step == len(h.ids) and h.ids[-1] == 1 for h in seen.finished)


def test_a_parent_is_a_hypothesis_that_went_on():
    """Candidates extend the unfinished hypotheses that the step before kept."""
    for row in range(len(SENTENCES)):
        steps = trace(row).steps
        assert [c.parent for c in steps[0]] == [0] * 6
        for before, step in itertools.pairwise(steps):
            alive = [c.ids for c in before if c.kept and not c.ended]
            assert len(alive) == 3
            assert [c.ids[:-1] for c in step] == [alive[c.parent] for c in step]


def test_says_why_it_stopped():
    """A search stops at the best possible score or at the maximum length."""
    reasons = set()
    for row in range(len(SENTENCES)):
        seen = trace(row)
        [best, *_] = seen.finished or [None]
        alive = [c for c in seen.steps[-1] if c.kept and not c.ended]
        possible = alive[0].log_p / ((5 + LIMIT) / 6) ** 0.6
        if best and best.score > possible:
            assert f"score, {best.score:.3f}" in seen.stopped
            assert f"length, {LIMIT} tokens" in seen.stopped and f"{possible:.3f}" in seen.stopped
        else:
            assert len(seen.steps) == LIMIT
            assert ("before any hypothesis ended" in seen.stopped) == (best is None)
        reasons.add(seen.stopped[:8])
    assert len(reasons) > 1


def test_what_may_not_be_chosen_is_no_candidate():
    """No end of sentence is a candidate before the minimum length."""
    for step in trace(0, beam_size=2, alpha=1.5, min_length=4).steps[:4]:
        assert step and not any(c.ended for c in step)


def test_an_ensemble():
    """The search of an ensemble is traced, too."""
    another = small_model("num_hidden_layers=1", seed=1)
    model = Ensemble([search_model(), another])
    seen = trace_beam_search(model, WORDS, SENTENCES[0], beam_size=2, max_length=5)
    [ids], [score] = t2t.decoding.beam_search(model, SOURCE[:1], beam_size=2, max_lengths=[5])
    assert (seen.ids, seen.score) == found(ids, score)


def test_texts():
    """A candidate has the text of its hypothesis and its last token for display."""
    step = trace(0).steps[1]
    for candidate in step:
        words = [f"w{i}" for i in candidate.ids if i != 1]
        assert candidate.text == " ".join(words)
        assert candidate.token == ("</s>" if candidate.ended else words[-1])


def test_bytes_with_extra_rows_in_the_table():
    """Of 320 rows 258 are bytes; the others have no text."""
    model = small_model("num_hidden_layers=1,vocab_divisor=64", 258, 258, spread=0.1)
    seen = trace_beam_search(model, ByteTextEncoder(), [5, 6, 1], beam_size=8, max_length=2)
    tokens = [each.token for step in seen.steps for each in step]
    assert any(token.startswith("ID_") for token in tokens)


def test_json_has_all_but_ids():
    """`to_json` leaves out ids."""
    seen = trace(0)
    page = seen.to_json()
    assert page["steps"][1]["candidates"][2] == {
        name: getattr(seen.steps[1][2], name)
        for name in ("parent", "token", "text", "log_p", "score", "kept", "ended")
    }
    assert set(page) == {"alpha", "beam_size", "steps", "finished", "stopped"}
    for hypothesis, shown in zip(seen.finished, page["finished"], strict=True):
        assert shown == {
            "text": hypothesis.text,
            "score": hypothesis.score,
            "step": hypothesis.step,
        }


def test_decodes_greedily_with_a_beam_of_one():
    """A beam of one has no search to show."""
    settings = DecodeSettings(beam_size=1, extra_length=3)
    ids, search = decode(search_model(), WORDS, SENTENCES[1], settings)
    [wanted], _ = t2t.decoding.greedy(search_model(), [SENTENCES[1]], extra_length=3)
    assert (ids, search) == ([int(i) for i in wanted if i], None)
