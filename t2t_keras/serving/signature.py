"""What a served function takes and returns, as far as a client of text asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from t2t_keras.errors import UserError, nearest


class Signature(NamedTuple):
    """A signature of a SavedModel."""

    inputs: dict[str, bool]
    """Names of the inputs, and whether each takes strings."""
    outputs: tuple[str, ...]
    """Names of the outputs."""


def choose(signatures: Mapping[str, Signature], name: str, where: str) -> Signature:
    """The signature of this name, or UserError with those that there are."""
    if name not in signatures:
        there = ", ".join(sorted(n for n in signatures if not n.startswith("__")))
        raise UserError(
            f"{where} has no signature {name!r}; it has: {there or 'none'}."
            f"{nearest(name, signatures)}"
        )
    return signatures[name]


def from_types(inputs: Mapping[str, str], outputs: Mapping[str, str]) -> Signature:
    """Makes a signature of names and types of its tensors, in TensorFlow's names of types."""
    return Signature({name: kind == "DT_STRING" for name, kind in inputs.items()}, tuple(outputs))
