"""From text to text with a trained model."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.beam import beam_search
from t2t_keras.decoding.by_length import BatchLimits, ByLength, Done, Report
from t2t_keras.decoding.search import greedy, sample
from t2t_keras.decoding.settings import SENTENCES, DecodeSettings
from t2t_keras.decoding.source_lines import Line
from t2t_keras.errors import UserError
from t2t_keras.ids import EOS_ID, PAD_ID, until_eos, without_padding
from t2t_keras.text.encoders import spelled

WINDOW = 2048
"""Lines that are sorted together."""


class Translation(NamedTuple):
    """The hypotheses for one input, best first."""

    texts: list[str]
    scores: list[float]
    lengths: list[int]  # in tokens, end of sentence included


class Sentence(NamedTuple):
    """A line as a model takes it."""

    number: int
    ids: list[int]  # with the end of sentence; none: left out
    prefix: list[int]
    text: str

    @property
    def text_bytes(self) -> int:
        """The length of the text in UTF-8."""
        return len(self.text.encode("utf-8", "ignore"))


class Translator:
    """Translates lines of text.

    Args:
        model: a `Transformer` or an `Ensemble`.
        encoders: "inputs" and "targets" text encoders, as `Problem.get_feature_encoders` gives.
        settings: how to decode.
        report: is told, in one line each, what is cut or skipped and what does not fit into
            memory; by default, standard error is.
        format_output: makes of an input and the text that was decoded for it what a user gets, as
            `Problem.format_output` does; by default, the text.

    Raises:
        UserError: the search needs more memory than the machine has.
    """

    def __init__(
        self,
        model,
        encoders,
        settings: DecodeSettings | None = None,
        report: Report | None = None,
        format_output: Callable[[str, str], str] = lambda inputs, output: output,
    ):
        self.model = model
        self.encoders = encoders
        self.settings = settings or DecodeSettings()
        self._require_memory()
        self.report = report or warn
        self.format_output = format_output
        self.by_length = ByLength(self, _limits(self.settings), self.report)

    def translate(
        self, lines: Sequence[str], prefixes: Sequence[str] | None = None
    ) -> list[Translation]:
        """Translates every line; the result has the order of the input.

        Args:
            lines: the text to translate.
            prefixes: what each translation begins with: whole words; empty where nothing is given.

        Raises:
            UserError: a line that the vocabulary cannot express; the message names it.
        """
        pairs = zip(lines, prefixes or itertools.repeat("", len(lines)), strict=True)
        numbered = (Line(n, *pair) for n, pair in enumerate(pairs, start=1))
        return list(self.translate_lines(numbered))

    def translate_lines(
        self,
        lines: Iterable[Line],
        skip: int = 0,
        done: Callable[[Done], None] | None = None,
        known: Collection[int] = (),
    ) -> Iterator[Translation]:
        """Yields the translations in the order of the lines, however many there are.

        Lines are decoded together with others of about their length, longest first, as in T2T,
        but sorted within windows of `WINDOW` lines. A translation comes as soon as those before it
        are there.

        Args:
            skip: translations that are not wanted, at the beginning.
            done: called after every batch.
            known: numbers of lines that are not to be translated: empty hypotheses come for them.
        """
        return self.by_length.results(map(self._sentence, lines), skip, done, known)

    def translate_ids(self, ids) -> list[Translation]:
        """Translates source ids [B, S] with their ends of sentences, padded with 0."""
        rows = [without_padding(row) for row in np.asarray(ids)]
        sentences = [Sentence(n, row, [], "") for n, row in enumerate(rows, start=1)]
        return list(self.by_length.results(sentences))

    def text(self, ids) -> str:
        """The text of target ids up to their end of sentence.

        What `vocab_divisor` has added to a vocabulary of subwords counts for nothing.
        """
        encoder = self.encoders["targets"]
        return encoder.decode(spelled(encoder, until_eos(ids)))

    # What `ByLength` asks for.

    def size(self, sentence: Sentence) -> int:
        """Source tokens."""
        return len(sentence.ids)

    def order(self, sentence: Sentence):
        """Longest first; in T2T's batches by words."""
        return -len(sentence.text.split() if self.settings.t2t_batches else sentence.ids)

    def run(self, sentences: Sequence[Sentence], longest: int) -> list[Translation]:
        """Translates a batch."""
        outputs, scores = self._search(sentences, longest)  # [B, K, L], [B, K]
        return [
            Translation(
                texts=[self.format_output(sentence.text, self.text(ids)) for ids in hypotheses],
                scores=[float(score) for score in row],
                lengths=[len(without_padding(ids)) for ids in hypotheses],
            )
            for sentence, hypotheses, row in zip(
                sentences, outputs.numpy(), scores.numpy(), strict=True
            )
        ]

    def without(self, sentence: Sentence) -> Translation:
        """Empty hypotheses."""
        number = self.settings.beam_size if self.settings.return_beams else 1
        return Translation([""] * number, [0.0] * number, [0] * number)

    def tokens(self, translation: Translation) -> int:
        """Those of the best hypothesis."""
        return translation.lengths[0]

    def _require_memory(self) -> None:
        models = getattr(self.model, "models", [self.model])
        cached = sum(
            8 * model.hp.hidden_size * (model.hp.num_decoder_layers or model.hp.num_hidden_layers)
            for model in models
        )
        self.settings.require_memory(self.model.target_vocab_size, cached)

    def _search(self, sentences, longest):
        s = self.settings
        ids = pad([sentence.ids for sentence in sentences])
        limits = [
            (longest if s.t2t_batches else len(sentence.ids)) + s.extra_length
            for sentence in sentences
        ]
        prefix = None
        if any(sentence.prefix for sentence in sentences):
            prefix = pad([sentence.prefix for sentence in sentences])
            limits = [
                limit + len(sentence.prefix)
                for limit, sentence in zip(limits, sentences, strict=True)
            ]
        common: dict[str, Any] = {
            "max_lengths": np.asarray(limits, np.int32),
            "min_length": s.min_length,
            "prefix": prefix,
        }
        if s.beam_size > 1:
            top_beams = s.beam_size if s.return_beams else 1
            return beam_search(
                self.model,
                ids,
                beam_size=s.beam_size,
                alpha=s.alpha,
                top_beams=top_beams,
                **common,
            )
        if s.sampling_method == "random":
            outputs, scores = sample(
                self.model,
                ids,
                seed=tf.constant((s.sampling_seed << 32 | sentences[0].number) % 2**63, tf.int64),
                temperature=s.sampling_temp,
                top_k=max(0, s.sampling_keep_top_k),
                top_p=s.sampling_keep_top_p,
                **common,
            )
        else:
            outputs, scores = greedy(self.model, ids, **common)
        return outputs[:, None], scores[:, None]

    def _sentence(self, line: Line) -> Sentence:
        ids = [*encoded(self.encoders["inputs"], line.text, line.number), EOS_ID]
        prefix = encoded(self.encoders["targets"], line.prefix, line.number)
        most = self.settings.max_input_size
        if 0 < most < len(ids):
            cut = self.settings.long_inputs == "cut"
            self.report(
                f"line {line.number} has {len(ids):,} tokens, more than max_input_size={most}: "
                + ("it is cut" if cut else "it is skipped")
            )
            ids = [*ids[: most - 1], EOS_ID] if cut else []
        return Sentence(line.number, ids, prefix, line.text)


def warn(message: str) -> None:
    """One line on standard error."""
    print(f"warning: {message}", file=sys.stderr, flush=True)


def encoded(encoder, text: str, number: int) -> list[int]:
    """The ids of a line of text.

    Raises:
        UserError: the encoder cannot express it.
    """
    try:
        return encoder.encode(text.strip())
    except UserError as error:
        raise UserError(f"line {number}: {error}") from error


def pad(sequences: Sequence[Sequence[int]]) -> np.ndarray:
    """Puts sequences below one another: [B, longest] int32, 0 where they are shorter."""
    batch = np.full((len(sequences), max(map(len, sequences))), PAD_ID, np.int32)
    for row, ids in enumerate(sequences):
        batch[row, : len(ids)] = ids
    return batch


def _limits(settings: DecodeSettings) -> BatchLimits:
    if settings.t2t_batches:
        return BatchLimits(items=settings.batch_size or SENTENCES, fixed=True)
    return BatchLimits(
        items=settings.batch_size,
        tokens=settings.batch_tokens and max(1, settings.batch_tokens // settings.beam_size),
        window=WINDOW,
        fixed=settings.sampling_method == "random",
    )
