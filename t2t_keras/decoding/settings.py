"""How to decode: T2T's `decode_hparams`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from t2t_keras.errors import UserError, nearest
from t2t_keras.settings import split_items


@dataclasses.dataclass(frozen=True)
class DecodeSettings:
    """T2T's `decode_hparams`, by its names and with its defaults.

    Args:
        beam_size: K; 1 is greedy search.
        alpha: weight of the length penalty.
        extra_length: an output may be this much longer than its padded input. (The paper: 50.)
        batch_size: sentences decoded at once.
        max_input_size: cut longer inputs to this many tokens, end of sentence included; -1: never.
        return_beams: write all K hypotheses, separated by tabs.
        write_beam_scores: write a tab and the score after each hypothesis.
    """

    beam_size: int = 4
    alpha: float = 0.6
    extra_length: int = 100
    batch_size: int = 32
    max_input_size: int = -1
    return_beams: bool = False
    write_beam_scores: bool = False

    def __post_init__(self):
        for name in ("beam_size", "batch_size"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be 1 or more, got {getattr(self, name)}.")

    @classmethod
    def parse(cls, text: str) -> DecodeSettings:
        """Reads "beam_size=4,alpha=0.6".

        Raises:
            UserError: an unknown name, or a value of the wrong type.
        """
        types = {field.name: type(field.default) for field in dataclasses.fields(cls)}
        values = {}
        for item in split_items(text):
            name, equals, written = (part.strip() for part in item.partition("="))
            if name not in types:
                raise UserError(
                    f"unknown decode hparam {name!r}; allowed: {', '.join(types)}."
                    f"{nearest(name, types)}"
                )
            try:
                values[name] = _READ[types[name]](written)
            except (KeyError, ValueError):
                kind = types[name].__name__
                raise UserError(
                    f"decode hparam {name} takes a value of type {kind}, got {equals + written!r}."
                ) from None
        return cls(**values)


_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_READ: dict[type, Callable[[str], Any]] = {
    int: int,
    float: float,
    bool: lambda text: _BOOLEANS[text.lower()],
}
