"""Reads lines of text files, writes results in order, shows progress, resumes interrupted runs."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from t2t_keras.decoding.translator import BatchDone, Line, Report
from t2t_keras.errors import UserError, printable
from t2t_keras.files import changes, followed, is_special, open_locked, publish, write_json, writing
from t2t_keras.progress import Progress, duration
from t2t_keras.text.lines import iterate_raw_lines

STANDARD = "-"
"""The path of standard input and output."""


class Content(NamedTuple):
    """Identifies the content of a text file."""

    lines: int
    text_bytes: int  # without line endings
    sha256: str

    def __str__(self) -> str:
        return f"{self.lines:,} lines {self.sha256[:16]}"


def _may_be_file(path: str) -> bool:
    """Returns False for standard input, pipes and devices."""
    return path != STANDARD and not is_special(path)


class SourceLines:
    """The lines of a UTF-8 text of any size; `text.iterate_lines` defines where they end.

    Bytes that are not UTF-8 are dropped, with a warning that names the line.

    Args:
        path: a file, decompressed while reading if its name ends in `.gz`; "-" is standard input,
            which like pipes can be read only once.
        report: receives the warnings.
    """

    def __init__(self, path: str, report: Report):
        self.path, self.report = path, report

    @property
    def is_file(self) -> bool:
        """True if it can be read again."""
        return _may_be_file(self.path)

    @functools.cached_property
    def content(self) -> Content:
        """The content of the file, which it reads to the end."""
        lines = text_bytes = 0
        digest = hashlib.sha256()
        for line in iterate_raw_lines(self.path):
            lines += 1
            text_bytes += len(line)
            digest.update(line + b"\n")
        return Content(lines, text_bytes, digest.hexdigest())

    def __iter__(self) -> Iterator[str]:
        standard = self.path == STANDARD
        for number, line in enumerate(iterate_raw_lines(None if standard else self.path), start=1):
            text = line.decode("utf-8", "ignore")
            if len(text.encode("utf-8")) < len(line):
                name = f"line {number}" + ("" if standard else f" of {self.path}")
                self.report(f"{name} is not UTF-8: invalid bytes are dropped")
            yield text


def numbered(
    source: SourceLines, prefixes: SourceLines | None = None, phrases: SourceLines | None = None
) -> Iterator[Line]:
    """Yields the lines of a source with their numbers, prefixes and phrases; these have tabs in between."""
    texts = [source, *filter(None, (prefixes, phrases))]
    for number, row in enumerate(itertools.zip_longest(*texts), start=1):
        if None in row:
            fewer = texts[row.index(None)]
            more = next(text for text, line in zip(texts, row, strict=True) if line is not None)
            raise UserError(
                f"{fewer.path} ends after {number - 1:,} lines, but {more.path} does not: each sentence "
                "needs a line there, empty if it has none."
            )
        text, prefix = row[0], row[1] if prefixes else ""
        words = row[-1].split("\t") if phrases else ()
        yield Line(number, text, prefix, words, len(text.encode("utf-8", "ignore")))


def line_output(path: str, made_from: Mapping[str, Any] | None, report: Report) -> LineOutput:
    """Returns a `Stream` for standard output, pipes and devices, else a `ResumableFile`."""
    return ResumableFile(path, made_from, report) if _may_be_file(path) else Stream(path)


class Stream:
    """Lines on standard output, a pipe or a device: output that cannot be resumed.

    Args:
        name: "-", or the path of a device or pipe.

    Raises:
        UserError: here and in all methods, if it cannot be written.
        BrokenPipeError: in `write` and `flush`, if the reader has closed the pipe.
    """

    def __init__(self, name: str):
        self.name = "standard output" if name == STANDARD else name
        self.lines = 0  # number of lines written
        self.ahead: dict[int, str] = {}  # always empty; see `ResumableFile`
        with writing(name):
            # /dev/stdout may lead to a file, of which ">>" keeps the beginning.
            self._file = sys.stdout.buffer if name == STANDARD else open(name, "ab")
            self._is_shown = self._file.isatty()

    def write(self, line: str) -> None:
        with writing(self.name):
            self._file.write(as_line(printable(line) if self._is_shown else line))
        self.lines += 1

    def keep(self, number: int, line: str) -> None:
        """Does nothing: a stream cannot be resumed."""

    def flush(self) -> None:
        with writing(self.name):
            self._file.flush()

    def complete(self) -> None:
        self.flush()


class ResumableFile:
    """Lines of a file that gets its name when it is complete.

    Until then it is `PATH.unfinished`; `PATH.unfinished.ahead` holds lines that were decoded out of
    order, and `PATH.unfinished.json` records what the lines are made from. Opened again with the same
    record, it resumes after the last complete line; with another record it starts over and reports the
    difference. A file of that name without a record is not ours: it is left alone, and a `UserError`.

    Args:
        made_from: names and values of all that affects the lines; None, if unknown, never resumes.
        report: receives a line about an existing unfinished file.
    """

    def __init__(self, path: str, made_from: Mapping[str, Any] | None, report: Report):
        self.name = path
        self.lines = 0  # number of lines written, including those of the previous run
        self.ahead: dict[int, str] = {}
        """Later lines that the previous run decoded, by number from 1."""
        self._path = followed(path)
        self._unfinished, self._kept, self._record = (
            Path(f"{self._path}.unfinished{end}") for end in ("", ".ahead", ".json")
        )
        if os.path.isdir(path):
            raise UserError(f"{path} is a directory: name a file in it.")
        with writing(self.name):
            # Waits for another process that writes the file: both would append their lines to it.
            self._file = open_locked(self._unfinished, path)
            if self._unfinished.stat().st_size and not self._record.exists():
                self._file.close()
                raise UserError(
                    f"{self._unfinished} exists, but no earlier run wrote it: move it away, or name "
                    "another output file."
                )
            if self._record.exists():
                if why_not := self._why_not(made_from):
                    report(f"starting {self._unfinished} over: {why_not}")
                else:
                    self.lines = _keep_whole_lines(self._unfinished)
                    self.ahead = _read_kept(self._kept, self.lines)
                    if self.lines or self.ahead:
                        more = f", with {len(self.ahead):,} later ones" if self.ahead else ""
                        report(f"resuming after line {self.lines:,} of {self._unfinished}{more}")
            if not self.lines and not self.ahead:
                self._file.truncate(0)
                self._kept.write_bytes(b"")
                write_json(self._record, made_from or {})
            self._ahead = open(self._kept, "ab")
            self._waiting = max(self.ahead, default=0)

    def write(self, line: str) -> None:
        with writing(self.name):
            self._file.write(as_line(line))
        self.lines += 1

    def keep(self, number: int, line: str) -> None:
        """Stores a line out of order, by its number; a line that has been written is ignored."""
        if number > self.lines and number not in self.ahead:
            with writing(self.name):
                self._ahead.write(as_line(json.dumps([number, line])))
            self._waiting = max(self._waiting, number)

    def flush(self) -> None:
        """Flushes the lines written and stored."""
        with writing(self.name):
            self._file.flush()
            if self._waiting <= self.lines:  # all stored lines are written
                self._ahead.truncate(0)
            self._ahead.flush()

    def complete(self) -> None:
        """Renames the file to its final name; another process that waits for it starts a new one."""
        with writing(self.name):
            self.flush()
            publish({self._unfinished: Path(self._path)})
            self._kept.unlink(missing_ok=True)
            self._record.unlink(missing_ok=True)
            self.close()

    def close(self) -> None:
        """Closes the unfinished file, which a later run can resume."""
        with writing(self.name):
            self._file.close()
            self._ahead.close()

    def _why_not(self, made_from: Mapping[str, Any] | None) -> str:
        if made_from is None:
            return "standard input may have changed"
        try:
            before = json.loads(self._record.read_text("utf-8"))
        except (FileNotFoundError, ValueError, RecursionError):
            before = None
        if not isinstance(before, dict) or not before:
            return "it has no record of what it was made from"
        return ", ".join(changes(before, made_from))


def as_line(text: str) -> bytes:
    """Returns a text as one line of UTF-8; newlines become spaces."""
    return (text.replace("\n", " ") + "\n").encode("utf-8", "replace")


def _keep_whole_lines(path: Path) -> int:
    """Removes a last line without newline; returns the number of complete lines."""
    lines = size = 0
    with open(path, "rb+") as file:
        for line in file:
            if line.endswith(b"\n"):
                lines += 1
                size += len(line)
        file.truncate(size)
    return lines


def _read_kept(path: Path, lines: int) -> dict[int, str]:
    """Returns the lines stored out of order, without those up to number `lines`."""
    if not path.exists():
        return {}
    _keep_whole_lines(path)
    try:
        rows = [json.loads(row) for row in path.read_text("utf-8").splitlines()]
        damaged = any([*map(type, row)] != [int, str] for row in rows)
    except (TypeError, ValueError, RecursionError):
        damaged = True
    if damaged:  # its lines are decoded again
        path.write_bytes(b"")
        return {}
    return {number: line for number, line in rows if number > lines}


LineOutput = Stream | ResumableFile


def write_results(
    results: Callable[..., Iterator[Any]],
    as_text: Callable[[Any], str],
    first_of_window: Callable[[int], int],
    source: SourceLines,
    prefixes: SourceLines | None,
    phrases: SourceLines | None,
    output: LineOutput,
    progress: LineProgress,
    should_stop: Callable[[], bool],
) -> bool:
    """Writes the results of the lines that the output lacks; returns True if it is complete.

    Args:
        results: computes results from lines; its arguments are those of `LengthBatcher.results`.
        as_text: formats a result as a line of text.
        first_of_window: `LengthBatcher.first_of_window`: only whole windows are processed.
        output: receives the results in the order of the lines, flushed after every batch.
        should_stop: called after every batch; stops if it returns True.
    """
    written, known = output.lines, output.ahead

    def coming():
        for line in numbered(source, prefixes, phrases):
            if line.number <= written or line.number in known:
                progress.skip(1, line.text_bytes)
            yield line

    def done(batch: BatchDone) -> None:
        for number, result in batch.results:
            output.keep(number, as_text(result))
        output.flush()
        progress.update(batch)
        if should_stop():
            raise _Left

    first = first_of_window(written)
    try:
        lines = itertools.islice(coming(), first, None)
        for number, result in enumerate(results(lines, written - first, done, known), written + 1):
            output.write(known[number] if number in known else as_text(result))
    except _Left:
        return False
    finally:
        progress.end()
    for text in filter(None, (source, prefixes, phrases)):
        again = SourceLines(text.path, text.report)
        if text.is_file and os.path.exists(text.path) and again.content != text.content:
            raise UserError(f"{text.path} has changed while it was read: run the command again.")
    output.complete()
    return True


class _Left(Exception):
    """Raised between two batches in order to stop."""


class LineProgress(Progress):
    """Shows lines done, tokens per second and time left.

    The speed leaves out the first batch, in which TensorFlow traces its graph.
    """

    def __init__(self, every: float = 30.0, stream=None):
        super().__init__(every, stream)
        self.lines = 0  # total; 0: unknown
        self._bytes_left = self._done = self._tokens = self._bytes = 0
        self._start: float | None = None  # time at the end of the first batch

    def expect(self, lines: int, text_bytes: int) -> None:
        """Sets the total in lines and in bytes, since long lines take longer."""
        self.lines = lines
        self._bytes_left += text_bytes

    def skip(self, lines: int, text_bytes: int) -> None:
        self._done += lines
        self._bytes_left -= text_bytes

    def update(self, done: BatchDone) -> None:
        """Counts a batch and shows it."""
        now = time.monotonic()
        self._done += done.lines
        if self.lines:  # a batch that an earlier run did in part counts twice
            self._done = min(self._done, self.lines)
        self._bytes_left -= done.text_bytes
        if self._start is None:
            self._start = now
        else:
            self._tokens += done.tokens
            self._bytes += done.text_bytes
        total = f"/{self.lines:,}" if self.lines else ""
        line = f"{self._done:,}{total} sentences"
        seconds = now - self._start
        if seconds and self._tokens:
            line += f"  {self._tokens / seconds:,.0f} tokens/s"
        if seconds and self._bytes and self.lines:
            line = f"{duration(max(0, self._bytes_left) * seconds / self._bytes)} left  {line}"
        self.show(line, now, self._done / self.lines if self.lines else None)
