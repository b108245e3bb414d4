"""Properties that hold for random settings: of searches, batches, resumed runs, texts and files."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from networks import small_model
from properties import NETWORKS, every_output, holds, log_p_of, network
from test_beam import reference

from t2t_keras.decoding import DecodeSettings, Ensemble, search
from t2t_keras.precision import in_precision

eagerly = pytest.mark.usefixtures("eagerly", "little_room")


@pytest.fixture
def little_room(monkeypatch):
    """For searches in fixed shapes: fewer keys, and a few tokens are more than there is room for."""
    monkeypatch.setattr("t2t_keras.decoding.static_search.ROOM", 2)


# Searches


def plain_beams(nexts, beams, top_beams, limit, penalty):
    """T2T's search: hypotheses by score, from the log p of every next token of a row."""
    alive, finished = [(0.0, ())], []
    for length in range(1, limit + 1):
        last = finished[:1] if top_beams == 1 else finished[beams - 1 : beams]
        if not alive or (last and last[0][0] > alive[0][0] / penalty(limit)):
            break
        grown = [(p + new, (*row, token)) for p, row in alive for token, new in nexts(row)]
        grown = sorted(grown, key=lambda h: -h[0])[: 2 * beams]
        alive = [(p, row) for p, row in grown if row[-1] != 1][:beams]
        finished += [(p / penalty(length), row) for p, row in grown if row[-1] == 1]
        finished = sorted(finished, key=lambda h: -h[0])[:beams]
    return (finished or alive)[:top_beams]


@eagerly
@holds(
    24,
    members=st.lists(NETWORKS, min_size=1, max_size=2),
    precision=st.sampled_from(["float32", "float32", "bfloat16", "int8"]),
    kind=st.sampled_from(["all", "few", "greedy", "sample"]),
    source=st.lists(st.integers(2, 3), max_size=4),
    forced=st.lists(st.sampled_from([2, 3]), max_size=2).map(tuple),
    more=st.integers(0, 3),
    min_length=st.integers(0, 3),
    alpha=st.floats(0, 2) | st.just(0.6),
    beams=st.integers(1, 5),
    target_only=st.sampled_from([False, False, True]),
    xla=st.booleans(),
)
def test_a_search_finds_what_is_best_of_all_outputs(
    members, precision, kind, source, forced, more, min_length, alpha, beams, target_only, xla
):
    """Scores are the network's own; with room for all hypotheses the best are found, whatever T2T cuts."""
    models = [network(each, target_only=target_only) for each in members]
    models = [model for model in models if model.num_logits == models[0].num_logits]
    model = Ensemble(models) if len(models) > 1 else models[0]
    is_exact = precision == "float32"
    if not is_exact:
        model, xla = in_precision(model, precision), xla and precision != "int8"
    limit = len(forced) + min(more, 3 if model.num_logits < 5 else 2)
    outputs = every_output(model, source := [*source, 1], limit, forced)
    prefixes = {row[:n]: log_p[:n] for row, log_p in outputs.items() for n in range(len(row) + 1)}

    def nexts(row):
        tokens = forced[len(row) : len(row) + 1] or range(model.num_logits)
        tokens = [t for t in tokens if t != 1 or len(row) >= min_length]
        return [(t, prefixes[*row, t][-1]) for t in tokens]

    def penalty(length):
        return ((5 + length) / 6) ** alpha

    beam_size = {"all": model.num_logits ** (limit - len(forced)), "few": beams}.get(kind, 1)
    top_beams = min(beams, beam_size)
    options = {"beam_size": beam_size, "alpha": alpha, "min_length": min_length}
    if kind == "sample":
        options |= {"sampling_method": "random", "sampling_seed": beams}
    found = search(
        model,
        [list(forced) or [0]] if target_only else [source],
        DecodeSettings(**options, xla=xla and kind != "sample"),
        beams=beam_size > 1,
        top_beams=top_beams,
        max_lengths=[limit],
        prefix=None if target_only else [[*forced, 0]],
    )
    near = {"rtol": 1e-4, "atol": 1e-5} if is_exact else {"rtol": 0.05, "atol": 0.2}
    before, rows, scores = forced if target_only else (), [], []
    for ids, length, score, token_scores in zip(*(x.numpy()[0] for x in found), strict=True):
        if score > -1e7:  # it exists
            rows.append((*before, *ids[:length].tolist()))
            log_p, ended = prefixes[rows[-1]], rows[-1][len(forced) :][-1:] == (1,)
            scores.append(float(score) * (penalty(len(rows[-1])) if ended and beam_size > 1 else 1))
            np.testing.assert_allclose(scores[-1], sum(log_p), **near)
            np.testing.assert_allclose(token_scores[:length], log_p[len(before) :], **near)
    if kind == "all":
        valid = [(sum(outputs[row]) / penalty(len(row)), row) for row in outputs if row[-1:] == (1,) and len(row) > min_length]
        valid = valid or [(sum(outputs[row]), row) for row in outputs if 1 not in row]
        best = sorted(valid, reverse=True)[:top_beams]
        np.testing.assert_allclose(found.scores[0, :len(best)], [score for score, _ in best], **near)
        assert len(rows) == len(best)
    if is_exact and beam_size > 1:
        assert rows == [row for _, row in plain_beams(nexts, beam_size, top_beams, limit, penalty)]
    if is_exact and kind == "greedy":
        for n in range(len(rows[0])):
            assert rows[0][n] == max(nexts(rows[0][:n]), key=lambda each: each[1])[0]
