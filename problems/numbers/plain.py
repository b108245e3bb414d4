"""Numbers by themselves: cardinals, decimals, labels (page, room) and ordinals."""

from __future__ import annotations

from random import Random

from t2t_keras.problems.numbers import english, german
from t2t_keras.problems.numbers.patterns import (
    SUBJECTS,
    Pair,
    Value,
    draw_attributive,
    draw_number,
    fill,
    finish,
)

_LABELS = (
    ("page {}", "Seite {nom}"),
    ("on page {}", "auf Seite {nom}"),
    ("room {}", "Zimmer {nom}"),
    ("in room {}", "in Zimmer {nom}"),
    ("chapter {}", "Kapitel {nom}"),
    ("in chapter {}", "in Kapitel {nom}"),
    ("number {}", "Nummer {nom}"),
    ("the train leaves from platform {}.", "der Zug fährt von Gleis {nom} ab."),
    ("the story begins on page {}.", "die Geschichte beginnt auf Seite {nom}."),
    ("the answer is {}.", "die Antwort ist {nom}."),
    ("our room has the number {}.", "unser Zimmer hat die Nummer {nom}."),
)

_ORDINALS = (
    ("the {} letter", "der {stem}e Brief"),
    ("the {} page", "die {stem}e Seite"),
    ("the {} book", "das {stem}e Buch"),
    ("on the {} day", "am {stem}en Tag"),
    ("in the {} week", "in der {stem}en Woche"),
    ("in the {} year", "im {stem}en Jahr"),
    ("in the {} minute", "in der {stem}en Minute"),
    ("for the {} time", "zum {stem}en Mal"),
    ("this is the {} question.", "das ist die {stem}e Frage."),
    ("this is my {} letter.", "das ist mein {stem}er Brief."),
    ("this is her {} book.", "das ist ihr {stem}es Buch."),
)


def draw_cardinal(rng: Random) -> Value:
    """Mostly below ten thousand, some below a million, a few round millions."""
    kind = rng.random()
    if kind < 0.03:
        return (draw_attributive(rng, 1, 999) * 1_000_000,)
    return (draw_number(rng, 0, 999_999 if kind < 0.2 else 9_999),)


def cardinal(rng: Random, value: Value) -> Pair:
    """The bare number."""
    (n,) = value
    return english.cardinal(n), german.cardinal(n)


def draw_decimal(rng: Random) -> Value:
    """A whole part below a thousand with one or two digits after the point."""
    whole = 0 if rng.random() < 0.1 else draw_number(rng, 1, 999)
    last = str(rng.randint(1, 9))
    return whole, last if rng.random() < 0.5 else str(rng.randint(0, 9)) + last


def decimal(rng: Random, value: Value) -> Pair:
    """The bare decimal fraction, sometimes below zero."""
    pair = english.decimal(*value), german.decimal(*value)
    if rng.random() < 0.2:
        return f"minus {pair[0]}", f"minus {pair[1]}"
    return pair


def draw_label(rng: Random) -> Value:
    """A page or room number below a thousand."""
    return (draw_number(rng, 1, 999),)


def label(rng: Random, value: Value) -> Pair:
    """A thing known by its number, which German reads out: Seite einundzwanzig."""
    (n,) = value
    return fill(rng, _LABELS, english.cardinal(n), {"nom": german.cardinal(n)})


def draw_ordinal(rng: Random) -> Value:
    """Mostly below a hundred, some up to a thousand."""
    return (draw_number(rng, 1, 1_000 if rng.random() < 0.3 else 99),)


def ordinal(rng: Random, value: Value) -> Pair:
    """The n-th thing; the ending follows gender, case and article."""
    (n,) = value
    if rng.random() < 0.15:
        subject = rng.choice(SUBJECTS)
        verb = subject.german_verb("gewann")
        return finish(
            rng,
            f"{subject.english} won for the {english.ordinal(n)} time.",
            f"{subject.german} {verb} zum {german.ordinal(n)}en Mal.",
        )
    return fill(rng, _ORDINALS, english.ordinal(n), {"stem": german.ordinal(n)})
