"""A trace of beam search on one sentence: the candidates of each step of `decoding/beam.py`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from t2t_keras.ids import EOS_ID, until_eos
from t2t_keras.inspection.tokens import shown_tokens
from t2t_keras.text.encoders import spelled

if TYPE_CHECKING:
    from t2t_keras.decoding import DecodeSettings
    from t2t_keras.decoding.beam import Beams, BeamSearch
    from t2t_keras.decoding.logits import Constraint

# Decoding imports TensorFlow, so functions here import it only when they need it.


class Candidate(NamedTuple):
    """A hypothesis extended by one token, among the 2K best of a step."""

    parent: int
    """Which hypothesis it extends: an index into the unfinished ones that the previous step kept, best
    first."""
    ids: list[int]
    """Ids of all its tokens."""
    token: str
    """Last token for display, see `shown_tokens`."""
    text: str
    """Text of the hypothesis, without the end of sentence."""
    log_p: float
    """Sum of the log-probabilities of its tokens."""
    score: float
    """`log_p` divided by the length penalty; candidates are ranked by it."""
    kept: bool
    """True if it is among the K best unfinished or the K best finished hypotheses."""
    ended: bool
    """True if the token is the end of sentence."""


class Finished(NamedTuple):
    """A finished hypothesis."""

    ids: list[int]
    text: str
    score: float
    step: int
    """The step in which it ended, from 1: its number of tokens, including end of sentence."""


@dataclasses.dataclass(frozen=True)
class SearchTrace:
    """A beam search on one sentence."""

    beam_size: int
    alpha: float
    limit: int
    """Maximum length of the output."""
    steps: list[list[Candidate]]
    """Candidates of each step, best first, without impossible ones such as an end of sentence before
    the minimum length."""
    finished: list[Finished]
    """At most K finished hypotheses, best first."""
    stopped: str
    """The reason for stopping, as a sentence."""
    ids: list[int]
    """The ids of the result."""
    score: float
    """The score of the result; its `log_p` if no hypothesis finished."""

    def to_json(self) -> dict[str, Any]:
        """Returns the "search" value of `attention_page`."""
        return {
            "alpha": self.alpha,
            "beam_size": self.beam_size,
            "steps": [{"candidates": [_without_ids(c) for c in step]} for step in self.steps],
            "finished": [_without_ids(hypothesis) for hypothesis in self.finished],
            "stopped": self.stopped,
        }


def decode(
    model,
    encoder,
    source_ids: Sequence[int],
    settings: DecodeSettings,
    text: str = "",
    constraint: Constraint | None = None,
) -> tuple[list[int], SearchTrace | None]:
    """Translates one sentence like `t2t-keras-decode`; only `constraint` uses `text`.

    Returns:
        The ids, with end of sentence if there is one, and the search (None if `beam_size` is 1).
    """
    from t2t_keras.decode_settings import require_memory
    from t2t_keras.decoding import search as searches

    limit = len(source_ids) + settings.extra_length
    require_memory(model, settings.beam_size, limit, sentences=1)
    options = searches.SearchOptions.from_settings(settings, constraint=constraint)
    options = options.for_texts([text])._replace(max_lengths=[limit])
    if not options.beam_size:
        ids, _ = searches.decode(model, [list(source_ids)], options)
        return _up_to_eos(ids[0, 0].numpy()), None
    search = trace_beam_search(
        model,
        encoder,
        source_ids,
        beam_size=settings.beam_size,
        alpha=settings.alpha,
        max_length=limit,
        min_length=settings.min_length,
        logits_processors=options.logits_processors,
        constraint=options.constraint,
    )
    return search.ids, search


def trace_beam_search(
    model,
    encoder,
    source_ids: Sequence[int],
    *,
    beam_size: int = 4,
    alpha: float = 0.6,
    max_length: int,
    min_length: int = 0,
    logits_processors: Sequence[Callable] = (),
    constraint: Callable | None = None,
) -> SearchTrace:
    """Runs `beam_search` on one sentence and records the candidates of each step.

    Args:
        model: a `Transformer` or an `Ensemble`.
        encoder: the encoder of the targets.
        source_ids: the ids of the sentence, with end of sentence.
        beam_size: K.
        alpha: exponent of the length penalty.
        max_length: maximum length of the output.
        min_length: minimum number of tokens before the end of sentence.
        logits_processors: see `beam_search`.
        constraint: see `DecodeLoop`.
    """
    import tensorflow as tf

    from t2t_keras.decoding.beam import BeamSearch, length_penalty
    from t2t_keras.decoding.loop import DecodeLoop

    trace = SearchTrace(beam_size, alpha, max_length, [], [], "", [], 0.0)
    search = BeamSearch(beam_size, alpha=tf.constant(alpha, tf.float32), min_length=min_length)
    loop = DecodeLoop(model, search, logits_processors, constraint)
    source = tf.constant([list(source_ids)], tf.int32)
    live = loop.first(source, limits=tf.constant([max_length]), prefix=None).live
    i = 0
    while not (stopped := _why_stop(search, live.hypotheses, i, max_length)):
        position = tf.constant(i)
        beams, logits, caches = loop.next_logits(live, position)
        best = search.best_candidates(beams, logits, position)
        after = search.advance(beams, logits, position)
        penalty = length_penalty(i + 1, search.alpha)
        trace.steps.append(_candidates(beams, after, best, penalty, encoder))
        live = live._replace(hypotheses=after, caches=caches)
        i += 1
    beams = live.hypotheses
    [ids], [scores] = (tensor.numpy() for tensor in search.results(beams))
    return dataclasses.replace(
        trace,
        finished=_finished(beams, encoder),
        stopped=stopped,
        ids=_up_to_eos(ids[0]),
        score=float(scores[0]),
    )


def _why_stop(search: BeamSearch, beams: Beams, i: int, limit: int) -> str:
    """Returns the reason to stop after i tokens; "" to continue."""
    possible = float(search.best_possible(beams, limit)[0])
    best = float(beams.finished_scores[0, 0])
    ended = bool(beams.finished.numpy().any())
    if best > possible:
        return (
            f"No unfinished hypothesis can beat the best finished score, {best:.3f}: at the maximum "
            f"length, {limit} tokens, the most probable one would score at most {possible:.3f}."
        )
    if i >= limit and ended:
        return f"The maximum length, {limit} tokens, was reached."
    if i >= limit:
        return (
            f"The maximum length, {limit} tokens, was reached before any hypothesis ended: the most "
            "probable one was taken."
        )
    return ""


def _candidates(beams: Beams, after: Beams, best, penalty, encoder) -> list[Candidate]:
    """Returns the candidates of one step.

    Args:
        beams, after: the state before and after the step.
        best: the result of `BeamSearch.best_candidates`.
        penalty: the length penalty in its scores.
    """
    from t2t_keras.decoding.logits import INFINITY

    before = beams.alive_ids[0].numpy()
    alive = {tuple(ids) for ids in after.alive_ids[0].numpy()}
    finished = {tuple(ids) for ids in after.finished_ids[0][after.finished[0]].numpy()}
    seen = []
    for parent, token, score in zip(*(tensor[0].numpy() for tensor in best), strict=True):
        log_p = float(score * penalty)
        if log_p <= -INFINITY / 2:
            continue
        ids = (*before[parent], token)
        ended = token == EOS_ID
        chosen = [int(i) for i in ids[1:]]
        seen.append(
            Candidate(
                parent=int(parent),
                ids=chosen,
                token=shown_tokens(encoder, chosen[-1:]).tokens[0],
                text=encoder.decode(spelled(encoder, until_eos(chosen))),
                log_p=log_p,
                score=float(score),
                kept=ids in (finished if ended else alive),
                ended=bool(ended),
            )
        )
    return seen


def _finished(beams: Beams, encoder) -> list[Finished]:
    from t2t_keras.decoding.logits import INFINITY

    rows = (beams.finished_ids[0], beams.finished_scores[0], beams.finished[0])
    found = []
    for row, score, finished in zip(*(tensor.numpy() for tensor in rows), strict=True):
        if finished and score > -INFINITY / 2:
            ids = _up_to_eos(row[1:])
            text = encoder.decode(spelled(encoder, until_eos(ids)))
            found.append(Finished(ids, text, float(score), len(ids)))
    return found


def _up_to_eos(ids) -> list[int]:
    """Returns the ids up to and including the first end of sentence, if there is one."""
    return [*until_eos(ids), *[EOS_ID] * (EOS_ID in ids)]


def _without_ids(hypothesis: Candidate | Finished) -> dict[str, Any]:
    return {name: value for name, value in hypothesis._asdict().items() if name != "ids"}
