"""Corpus cleaning: drops sentence pairs that are unlikely translations, by language-independent rules."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from t2t_keras.errors import UserError

Sample = Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class CleaningRules:
    """Which pairs to drop; by default none.

    Raises:
        UserError: a limit is out of range.
    """

    max_characters: int = 0
    """Drop pairs in which either side is longer than this; 0: no limit."""
    max_ratio: float = 0.0
    """Drop pairs in which one side has more than this many times the characters of the other; 0: no limit."""
    min_letters: float = 0.0
    """Drop pairs in which less than this share (0 to 1) of a side's non-space characters are letters."""
    copies: bool = False
    """Drop pairs with equal sides."""
    duplicates: bool = False
    """Drop pairs that occurred before. Needs eight bytes of memory per pair."""

    def __post_init__(self):
        if self.max_characters < 0:
            raise UserError(f"max_characters is {self.max_characters}; it must be 0 or more.")
        if self.max_ratio and self.max_ratio < 1:
            raise UserError(f"max_ratio is {self.max_ratio}; it must be 1 or more, or 0 for none.")
        if not 0 <= self.min_letters <= 1:
            raise UserError(f"min_letters is {self.min_letters}; it must be from 0 to 1.")

    def given(self) -> dict[str, Any]:
        """Returns the active rules by name."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value}

    def reason(self, sample: Sample) -> str | None:
        """Returns the reason to drop a pair, duplicates aside; None: it is kept."""
        if "inputs" not in sample or not isinstance(sample.get("targets"), str):
            raise UserError(
                "cleaning compares the two texts of a pair: leave out --clean_... here."
            )
        inputs, targets = sample["inputs"], sample["targets"]
        shorter, longer = sorted((len(inputs), len(targets)))
        if 0 < self.max_characters < longer:
            return "too long"
        if self.max_ratio and longer > self.max_ratio * shorter:
            return "unequal lengths"
        if self.min_letters and min(map(_letters, (inputs, targets))) < self.min_letters:
            return "few letters"
        if self.copies and inputs == targets:
            return "copy"
        return None


class Cleaner:
    """Applies rules to a stream of pairs and counts the dropped ones."""

    def __init__(self, rules: CleaningRules):
        self.rules = rules
        self.dropped: Counter[str] = Counter()
        self._seen = _Seen() if rules.duplicates else None

    def keep(self, samples: Sequence[Sample]) -> list[Sample]:
        """Returns those of the next samples that are kept, in order."""
        reasons = [self.rules.reason(sample) for sample in samples]
        kept = [sample for sample, why in zip(samples, reasons, strict=True) if why is None]
        self.dropped.update(why for why in reasons if why is not None)
        if self._seen is not None and kept:
            new = self._seen.add([f"{sample['inputs']}\0{sample['targets']}" for sample in kept])
            self.dropped.update({"duplicate": len(new) - int(new.sum())})
            kept = [sample for sample, is_new in zip(kept, new, strict=True) if is_new]
        return kept


class _Seen:
    """A set of texts, as sorted arrays of 64-bit hashes, each more than twice as long as the next."""

    def __init__(self):
        self._runs: list[np.ndarray] = []

    def add(self, texts: Sequence[str]) -> np.ndarray:
        """Adds texts; returns [N] bool, True for each that was new."""
        digests = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
        hashes = np.frombuffer(b"".join(digests), np.uint64)
        run, first = np.unique(hashes, return_index=True)
        new = np.zeros(len(hashes), bool)
        new[first] = True
        for known in self._runs:
            place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            new &= known[place] != hashes
        run = run[np.isin(run, hashes[new])]
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.union1d(run, self._runs.pop())
        if len(run):
            self._runs.append(run)
        return new


def _letters(text: str) -> float:
    """Returns the share of letters among the non-space characters; 0 for an empty text."""
    characters = "".join(text.split())
    return sum(map(str.isalpha, characters)) / max(1, len(characters))
