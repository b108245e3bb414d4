"""Translates and scores text with a trained model: sorts lines by length, runs batches, restores the order."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import string
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.decode_settings import SENTENCES, DecodeSettings, require_compilable
from t2t_keras.decoding.constraints import Phrases
from t2t_keras.decoding.logits import Constraint, LogitsProcessor
from t2t_keras.decoding.searches import int_tensor, kept_top_k, named_processors, search
from t2t_keras.errors import UserError, require_kind, several_texts, warn
from t2t_keras.ids import EOS_ID, PAD_ID, until_eos, without_padding
from t2t_keras.model_kinds import CLASSIFICATION, LANGUAGE_MODEL, TRANSLATION
from t2t_keras.open_graph import open_graph_of_model
from t2t_keras.text.encoders import spelled

WINDOW = 2048
"""Number of lines that are sorted together."""

Report = Callable[[str], None]
"""Receives a one-line warning."""


class Line(NamedTuple):
    """A line of text and its number."""

    number: int  # from 1
    text: str
    prefix: str = ""  # the beginning of its translation
    phrases: Sequence[str] = ()  # what its translation must contain
    text_bytes: int = 0  # of the text in UTF-8, where progress is shown


class Translation(NamedTuple):
    """The hypotheses for one input, best first."""

    texts: list[str]
    scores: list[float]
    lengths: list[int]  # in tokens, including the end of sentence
    token_scores: Sequence[list[float]] = ()  # log p of each token


class Sentence(NamedTuple):
    """A line as ids."""

    number: int
    ids: list[int]  # with the end of sentence; empty: skipped
    text: str = ""
    prefix: Sequence[int] = ()
    phrases: Sequence[list[int]] = ()
    text_bytes: int = 0
    size: int = 0  # of `ids`


class Translator:
    """Translates lines of text.

    Args:
        model: a `Transformer` or an `Ensemble`.
        encoders: "inputs" and "targets" text encoders, as from `Problem.get_feature_encoders`. For a
            language model there is no "inputs": lines are prompts, and translations continue them.
        settings: how to decode.
        report: receives one line for each input that is cut, skipped or does not fit into memory; by
            default it goes to standard error.
        format_output: makes the result from an input and its decoded text, as
            `Problem.format_output` does; by default, the text itself.
        logits_processors: functions that change the logits of every step, after those of the
            settings; see `beam_search`.
        constraint: what the problem allows, see `Problem.constraint`.

    Raises:
        UserError: an unknown logits processor, an argument of another kind, or a search that cannot be
            compiled with XLA or needs more memory than the machine has.
    """

    def __init__(
        self,
        model,
        encoders,
        settings: DecodeSettings | None = None,
        report: Report | None = None,
        format_output: Callable[[str, str], str] = lambda inputs, output: output,
        logits_processors: Sequence[LogitsProcessor] = (),
        constraint: Constraint | None = None,
    ):
        self.settings = s = DecodeSettings() if settings is None else settings
        require_kind("settings", s, DecodeSettings, "DecodeSettings")
        require_kind("model", model, Callable, "a Transformer or an Ensemble")
        require_kind("encoders", encoders, Mapping, "text encoders by side")
        self.model, self.encoders = model, encoders
        s.require_memory(model)
        named_processors(s.logits_processors)  # checks their names
        self.logits_processors = logits_processors
        self.constraint = constraint if constraint and s.constrains else None
        if s.xla:
            require_compilable({"a constraint": self.constraint})
        self.report = report or warn
        given = [name for name, value in vars(s).items() if value != getattr(DecodeSettings, name)]
        sampling = [name for name in given if name.startswith("sampling_")]
        if sampling and s.sampling_method == "argmax":
            self.report(f"{', '.join(sampling)} without sampling_method=random: no effect")
        if s.sampling_method == "random" and s.sampling_keep_top_k > 0 == kept_top_k(model, s):
            self.report(
                f"sampling_keep_top_k={s.sampling_keep_top_k} has no effect on a model with relative "
                "attention, as in tensor2tensor"
            )
        self.format_output = format_output
        self.hypotheses = s.beam_size if s.return_beams else 1
        if s.t2t_batches:
            limits = BatchLimits(
                s.batch_size or SENTENCES, fixed=True, order=lambda item: -len(item.text.split())
            )
        else:
            limits = BatchLimits(
                items=s.batch_size,
                tokens=s.batch_tokens and max(1, s.batch_tokens // s.beam_size),
                window=WINDOW,
                fixed=s.sampling_method == "random",
            )
        self.batcher = LengthBatcher(self, limits, self.report)

    def translate(
        self,
        lines: Sequence[str],
        prefixes: Sequence[str] | None = None,
        phrases: Sequence[Sequence[str]] | None = None,
    ) -> list[Translation]:
        """Translates every line, in the order of the input.

        Args:
            lines: the text to translate; a blank line has an empty translation.
            prefixes: the beginning of each translation: whole words, or "".
            phrases: for each line, what its translation, with its prompt, must contain; for beam search.

        Raises:
            UserError: the vocabulary cannot express a line, or prefixes or phrases are not as many.
        """
        lines = several_texts("lines", lines)
        prefixes = several_texts("prefixes", [""] * len(lines) if prefixes is None else prefixes)
        phrases = [several_texts("phrases", each) for each in phrases or [()] * len(lines)]
        for name, given in (("prefixes", prefixes), ("phrases", phrases)):
            if len(given) != len(lines):
                raise UserError(f"{name} must be as many as lines, {len(lines)}, got {len(given)}.")
        rows = enumerate(zip(lines, prefixes, phrases, strict=True), start=1)
        sentences = (self._sentence(Line(number, *row)) for number, row in rows)
        return list(self.batcher.results(sentences))

    def translate_lines(
        self, lines: Iterable[Line], skip: int = 0, done: Done = None, known: Collection[int] = ()
    ) -> Iterator[Translation]:
        """Yields the translations of any number of lines, in order.

        As in T2T, lines of similar length are decoded together, longest first, but only within windows
        of `WINDOW` lines. A translation is yielded as soon as all earlier ones have been.
        `skip`, `done` and `known` are as in `LengthBatcher.results`.
        """
        return self.batcher.results(map(self._sentence, lines), skip, done, known)

    def translate_ids(self, ids: Iterable[Any], done: Done = None) -> list[Translation]:
        """Translates rows of source ids with their end of sentence, with or without padding.

        `done` is called after every batch.
        """
        rows = map(without_padding, ids)
        sentences = (Sentence(n, row, size=len(row)) for n, row in enumerate(rows, start=1))
        return list(self.batcher.results(sentences, done=done))

    def text(self, ids) -> str:
        """Returns the text of target ids up to their end of sentence.

        Ids that `vocab_divisor` added to a subword vocabulary have no text.
        """
        encoder = self.encoders["targets"]
        return encoder.decode(spelled(encoder, until_eos(ids)))

    # The methods of a job of `LengthBatcher`.

    def run(self, sentences: Sequence[Sentence], longest: int) -> list[Translation]:
        """Translates a batch."""
        s = self.settings
        ids = pad([sentence.ids for sentence in sentences])
        given: dict[str, Any] = {}
        if any(sentence.prefix for sentence in sentences):
            given["prefix"] = pad([sentence.prefix for sentence in sentences])
        if all(sentence.ids == [PAD_ID] for sentence in sentences):
            longest = 0  # prompts without tokens
        limits = [
            (longest if s.t2t_batches else len(without_padding(sentence.ids)))
            + s.extra_length
            + len(sentence.prefix)
            for sentence in sentences
        ]
        if any(sentence.phrases for sentence in sentences):
            given["strategy"] = Phrases.of(sentence.phrases for sentence in sentences)
        if s.sampling_method == "random":  # differs between batches, but not if a batch is repeated
            given["seed"] = (s.sampling_seed << 32 | sentences[0].number) % 2**63
        if self.constraint:
            decoded = self.encoders["inputs"].decode
            given["constraint"] = self.constraint([decoded(until_eos(row)) for row in ids])
        given["logits_processors"] = self.logits_processors
        found = search(self.model, ids, s, max_lengths=np.asarray(limits, np.int32), **given)
        rows = zip(sentences, *(each.numpy() for each in found), strict=True)
        return [
            Translation(
                texts=[self.format_output(sentence.text, self.text(row)) for row in ids],
                scores=scores.tolist(),
                lengths=lengths.tolist(),
                token_scores=[
                    row[:length].tolist() for row, length in zip(token_scores, lengths, strict=True)
                ],
            )
            for sentence, ids, lengths, scores, token_scores in rows
        ]

    def empty_result(self, sentence: Sentence) -> Translation:
        """Returns empty hypotheses."""
        number = self.hypotheses
        return Translation([""] * number, [0.0] * number, [0] * number, [[]] * number)

    def tokens(self, translation: Translation) -> int:
        """Returns the length of the best hypothesis."""
        return translation.lengths[0]

    def _sentence(self, line: Line) -> Sentence:
        target = self.encoders["targets"]
        if self.model.kind != LANGUAGE_MODEL:
            ids = [*encoded(self.encoders["inputs"], line.text, line.number), EOS_ID]
        else:  # padding if the prompt has no tokens
            ids = encoded(target, line.text, line.number, True) or [PAD_ID]
        start = line.prefix.strip()  # a word follows a comma, in one token with its space
        prefix = (
            encoded(target, start, line.number, start.endswith((",", ";", ":"))) if start else []
        )
        phrases = [encoded(target, each, line.number) for each in line.phrases if each.strip()]
        is_blank = ids == [EOS_ID] and self.model.kind == TRANSLATION and not (prefix or phrases)
        if is_blank and not self.settings.t2t_batches:
            ids = []
        most = self.settings.max_input_size
        if 0 < most < len(ids):
            cut = self.settings.long_inputs == "cut"
            self.report(
                f"line {line.number} has {len(ids):,} tokens, more than max_input_size={most}: "
                + ("it is cut" if cut else "it is skipped")
            )
            if self.model.kind != LANGUAGE_MODEL:
                ids = [*ids[: most - 1], EOS_ID] if cut else []
            else:
                ids = ids[-most:] if cut else []
        return Sentence(line.number, ids, line.text, prefix, phrases, line.text_bytes, len(ids))


class Classifier(Translator):
    """Classifies lines of text: translations are names of classes, scores their probabilities.

    Returns the best class of a line, or all classes with `return_beams`. Padding does not count, so that
    results do not depend on the other lines of a batch (see `TransformerClassifier`).
    """

    def __init__(self, model, encoders, settings: DecodeSettings | None = None, *args, **kwargs):
        super().__init__(model, encoders, settings, *args, **kwargs)
        self.hypotheses = encoders["targets"].vocab_size if self.settings.return_beams else 1

    def _sentence(self, line: Line) -> Sentence:
        if line.prefix or any(line.phrases):
            raise UserError("classes have no prefixes or phrases: leave them out.")
        return super()._sentence(line)

    def run(self, sentences: Sequence[Sentence], longest: int) -> list[Translation]:
        labels = self.encoders["targets"]
        ids = pad([sentence.ids for sentence in sentences])
        rows = probabilities(self.model, ids, labels.vocab_size).numpy()
        return [
            Translation(
                texts=[labels.decode([i]) for i in best],
                scores=[float(row[i]) for i in best],
                lengths=[len(sentence.ids)] * self.hypotheses,
            )
            for sentence, row in zip(sentences, rows, strict=True)
            for best in [np.argsort(-row, kind="stable")[: self.hypotheses]]
        ]


@open_graph_of_model
def probabilities(model, inputs, classes: int):
    """Returns the probabilities [B, classes] for source ids [B, S]; they do not depend on padding."""
    logits = model({"inputs": inputs}, pool_padding=False)
    return tf.nn.softmax(logits[:, :classes])  # without those that `vocab_divisor` added


def encoded(encoder, text: str, number: int, is_prompt: bool = False) -> list[int]:
    """Returns the ids of line `number`, without white space at its ends.

    A prompt keeps it, and gets a space after final punctuation, as in T2T, whose tokenizer joins the two:
    without it, the prompt would end within a token.
    """
    text = text + " " * text.endswith(tuple(string.punctuation)) if is_prompt else text.strip()
    try:
        return encoder.encode(text)
    except UserError as error:
        raise UserError(f"line {number}: {error}") from error


pad = functools.partial(keras.utils.pad_sequences, padding="post", value=PAD_ID)
"""Pads sequences of ids with 0 to the longest one: [B, longest] int32."""

# Batches of items of similar length, for translating and scoring


class BatchDone(NamedTuple):
    """A finished batch."""

    lines: int
    text_bytes: int  # of the lines
    tokens: int  # decoded or scored
    results: list[tuple[int, Any]]  # numbers of items and their results


Done = Callable[[BatchDone], None] | None
"""What is called after every batch."""


class BatchLimits(NamedTuple):
    """The sizes of batches; 0: no limit."""

    items: int = 0  # per batch
    tokens: int = 0  # per batch: items times their largest size
    window: int = 0  # items that are sorted together
    fixed: bool = False  # results depend on the batches, so a resumed run must repeat them
    order: Callable[[Any], int] = lambda item: -item.size  # sorts the items of a window


@dataclasses.dataclass
class LengthBatcher:
    """Sorts items by length within windows, runs them in batches, and yields results in order.

    A batch that does not fit into memory is split in half, and so are later batches of its size. An
    item that does not fit alone gets an empty result.

    Args:
        job: the work on items, one per line, with attributes `number` (from 1), `size`, the number of
            tokens, 0 for one to skip, and `text_bytes`. Its methods: `run(items, longest)`, a result for
            each, where `longest` is the largest size in the (unsplit) batch; `empty_result(item)` of one
            that is skipped; `tokens(result)`, how many were decoded or scored.
        limits: the sizes of batches.
        report: receives a line about each batch or item that does not fit into memory.
    """

    job: Any
    limits: BatchLimits
    report: Report
    _fits: float = math.inf  # tokens of a batch

    def first_of_window(self, number: int) -> int:
        """Returns the first item of the window that contains item `number` (from 0)."""
        return number - number % self.limits.window if self.limits.window else 0

    def results(
        self, items: Iterable[Any], skip: int = 0, done: Done = None, known: Collection[int] = ()
    ) -> Iterator[Any]:
        """Yields the result of every item after the first `skip`, in order, as soon as possible.

        Args:
            items: the items, in any order; they are read one window at a time.
            skip: number of results to leave out.
            done: called after every batch, once the results that are ready have been yielded.
            known: numbers of items that need no result; they yield empty ones.
        """
        items = iter(items)
        while window := list(itertools.islice(items, self.limits.window or None)):
            coming = range(min(skip, len(window)), len(window))
            skip -= coming.start
            awaited = coming.start
            needed = {i for i in coming if window[i].size and window[i].number not in known}
            results = {i: self.job.empty_result(window[i]) for i in coming if i not in needed}
            fixed = self.limits.fixed  # batches of fixed members are run whole, if at all
            rows = [i for i, item in enumerate(window) if i in needed or (fixed and item.size)]
            rows.sort(key=lambda i: self.limits.order(window[i]))
            batches = plan([(i, window[i].size) for i in rows], self.limits)
            wanted = [batch for batch in batches if not needed.isdisjoint(batch)]
            for batch in [[], *wanted]:  # the empty one: for results that need no batch
                run = [window[i] for i in batch]
                made = self._run(run, max(item.size for item in run)) if run else []
                results.update((i, r) for i, r in zip(batch, made, strict=True) if i in needed)
                while awaited in results:
                    yield results.pop(awaited)
                    awaited += 1
                if run and done:
                    text_bytes = sum(item.text_bytes for item in run)
                    tokens = sum(map(self.job.tokens, made))
                    numbered = [(item.number, r) for item, r in zip(run, made, strict=True)]
                    done(BatchDone(len(run), text_bytes, tokens, numbered))

    def _run(self, items, longest):
        """Runs a batch, or its two halves if it does not fit into memory."""
        size = max(item.size for item in items)
        if len(items) == 1 or len(items) * size <= self._fits:
            try:
                return list(self.job.run(items, longest))
            except (tf.errors.ResourceExhaustedError, MemoryError):
                pass  # retried below: inside this block the tensors of the failed batch stay alive
            if len(items) == 1:
                self.report(f"line {items[0].number} does not fit into memory: it is skipped")
                return [self.job.empty_result(items[0])]
            self._fits = size * (len(items) // 2)
            self.report(
                f"a batch of {len(items)} sentences of up to {size} tokens does not fit into memory: "
                "batches of this size are halved from now on"
            )
        middle = (len(items) + 1) // 2
        return [*self._run(items[:middle], longest), *self._run(items[middle:], longest)]


def plan(sizes: Iterable[tuple[int, int]], limits: BatchLimits) -> list[list[int]]:
    """Splits (item, size) pairs into batches of items, in the given order."""
    batches: list[list[int]] = []
    longest = 0
    for item, size in sizes:
        batch = batches[-1] if batches else []
        longest = max(longest, size)
        full = limits.items and len(batch) == limits.items
        too_large = limits.tokens and (len(batch) + 1) * longest > limits.tokens
        if not batch or full or too_large:
            batches.append([])
            longest = size
        batches[-1].append(item)
    return batches


# Scores of given outputs, as ids or as lines of text (T2T's `--score_file`)


def score(model, inputs, targets):
    """Returns the log-probability [B] float32 of each target with its end of sentence.

    Args:
        model: a `Transformer` or an `Ensemble`.
        inputs: [B, S] source ids with their end of sentence, padded with 0; None for a language model.
        targets: [B, T] target ids with their end of sentence, padded with 0.
    """
    return tf.reduce_sum(token_scores(model, inputs, targets), -1)


def token_scores(model, inputs, targets):
    """Returns the log-probability of each token, [B, T] float32, 0 at padding; otherwise like `score`."""
    require_tokens(model)
    if inputs is not None and model.kind == LANGUAGE_MODEL:
        raise UserError("a language model has no inputs: give None, and targets with the prompt.")
    sides = {"inputs": inputs, "targets": targets}
    sizes = {"inputs": model.source_vocab_size or 0, "targets": model.target_vocab_size}
    ids = {
        name: int_tensor(name, side, "ids [B, length], padded with 0", [2], size=sizes[name])
        for name, side in sides.items()
        if side is not None
    }
    model.members[0].require_features(ids)
    return _token_scores(model, ids)


def require_tokens(model) -> None:
    """Raises UserError if a model's targets are classes, not tokens."""
    if model.kind == CLASSIFICATION:
        raise UserError("a classifier has no target tokens to score: call it, or use `Classifier`.")


@open_graph_of_model
def _token_scores(model, sides):
    logits, targets = model(sides, training=False), sides["targets"]
    log_p = tf.gather(logits, targets, batch_dims=2) - tf.reduce_logsumexp(logits, -1)
    return tf.where(targets == PAD_ID, 0.0, log_p)


class Pair(NamedTuple):
    """A source and its target as ids; for a language model only the target."""

    number: int
    source: list[int]  # both with the end of sentence; empty: skipped
    target: list[int]
    text_bytes: int

    @property
    def size(self) -> int:
        return max(len(self.source), len(self.target))


class PairScore(NamedTuple):
    """The loss of a target."""

    loss: float  # nats per token; nan: not scored
    tokens: int
    token_scores: Sequence[float] = ()  # log p of each


class PairScorer:
    """Scores lines "source<TAB>target"; for a language model, lines are targets.

    Args:
        model, encoders: see `Translator`.
        settings: only `max_input_size` (here for either side) and the batch sizes are used.
        report: receives one line for each pair that is too long or does not fit into memory; by
            default it goes to standard error.
    """

    def __init__(
        self, model, encoders, settings: DecodeSettings | None = None, report: Report | None = None
    ):
        require_tokens(model)
        self.model, self.encoders = model, encoders
        self.settings = settings or DecodeSettings()
        self.report = report or warn
        limits = BatchLimits(
            items=self.settings.batch_size,
            # An eighth of a search's, because a batch holds the logits of all positions.
            tokens=-(-self.settings.batch_tokens // 8),
            window=WINDOW,
        )
        self.batcher = LengthBatcher(self, limits, self.report)

    def score_lines(
        self, lines: Iterable[Line], skip: int = 0, done: Done = None, known: Collection[int] = ()
    ) -> Iterator[PairScore]:
        """Yields each target's mean loss per token with the end of sentence, without label smoothing.

        `skip`, `done` and `known` are as in `LengthBatcher.results`; known lines yield nan. A line
        with no tab, or more than one, is a `UserError`.
        """
        return self.batcher.results(map(self._pair, lines), skip, done, known)

    # The methods of a job of `LengthBatcher`.

    def run(self, pairs: Sequence[Pair], longest: int) -> list[PairScore]:
        """Scores a batch."""
        sources, targets = (pad(side) for side in zip(*(pair[1:3] for pair in pairs), strict=True))
        rows = token_scores(self.model, sources if sources.size else None, targets).numpy()
        sums, tokens = rows.sum(1), np.count_nonzero(targets != PAD_ID, axis=1)
        return [
            PairScore(-float(total) / number, int(number), row[ids != PAD_ID].tolist())
            for total, number, row, ids in zip(sums, tokens, rows, targets, strict=True)
        ]

    def empty_result(self, pair: Pair) -> PairScore:
        """Returns nan."""
        return PairScore(math.nan, 0)

    def tokens(self, result: PairScore) -> int:
        """Returns the number of target tokens."""
        return result.tokens

    def texts(self, text: str, number: int) -> dict[str, str]:
        """Returns the sides of line `number`; it is a `UserError` if the line has no tab, or more than one."""
        names = ["inputs", "targets"] if self.model.kind != LANGUAGE_MODEL else ["targets"]
        sides = text.split("\t")
        if len(sides) == 2:  # T2T, too, scores with a language model what follows a tab
            sides = sides[-len(names) :]
        if len(sides) != len(names):
            raise UserError(f"line {number} has {len(sides) - 1} tabs: write SOURCE<TAB>TARGET.")
        return dict(zip(names, sides, strict=True))

    def _pair(self, line: Line) -> Pair:
        *sources, target = (
            [*encoded(self.encoders[name], text, line.number), EOS_ID]
            for name, text in self.texts(line.text, line.number).items()
        )
        pair = Pair(line.number, sources[0] if sources else [], target, line.text_bytes)
        most = self.settings.max_input_size
        if 0 < most < pair.size:
            self.report(
                f"line {line.number} has {pair.size:,} tokens, more than max_input_size={most}: "
                "it is not scored"
            )
            pair = pair._replace(source=[], target=[])
        return pair
