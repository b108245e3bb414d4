"""Declared values: the type and range of a setting, and the one-line error for any other value.

`setting_table` declares T2T's settings with them, and `decode_settings` T2T's decode hparams.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from t2t_keras.errors import UserError, nearest

Scalar = bool | int | float | str

INT32, INT64 = 2**31 - 1, 2**63 - 1
_LEAST_FLOAT32, _MOST_FLOAT32 = 2.0**-126, (2 - 2.0**-23) * 2.0**127  # normal numbers

_SHOWN = 100  # characters of a wrong value in its error

_BOOLEANS = {"true": True, "True": True, "false": False, "False": False}
_TYPE_WORDS = {
    bool: ("true or false", "a list of true and false"),
    int: ("an integer", "a list of integers"),
    float: ("a number", "a list of numbers"),
    str: ("a string", "a list of strings"),
}


class SettingError(UserError, AttributeError):
    """A wrong name, value or use of a setting. (An AttributeError, so that `hasattr` works.)"""


class Allowed(NamedTuple):
    """The values of its type that a setting may have."""

    takes: Callable[[Any], bool] = lambda value: True
    words: str = ""  # what follows "must be an integer"; for `choices`, what follows "must be"
    choices: bool = False  # `words` lists the values, so errors leave out the type
    hint: Callable[[str], str] = lambda value: ""  # what an error adds about a wrong string
    most: int = INT64  # the largest integer that the code can hold


ANY = Allowed()


class Setting(NamedTuple):
    """One declared setting."""

    default: Any  # its value unless an hparams set gives another; a tuple for a list
    kind: type[Scalar]  # type of the value, or of a list's elements
    allowed: Allowed = ANY
    text: str = ""  # one-line description
    readers: tuple[
        str, ...
    ] = ()  # what reads it here or (if inert) in T2T: network, data, training
    optional: bool = False  # may be None
    inert: str = ""  # why it has no effect here; empty if it has one

    @property
    def is_list(self) -> bool:
        return isinstance(self.default, tuple)

    @property
    def description(self) -> str:
        """The allowed values in words, such as "an integer of at least 1"."""
        kind = "" if self.allowed.choices else _TYPE_WORDS[self.kind][self.is_list]
        return f"{kind} {self.allowed.words}".strip()

    def parse(self, text: str) -> Any:
        """Parses a value, or an element of a list, without checking its range.

        Raises:
            ValueError: `text` is not a value of the setting's type.
        """
        if self.optional and text in ("none", "None"):
            return None
        if self.kind is bool:
            return _BOOLEANS[text] if text in _BOOLEANS else bool(int(text))
        return self.kind(text)

    def checked(self, name: str, value: Any, what: str = "hparam ") -> Any:
        """Converts a value to the declared type and checks it.

        Raises:
            SettingError: the value has the wrong type or is not allowed. The message begins with
                `what` and `name`.
        """
        if value is None and self.optional:
            return None
        if not self.is_list:
            return self._checked_scalar(name, value, what)
        if not isinstance(value, list | tuple):
            raise self.refusal(name, value, what)
        return tuple(self._checked_scalar(name, element, what) for element in value)

    def recorded(self, name: str, value: Any) -> Any:
        """Converts a recorded value to the declared type, whether it is allowed or not."""
        return self._replace(allowed=ANY).checked(name, value)

    def refusal(self, name: str, value: Any, what: str = "hparam ") -> SettingError:
        """Returns the error for a value that is not allowed."""
        note = ""
        if isinstance(value, str) and self.kind is str:
            note = self.allowed.hint(value)
        elif self.kind is int and isinstance(value, int) and value > self.allowed.most:
            note = f": the maximum is {self.allowed.most}"
        elif self.kind is float and isinstance(value, float) and value and not _fits(value):
            note = ": float32 cannot hold it"
        reason = f" ({self.inert})" if self.inert else ""
        shown = repr(value) if len(repr(value)) <= _SHOWN else repr(value)[:_SHOWN] + "..."
        return SettingError(f"{what}{name} must be {self.description}, got {shown}{reason}{note}")

    def _checked_scalar(self, name: str, value: Any, what: str) -> Any:
        typed: Any = None
        if self.kind in (bool, str):
            typed = value if isinstance(value, self.kind) else None
        elif isinstance(value, bool):
            pass  # an int in Python, but not a number here
        elif self.kind is int and isinstance(value, numbers.Integral):
            integer = int(value)
            typed = integer if abs(integer) <= self.allowed.most else None
        elif self.kind is float and isinstance(value, numbers.Real):
            typed = _float(value)
        if typed is None or not self.allowed.takes(typed):
            raise self.refusal(name, value, what)
        return typed


def _float(value: numbers.Real) -> float | None:
    try:
        typed = float(value)
    except OverflowError:  # an int of 400 digits
        return None
    return typed if abs(typed) <= _MOST_FLOAT32 else None


def _fits(value: float) -> bool:
    return not math.isfinite(value) or _LEAST_FLOAT32 <= abs(value) <= _MOST_FLOAT32


# Ranges and choices


def at_least(least: int, most: int = INT32) -> Allowed:
    """Numbers from `least` up. The default maximum is that of int32, as for shapes and ids."""
    return Allowed(lambda value: value >= least, f"of at least {least}", most=most)


def above(least: int) -> Allowed:
    """Numbers above `least` that stay above it in float32."""
    return Allowed(lambda value: value > least and value >= _LEAST_FLOAT32, f"above {least}")


def from_to(least: float, most: float, above_least: bool = False) -> Allowed:
    """Numbers from `least` to `most`; `above_least` excludes `least`."""
    words = f"above {least} and at most {most}" if above_least else f"from {least} to {most}"
    lowest = _LEAST_FLOAT32 if above_least else least
    return Allowed(lambda value: lowest <= value <= most, words)


def nearest_of(value: str, names: Iterable[str]) -> str:
    """Returns ". Did you mean 'x'?" for the name closest to `value`, or ""."""
    hint = nearest(value, names)
    return f".{hint}" if hint else ""


def one_of(*choices: Any) -> Allowed:
    """One of a few values; the error for a wrong string suggests the nearest."""
    names = [str(choice) or "''" for choice in choices]
    words = ("one of " if len(names) > 1 else "") + ", ".join(names)
    return Allowed(
        lambda value: value in choices, words, True, lambda value: nearest_of(value, names)
    )


def declare(
    default: Any,
    allowed: Allowed = ANY,
    text: str = "",
    also: str = "",
    kind: type[Scalar] | None = None,
    optional: bool = False,
) -> Setting:
    """Returns a setting of its default's type: bool, int, float, str or a list of one of them.

    Args:
        also: a second reader, besides that of its group.
        kind: the type, if the default is None or an empty list.
    """
    if isinstance(default, list | tuple):
        kind, default = kind or (type(default[0]) if default else str), tuple(default)
    readers = (also,) if also else ()
    return Setting(default, kind or type(default), allowed, text, readers, optional)
