"""Log-probabilities of given outputs, as ids or as lines of text (T2T's `--score_file`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.decode_settings import DecodeSettings
from t2t_keras.decoding.search import as_ids
from t2t_keras.decoding.translator import (
    WINDOW,
    BatchDone,
    BatchLimits,
    LengthBatcher,
    Line,
    Report,
    encoded,
    pad,
)
from t2t_keras.errors import UserError, warn
from t2t_keras.ids import EOS_ID, PAD_ID
from t2t_keras.open_graph import open_graph_of_model


def score(model, inputs, targets):
    """Returns the log-probability of each target under a model.

    Args:
        model: a `Transformer` or an `Ensemble`.
        inputs: [B, S] source ids with their end of sentence, padded with 0; None for a language model.
        targets: [B, T] target ids with their end of sentence, padded with 0.

    Returns:
        [B] float32, sums over the target's tokens including the end of sentence.
    """
    sides = {"targets": as_ids(targets)}
    if inputs is not None:
        sides["inputs"] = as_ids(inputs)
    return _score(model, sides)


@open_graph_of_model
def _score(model, sides):
    logits, targets = model(sides, training=False), sides["targets"]
    log_p = tf.gather(logits, targets, batch_dims=2) - tf.reduce_logsumexp(logits, -1)
    return tf.reduce_sum(tf.where(targets == PAD_ID, 0.0, log_p), -1)


_LOGITS = 8
"""A scoring batch has 1/8 of a search's tokens, because it holds the logits of all positions."""


class Pair(NamedTuple):
    """A source and its target as ids; for a language model only the target."""

    number: int
    source: list[int]  # both with the end of sentence; empty: skipped
    target: list[int]
    text_bytes: int


class PairScore(NamedTuple):
    """The loss of a target."""

    loss: float  # nats per token; nan: not scored
    tokens: int


class PairScorer:
    """Scores lines "source<TAB>target"; for a language model, lines are targets.

    Args:
        model: a `Transformer` or an `Ensemble`.
        encoders: "inputs" and "targets" text encoders.
        settings: only `max_input_size` (here for either side) and the batch sizes are used.
        report: receives one line for each pair that is too long or does not fit into memory; by
            default it goes to standard error.
    """

    def __init__(
        self, model, encoders, settings: DecodeSettings | None = None, report: Report | None = None
    ):
        self.model = model
        self.encoders = encoders
        self.settings = settings or DecodeSettings()
        self.report = report or warn
        limits = BatchLimits(
            items=self.settings.batch_size,
            tokens=-(-self.settings.batch_tokens // _LOGITS),
            window=WINDOW,
        )
        self.batcher = LengthBatcher(self, limits, self.report)

    def score_lines(
        self,
        lines: Iterable[Line],
        skip: int = 0,
        done: Callable[[BatchDone], None] | None = None,
        known: Collection[int] = (),
    ) -> Iterator[PairScore]:
        """Yields each target's mean loss per token with the end of sentence, without label smoothing.

        `skip`, `done` and `known` are as in `LengthBatcher.results`; known lines yield nan.

        Raises:
            UserError: a line has no tab or more than one.
        """
        return self.batcher.results(map(self._pair, lines), skip, done, known)

    # The methods of a `BatchJob`.

    def size(self, pair: Pair) -> int:
        """Returns the number of tokens of the longer side."""
        return max(len(pair.source), len(pair.target))

    def order(self, pair: Pair) -> int:
        """Sorts the longest first."""
        return -self.size(pair)

    def run(self, pairs: Sequence[Pair], longest: int) -> list[PairScore]:
        """Scores a batch."""
        sources, targets = (pad(side) for side in zip(*(pair[1:3] for pair in pairs), strict=True))
        log_p = score(self.model, sources if sources.size else None, targets).numpy()
        tokens = np.count_nonzero(targets != PAD_ID, axis=1)
        return [
            PairScore(-float(sum_) / number, int(number))
            for sum_, number in zip(log_p, tokens, strict=True)
        ]

    def empty_result(self, pair: Pair) -> PairScore:
        """Returns nan."""
        return PairScore(math.nan, 0)

    def tokens(self, result: PairScore) -> int:
        """Returns the number of target tokens."""
        return result.tokens

    def _pair(self, line: Line) -> Pair:
        names = [side for side in ("inputs", "targets") if side in self.encoders]
        sides = line.text.split("\t") if len(names) > 1 else [line.text]
        if len(sides) != len(names):
            raise UserError(
                f"line {line.number} has {len(sides) - 1} tabs: a line to score is "
                "SOURCE<TAB>TARGET."
            )
        *sources, target = (
            [*encoded(self.encoders[name], text, line.number), EOS_ID]
            for name, text in zip(names, sides, strict=True)
        )
        source = sources[0] if sources else []
        most = self.settings.max_input_size
        longer = max(len(source), len(target))
        if 0 < most < longer:
            self.report(
                f"line {line.number} has {longer:,} tokens, more than max_input_size={most}: "
                "it is not scored"
            )
            source = target = []
        return Pair(line.number, source, target, line.text_bytes)
