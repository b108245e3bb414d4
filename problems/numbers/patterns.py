"""Pairs of sentence patterns, and how a pattern is filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from t2t_keras.problems.numbers import english

Pair = tuple[str, str]  # English, German
Value = tuple[Any, ...]  # what a phrase spells, e.g. (21, 3) for the twenty-first of March

CASES = ("nom", "acc", "dat")


class Subject(NamedTuple):
    """Who acts: the words, and the forms of to be that go with them."""

    english: str
    german: str
    english_is: str
    english_was: str
    german_is: str
    plural: bool

    def german_verb(self, singular: str) -> str:
        """The German past tense for this subject, from that of the singular: kaufte, kauften."""
        if not self.plural:
            return singular
        return singular + ("n" if singular.endswith("e") else "en")


SUBJECTS = (
    Subject("I", "ich", "am", "was", "bin", False),
    Subject("he", "er", "is", "was", "ist", False),
    Subject("she", "sie", "is", "was", "ist", False),
    Subject("we", "wir", "are", "were", "sind", True),
    Subject("they", "sie", "are", "were", "sind", True),
    Subject("Anna", "Anna", "is", "was", "ist", False),
    Subject("Peter", "Peter", "is", "was", "ist", False),
    Subject("my brother", "mein Bruder", "is", "was", "ist", False),
    Subject("the children", "die Kinder", "are", "were", "sind", True),
)


def finish(rng: Random, source: str, target: str) -> Pair:
    """A pair that ends in a full stop is a sentence: half of them lose the stop, the others gain capitals."""
    if not source.endswith("."):
        return source, target
    if rng.random() < 0.5:
        return source[:-1], target[:-1]
    return english.capitalised(source), english.capitalised(target)


def fill(rng: Random, patterns: Sequence[Pair], source: str, target: Mapping[str, str]) -> Pair:
    """Fills one pattern of the list.

    The English pattern has one slot `{}`; the German one names the form that it needs,
    e.g. `{nom}` or `{dat}`.
    """
    source_pattern, target_pattern = rng.choice(patterns)
    return finish(rng, source_pattern.format(source), target_pattern.format(**target))


def draw_number(rng: Random, low: int, high: int) -> int:
    """A number of low..high: each length is as likely as the next, zeros are likelier than chance."""
    while True:
        length = rng.randint(len(str(low)), len(str(high)))
        n = rng.randint(1, 9)
        for _ in range(length - 1):
            n = 10 * n + (0 if rng.random() < 0.25 else rng.randint(0, 9))
        if low <= n <= high:
            return n


def draw_attributive(rng: Random, low: int, high: int) -> int:
    """As `draw_number`, without the numbers above one that end in 01 (see `german.attributive`)."""
    while True:
        n = draw_number(rng, low, high)
        if n == 1 or n % 100 != 1:
            return n
