"""A result for every line of a text: progress, writing in order, and resuming a stopped run."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from t2t_keras.decoding.by_length import Done, Report
from t2t_keras.decoding.source_lines import Line, SourceLines, numbered
from t2t_keras.errors import UserError
from t2t_keras.files import changes, open_locked, publish, write_json, writing
from t2t_keras.progress import Progress, duration

# Progress


class LineProgress(Progress):
    """Shows lines done, tokens per second and the time left.

    The first batch, for which TensorFlow makes its graph, does not count for the speed.
    """

    def __init__(self, every: float = 30.0, stream=None):
        super().__init__(every, stream)
        self.lines = 0  # in all; 0: unknown
        self._bytes_left = 0
        self._done = 0
        self._tokens = self._bytes = 0
        self._start: float | None = None  # when the first batch was done

    def expect(self, lines: int, text_bytes: int) -> None:
        """Says how much there is; long lines take longer than short ones."""
        self.lines = lines
        self._bytes_left += text_bytes

    def skip(self, lines: int, text_bytes: int) -> None:
        """Notes what was done before."""
        self._done += lines
        self._bytes_left -= text_bytes

    def update(self, done: Done) -> None:
        """Counts a batch and shows it."""
        now = time.monotonic()
        self._done += done.lines
        if self.lines:  # a batch that was half done before counts twice
            self._done = min(self._done, self.lines)
        self._bytes_left -= done.text_bytes
        if self._start is None:
            self._start = now
        else:
            self._tokens += done.tokens
            self._bytes += done.text_bytes
        self.show(self._line(now), now, self._done / self.lines if self.lines else None)

    def _line(self, now: float) -> str:
        total = f"/{self.lines:,}" if self.lines else ""
        line = f"{self._done:,}{total} sentences"
        seconds = now - (self._start or now)
        if seconds and self._tokens:
            line += f"  {self._tokens / seconds:,.0f} tokens/s"
        if seconds and self._bytes and self.lines:
            line += f"  {duration(max(0, self._bytes_left) * seconds / self._bytes)} left"
        return line


# ----------------------------------------------------------------------------
# Where results go, a line each: a file that a stopped run goes on with, or a stream.


STANDARD_OUTPUT = "-"


def line_output(path: str, made_from: Mapping[str, Any] | None, report: Report) -> LineOutput:
    """A `Stream` or a `ResumableFile`, whichever a path is."""
    known = os.path.isfile(path) or os.path.isdir(path) or not os.path.exists(path)
    if path != STANDARD_OUTPUT and known:
        return ResumableFile(path, made_from, report)
    return Stream(path)


class Stream:
    """Lines on standard output, or into whatever else cannot be begun again.

    Args:
        name: "-", or the path of a device or pipe.

    Raises:
        UserError: here and in all methods, if it cannot be written.
        BrokenPipeError: of `write` and `flush`: nobody reads on.
    """

    def __init__(self, name: str):
        self.name = "standard output" if name == STANDARD_OUTPUT else name
        self.lines = 0
        """Those that are there already."""
        self.ahead: dict[int, str] = {}
        """Nothing: see `ResumableFile`."""
        with writing(name):
            self._file = sys.stdout.buffer if name == STANDARD_OUTPUT else open(name, "wb")

    def write(self, line: str) -> None:
        """Adds a line."""
        with writing(self.name):
            self._file.write(as_line(line))
        self.lines += 1

    def keep(self, number: int, line: str) -> None:
        """Nothing: what is written to a stream cannot be gone on with."""

    def flush(self) -> None:
        """Lets go of what was written."""
        with writing(self.name):
            self._file.flush()

    def complete(self) -> None:
        """Ends."""
        self.flush()


class ResumableFile:
    """Lines of a file that gets its name when it is complete.

    Until then it grows as `PATH.unfinished`, `PATH.unfinished.ahead` has lines that came out of turn,
    and `PATH.unfinished.json` says what the lines are made from. Opened again for the same, it goes on
    with the whole lines that are there; otherwise it says why not and is empty.

    Args:
        path: of the file.
        made_from: what decides its lines: names and plain values; None: nobody can tell.
        report: is told what becomes of an unfinished file.

    Raises:
        UserError: here and in all methods, if the file cannot be written.
    """

    def __init__(self, path: str, made_from: Mapping[str, Any] | None, report: Report):
        self.name = path
        self.lines = 0
        """Those that are there already."""
        self.ahead: dict[int, str] = {}
        """Later lines, by number from 1, of the run before."""
        self._unfinished = Path(path + ".unfinished")
        self._kept = Path(path + ".unfinished.ahead")
        self._record = Path(path + ".unfinished.json")
        if os.path.isdir(path):
            raise UserError(f"{path} is a directory: name a file in it.")
        with writing(self.name):
            # Another process that writes the file is waited for: both would add their lines to it.
            self._file = open_locked(self._unfinished, path)
            if self._unfinished.stat().st_size or self._record.exists():
                why_not = self._why_not(made_from)
                if why_not:
                    report(f"starting {self._unfinished} again: {why_not}")
                else:
                    self.lines = _keep_whole_lines(self._unfinished)
                    self.ahead = _read_kept(self._kept, self.lines)
                    if self.lines or self.ahead:
                        more = f", with {len(self.ahead):,} later ones" if self.ahead else ""
                        report(f"resuming after line {self.lines:,} of {self._unfinished}{more}")
            if not self.lines and not self.ahead:
                self._file.truncate(0)
                self._kept.write_bytes(b"")
                self._record.unlink(missing_ok=True)
                if made_from is not None:
                    write_json(self._record, made_from)
            self._ahead = open(self._kept, "ab")
            self._waiting = max(self.ahead, default=0)

    def write(self, line: str) -> None:
        """Adds a line."""
        with writing(self.name):
            self._file.write(as_line(line))
        self.lines += 1

    def keep(self, number: int, line: str) -> None:
        """Notes a line, by its number, that cannot be written yet; what is written is passed over."""
        if number > self.lines and number not in self.ahead:
            with writing(self.name):
                self._ahead.write(as_line(json.dumps([number, line])))
            self._waiting = max(self._waiting, number)

    def flush(self) -> None:
        """Puts into the files what was written and noted."""
        with writing(self.name):
            self._file.flush()
            if self._waiting <= self.lines:  # all that was noted is written
                self._ahead.truncate(0)
            self._ahead.flush()

    def complete(self) -> None:
        """Gives the file its name; another process that waits for it begins a new one."""
        with writing(self.name):
            self.flush()
            publish({self._unfinished: Path(self.name)})
            self._kept.unlink(missing_ok=True)
            self._record.unlink(missing_ok=True)
            self.close()

    def close(self) -> None:
        """Leaves the unfinished file for a later start."""
        with writing(self.name):
            self._file.close()
            self._ahead.close()

    def _why_not(self, made_from: Mapping[str, Any] | None) -> str:
        if made_from is None:
            return "it cannot be told whether standard input is the same"
        try:
            before = json.loads(self._record.read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            before = None
        if not isinstance(before, dict):
            return "nothing tells what it was made from"
        return ", ".join(changes(before, made_from))


def as_line(text: str) -> bytes:
    """The bytes of a line of UTF-8; newlines in it become spaces."""
    return (text.replace("\n", " ") + "\n").encode("utf-8", "replace")


def _keep_whole_lines(path: Path) -> int:
    """Cuts off a last line without an end; returns how many whole ones there are."""
    lines = size = 0
    with open(path, "rb+") as file:
        for line in file:
            if line.endswith(b"\n"):
                lines += 1
                size += len(line)
        file.truncate(size)
    return lines


def _read_kept(path: Path, lines: int) -> dict[int, str]:
    """The lines noted out of turn, but for those that are among the first `lines`."""
    if not path.exists():
        return {}
    _keep_whole_lines(path)
    try:
        kept = dict(json.loads(row) for row in path.read_text("utf-8").splitlines())
    except (TypeError, ValueError):  # damaged: they are made again
        return {}
    return {number: line for number, line in kept.items() if number > lines}


LineOutput = Stream | ResumableFile


# ----------------------------------------------------------------------------
# A result for every line of a text, written as it comes, from where an earlier run stopped.


Results = Callable[[Iterable[Line], int, Callable[[Done], None], Collection[int]], Iterator[Any]]
"""`results(lines, skip, done, known)`: see `ByLength.results`."""


def write_results(
    results: Results,
    as_text: Callable[[Any], str],
    first_of_window: Callable[[int], int],
    source: SourceLines,
    prefixes: SourceLines | None,
    output: LineOutput,
    progress: LineProgress,
    leave: Callable[[], bool],
) -> bool:
    """Writes the results of the lines that the output does not have yet.

    Args:
        results: makes them.
        as_text: makes a line of one.
        first_of_window: of `ByLength`, which works on whole windows.
        source: the lines.
        prefixes: what goes with them.
        output: where results go, in the order of the lines, after every batch.
        progress: is told how far it is.
        leave: whether to stop, asked after every batch.

    Returns:
        Whether the output is complete.
    """
    there, known = output.lines, output.ahead

    def coming():
        for line in numbered(source, prefixes):
            if line.number <= there or line.number in known:
                progress.skip(1, line.text_bytes)
            yield line

    def done(batch: Done) -> None:
        for number, result in batch.made:
            output.keep(number, as_text(result))
        output.flush()
        progress.update(batch)
        if leave():
            raise _Left

    first = first_of_window(there)
    try:
        lines = itertools.islice(coming(), first, None)
        for number, result in enumerate(results(lines, there - first, done, known), there + 1):
            output.write(known[number] if number in known else as_text(result))
    except _Left:
        return False
    finally:
        progress.end()
    output.complete()
    return True


class _Left(Exception):
    """Leaves the work between two batches."""
