"""Answers to names of tensor2tensor that are not supported here, from the table `t2t_names.tsv`."""

import contextlib
import functools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from t2t_keras.errors import UserError, nearest, warn


class Absent(NamedTuple):
    """A T2T name that is not supported."""

    name: str  # a regular expression
    reason: str  # why it is not supported, or what to do instead
    harmless: list[str]  # its values that change nothing here, if there are any; of a setting, JSON

    def is_harmless(self, written: str) -> bool:
        """Returns True for a value that changes nothing here."""
        with contextlib.suppress(ValueError):
            return float(written) in map(float, self.harmless)
        return written.lower() in (value.lower() for value in self.harmless)


@functools.cache
def table(kind: str) -> list[Absent]:
    """Returns the names of a kind: "problem", "flag", "hook" (of a `Problem`), and others."""
    text = Path(__file__).with_name("t2t_names.tsv").read_text("utf-8")
    lines = (line.split("\t") for line in text.splitlines() if line.startswith(f"{kind}\t"))
    return [
        Absent(name, reason, values.split("|") if equals else [])
        for _, listed, reason in lines
        for name, equals, values in (item.partition("=") for item in listed.split(", "))
    ]


def absent(kind: str, name: str) -> Absent | None:
    """Returns the entry of an unsupported T2T name; None for any other name."""
    return next((known for known in table(kind) if re.fullmatch(known.name, name)), None)


def why_absent(kind: str, name: str) -> str:
    """Returns the reason why a T2T name is not supported; "" for any other name."""
    return known.reason if (known := absent(kind, name)) else ""


def names(kind: str) -> list[str]:
    """Returns the unsupported names of a kind that are plain names, not patterns."""
    return [known.name for known in table(kind) if re.fullmatch(r"[\w.-]+", known.name)]


def unknown(kind: str, name: str, ours: Iterable[str], note: str) -> UserError:
    """Returns the error for an unknown name: T2T's reason, or the nearest name and a note."""
    if reason := why_absent(kind, name):
        return UserError(f"{kind} {name!r} of tensor2tensor is not supported: {reason}")
    note += "; load the package of another with --t2t_usr_dir"
    return UserError(f"unknown {kind} {name!r}.{nearest(name, [*ours, *names(kind)])} {note}")


def snake_case(name: str) -> str:
    """Returns T2T's name for a class or function: `Translate4Ende32k` -> `translate4_ende32k`."""
    before_words = re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub("([a-z0-9])([A-Z])", r"\1_\2", before_words).lower()


def is_users_own(kind: type, method: str) -> bool:
    """Returns True if the class that defines a method of `kind` is outside this package."""
    owners = (owner.__module__ for owner in kind.__mro__ if method in vars(owner))
    return not next(owners, "t2t_keras.").startswith("t2t_keras.")


def warn_of_uncalled_hooks(problem: Any) -> None:
    """Warns of T2T's hooks that a user's problem defines but nothing calls."""
    if hooks := uncalled_hooks(type(problem)):
        warn(f"{problem.name} defines hooks of T2T that only your code calls here: {hooks}")


def uncalled_hooks(problem: type) -> str:
    """Returns T2T's hooks that a user's problem defines but nothing calls, with what to do instead."""
    found: dict[str, list[str]] = {}
    for hook in table("hook"):
        if is_users_own(problem, hook.name):
            found.setdefault(hook.reason, []).append(hook.name)
    return ", ".join(f"{', '.join(theirs)} ({instead})" for instead, theirs in found.items())
