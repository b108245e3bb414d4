"""The lines to work on: of a file, or of standard input."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

from t2t_keras.decoding.by_length import Report
from t2t_keras.errors import UserError
from t2t_keras.text.lines import iterate_raw_lines, without_end

STANDARD_INPUT = "-"


class Line(NamedTuple):
    """A line of text and its place."""

    number: int  # from 1
    text: str
    prefix: str = ""  # what its translation begins with

    @property
    def text_bytes(self) -> int:
        """The length of the text in UTF-8."""
        return len(self.text.encode("utf-8", "ignore"))


class Content(NamedTuple):
    """What a file holds."""

    lines: int
    text_bytes: int  # without the ends of lines
    sha256: str

    def __str__(self) -> str:
        return f"{self.lines:,} lines {self.sha256[:16]}"


class SourceLines:
    """Lines of UTF-8 text, however many; see `text.iterate_lines` for where they end.

    Bytes that are not UTF-8 are left out and reported, with the number of the line.

    Args:
        path: a file, decompressed while reading if the name ends in `.gz`; "-": standard input. That
            and pipes can be read once.
        report: is told of bytes left out.
    """

    def __init__(self, path: str, report: Report):
        self.path = path
        self.report = report

    @property
    def is_file(self) -> bool:
        """Whether it can be read again."""
        if self.path == STANDARD_INPUT:
            return False
        return (
            os.path.isfile(self.path) or os.path.isdir(self.path) or not os.path.exists(self.path)
        )

    @functools.cached_property
    def content(self) -> Content:
        """What is in the file, for which it is read through."""
        lines = text_bytes = 0
        digest = hashlib.sha256()
        for line in iterate_raw_lines(self.path):
            lines += 1
            text_bytes += len(line)
            digest.update(line + b"\n")
        return Content(lines, text_bytes, digest.hexdigest())

    def __iter__(self) -> Iterator[str]:
        standard = self.path == STANDARD_INPUT
        raw = _standard_input() if standard else iterate_raw_lines(self.path)
        for number, line in enumerate(raw, start=1):
            text = line.decode("utf-8", "ignore")
            if len(text.encode("utf-8")) < len(line):
                name = f"line {number}" + ("" if standard else f" of {self.path}")
                self.report(f"{name} is not UTF-8: the bytes that are not are left out")
            yield text


def _standard_input() -> Iterator[bytes]:
    try:
        yield from map(without_end, sys.stdin.buffer)
    except OSError as error:
        raise UserError(f"Cannot read standard input: {error.strerror}.") from error


def numbered(source: SourceLines, prefixes: SourceLines | None = None) -> Iterator[Line]:
    """Yields the lines of a source with their numbers, and with prefixes from another.

    Raises:
        UserError: there are not as many prefixes as lines.
    """
    if prefixes is None:
        yield from (Line(number, text) for number, text in enumerate(source, start=1))
        return
    for number, (text, prefix) in enumerate(itertools.zip_longest(source, prefixes), start=1):
        if text is None or prefix is None:
            more, fewer = (source, prefixes) if prefix is None else (prefixes, source)
            raise UserError(
                f"{fewer.path} ends after {number - 1:,} lines and {more.path} does not: "
                "a prefix, or an empty line, must stand for each line."
            )
        yield Line(number, text, prefix)
