"""How to decode: T2T's `decode_hparams`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from t2t_keras import t2t_names
from t2t_keras.errors import UserError, nearest
from t2t_keras.settings import split_items

SENTENCES = 32
"""T2T's sentences in a batch where `batch_size` is 0."""

_CHOICES = {"long_inputs": ("cut", "skip"), "sampling_method": ("argmax", "random")}
_LEAST = {
    "beam_size": 1,
    "extra_length": 0,
    "min_length": 0,
    "batch_size": 0,
    "batch_tokens": 0,
    "sampling_seed": 0,
}


@dataclasses.dataclass(frozen=True)
class DecodeSettings:
    """T2T's `decode_hparams` by its names, and ours.

    Args:
        beam_size: K; 1 is greedy search, or sampling.
        alpha: weight of the length penalty; see `beam_search`.
        extra_length: an output may be this much longer than its input. (The paper: 50.)
        min_length: tokens of an output before its end of sentence, at least.
        batch_size: sentences decoded at once, at most; 0: as many as `batch_tokens` lets.
        batch_tokens: sentences times the longest source of the batch times K, at most; 0: no
            limit. One sentence is always decoded.
        t2t_batches: make the batches that T2T makes of a file, of `batch_size` (0: 32) sentences
            sorted by words, and count `extra_length` from the longest source of the batch: the
            neighbours of a line then have a say in how long its output may be.
        max_input_size: the most tokens of an input, end of sentence included; 0 or less: no limit.
        long_inputs: what becomes of longer ones: "cut" or "skip", which leaves the output empty.
        return_beams: all K hypotheses instead of the best.
        write_beam_scores: write a tab and the score after each hypothesis.
        sampling_method: "argmax": search; "random": draw one output from what the model finds
            likely.
        sampling_temp: in drawing, logits are divided by it.
        sampling_keep_top_k: draw among that many likeliest tokens; 0 or less: among all.
        sampling_keep_top_p: draw among the likeliest tokens that reach this probability together.
        sampling_seed: another one draws other outputs.
        logits_processors: functions that change the logits of every step: the name of a registered one
            and its number, `NAME:VALUE`, or several: `[NAME:VALUE,NAME:VALUE]`.
    """

    beam_size: int = 4
    alpha: float = 0.6
    extra_length: int = 100
    min_length: int = 0
    batch_size: int = 64
    batch_tokens: int = 16384
    t2t_batches: bool = False
    max_input_size: int = 2048
    long_inputs: str = "cut"
    return_beams: bool = False
    write_beam_scores: bool = False
    sampling_method: str = "argmax"
    sampling_temp: float = 1.0
    sampling_keep_top_k: int = -1
    sampling_keep_top_p: float = 1.0
    sampling_seed: int = 0
    logits_processors: str = ""

    def __post_init__(self):
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise UserError(
                    f"{name} must be {' or '.join(allowed)}, got {value!r}."
                    f"{nearest(value, allowed)}"
                )
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise UserError(f"{name} must be {least} or more, got {getattr(self, name)}.")
        if not math.isfinite(self.alpha):
            raise UserError(f"alpha must be a number, got {self.alpha}.")
        if not (math.isfinite(self.sampling_temp) and self.sampling_temp > 0):
            raise UserError(f"sampling_temp must be more than 0, got {self.sampling_temp}.")
        if not 0 < self.sampling_keep_top_p <= 1:
            raise UserError(
                "sampling_keep_top_p must be more than 0 and 1 at most, "
                f"got {self.sampling_keep_top_p}."
            )
        if self.sampling_method == "random" and self.beam_size > 1:
            raise UserError(
                f"sampling_method=random draws one output, got beam_size={self.beam_size}: give "
                "beam_size=1, too. (T2T's beam search leaves sampling_method aside.)"
            )

    def deciding(self) -> dict[str, Any]:
        """The settings that decide outputs: those of batches only where a batch has a say."""
        values = dataclasses.asdict(self)
        if not self.t2t_batches and self.sampling_method == "argmax":
            del values["batch_size"], values["batch_tokens"]
        return values

    @classmethod
    def parse(cls, text: str) -> DecodeSettings:
        """Reads "beam_size=4,alpha=0.6".

        Raises:
            UserError: an unknown name, one given twice, a value of the wrong type, or what T2T has and
                we do not.
        """
        types = {field.name: type(field.default) for field in dataclasses.fields(cls)}
        values = {}
        for item in split_items(text):
            name, equals, written = (part.strip() for part in item.partition("="))
            if name in t2t_names.DECODE_HPARAMS:
                t2t_names.require_done_anyway(name, written)
                continue
            if name not in types:
                raise UserError(
                    f"unknown decode hparam {name!r}; allowed: {', '.join(types)}."
                    f"{nearest(name, [*types, *t2t_names.DECODE_HPARAMS])}"
                )
            if name in values:
                raise UserError(f"decode hparam {name} is set twice in {text!r}: set it once.")
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
    str: str,
}
