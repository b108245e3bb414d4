"""So many of something: counted things, prices, durations, measures, ages and populations."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from t2t_keras.problems.numbers import english, german
from t2t_keras.problems.numbers.german import Noun
from t2t_keras.problems.numbers.patterns import (
    CASES,
    SUBJECTS,
    Pair,
    Value,
    draw_attributive,
    draw_number,
    fill,
    finish,
)

_THINGS = (
    Noun("book", "books", "Buch", "Bücher", "n"),
    Noun("apple", "apples", "Apfel", "Äpfel", "m"),
    Noun("egg", "eggs", "Ei", "Eier", "n"),
    Noun("letter", "letters", "Brief", "Briefe", "m"),
    Noun("flower", "flowers", "Blume", "Blumen", "f"),
    Noun("picture", "pictures", "Bild", "Bilder", "n"),
    Noun("cup", "cups", "Tasse", "Tassen", "f"),
    Noun("key", "keys", "Schlüssel", "Schlüssel", "m"),
    Noun("chair", "chairs", "Stuhl", "Stühle", "m"),
    Noun("bottle", "bottles", "Flasche", "Flaschen", "f"),
    Noun("shirt", "shirts", "Hemd", "Hemden", "n"),
    Noun("coin", "coins", "Münze", "Münzen", "f"),
)

_VERBS = (  # English past tense, German past tense of the singular
    ("bought", "kaufte"),
    ("sold", "verkaufte"),
    ("counted", "zählte"),
    ("needed", "brauchte"),
    ("had", "hatte"),
    ("found", "fand"),
    ("saw", "sah"),
)

_PLACES = (("in the house", "im Haus"), ("in the box", "in der Kiste"))

_GOODS = (
    Noun("book", "books", "Buch", "Bücher", "n"),
    Noun("bicycle", "bicycles", "Fahrrad", "Fahrräder", "n"),
    Noun("lamp", "lamps", "Lampe", "Lampen", "f"),
    Noun("jacket", "jackets", "Jacke", "Jacken", "f"),
    Noun("table", "tables", "Tisch", "Tische", "m"),
    Noun("coat", "coats", "Mantel", "Mäntel", "m"),
)

_CURRENCIES = (
    Noun("euro", "euros", "Euro", "Euro", "m"),
    Noun("dollar", "dollars", "Dollar", "Dollar", "m"),
)
_CENT = Noun("cent", "cents", "Cent", "Cent", "m")

_PRICES = (("{}", "{nom}"), ("for {}", "für {acc}"), ("that comes to {}.", "das macht {acc}."))

_UNITS_OF_TIME = {  # with the largest number that is drawn
    "second": (Noun("second", "seconds", "Sekunde", "Sekunden", "f"), 99),
    "minute": (Noun("minute", "minutes", "Minute", "Minuten", "f"), 99),
    "hour": (Noun("hour", "hours", "Stunde", "Stunden", "f"), 48),
    "day": (Noun("day", "days", "Tag", "Tage", "m"), 99),
    "week": (Noun("week", "weeks", "Woche", "Wochen", "f"), 60),
    "month": (Noun("month", "months", "Monat", "Monate", "m"), 30),
    "year": (Noun("year", "years", "Jahr", "Jahre", "n"), 99),
}
_TWO_UNITS_OF_TIME = (  # with the largest number of the smaller unit
    ("hour", "minute", 59),
    ("minute", "second", 59),
    ("day", "hour", 23),
    ("week", "day", 6),
    ("year", "month", 11),
)

_DURATIONS = (
    ("{}", "{nom}"),
    ("for {}", "{acc} lang"),
    ("in {}", "in {dat}"),
    ("after {}", "nach {dat}"),
    ("{} ago", "vor {dat}"),
    ("the journey takes {}.", "die Fahrt dauert {acc}."),
    ("the war lasted {}.", "der Krieg dauerte {acc}."),
)
_SHORT_DURATIONS = (
    *_DURATIONS,
    ("the meeting lasted {}.", "die Sitzung dauerte {acc}."),
    ("the train leaves in {}.", "der Zug fährt in {dat} ab."),
)
_ACTIVITIES = (("waited", "wartete"), ("worked", "arbeitete"), ("slept", "schlief"))

_MEASURES = (  # the unit, the largest number that is drawn, the patterns
    (
        Noun("kilometre", "kilometres", "Kilometer", "Kilometer", "m"),
        2_000,
        (
            ("{}", "{nom}"),
            ("the village is {} away.", "das Dorf ist {acc} entfernt."),
            ("the river is {} long.", "der Fluss ist {acc} lang."),
        ),
    ),
    (
        Noun("metre", "metres", "Meter", "Meter", "m"),
        9_999,
        (
            ("{}", "{nom}"),
            ("the tower is {} high.", "der Turm ist {acc} hoch."),
            ("the lake is {} deep.", "der See ist {acc} tief."),
        ),
    ),
    (
        Noun("kilogram", "kilograms", "Kilogramm", "Kilogramm", "n"),
        999,
        (("{}", "{nom}"), ("the box weighs {}.", "die Kiste wiegt {acc}.")),
    ),
    (
        Noun("litre", "litres", "Liter", "Liter", "m"),
        999,
        (("{}", "{nom}"), ("the barrel holds {}.", "das Fass fasst {acc}.")),
    ),
    (
        Noun("degree", "degrees", "Grad", "Grad", "m"),
        99,
        (("{}", "{nom}"), ("the temperature rose by {}.", "die Temperatur stieg um {acc}.")),
    ),
    (
        Noun("percent", "percent", "Prozent", "Prozent", "n"),
        200,
        (
            ("{}", "{nom}"),
            ("prices rose by {}.", "die Preise stiegen um {acc}."),
            ("prices fell by {}.", "die Preise sanken um {acc}."),
        ),
    ),
)

_POPULATIONS = (
    ("the city has {} inhabitants.", "die Stadt hat {n} Einwohner."),
    ("the country has {} inhabitants.", "das Land hat {n} Einwohner."),
    ("about {} people", "etwa {n} Menschen"),
    ("more than {} people", "mehr als {n} Menschen"),
    ("almost {} people", "fast {n} Menschen"),
    ("Berlin has {} inhabitants.", "Berlin hat {n} Einwohner."),
)


def _in_cases(n: int, noun: Noun) -> dict[str, str]:
    return {case: german.counted(n, noun, case) for case in CASES}


def draw_count(rng: Random) -> Value:
    """A number of things below ten thousand."""
    return (draw_attributive(rng, 1, 9_999),)


def count(rng: Random, value: Value) -> Pair:
    """Counted things in a sentence: she bought one apple, sie kaufte einen Apfel."""
    (n,) = value
    thing = rng.choice(_THINGS)
    source = english.counted(n, thing.english, thing.english_plural)
    target = _in_cases(n, thing)
    if rng.random() < 0.15:
        place = rng.choice(_PLACES)
        there_is, german_is = ("there is", "ist") if n == 1 else ("there are", "sind")
        return finish(
            rng, f"{there_is} {source} {place[0]}.", f"{place[1]} {german_is} {target['nom']}."
        )
    subject, verb = rng.choice(SUBJECTS), rng.choice(_VERBS)
    return finish(
        rng,
        f"{subject.english} {verb[0]} {source}.",
        f"{subject.german} {subject.german_verb(verb[1])} {target['acc']}.",
    )


def draw_price(rng: Random) -> Value:
    """Whole units below ten thousand (mostly below a thousand) and cents."""
    shape = rng.random()
    whole = 0 if shape < 0.1 else draw_attributive(rng, 1, 9_999 if shape < 0.25 else 999)
    cents = 0 if shape > 0.7 else rng.randint(1, 99)
    return whole, cents


def price(rng: Random, value: Value) -> Pair:
    """A price in a phrase: twelve euros and ninety cents, zwölf Euro und neunzig Cent."""
    whole, cents = value
    currency = rng.choice(_CURRENCIES)
    parts = [(n, noun) for n, noun in ((whole, currency), (cents, _CENT)) if n]
    source, target = _sum_of(parts)
    shape = rng.random()
    goods = rng.choice(_GOODS)
    if shape < 0.3:
        return finish(
            rng,
            f"the {goods.english} costs {source}.",
            f"{german.the(goods, 'nom')} kostet {target['acc']}.",
        )
    if shape < 0.5:
        subject = rng.choice(SUBJECTS)
        return finish(
            rng,
            f"{subject.english} paid {source} for the {goods.english}.",
            f"{subject.german} {subject.german_verb('bezahlte')} {target['acc']} "
            f"für {german.the(goods, 'acc')}.",
        )
    return fill(rng, _PRICES, source, target)


def _sum_of(parts: list[tuple[int, Noun]]) -> tuple[str, Mapping[str, str]]:
    """One or two counted units, joined by "and"; the German in every case."""
    source = " and ".join(
        english.counted(n, unit.english, unit.english_plural) for n, unit in parts
    )
    target = {
        case: " und ".join(german.counted(n, unit, case) for n, unit in parts) for case in CASES
    }
    return source, target


def draw_duration(rng: Random) -> Value:
    """One unit of time or two neighbours, e.g. (3, "hour", 20, "minute")."""
    if rng.random() < 0.6:
        unit = rng.choice(sorted(_UNITS_OF_TIME))
        return draw_attributive(rng, 1, _UNITS_OF_TIME[unit][1]), unit
    unit, smaller, most = rng.choice(_TWO_UNITS_OF_TIME)
    return draw_attributive(rng, 1, 99), unit, draw_number(rng, 1, most), smaller


def duration(rng: Random, value: Value) -> Pair:
    """A length of time in a phrase: three days ago, vor drei Tagen."""
    parts = [(n, _UNITS_OF_TIME[unit][0]) for n, unit in zip(value[::2], value[1::2], strict=True)]
    source, target = _sum_of(parts)
    if rng.random() < 0.25:
        subject, verb = rng.choice(SUBJECTS), rng.choice(_ACTIVITIES)
        return finish(
            rng,
            f"{subject.english} {verb[0]} for {source}.",
            f"{subject.german} {subject.german_verb(verb[1])} {target['acc']} lang.",
        )
    short = value[1] in ("minute", "hour")
    return fill(rng, _SHORT_DURATIONS if short else _DURATIONS, source, target)


def draw_measure(rng: Random) -> Value:
    """The number of a unit, whole or with a decimal fraction, e.g. (3, "5", "kilometre")."""
    unit, most, _ = rng.choice(_MEASURES)
    if rng.random() < 0.4:
        return draw_number(rng, 1, min(most, 99)), str(rng.randint(1, 9)), unit.english
    return draw_attributive(rng, 1, most), "", unit.english


def measure(rng: Random, value: Value) -> Pair:
    """A measure in a phrase: three point five metres, drei Komma fünf Meter."""
    n, digits, name = value
    unit, _, patterns = next(entry for entry in _MEASURES if entry[0].english == name)
    if digits:
        words = f"{german.decimal(n, digits)} {unit.german_plural}"
        source = f"{english.decimal(n, digits)} {unit.english_plural}"
        return fill(rng, patterns, source, dict.fromkeys(CASES, words))
    source = english.counted(n, unit.english, unit.english_plural)
    return fill(rng, patterns, source, _in_cases(n, unit))


def draw_age(rng: Random) -> Value:
    """An age in years, at most a hundred."""
    return (rng.randint(1, 100),)


def age(rng: Random, value: Value) -> Pair:
    """Somebody's age: she is twenty-one years old, sie ist einundzwanzig Jahre alt."""
    (n,) = value
    subject = rng.choice(SUBJECTS)
    years = _UNITS_OF_TIME["year"][0]
    return finish(
        rng,
        f"{subject.english} {subject.english_is} {english.counted(n, 'year', 'years')} old.",
        f"{subject.german} {subject.german_is} {german.counted(n, years, 'acc')} alt.",
    )


def draw_population(rng: Random) -> Value:
    """Thousands of people, or millions in steps of a hundred thousand."""
    if rng.random() < 0.3:
        return (draw_attributive(rng, 10, 999) * 100_000,)
    return (draw_attributive(rng, 1_000, 99_999 if rng.random() < 0.7 else 999_999),)


def population(rng: Random, value: Value) -> Pair:
    """So many people: two million inhabitants, zwei Millionen Einwohner."""
    (n,) = value
    return fill(rng, _POPULATIONS, english.cardinal(n), {"n": german.attributive(n)})
