"""`UserError`, the one-line error of every mistake that a user can correct, and text for a terminal."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable
from typing import Any, TextIO

__all__ = ["UserError"]


class UserError(Exception):
    """A mistake that the user can correct: wrong settings, names, files or data.

    The message is one line: what was wrong, what was got, what is allowed, what to do.
    Commands print it without a traceback and exit with code 2. It loses its middle where it is longer
    than 2,000 characters, as one that shows a damaged file may be.
    """

    def __init__(self, message: str):
        if len(message) > 2000:
            message = f"{message[:1000]} [...] {message[-900:]}"
        super().__init__(message)


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns " Did you mean 'x'?" for the known name closest to `name`, or ""."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""


def warn(message: str) -> None:
    """Writes a warning of one line to standard error."""
    print(f"warning: {message}", file=sys.stderr, flush=True)


# Text that reaches a terminal: of files, servers and models, whose escapes could hide or type text.


_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and newline


def printable(text: str) -> str:
    """Returns text that a terminal shows and does not obey: `\\x1b` stands for an escape."""
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


class Terminal:
    """A terminal's stream that shows what is printed as `printable` returns it.

    Args:
        stream: of the terminal.
    """

    def __init__(self, stream: TextIO):
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(printable(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def for_terminal(stream: TextIO) -> TextIO:
    """Returns a `Terminal` if a stream is one's, else the stream."""
    return Terminal(stream) if stream and stream.isatty() else stream  # type: ignore[return-value]
