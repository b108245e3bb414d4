"""Word alignments from attention: the source word of each target word, by one head or the mean of several.

Computed by TensorFlow in a graph, so that an export can align too.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import tensorflow as tf

from t2t_keras.decoding.translator import Line, Pair, PairScorer, pad
from t2t_keras.errors import UserError, several_texts
from t2t_keras.ids import EOS_ID, PAD_ID
from t2t_keras.inspection.attention import require_both_sides
from t2t_keras.open_graph import open_graph_of_model
from t2t_keras.text import SentencePieceEncoder
from t2t_keras.text.graph import SPACES
from t2t_keras.text.sentencepiece import UNKNOWN

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
        match = re.fullmatch(r"(?:mean|(\d{1,9})(?::(\d{1,9}))?)(\+1)?", text.strip())
        if not match:
            raise UserError(
                f"heads must be mean, LAYER or LAYER:HEAD, from 0, optionally with +1; got {text!r}."
            )
        layer, head = (None if number is None else int(number) for number in match.groups()[:2])
        return cls(layer, head, bool(match[3]))

    def __str__(self) -> str:
        numbers = [str(number) for number in (self.layer, self.head) if number is not None]
        return (":".join(numbers) or "mean") + "+1" * self.after

    def average(self, weights):
        """Averages the weights of all heads, [B, L, H, T, S], over these heads: [B, T, S]."""
        layers = slice(None) if self.layer is None else slice(self.layer, self.layer + 1)
        heads = slice(None) if self.head is None else slice(self.head, self.head + 1)
        mean = tf.reduce_mean(weights[:, layers, heads], (1, 2))
        return tf.roll(mean, -1, axis=1) if self.after else mean


class PairAligner(PairScorer):
    """Aligns the white-space-separated words of lines of the form "source<TAB>target".

    A target word is linked to the source word that gets most of its attention, summed over the tokens of
    the source word and averaged over those of the target word; to none if the end of sentence gets most.

    Args:
        model: a `Transformer`.
        heads: see `Heads.parse`.
        encoders, settings, report: see `PairScorer`.
    """

    def __init__(self, model, encoders, heads: str = "mean", settings=None, report=None):
        self._heads = heads_of_model(model, heads)
        super().__init__(model, encoders, settings, report)
        self._spaces = dict.fromkeys(map(ord, unknown_spaces(encoders)), " ")

    def align(self, sources: Sequence[str], targets: Sequence[str]) -> list[Links]:
        """Returns the links of each pair of texts, ordered by target word."""
        sources, targets = several_texts("sources", sources), several_texts("targets", targets)
        if len(sources) != len(targets):
            raise UserError(
                f"targets must be as many as sources, {len(sources)}, got {len(targets)}."
            )
        pairs = map("\t".join, zip(sources, targets, strict=True))
        lines = (Line(number, pair) for number, pair in enumerate(pairs, start=1))
        return list(self.batcher.results(map(self._pair, lines)))

    def run(self, pairs: Sequence[Pair], longest: int) -> list[Links]:  # type: ignore[override]
        return [_links(words[:, 0]) for words in self._source_words([self._heads], pairs)]

    def error_rates(self, lines: Iterable[str], references: Sequence[Gold]) -> dict[Heads, float]:
        """Returns the alignment error rate of every head and mean, with and without `after`."""
        lines = [*lines]
        pairs = [self._pair(Line(number, line)) for number, line in enumerate(lines, start=1)]
        if len(pairs) != len(references):
            raise UserError(f"{len(pairs)} pairs but {len(references)} reference alignments.")
        for line, (_, possible) in zip(lines, references, strict=True):
            words = [len(text.split()) for text in line.split("\t")]
            if absent := [(s, t) for s, t in possible if s >= words[0] or t >= words[1]]:
                beyond = f"{to_pharaoh(absent)} is beyond the words of {line[:60]!r}"
                raise UserError(f"{beyond}: they are counted from 0.")
        layers, per_layer = _layers_and_heads(self.model)
        chosen = [(None, None), *itertools.product(range(layers), (None, *range(per_layer)))]
        every = [Heads(*one, after) for one in chosen for after in (False, True)]
        found: dict[Heads, list[Links]] = {heads: [] for heads in every}
        for start in range(0, len(pairs), _PAIRS):
            for words in self._source_words(every, pairs[start : start + _PAIRS]):
                for number, heads in enumerate(every):
                    found[heads].append(_links(words[:, number]))
        return {heads: alignment_error_rate(each, references) for heads, each in found.items()}

    def _source_words(self, heads: Sequence[Heads], pairs: Sequence[Pair]) -> tf.RaggedTensor:
        graph = open_graph_of_model(source_words)  # one for each model, encoders and heads
        sides = zip(*(pair[1:3] for pair in pairs), strict=True)
        ids = (pad([ids or [EOS_ID] for ids in side]) for side in sides)  # empty: a pair left out
        return graph(self.model, self.encoders, heads, *ids)

    def _pair(self, line: Line) -> Pair:
        return super()._pair(line._replace(text=line.text.translate(self._spaces)))

    def empty_result(self, pair: Pair) -> Links:  # type: ignore[override]
        return []

    def tokens(self, result: Links) -> int:  # type: ignore[override]
        return len(result)


def _layers_and_heads(model) -> tuple[int, int]:
    return len(model.decoder.layers), model.hp.num_heads


def heads_of_model(model, text: str) -> Heads:
    """Parses heads; raises UserError if the model does not have them or cannot align."""
    require_both_sides(model, "word alignment", "decoder")
    heads = Heads.parse(text)
    counts = _layers_and_heads(model)
    for name, number, count in zip(("layer", "head"), heads, counts, strict=False):
        if number is not None and number >= count:
            raise UserError(f"heads={heads}: there is no {name} {number}, only 0 to {count - 1}.")
    return heads


def _links(words: tf.Tensor) -> Links:
    return [(int(source), target) for target, source in enumerate(words.numpy()) if source >= 0]


def source_words(model, encoders, heads: Sequence[Heads], inputs, targets) -> tf.RaggedTensor:
    """Returns the source word of each target word by each of N heads or means of heads.

    Args:
        model, encoders: see `PairAligner`.
        heads: what to average.
        inputs, targets: [B, S] and [B, T] int32 ids with their end of sentence, padded with 0.

    Returns:
        [B, (words), N] int32: indices from 0; -1: not linked.
    """
    batch = {"inputs": inputs, "targets": targets}
    _, by_layer = model(batch, training=False, return_attention_weights=True)
    weights = tf.cast(tf.stack(by_layer["encdec"], 1), tf.float32)  # [B, L, H, T, S]
    averages = tf.stack([each.average(weights) for each in heads], 1)  # [B, N, T, S]

    def of_pair(row):
        # Up to the end of sentence, the last id that is not padding.
        source, target = (ids[: tf.reduce_max(tf.where(ids != PAD_ID)) + 1] for ids in row[:2])
        weights = row[2][:, : tf.size(target), : tf.size(source)]
        sources = words_of_tokens(encoders["inputs"], source)
        targets = words_of_tokens(encoders["targets"], target)
        return tf.transpose(strongest(targets, sources, weights))

    of_words = tf.RaggedTensorSpec([None, len(heads)], tf.int32, ragged_rank=0)
    return tf.map_fn(of_pair, (inputs, targets, averages), fn_output_signature=of_words)


def strongest(targets, sources, weights):
    """Returns the source word that gets most of the attention of each target word: [N, words] int32.

    Args:
        targets, sources: [T or S, 1 + words], see `words_of_tokens`.
        weights: [N, T, S].
    """
    # [N, 1 + words, 1 + words]; the sum over a target word has the same argmax as the mean.
    by_word = tf.transpose(targets) @ tf.cast(weights, targets.dtype) @ sources
    return tf.argmax(by_word, -1, tf.int32)[:, 1:] - 1


def unknown_spaces(encoders) -> str:
    """Returns the white space, except tab, that SentencePiece encoders do not know.

    In texts to align it becomes a space: as an unknown character it would join two words.
    """
    spaces = filter(str.isspace, map(chr, [*range(9), *range(10, 0x3001)]))
    pieces = [each for each in encoders.values() if isinstance(each, SentencePieceEncoder)]
    unknown = UNKNOWN.strip()
    return "".join(s for s in spaces if any(unknown in e.decode(e.encode(s)) for e in pieces))


def words_of_tokens(encoder, ids):
    """Returns the words that each id is a part of: [T, 1 + words], 0 or 1; column 0: end of sentence.

    Its arguments are the text encoder and [T] int32 ids, the last of them the end of sentence.
    """
    ids = tf.convert_to_tensor(ids, tf.int32)
    number = tf.size(ids) - 1
    # The texts of the first 0, 1, ..., T - 1 ids, and their words, filled up with "".
    starts = tf.RaggedTensor.from_tensor(tf.tile(ids[None], [number + 1, 1]), tf.range(number + 1))
    texts = encoder.decode_tensor(starts)
    if isinstance(encoder, SentencePieceEncoder):
        # The spaces around an unknown character are not the text's.
        texts = tf.strings.regex_replace(texts, rf"(?:\A| ){UNKNOWN[1:]}", UNKNOWN.strip())
    texts = tf.strings.regex_replace(texts, f"[{SPACES}]", " ")
    words = tf.strings.split(texts).to_tensor()
    counts = tf.math.count_nonzero(words != "", 1, dtype=tf.int32)
    # An id is part of the words that it adds, and of the last one before it if that changes or if no text
    # does ("_" alone). (With bytes, an incomplete character may look like another word.)
    is_last_or_new = tf.range(tf.shape(words)[1]) >= counts[:-1, None] - 1
    changes = (words[1:] != words[:-1]) | (texts[1:] == texts[:-1])[:, None]
    is_part = is_last_or_new & changes & (words[1:] != "")
    is_part = tf.pad(is_part[:, : counts[-1]], [[0, 1], [0, 0]])
    return tf.cast(tf.concat([tf.range(number + 1)[:, None] == number, is_part], 1), tf.float64)


# Pharaoh format, and the alignment error rate


def to_pharaoh(pairs: Links) -> str:
    """Returns links as "0-0 1-2", ordered by source word."""
    return " ".join(f"{source}-{target}" for source, target in sorted(pairs))


def to_pharaoh_tensor(words: tf.RaggedTensor) -> tf.Tensor:
    """Returns the lines of `to_pharaoh`, [B] string, of source words [B, None], -1: none, in a graph."""
    dense = words.to_tensor(-1)
    targets = tf.argsort(dense, stable=True)
    sources = tf.gather(dense, targets, batch_dims=1)
    links = tf.strings.join([tf.strings.as_string(side) for side in (sources, targets)], "-")
    return tf.strings.reduce_join(tf.ragged.boolean_mask(links, sources >= 0), 1, separator=" ")


def from_pharaoh(line: str, where: str = "the line") -> Gold:
    """Returns the sure and the possible links of a line; "1-2" is sure, "1?2" possible."""
    sure, possible = set[tuple](), set[tuple]()
    for item in line.split():
        match = re.fullmatch(r"(\d{1,9})([-?])(\d{1,9})", item)
        if not match:
            raise UserError(f"{where} has {item[:60]!r}: links are 1-2, or 1?2 if only possible.")
        (sure if match[2] == "-" else possible).add((int(match[1]), int(match[3])))
    return sure, sure | possible


def alignment_error_rate(found: Iterable[Links], references: Iterable[Gold]) -> float:
    """Returns the alignment error rate (Och and Ney 2003), 0 to 1, of links against gold ones."""
    right = total = 0
    for each, (sure, possible) in zip(found, references, strict=True):
        right += len(sure & {*each}) + len(possible & {*each})
        total += len(sure) + len({*each})
    return 1 - right / max(total, 1)
