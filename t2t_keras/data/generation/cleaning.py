"""Leaving out sentence pairs that are hardly translations, by rules that know no language."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from t2t_keras.errors import UserError

Sample = Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class CleaningRules:
    """Which pairs to leave out; without arguments none.

    Args:
        max_characters: either side is longer than this; 0: no limit.
        max_ratio: one side has more than so many times the characters of the other; 0: no limit.
        min_letters: less than this share (0 to 1) of a side's characters, spaces apart, are letters.
        copies: both sides are the same.
        duplicates: the pair came before. Remembers eight bytes of every pair.

    Raises:
        UserError: a limit is out of range.
    """

    max_characters: int = 0
    max_ratio: float = 0.0
    min_letters: float = 0.0
    copies: bool = False
    duplicates: bool = False

    def __post_init__(self):
        if self.max_characters < 0:
            raise UserError(f"max_characters is {self.max_characters}; it must be 0 or more.")
        if self.max_ratio and self.max_ratio < 1:
            raise UserError(f"max_ratio is {self.max_ratio}; it must be 1 or more, or 0 for none.")
        if not 0 <= self.min_letters <= 1:
            raise UserError(f"min_letters is {self.min_letters}; it must be from 0 to 1.")

    def reason(self, sample: Sample) -> str | None:
        """Returns why a pair is to be left out, whatever came before; None: it is kept."""
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
    """Applies rules to one pair after the other and counts what it leaves out."""

    def __init__(self, rules: CleaningRules):
        self.rules = rules
        self.dropped: Counter[str] = Counter()
        self._seen = _Seen() if rules.duplicates else None

    def keep(self, samples: Sequence[Sample]) -> list[Sample]:
        """Returns those of the next samples that the rules keep, in their order."""
        reasons = [self.rules.reason(sample) for sample in samples]
        kept = [sample for sample, why in zip(samples, reasons, strict=True) if why is None]
        self.dropped.update(why for why in reasons if why is not None)
        if self._seen is not None and kept:
            new = self._seen.add([f"{sample['inputs']}\0{sample['targets']}" for sample in kept])
            self.dropped.update({"duplicate": len(new) - int(new.sum())})
            kept = [sample for sample, is_new in zip(kept, new, strict=True) if is_new]
        return kept


class _Seen:
    """Texts that came before, as sorted arrays of 64-bit hashes, each over twice the next one."""

    def __init__(self):
        self._runs: list[np.ndarray] = []

    def add(self, texts: Sequence[str]) -> np.ndarray:
        """Adds texts; returns for each whether it was new, [N] bool."""
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
    """The share of letters among the characters that are no spaces; 0 of nothing."""
    characters = "".join(text.split())
    return sum(map(str.isalpha, characters)) / max(1, len(characters))
