"""`DecodeSettings`: T2T's `decode_hparams` and ours, declared with their defaults and ranges."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_keras import settings, t2t_names
from t2t_keras.errors import UserError, nearest
from t2t_keras.settings import ANY, INT64, Allowed, Setting, at_least, declare, from_to, one_of

SENTENCES = 32
"""T2T's sentences per batch if `batch_size` is 0."""

_CACHED = 100  # positions with caches in the estimate of memory


def _option(default: Any, text: str, allowed: Allowed = ANY) -> Any:
    return dataclasses.field(default=default, metadata={"setting": declare(default, allowed, text)})


@dataclasses.dataclass(frozen=True)
class DecodeSettings:
    """Settings of decoding: T2T's `decode_hparams` under their names, and our own.

    `docs/settings.md` has the meaning and allowed values of each; others are a `UserError`.
    """

    beam_size: int = _option(4, "hypotheses; 1 is greedy search, or sampling", at_least(1))
    alpha: float = _option(0.6, "weight of the length penalty")
    extra_length: int = _option(
        100, "tokens by which an output may exceed its input (the paper: 50)", at_least(0, 2**30)
    )
    min_length: int = _option(0, "fewest tokens of prompt and output before its end", at_least(0))
    batch_size: int = _option(64, "sentences per batch; 0: as `batch_tokens` allows", at_least(0))
    batch_tokens: int = _option(
        16384,
        "maximum tokens per batch: sentences times longest source times `beam_size`; 0: no limit",
        at_least(0),
    )
    t2t_batches: bool = _option(
        False,
        "T2T's batches: `batch_size` (0: 32) sentences sorted by words; `extra_length` counts from "
        "the longest source of a batch, so outputs depend on neighbours",
    )
    max_input_size: int = _option(
        2048, "most tokens of an input with its end; 0 or less: no limit (T2T has none)"
    )
    long_inputs: str = _option(
        "cut", "longer inputs are cut, or skipped with an empty output", one_of("cut", "skip")
    )
    return_beams: bool = _option(False, "write all hypotheses of a sentence, separated by tabs")
    write_beam_scores: bool = _option(False, "write a tab and the score after each hypothesis")
    sampling_method: str = _option(
        "argmax",
        "`random`, with `beam_size=1`, samples an output instead of searching for the best; T2T has "
        "this and the next two settings in `--hparams`",
        one_of("argmax", "random"),
    )
    # Outside this range, a float32 logit is infinite, or padding of the vocabulary is sampled.
    sampling_temp: float = _option(
        1.0, "divisor of logits; below 1, likely tokens are likelier", from_to(1e-30, 1e5)
    )
    sampling_keep_top_k: int = _option(-1, "sample from so many most likely tokens; 0 or less: all")
    sampling_keep_top_p: float = _option(
        1.0, "probability of the likeliest tokens to sample from", from_to(0, 1, above_least=True)
    )
    sampling_seed: int = _option(0, "seed of the random numbers for sampling", at_least(0, INT64))
    logits_processors: str = _option(
        "",
        "registered functions that change logits, each with a number: `NAME:1.2`, or several: "
        "`[NAME:1.2,NAME:3]` ([how to write one](extending.md#a-change-of-the-logits))",
    )

    constrained: str = _option(
        "beam",
        "when only valid outputs are allowed (a parser's trees with a tag for each word): in beam "
        "search, which has alternatives to continue, in every search, or never, as in T2T",
        one_of("beam", "always", "never"),
    )
    xla: bool = _option(
        False,
        "compile the search with XLA, in fixed shapes, for GPUs; not with sampling, "
        "`logits_processors`, a constrained search or `--precision=int8`",
    )

    def __post_init__(self):
        for name, setting in DECODE_SETTINGS.items():
            value = setting.checked(name, getattr(self, name), "decode hparam ")
            object.__setattr__(self, name, value)
        sampled = self.sampling_method == "random"
        if sampled and self.beam_size > 1:
            raise UserError(
                f"sampling_method=random draws one output, got beam_size={self.beam_size}: give "
                "beam_size=1, too. (T2T's beam search ignores sampling_method.)"
            )
        if self.xla:
            require_compilable({"sampling": sampled, "logits_processors": self.logits_processors})

    @property
    def constrains(self) -> bool:
        """True if only valid outputs are allowed."""
        return self.constrained == "always" or (self.constrained == "beam" and self.beam_size > 1)

    def deciding(self) -> dict[str, Any]:
        """Returns the settings that affect outputs: batch sizes only if they do, never `xla`."""
        values = dataclasses.asdict(self)
        del values["xla"]
        if not self.t2t_batches and self.sampling_method == "argmax":
            del values["batch_size"], values["batch_tokens"]
        return values

    def require_memory(self, model, longest: int | None = None, sentences: int = 0) -> None:
        """Raises UserError if searches need more than the machine's memory.

        The estimate is low: logits and caches of up to a hundred positions for one sentence, and the ids
        of outputs of up to `longest` tokens for all sentences; by default those of a batch of one token.
        """
        longest = 1 + self.extra_length if longest is None else longest
        if not sentences:
            most = self.batch_tokens and self.batch_tokens // self.beam_size
            sentences = max(1, min(filter(None, (self.batch_size, most)), default=1))
        cached = 0  # bytes of keys and values per position
        for hp in (each.hp for each in model.members):
            cached += 8 * hp.hidden_size * (hp.num_decoder_layers or hp.num_hidden_layers)
        ids = 2 * 4 * sentences * longest
        logits = 3 * 4 * model.target_vocab_size
        caches = 2 * cached * min(longest, _CACHED)
        needed, memory = self.beam_size * (ids + logits + caches), _machine_memory()
        if needed > memory:
            raise UserError(
                f"beam_size={self.beam_size} and outputs of {longest:,} tokens need about "
                f"{needed / 2**30:,.0f} GiB of memory, but the machine has {memory / 2**30:,.0f}: "
                "lower beam_size, extra_length or batch_size."
            )

    @classmethod
    def parse(cls, text: str) -> DecodeSettings:
        """Reads "beam_size=4,alpha=0.6", the later value of a name; a wrong one is a `UserError`."""
        values: dict[str, Any] = {}
        for item in settings.split_items(text):
            name, _, written = (part.strip() for part in item.partition("="))
            if setting := DECODE_SETTINGS.get(name):
                try:
                    parsed = setting.parse(written.lower() if setting.kind is bool else written)
                except ValueError:
                    raise setting.refusal(name, written, "decode hparam ") from None
                values[name] = parsed
            elif known := t2t_names.absent("decode hparam", name):
                if not known.is_harmless(written):
                    raise UserError(
                        f"decode hparam {name} of tensor2tensor has no effect here ({known.reason}): "
                        "leave it out."
                    )
            else:
                hint = nearest(name, [*DECODE_SETTINGS, *t2t_names.names("decode hparam")])
                allowed = ", ".join(DECODE_SETTINGS)
                raise UserError(f"unknown decode hparam {name!r}; allowed: {allowed}.{hint}")
        return cls(**values)


DECODE_SETTINGS: dict[str, Setting] = {
    field.name: field.metadata["setting"] for field in dataclasses.fields(DecodeSettings)
}
"""The decode hparams by name."""


def require_compilable(asked: Mapping[str, Any]) -> None:
    """Refuses to compile a search with XLA that has options which only TensorFlow's loop has.

    Such options come by name; what is empty is not asked for.
    """
    if name := next((name for name, value in asked.items() if value), None):
        instead = "set constrained=never" if name == "a constraint" else name
        raise UserError(f"XLA cannot compile a search with {name}: leave out xla or {instead}.")


def _machine_memory() -> int:
    """Returns the memory of the machine, or of this process's control group, in bytes."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return memory
