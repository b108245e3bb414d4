"""Where results go, a line each: a file that a stopped run goes on with, or a stream."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from t2t_keras.decoding.by_length import Report
from t2t_keras.errors import UserError
from t2t_keras.whole_file import whole_file

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
        with _plain_errors(name):
            self._file = sys.stdout.buffer if name == STANDARD_OUTPUT else open(name, "wb")

    def write(self, line: str) -> None:
        """Adds a line."""
        with _plain_errors(self.name):
            self._file.write(as_line(line))
        self.lines += 1

    def keep(self, number: int, line: str) -> None:
        """Nothing: what is written to a stream cannot be gone on with."""

    def flush(self) -> None:
        """Lets go of what was written."""
        with _plain_errors(self.name):
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
        with _plain_errors(self.name):
            if self._unfinished.exists():
                why_not = self._why_not(made_from)
                if why_not:
                    report(f"{self._unfinished} is begun anew: {why_not}")
                else:
                    self.lines = _keep_whole_lines(self._unfinished)
                    self.ahead = _read_kept(self._kept, self.lines)
                    if self.lines or self.ahead:
                        more = f", with {len(self.ahead):,} later ones" if self.ahead else ""
                        report(f"going on after line {self.lines:,} of {self._unfinished}{more}")
            if not self.lines and not self.ahead:
                self._unfinished.write_bytes(b"")
                self._kept.write_bytes(b"")
                self._record.unlink(missing_ok=True)
                if made_from is not None:
                    with whole_file(self._record) as partial:
                        partial.write_text(json.dumps(made_from, indent=1) + "\n", "utf-8")
            self._file = open(self._unfinished, "ab")
            self._ahead = open(self._kept, "ab")
            self._waiting = max(self.ahead, default=0)

    def write(self, line: str) -> None:
        """Adds a line."""
        with _plain_errors(self.name):
            self._file.write(as_line(line))
        self.lines += 1

    def keep(self, number: int, line: str) -> None:
        """Notes a line, by its number, that cannot be written yet; what is written is passed over."""
        if number > self.lines and number not in self.ahead:
            with _plain_errors(self.name):
                self._ahead.write(as_line(json.dumps([number, line])))
            self._waiting = max(self._waiting, number)

    def flush(self) -> None:
        """Puts into the files what was written and noted."""
        with _plain_errors(self.name):
            self._file.flush()
            if self._waiting <= self.lines:  # all that was noted is written
                self._ahead.truncate(0)
            self._ahead.flush()

    def complete(self) -> None:
        """Gives the file its name."""
        with _plain_errors(self.name):
            self._file.close()
            self._ahead.close()
            os.replace(self._unfinished, self.name)
            self._kept.unlink(missing_ok=True)
            self._record.unlink(missing_ok=True)

    def _why_not(self, made_from: Mapping[str, Any] | None) -> str:
        if made_from is None:
            return "it cannot be told whether standard input is the same"
        try:
            before = json.loads(self._record.read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            before = None
        if not isinstance(before, dict):
            return "nothing tells what it was made from"
        names = [*made_from, *(name for name in before if name not in made_from)]
        different = [name for name in names if before.get(name) != made_from.get(name)]
        return ", ".join(
            f"{name} was {before.get(name)} and is now {made_from.get(name)}" for name in different
        )


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


@contextlib.contextmanager
def _plain_errors(name: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(f"{name} cannot be written: {error.strerror}.") from error


LineOutput = Stream | ResumableFile
