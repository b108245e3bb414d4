"""What EVALB sees in a bracketed tree: the words that count and the brackets around them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import NamedTuple

_TRACE = "-NONE-"
_DELETED = frozenset(["TOP", _TRACE, ",", ":", "``", "''", "."])
_EQUAL = {"PRT": "ADVP"}

# A word with its tag, or else a label that opens a bracket; one that closes; what is neither.
_TOKEN = re.compile(r"\(([^\s()]*)(?:\s+([^\s()]*)\))?|(\))|[^\s()]+", re.ASCII)
_LABEL, _WORD, _CLOSE = 1, 2, 3


class Brackets(NamedTuple):
    """A tree as EVALB reads it with COLLINS.prm."""

    words: list[str]
    """Those that count: no traces, none with the tag of a comma, colon, quote or full stop."""

    tags: list[str]
    """The tag of each of `words`, as it is written."""

    spans: list[tuple[int, int, str]]
    """(first word, word after the last, label) of each bracket, the same one as often as it is
    there. Without those around no word and those of the root TOP."""

    length: int
    """How many words there are with punctuation, without traces."""

    fault: str
    """Why this is no tree, or nothing."""


def read_brackets(tree: str) -> Brackets:
    """Reads a tree as it is written, traces and functional tags included; never fails.

    A label ends before its first "-" or "=", wherever that is, a tag does not; PRT becomes ADVP.
    Other roots than TOP count as brackets, "( (S ...))" as one without a label.
    """
    words: list[str] = []
    tags: list[str] = []
    spans: list[tuple[int, int, str]] = []
    pending: list[tuple[int, str]] = []
    length = 0
    fault = ""
    for token in _TOKEN.finditer(tree):
        kind = token.lastindex
        if kind == _WORD:
            tag, word = token.group(_LABEL, _WORD)
            length += tag != _TRACE
            if tag not in _DELETED:
                words.append(word)
                tags.append(_EQUAL.get(tag, tag))
        elif kind == _LABEL:
            pending.append((len(words), token.group(_LABEL)))
        elif kind != _CLOSE:
            fault = fault or f"{token.group()!r} stands where a bracket should"
        elif not pending:
            fault = fault or "a bracket closes that never opened"
        else:
            start, label = pending.pop()
            label = _without_function(label)
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
    """The label at the root of a tree, without functional tags; None where no bracket opens."""
    token = _TOKEN.search(tree)
    return _without_function(token.group(_LABEL)) if token and token.lastindex == _LABEL else None


def trees_of_lines(lines: Iterable[str]) -> list[str]:
    """Puts trees that span several lines into one line each.

    A line that begins with white space goes on with the tree before, if that is still open. In a
    file with such lines blank ones mean nothing; in one without, each is a tree without words.
    """
    lines = list(lines)
    written = [line for line in lines if line.strip()]
    trees: list[list[str]] = []
    depth = 0
    for line in written:
        if depth > 0 and line[0].isspace():
            trees[-1].append(line)
        else:
            trees.append([line])
            depth = 0
        depth += line.count("(") - line.count(")")
    if len(trees) == len(written):
        return lines
    return [" ".join(parts) for parts in trees]
