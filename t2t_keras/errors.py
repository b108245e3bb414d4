"""`UserError`, the one-line error of every mistake that a user can correct."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["UserError"]


class UserError(Exception):
    """A mistake that the user can correct: wrong settings, names, files or data.

    The message is one line: what was wrong, what was got, what is allowed, what to do.
    Commands print it without a traceback and exit with code 2.
    """


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns " Did you mean 'x'?" for the known name closest to `name`, or ""."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""
