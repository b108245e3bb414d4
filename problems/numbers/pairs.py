"""The corpus of `translate_ende_numbers`: which values a split holds, and its sentence pairs."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from t2t_keras.problems.numbers import calendar, plain, quantities
from t2t_keras.problems.numbers.patterns import Pair, Value

SIZES = {"train": 24_000, "dev": 500, "test": 500}


class Kind(NamedTuple):
    """One kind of phrase: what its values are, its share of the corpus, how it is drawn and worded.

    Kinds of the same family hold out the same values.
    """

    name: str
    family: str
    share: int
    draw: Callable[[Random], Value]
    phrase: Callable[[Random, Value], Pair]


KINDS = (
    Kind("cardinal", "number", 18, plain.draw_cardinal, plain.cardinal),
    Kind("label", "number", 6, plain.draw_label, plain.label),
    Kind("ordinal", "number", 10, plain.draw_ordinal, plain.ordinal),
    Kind("count", "number", 16, quantities.draw_count, quantities.count),
    Kind("age", "number", 3, quantities.draw_age, quantities.age),
    Kind("population", "number", 5, quantities.draw_population, quantities.population),
    Kind("year", "number", 8, calendar.draw_year, calendar.year),
    Kind("decimal", "decimal", 5, plain.draw_decimal, plain.decimal),
    Kind("measure", "measure", 8, quantities.draw_measure, quantities.measure),
    Kind("date", "date", 10, calendar.draw_date, calendar.date),
    Kind("time", "time", 12, calendar.draw_time, calendar.time),
    Kind("price", "price", 12, quantities.draw_price, quantities.price),
    Kind("duration", "duration", 8, quantities.draw_duration, quantities.duration),
)


class Example(NamedTuple):
    """A sentence pair and what it spells."""

    kind: Kind
    value: Value
    english: str
    german: str


def split_of(family: str, value: Value) -> str:
    """The one split that a value belongs to: "train", "dev" or "test", by its checksum.

    One value in ten goes to dev and one to test. Values whose words cannot be put together from
    others are always for training: single numbers below twenty, or round (40, 300), and durations
    and measures with a one (one day, two hours and one minute), which shows the German gender.
    """
    if family == "number" and (value[0] < 20 or not str(value[0])[1:].strip("0")):
        return "train"
    if family in ("measure", "duration") and 1 in value:
        return "train"
    return {0: "dev", 1: "test"}.get(zlib.crc32(repr((family, *value)).encode()) % 10, "train")


def examples(split: str) -> Iterator[Example]:
    """The examples of "train", "dev" or "test": always the same, no sentence twice.

    A sentence with and without its capital and full stop counts as the same.
    """
    rng = Random(f"translate_ende_numbers {split}")
    shares = [kind.share for kind in KINDS]
    seen: set[str] = set()
    while len(seen) < SIZES[split]:
        (kind,) = rng.choices(KINDS, shares)
        value = kind.draw(rng)
        if split_of(kind.family, value) != split:
            continue
        source, target = kind.phrase(rng, value)
        key = source.removesuffix(".").lower()
        if key not in seen:
            seen.add(key)
            yield Example(kind, value, source, target)


def pairs(split: str) -> Iterator[Pair]:
    """The sentence pairs (English, German) of "train" (24,000), "dev" (500) or "test" (500)."""
    for example in examples(split):
        yield example.english, example.german
