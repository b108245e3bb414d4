"""Labelled bracketing F1 of predicted parse trees against gold ones, as EVALB computes it."""

from __future__ import annotations

import dataclasses
import functools
import operator
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from t2t_keras.errors import UserError, several_texts

if TYPE_CHECKING:
    from t2t_keras.parsing.trees import Tree

_SHORT = 40


@dataclasses.dataclass(frozen=True)
class ParsedSentence:
    """EVALB's counts of one sentence; all 0 unless it is valid."""

    status: str
    """`valid`, `skipped` (nothing was predicted) or `error`."""
    reason: str
    """The reason why it is not valid; empty if it is."""
    length: int
    """Words of the gold tree, with punctuation, without traces."""
    matched: int = 0
    """Brackets with the same label around the same words."""
    gold: int = 0
    """Brackets of the gold tree."""
    predicted: int = 0
    """Brackets of the predicted tree."""
    crossing: int = 0
    """Brackets of the predicted tree that begin or end inside one of the gold tree."""
    words: int = 0
    """Words without punctuation."""
    correct_tags: int = 0
    """The number of `words` with the same tag in both trees."""

    @property
    def recall(self) -> float:
        return _percent(self.matched, self.gold)

    @property
    def precision(self) -> float:
        return _percent(self.matched, self.predicted)

    @property
    def tagging_accuracy(self) -> float:
        return _percent(self.correct_tags, self.words)


@dataclasses.dataclass(frozen=True)
class ParsingFigures:
    """EVALB's summary of sentences, in per cent of the valid ones unless stated otherwise."""

    recall: float
    """Gold brackets that are predicted, with the same label around the same words."""
    precision: float
    """Predicted brackets that are in the gold tree."""
    f1: float
    """The harmonic mean of both; 0 if EVALB prints `nan`."""
    complete_match: float
    """Sentences with exactly the brackets of the gold tree."""
    average_crossing: float
    """Mean number of brackets of a predicted tree that begin or end inside one of the gold tree."""
    no_crossing: float
    """Sentences without such brackets."""
    two_or_less_crossing: float
    """Sentences with at most two."""
    tagging_accuracy: float
    """Words, without punctuation, that have the tag of the gold tree."""
    sentences: int
    """The number of all sentences: valid, skipped and errors."""
    skipped: int
    """Sentences whose predicted tree has no words except punctuation."""
    errors: int
    """Sentences whose two trees have different words, or one of which is not a tree."""
    valid: int
    """Sentences from which the scores above are computed."""

    def __str__(self) -> str:
        """The lines of EVALB's summary."""
        return (
            f"Number of sentence        = {self.sentences:6}\n"
            f"Number of Error sentence  = {self.errors:6}\n"
            f"Number of Skip  sentence  = {self.skipped:6}\n"
            f"Number of Valid sentence  = {self.valid:6}\n"
            f"Bracketing Recall         = {self.recall:6.2f}\n"
            f"Bracketing Precision      = {self.precision:6.2f}\n"
            f"Bracketing FMeasure       = {self.f1:6.2f}\n"
            f"Complete match            = {self.complete_match:6.2f}\n"
            f"Average crossing          = {self.average_crossing:6.2f}\n"
            f"No crossing               = {self.no_crossing:6.2f}\n"
            f"2 or less crossing        = {self.two_or_less_crossing:6.2f}\n"
            f"Tagging accuracy          = {self.tagging_accuracy:6.2f}"
        )


@dataclasses.dataclass(frozen=True)
class ParsingF1(ParsingFigures):
    """EVALB's summary of all sentences and of the short ones, and the counts of each sentence."""

    up_to_40: ParsingFigures
    """The summary of sentences of at most 40 words."""
    by_sentence: tuple[ParsedSentence, ...] = dataclasses.field(repr=False)
    """The counts of each sentence."""

    def __str__(self) -> str:
        return f"-- All --\n{super().__str__()}\n\n-- len<={_SHORT} --\n{self.up_to_40}"


def parsing_f1(
    gold_trees: Sequence[str | Tree], predicted_trees: Sequence[str | Tree]
) -> ParsingF1:
    """Scores predicted trees like EVALB with its parameters COLLINS.prm.

    The root TOP (but no other), traces, punctuation and functional tags are ignored; ADVP and PRT are equal.
    Sentences whose words differ are errors; their number is not limited (EVALB stops at its twelfth
    message), nor is the size of trees.

    Args:
        gold_trees: the correct trees, each a string such as `(TOP (NP (NN rain)))` or a `Tree`.
        predicted_trees: as many, in the same order. A tree without words is skipped; what is no
            tree counts as an error, never an exception.

    Raises:
        UserError: the numbers of trees differ or are 0.
    """
    gold_trees = several_texts("gold_trees", gold_trees, object)
    predicted_trees = several_texts("predicted_trees", predicted_trees, object)
    if len(gold_trees) != len(predicted_trees):
        raise UserError(
            f"{len(gold_trees)} gold trees but {len(predicted_trees)} predicted ones; "
            "F1 needs one for each sentence in both, in the same order."
        )
    if not gold_trees:
        raise UserError("There are no trees to score; F1 needs at least one.")
    sentences = tuple(
        _compare(read_brackets(str(gold)), read_brackets(str(predicted)))
        for gold, predicted in zip(gold_trees, predicted_trees, strict=True)
    )
    short = [sentence for sentence in sentences if sentence.length <= _SHORT]
    return ParsingF1(
        **_summary(sentences), up_to_40=ParsingFigures(**_summary(short)), by_sentence=sentences
    )


def _compare(gold: Brackets, predicted: Brackets) -> ParsedSentence:
    if not predicted.words:
        return ParsedSentence("skipped", "no words are predicted", gold.length)
    if reason := _mismatch(gold, predicted):
        return ParsedSentence("error", reason, gold.length)
    return ParsedSentence(
        status="valid",
        reason="",
        length=gold.length,
        matched=(Counter(gold.spans) & Counter(predicted.spans)).total(),
        gold=len(gold.spans),
        predicted=len(predicted.spans),
        crossing=_crossing(gold, predicted),
        words=len(gold.words),
        correct_tags=sum(map(operator.eq, gold.tags, predicted.tags)),
    )


def _mismatch(gold: Brackets, predicted: Brackets) -> str:
    """Returns why the trees cannot be compared; "" if they can."""
    for name, tree in (("gold", gold), ("predicted", predicted)):
        if tree.fault:
            return f"{name} tree: {tree.fault}"
    if len(gold.words) != len(predicted.words):
        return f"Length unmatch ({len(gold.words)}|{len(predicted.words)})"
    for word, other in zip(gold.words, predicted.words, strict=True):
        if word != other:
            return f"Words unmatch ({word}|{other})"
    return ""


def _crossing(gold: Brackets, predicted: Brackets) -> int:
    gold_spans = {(start, end) for start, end, _ in gold.spans}
    return sum(
        any(first < start < last < end or start < first < end < last for first, last in gold_spans)
        for start, end, _ in predicted.spans
        if (start, end) not in gold_spans  # gold brackets do not cross each other
    )


def _summary(sentences: Sequence[ParsedSentence]) -> dict[str, Any]:
    """Returns the fields of `ParsingFigures`."""
    valid = [s for s in sentences if s.status == "valid"]
    matched = sum(s.matched for s in valid)
    recall = _percent(matched, sum(s.gold for s in valid))
    precision = _percent(matched, sum(s.predicted for s in valid))
    complete = sum(s.matched == s.gold == s.predicted for s in valid)
    correct_tags, words = sum(s.correct_tags for s in valid), sum(s.words for s in valid)
    return {
        "recall": recall,
        "precision": precision,
        "f1": 2 * precision * recall / (precision + recall) if matched else 0.0,
        "complete_match": _percent(complete, len(valid)),
        "average_crossing": sum(s.crossing for s in valid) / max(1, len(valid)),
        "no_crossing": _percent(sum(s.crossing == 0 for s in valid), len(valid)),
        "two_or_less_crossing": _percent(sum(s.crossing <= 2 for s in valid), len(valid)),
        "tagging_accuracy": _percent(correct_tags, words),
        "sentences": len(sentences),
        "skipped": sum(s.status == "skipped" for s in sentences),
        "errors": sum(s.status == "error" for s in sentences),
        "valid": len(valid),
    }


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0


# EVALB's view of a bracketed tree: the words that count and the brackets around them.

_TRACE = "-NONE-"
_DELETED = frozenset(["TOP", _TRACE, ",", ":", "``", "''", "."])
_EQUAL = {"PRT": "ADVP"}

# A word with its tag, or a label that opens a bracket; a closing bracket; anything else.
_TOKEN = re.compile(r"\(([^\s()]*)(?:\s+([^\s()]*)\))?|(\))|[^\s()]+", re.ASCII)
_LABEL, _WORD, _CLOSE = 1, 2, 3


class Brackets(NamedTuple):
    """A tree as EVALB reads it with COLLINS.prm."""

    words: list[str]  # without traces, commas, colons, quotes and full stops
    tags: list[str]  # the tag of each of `words`
    # (first word, word after the last, label) of each bracket except for empty ones and the root TOP
    spans: list[tuple[int, int, str]]
    length: int  # the number of words with punctuation, without traces
    fault: str  # why this is not a tree; "" if it is


def read_brackets(tree: str) -> Brackets:
    """Reads a tree with its traces and functional tags; never fails.

    A label ends before its first "-" or "=", a tag does not; PRT becomes ADVP. Roots other than TOP count
    as brackets; the root of "( (S ...))" has no label.
    """
    words, tags, spans, length, fault = Brackets([], [], [], length=0, fault="")
    pending: list[tuple[int, str]] = []
    for token in _TOKEN.finditer(tree):
        kind = token.lastindex
        if kind == _WORD:
            tag, word = token.group(_LABEL, _WORD)
            length += tag != _TRACE
            if tag not in _DELETED:
                words.append(word)
                tags.append(_EQUAL.get(tag, tag))
        elif kind == _LABEL:
            pending.append((len(words), _without_function(token.group(_LABEL))))
        elif kind != _CLOSE:
            fault = fault or f"{token.group()!r} stands where a bracket should"
        elif not pending:
            fault = fault or "a bracket closes that never opened"
        else:
            start, label = pending.pop()
            if start < len(words) and label not in _DELETED:
                spans.append((start, len(words), label))
    if pending:
        fault = fault or f"{len(pending)} of its brackets never close"
    return Brackets(words, tags, spans, length, fault)


@functools.lru_cache(maxsize=4096)
def _without_function(label: str) -> str:
    label = re.split("[-=]", label, maxsplit=1)[0]
    return _EQUAL.get(label, label)


def root_label(tree: str) -> str | None:
    """Returns the label of the root of a tree, without functional tags; None if no bracket opens."""
    token = _TOKEN.search(tree)
    return _without_function(token.group(_LABEL)) if token and token.lastindex == _LABEL else None


def trees_of_lines(lines: Iterable[str]) -> list[str]:
    """Joins the lines of trees that span several lines.

    A line that begins with white space continues the previous tree if that is still open. In a file with
    such lines blank lines are ignored; in other files a blank line is a tree without words.
    """
    lines = list(lines)
    written = [line for line in lines if line.strip()]
    trees: list[str] = []
    depth = 0
    for line in written:
        if depth > 0 and line[0].isspace():
            trees[-1] += f" {line}"
        else:
            trees.append(line)
            depth = 0
        depth += line.count("(") - line.count(")")
    return lines if len(trees) == len(written) else trees
