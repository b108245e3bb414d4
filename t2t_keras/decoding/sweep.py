"""Quality by beam size and length penalty: one search finds the outputs for all penalties."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.decoding.beam import Beams, BeamSearch, length_penalty
from t2t_keras.decoding.logits import INFINITY
from t2t_keras.decoding.settings import DecodeSettings
from t2t_keras.decoding.translator import Translator
from t2t_keras.ids import EOS_ID, until_eos, without_padding


class PenaltySweep(NamedTuple):
    """The strategy of a beam search that keeps the best finished hypothesis for each of A penalties.

    Alive hypotheses have the same length, so a penalty does not change their order, only which finished
    one is best and when none can beat it. The search of a sentence ends when none can for any penalty,
    and its A results equal those of A separate searches (for alphas of 0 or more). `Beams.finished...`
    are [b, A, ...] here.
    """

    search: BeamSearch  # with alpha=0: its scores are log p
    alphas: tuple[float, ...]

    @property
    def top_beams(self) -> int:
        """A."""
        return len(self.alphas)

    def first(self, batch) -> Beams:
        """Returns the state before the first token."""
        return self.search.first(batch)._replace(
            finished_ids=tf.zeros([batch, self.top_beams, 1], tf.int32),
            finished_scores=tf.fill([batch, self.top_beams], -INFINITY),
            finished=tf.zeros([batch, self.top_beams], tf.bool),
        )

    def see_own_keys(self, beams: Beams):
        """See `BeamSearch`."""
        return self.search.see_own_keys(beams)

    def add_log_p(self, beams: Beams, log_p):
        """See `BeamSearch`."""
        return self.search.add_log_p(beams, log_p)

    def prune(self, beams: Beams, caches, i):
        """See `BeamSearch`."""
        return self.search.prune(beams, caches, i)

    def advance(self, beams: Beams, logits, i, rows=None, forced=None) -> Beams:
        """Chooses token number i of every hypothesis; see `BeamSearch.advance`."""
        parent, token, log_p = self.search.best_candidates(beams, logits, i, forced)  # [b, 2K]
        parents = tf.gather(beams.alive_ids, parent, batch_dims=1)
        ids = tf.concat([parents, token[:, :, None]], 2)  # [b, 2K, i + 2]
        # The first candidate that ends is the most likely one, for every penalty.
        ends = token == EOS_ID
        first = tf.argmax(ends, 1, tf.int32)[:, None]  # [b, 1]
        ended = tf.gather(tf.where(ends, log_p, -INFINITY), first, batch_dims=1)  # [b, 1]
        scores = ended / length_penalty(i + 1, self.alphas)  # [b, A]
        better = scores > beams.finished_scores
        return self.search.advance(beams, logits, i, rows, forced)._replace(
            finished_ids=tf.where(
                better[:, :, None],
                tf.gather(ids, first, batch_dims=1),
                tf.pad(beams.finished_ids, [[0, 0], [0, 0], [0, 1]]),
            ),
            finished_scores=tf.where(better, scores, beams.finished_scores),
            finished=beams.finished | tf.reduce_any(ends, 1, keepdims=True),
        )

    def is_done(self, beams: Beams, limits):
        """Returns [b] bool, True where no alive hypothesis can beat the best one for any penalty."""
        possible = beams.alive_log_p[:, :1] / length_penalty(limits[:, None], self.alphas)
        return tf.reduce_all(beams.finished_scores > possible, 1)

    def results(self, beams: Beams):
        """Returns ids [b, A, i] and scores [b, A]; see `BeamSearch.results`."""
        ids = tf.where(beams.finished[:, :, None], beams.finished_ids, beams.alive_ids[:, :1])
        scores = tf.where(beams.finished, beams.finished_scores, beams.alive_log_p[:, :1])
        return ids[:, :, 1:], scores


def sweep(
    model,
    encoders,
    problem,
    batches: Iterable[Any],
    settings: DecodeSettings,
    beam_sizes: Sequence[int],
    alphas: Sequence[float],
) -> dict[tuple[int, float], float]:
    """Returns the problem's quality (0 to 100) of translations by beam size and alpha.

    It decodes once per beam size; a beam size of 1 has the same result for every alpha.

    Args:
        model: a `Transformer` or an `Ensemble`.
        encoders: "inputs" and "targets" text encoders.
        problem: its `quality` scores the texts.
        batches: {"inputs", "targets"}, each example once.
        settings: all other decoding settings; `xla` is ignored.
    """
    inputs: list[list[int]] = []
    references: list[list[int]] = []
    for batch in batches:
        inputs += map(without_padding, batch["inputs"].numpy())
        references += map(without_padding, batch["targets"].numpy())
    quality = {}
    for beam_size in beam_sizes:
        chosen = dataclasses.replace(settings, beam_size=beam_size, return_beams=False, xla=False)
        translator = Translator(model, encoders, chosen, constraint=problem.constraint(encoders))
        if beam_size > 1:
            translator.options = translator.options._replace(alphas=tuple(alphas))
        found = translator.translate_ids(inputs)
        sources = [encoders["inputs"].decode(until_eos(ids)) for ids in inputs]
        targets = [translator.text(ids) for ids in references]
        for number, alpha in enumerate(alphas):
            texts = [each.texts[number if beam_size > 1 else 0] for each in found]
            quality[beam_size, alpha] = problem.quality(sources, targets, texts)
    return quality
