"""`UserError`, the one-line error for mistakes that a user can correct; safe terminal output."""

import contextlib
import difflib
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from typing import Any, TextIO

__all__ = ["UserError"]

_OF_TENSORFLOW = re.compile(r"{{\w*node .*?}} ?| \[Op:\w*\]")


class UserError(Exception):
    """A mistake that the user can correct: wrong settings, names, files or data.

    The message is one line (Keras adds others in a call of a model): what was wrong, what was got, what
    is allowed, what to do. Commands print it without a traceback and exit with code 2. A message over
    2,000 characters (it may quote a damaged file) loses its middle, and one of TensorFlow's the names of
    its operations.
    """

    def __init__(self, message: str):
        message = _OF_TENSORFLOW.sub("", message)
        if len(message) > 2000:
            message = f"{message[:1000]} [...] {message[-900:]}"
        super().__init__(message)


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns " Did you mean 'x'?" for the known name closest to `name`, or ""."""
    close = difflib.get_close_matches(name[:200], list(known), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""


def require_one_of(name: str, value: Any, allowed: Collection[str]) -> None:
    """Raises a `UserError`, with the nearest of the allowed values, for any other value."""
    if value not in allowed:
        hint = nearest(str(value), allowed)
        raise UserError(f"{name} must be one of {', '.join(allowed)}, got {value!r}.{hint}")


def require_kind(name: str, value: Any, kind: Any, wanted: str) -> None:
    """Raises a `UserError` for a value that is not of a class."""
    if not isinstance(value, kind):
        raise UserError(f"{name} must be {wanted}, got {value!r:.99}.")


def require_several(name: str, texts: Any) -> None:
    """Raises a `UserError` for what is no list of texts, such as one, whose letters would count as texts."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise UserError(f"{name} takes a list of texts, got {texts!r}: put it in a list.")


def several_texts(name: str, texts: Any, kinds: Any = str) -> list[Any]:
    """Returns texts as a list; raises a `UserError` for one text, and for what is none among them."""
    require_several(name, texts)
    for number, text in enumerate(texts := [*texts], start=1):
        if not isinstance(text, kinds):
            raise UserError(f"{name} takes strings, got {text!r:.60} in place {number}.")
    return texts


def reason_of(error: BaseException) -> str:
    """Returns the system's reason for an exception, else the first line of its message, else its type."""
    lines = str(getattr(error, "strerror", None) or error).strip().splitlines()
    return lines[0].rstrip(" :.") if lines else type(error).__name__


@contextlib.contextmanager
def explained(what: str, *kinds: type[Exception], remedy: str = "") -> Iterator[None]:
    """Turns exceptions of some kinds into the `UserError` "WHAT: REASON." or "WHAT (REASON): REMEDY."."""
    try:
        yield
    except UserError:
        raise
    except kinds as error:
        reason = reason_of(error)
        if isinstance(error, OSError) and error.filename and str(error.filename) not in what:
            reason += f": {error.filename}"
        message = f"{what} ({reason}): {remedy}." if remedy else f"{what}: {reason}."
        raise UserError(message) from error


def importing(what: str, remedy: str) -> contextlib.AbstractContextManager[None]:
    """Explains the `ImportError` of an optional package."""
    return explained(what, ImportError, remedy=remedy)


def warn(message: str) -> None:
    """Writes a one-line warning to standard error."""
    print(f"warning: {message}", file=sys.stderr, flush=True)


# Terminal output: escapes in text from files, servers and models could hide or type text.

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and newline


def printable(text: str) -> str:
    """Replaces control characters by text that a terminal only shows, such as `\\x1b`."""
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


class Terminal:
    """Wraps a terminal's stream and makes all text `printable`."""

    def __init__(self, stream: TextIO):
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(printable(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def for_terminal(stream: TextIO) -> TextIO:
    """Wraps a stream in a `Terminal` if it goes to one."""
    return Terminal(stream) if stream and stream.isatty() else stream  # type: ignore[return-value]
