"""Beam search for outputs in which given words must appear (Post and Vilar 2018).

The hypotheses of a sentence are put into banks by the number of tokens of its phrases that they have. In
each step the best candidate of every bank stays alive, the fullest bank first, then the second best of
every bank, and so on until there are K. An output may only end when it has all phrases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from t2t_keras.decoding import beam
from t2t_keras.errors import UserError
from t2t_keras.ids import EOS_ID, PAD_ID
from t2t_keras.shape import ON_TENSORFLOW, shape_of, take


class Phrases(NamedTuple):
    """The phrases that must appear in the outputs of a batch, as `strategy` of `search`."""

    ids: Any  # [B, C, N] int32, C phrases of up to N tokens, padded with 0

    @classmethod
    def of(cls, phrases: Iterable[Sequence[Sequence[int]]]) -> Phrases:
        """Returns the phrases of a batch; for each sentence there is a list of phrases as ids."""
        rows = list(phrases)
        most = max(1, *map(len, rows))
        longest = max((len(phrase) for row in rows for phrase in row), default=1)
        ids = np.full((len(rows), most, longest), PAD_ID, np.int32)
        for row, target in zip(rows, ids, strict=True):
            for phrase, place in zip(row, target, strict=False):
                place[: len(phrase)] = phrase
        return cls(ids)

    def __call__(self, request) -> PhraseSearch:
        """Returns the strategy of a `SearchRequest`; `UserError`: it has no beam or is compiled."""
        if not request.beam_size or request.xla or not ON_TENSORFLOW:
            wrong = "beam_size=1" if not request.beam_size else "xla or another backend"
            raise UserError(
                f"words that must appear need TensorFlow's beam search without XLA, got {wrong}."
            )
        return PhraseSearch(request._replace(strategy=None).made_strategy(), self.ids)


class Progress(NamedTuple):
    """How far n hypotheses or candidates of each of b sentences are with its C phrases."""

    met: Any  # [b, n, C] bool, True for the phrases that they have, and for empty ones
    current: Any  # [b, n] int32, the phrase that the last tokens begin
    place: Any  # [b, n] int32, the number of its tokens that they have; 0: none

    def begun(self):
        """Returns [b, n, C] bool, True for the phrase that the last tokens begin."""
        numbers = ops.arange(shape_of(self.met)[2], dtype="int32")
        return (self.current[:, :, None] == numbers) & (self.place > 0)[:, :, None]


class PhraseBeams(NamedTuple):
    """The hypotheses of b sentences with the progress of those alive."""

    beams: beam.Beams
    progress: Progress  # n = K
    phrases: Any  # [b, C, N] int32


class PhraseSearch(NamedTuple):
    """The strategy of a beam search with phrases that must appear."""

    search: beam.BeamSearch
    phrases: Any  # [B, C, N] int32

    @property
    def top_beams(self) -> int:
        """K', the number of hypotheses that are returned."""
        return self.search.top_beams

    def first(self, batch) -> PhraseBeams:
        none = ops.zeros([batch, self.search.beam_size], "int32")
        met = ops.tile(self.phrases[:, None, :, 0] == PAD_ID, [1, self.search.beam_size, 1])
        return PhraseBeams(self.search.first(batch), Progress(met, none, none), self.phrases)

    def add_own_keys(self, state: PhraseBeams, i):
        beams, ids, visible = self.search.add_own_keys(state.beams, i)
        return state._replace(beams=beams), ids, visible

    def prune(self, state: PhraseBeams, caches):
        beams, caches = self.search.prune(state.beams, caches)
        return state._replace(beams=beams), caches

    def is_done(self, state: PhraseBeams, limits):
        return self.search.is_done(state.beams, limits)

    def advance(self, state: PhraseBeams, logits, i, rows=None, forced=None, allowed=None):
        """Chooses token number i of every hypothesis; the arguments are those of `BeamSearch`."""
        found, progress = self._candidates(state, logits, i, forced, allowed)  # of n candidates
        # K of those that go on, fairly for all banks; and those that end among the 2K best of all.
        ends = found.token == EOS_ID
        goes_on, ended = found.possible & ~ends, found.possible & ends
        order = _in_turns(self._filled(state, progress), found.score, goes_on)
        k = self.search.beam_size
        alive, likely = beam.best(order, goes_on, k), beam.best(found.score, found.possible, 2 * k)
        chosen = ops.concatenate([alive, likely], 1)
        possible = ops.concatenate([take(goes_on, alive), take(ended, likely)], 1)
        found = beam.Candidates(*(take(each, chosen) for each in found))._replace(possible=possible)
        alive = beam.best(found.score, possible & (found.token != EOS_ID), k)
        progress = Progress(*(take(take(each, chosen), alive) for each in progress))
        beams = self.search.with_candidates(state.beams, found, i)
        return state._replace(beams=beams, progress=progress)

    def results(self, state: PhraseBeams, i) -> beam.SearchResult:
        """Returns the finished hypotheses; if there are none, those alive with most of their phrases."""
        beams, k = state.beams, self.search.beam_size
        filled = self._filled(state, state.progress)
        rank = ops.cast(filled * k - ops.arange(k, dtype="int32"), "float32")
        order = beam.best(rank, beams.alive, k)
        beams = beams._replace(
            alive_tokens=beam.Tokens(*(take(each, order) for each in beams.alive_tokens)),
            alive_log_p=take(beams.alive_log_p, order),
            alive=take(beams.alive, order),
        )
        return self.search.results(beams, i)

    def _candidates(self, state, logits, i, forced, allowed) -> tuple[beam.Candidates, Progress]:
        """Returns the best continuations of each hypothesis, those that its phrases ask for, and their progress."""
        beams, met = state.beams, state.progress.met
        wanted = _next_tokens(state.phrases, state.progress)  # [b, K, C]
        tokens, log_p, possible = self.search.best_tokens(logits, i, forced, allowed)

        # What is among the best already, or wanted by a phrase before, is not a candidate again.
        same = wanted[:, :, :, None] == tokens[:, :, None, :]  # [b, K, C, 2K]
        numbers = ops.arange(shape_of(met)[2], dtype="int32")
        earlier = numbers[None] < numbers[:, None]  # [C, C]
        again = (wanted[:, :, :, None] == wanted[:, :, None, :]) & ~met[:, :, None] & earlier
        wanted_too = ~met & ~ops.any(same, -1) & ~ops.any(again, -1)
        if allowed is not None:
            wanted_too &= take(allowed, wanted)
        if forced is not None:
            wanted_too &= (forced == PAD_ID)[:, None, None]
        normaliser = beam.log_normaliser(logits, ops.max(logits, -1, keepdims=True))
        tokens = ops.concatenate([ops.cast(tokens, "int32"), wanted], 2)  # [b, K, 2K + C]
        log_p = ops.concatenate([log_p, take(logits, wanted) - normaliser], 2)
        possible = ops.concatenate([possible, wanted_too], 2) & beams.alive[:, :, None]
        possible &= (tokens != EOS_ID) | ops.all(met, -1)[:, :, None]

        parent = ops.zeros_like(tokens) + ops.arange(self.search.beam_size, dtype="int32")[:, None]
        penalty = beam.length_penalty(i + 1, self.search.alpha)
        score = (log_p + beams.alive_log_p[:, :, None]) / penalty
        batch = shape_of(tokens)[0]
        values = (parent, tokens, log_p, score, possible)  # [b, K, 2K + C] each
        found = beam.Candidates(*(ops.reshape(each, [batch, -1]) for each in values))
        return found, self._advanced(state, found)

    def _advanced(self, state: PhraseBeams, found: beam.Candidates) -> Progress:
        """Returns the progress after the tokens of candidates, n for each sentence."""
        before = Progress(*(take(each, found.parent) for each in state.progress))
        token = found.token[:, :, None]
        right = before.begun() & (_next_tokens(state.phrases, before) == token)  # [b, n, C]
        goes_on = ops.any(right, -1)
        starts = ~before.met & (state.phrases[:, None, :, 0] == token)
        first = ops.cast(ops.argmax(ops.cast(starts, "int32"), -1), "int32")
        started = ops.cast(ops.any(starts, -1), "int32")
        after = Progress(
            before.met,
            current=ops.where(goes_on, before.current, first),
            place=ops.where(goes_on, before.place + 1, started),
        )
        complete = after.begun() & (after.place[:, :, None] == _lengths(state.phrases)[:, None])
        place = ops.where(ops.any(complete, -1), 0, after.place)
        return Progress(after.met | complete, after.current, place)

    def _filled(self, state: PhraseBeams, progress: Progress):
        """Returns the number of tokens of phrases that hypotheses have, [b, n]: their bank."""
        whole = ops.cast(progress.met, "int32") * _lengths(state.phrases)[:, None]
        return ops.sum(whole, -1) + progress.place


def _lengths(phrases):
    """Returns the lengths [b, C] of phrases [b, C, N]."""
    return ops.sum(ops.cast(phrases != PAD_ID, "int32"), -1)


def _next_tokens(phrases, progress: Progress):
    """Returns the next token of each phrase [b, C, N] for each hypothesis, [b, n, C]."""
    place = ops.where(progress.begun(), progress.place[:, :, None], 0)
    place = ops.transpose(place, (0, 2, 1))  # [b, C, n]
    return ops.transpose(take(phrases, place), (0, 2, 1))


def _in_turns(banks, scores, possible):
    """Returns values [b, n] by which the best of each bank come first, then the second best, and so on.

    Among those of one turn, the fuller bank comes first.
    """
    places = ops.arange(shape_of(scores)[1], dtype="int32")
    better = scores[:, None] > scores[:, :, None]  # [b, n, n]: the second index is better
    better |= (scores[:, None] == scores[:, :, None]) & (places[None] < places[:, None])
    rivals = (banks[:, None] == banks[:, :, None]) & possible[:, None] & better
    turn = ops.sum(ops.cast(rivals, "int32"), -1)  # [b, n]
    most = 1 + ops.max(banks, -1, keepdims=True)
    return ops.cast(banks - turn * most, "float32")
