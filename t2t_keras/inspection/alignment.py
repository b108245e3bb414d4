"""Word alignments from attention: the source word of each target word, by one head or the mean of several."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.scoring import Pair, PairScorer
from t2t_keras.decoding.settings import DecodeSettings
from t2t_keras.decoding.translator import Line, Report, pad
from t2t_keras.errors import UserError
from t2t_keras.ids import EOS_ID, until_eos
from t2t_keras.open_graph import open_graph_of_model

Links = list[tuple[int, int]]
"""(source word, target word) index pairs, from 0."""

Gold = tuple[set, set]
"""The sure links of a sentence pair, and the possible links, which include the sure ones."""

_PAIRS = 16  # sentence pairs whose attention in all heads is in memory at once


class Heads(NamedTuple):
    """The heads whose attention to the source is averaged, and the step at which it is read."""

    layer: int | None = None  # decoder layer, from 0; None: all
    head: int | None = None  # head of that layer, from 0; None: all
    after: bool = False
    """True: use the step that reads a target token, not the one that predicts it (Chen et al. 2020)."""

    @classmethod
    def parse(cls, text: str) -> Heads:
        """Parses "mean", "LAYER" or "LAYER:HEAD", each optionally with "+1" for `after`."""
        match = re.fullmatch(r"(?:mean|(\d+)(?::(\d+))?)(\+1)?", text.strip())
        if not match:
            raise UserError(
                f"heads must be mean, LAYER or LAYER:HEAD, from 0, optionally with +1; got {text!r}."
            )
        layer, head = (None if number is None else int(number) for number in match.groups()[:2])
        return cls(layer, head, bool(match[3]))

    def __str__(self) -> str:
        numbers = [str(number) for number in (self.layer, self.head) if number is not None]
        return (":".join(numbers) or "mean") + "+1" * self.after

    def of(self, weights: np.ndarray) -> np.ndarray:
        """Averages the weights of all heads, [L, H, T, S], over these heads: [T, S]."""
        layers, heads = weights.shape[:2]
        for name, number, count in (("layer", self.layer, layers), ("head", self.head, heads)):
            if number is not None and number >= count:
                raise UserError(
                    f"heads={self}: the model has no {name} {number}; 0 to {count - 1} are allowed."
                )
        layer_slice = slice(None) if self.layer is None else slice(self.layer, self.layer + 1)
        head_slice = slice(None) if self.head is None else slice(self.head, self.head + 1)
        mean = weights[layer_slice, head_slice].mean((0, 1))  # [L, H, T, S] -> [T, S]
        return np.concatenate([mean[1:], mean[:1]]) if self.after else mean


class PairAligner(PairScorer):
    """Aligns the white-space-separated words of lines of the form "source<TAB>target".

    A target word is linked to the source word that gets most of its attention, summed over the tokens of
    the source word and averaged over those of the target word. If the end of sentence gets most of its
    attention, it is not linked.

    Args:
        model: a `Transformer`.
        encoders: "inputs" and "targets" text encoders.
        heads: see `Heads.parse`.
        settings, report: see `PairScorer`.
    """

    def __init__(
        self,
        model,
        encoders,
        heads: str = "mean",
        settings: DecodeSettings | None = None,
        report: Report | None = None,
    ):
        if hasattr(model, "models"):
            raise UserError("an ensemble has no attention of its own: name one checkpoint.")
        if model.encoder is None or model.decoder is None:
            raise UserError("word alignment needs a model with an encoder and a decoder.")
        super().__init__(model, encoders, settings, report)
        self.heads = Heads.parse(heads)

    def align(self, sources: Sequence[str], targets: Sequence[str]) -> list[Links]:
        """Returns the links of each pair of texts, ordered by target word."""
        pairs = map("\t".join, zip(sources, targets, strict=True))
        lines = (Line(number, pair) for number, pair in enumerate(pairs, start=1))
        return list(self.batcher.results(map(self._pair, lines)))

    def run(self, pairs: Sequence[Pair], longest: int) -> list[Links]:  # type: ignore[override]
        return [
            links(*self.words(pair), self.heads.of(weights))
            for pair, weights in self.weights(pairs)
        ]

    def weights(self, pairs: Sequence[Pair]) -> Iterable[tuple[Pair, np.ndarray]]:
        """Yields each pair with the encoder-decoder attention of all heads, [L, H, T, S]."""
        sources, targets = (pad(side) for side in zip(*(pair[1:3] for pair in pairs), strict=True))
        for pair, weights in zip(
            pairs, _weights(self.model, sources, targets).numpy(), strict=True
        ):
            yield pair, weights[:, :, : len(pair.target), : len(pair.source)]

    def words(self, pair: Pair) -> tuple[np.ndarray, np.ndarray]:
        """Returns `words_of_tokens` of the target and of the source."""
        return (
            words_of_tokens(self.encoders["targets"], pair.target),
            words_of_tokens(self.encoders["inputs"], pair.source),
        )

    def error_rates(self, lines: Iterable[str], references: Sequence[Gold]) -> dict[Heads, float]:
        """Returns the alignment error rate of every head and mean, with and without `after`."""
        pairs = [self._pair(Line(number, line)) for number, line in enumerate(lines, start=1)]
        if len(pairs) != len(references):
            raise UserError(
                f"there are {len(pairs)} pairs but {len(references)} reference alignments."
            )
        found: dict[Heads, list[Links]] = {}
        for start in range(0, len(pairs), _PAIRS):
            for pair, weights in self.weights(pairs[start : start + _PAIRS]):
                words = self.words(pair)
                for heads in _all_heads(*weights.shape[:2]):
                    found.setdefault(heads, []).append(links(*words, heads.of(weights)))
        return {heads: alignment_error_rate(each, references) for heads, each in found.items()}

    def empty_result(self, pair: Pair) -> Links:  # type: ignore[override]
        return []

    def tokens(self, result: Links) -> int:  # type: ignore[override]
        return len(result)


def _all_heads(layers: int, heads: int) -> list[Heads]:
    by_layer = [Heads(layer, head) for layer in range(layers) for head in (None, *range(heads))]
    return [each._replace(after=after) for each in [Heads(), *by_layer] for after in (False, True)]


@open_graph_of_model
def _weights(model, inputs, targets):
    """Returns the encoder-decoder attention of all heads, [B, L, H, T, S]."""
    batch = {"inputs": inputs, "targets": targets}
    _, weights = model(batch, training=False, return_attention_weights=True)
    return tf.cast(tf.stack(weights["encdec"], 1), tf.float32)


def links(targets: np.ndarray, sources: np.ndarray, weights: np.ndarray) -> Links:
    """Returns the links of a pair from its words (see `words_of_tokens`) and weights [T, S]."""
    # [1 + words, 1 + words]; the sum over a target word has the same argmax as the mean.
    by_word = targets.T @ weights @ sources
    return [(int(s) - 1, t) for t, s in enumerate(by_word.argmax(1)[1:]) if s]


def words_of_tokens(encoder, ids: Sequence[int]) -> np.ndarray:
    """Returns the words that each id is a part of: [ids, 1 + words], 0 or 1; column 0: end of sentence."""
    number = len(encoder.decode(until_eos(ids)).split())
    found = np.zeros((len(ids), 1 + number))
    before: list[str] = []
    for row, i in enumerate(ids):
        if i == EOS_ID:
            found[row, 0] = 1
            continue
        words = encoder.decode(ids[: row + 1]).split()
        # With bytes, an incomplete character may look like another word.
        for n in range(max(0, len(before) - 1), min(len(words), number)):
            found[row, 1 + n] = n >= len(before) or words[n] != before[n]
        before = words
    return found


# Pharaoh format, and the alignment error rate


def to_pharaoh(pairs: Links) -> str:
    """Returns links as "0-0 1-2", ordered by source word."""
    return " ".join(f"{source}-{target}" for source, target in sorted(pairs))


def from_pharaoh(line: str, where: str = "the line") -> Gold:
    """Returns the sure and the possible links of a line; "1-2" is sure, "1?2" possible."""
    sure, possible = set(), set()
    for item in line.split():
        match = re.fullmatch(r"(\d+)([-?])(\d+)", item)
        if not match:
            raise UserError(
                f"{where} has {item!r}: links are written 1-2, or 1?2 if only possible."
            )
        link = int(match[1]), int(match[3])
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return sure, possible


def alignment_error_rate(found: Iterable[Links], references: Iterable[Gold]) -> float:
    """Returns the alignment error rate (Och and Ney 2003), 0 to 1, of links against gold ones."""
    right = total = 0
    for each, (sure, possible) in zip(found, references, strict=True):
        right += len(sure & {*each}) + len(possible & {*each})
        total += len(sure) + len({*each})
    return 1 - right / max(total, 1)
