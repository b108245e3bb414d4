"""The corpus of `translate_ende_numbers`: phrases with spelled-out numbers, in English and German.

Each kind of phrase draws a value, such as (21, 3) for the twenty-first of March, and puts it into words. Do
not change the sequence of random draws: the corpus must be the same in every version
(tests/test_numbers.py).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

from t2t_keras.problems.numbers import words
from t2t_keras.problems.numbers.words import CASES, NOUNS, WORDS, Pair, counted, english, german

SIZES = {"train": 24_000, "dev": 500, "test": 500}

Value = tuple[Any, ...]  # what a phrase spells


# Patterns


def _patterns(text: str) -> dict[str, list[list[str]]]:
    tables = words.table(text)
    return {name: [entry.split(" = ") for entry in entries] for name, entries in tables.items()}


# English = German; the slot of an English pattern is `{}`, and that of a German one names a form.
_PATTERNS = _patterns("""
label: page {} = Seite {nom}; on page {} = auf Seite {nom}; room {} = Zimmer {nom};
in room {} = in Zimmer {nom}; chapter {} = Kapitel {nom}; in chapter {} = in Kapitel {nom};
number {} = Nummer {nom}; the train leaves from platform {}. = der Zug fährt von Gleis {nom} ab.;
the story begins on page {}. = die Geschichte beginnt auf Seite {nom}.;
the answer is {}. = die Antwort ist {nom}.;
our room has the number {}. = unser Zimmer hat die Nummer {nom}.
ordinal: the {} letter = der {stem}e Brief; the {} page = die {stem}e Seite;
the {} book = das {stem}e Buch; on the {} day = am {stem}en Tag;
in the {} week = in der {stem}en Woche; in the {} year = im {stem}en Jahr;
in the {} minute = in der {stem}en Minute; for the {} time = zum {stem}en Mal;
this is the {} question. = das ist die {stem}e Frage.;
this is my {} letter. = das ist mein {stem}er Brief.;
this is her {} book. = das ist ihr {stem}es Buch.
count: {there_is} {} in the house. = im Haus {ist} {nom}.;
{there_is} {} in the box. = in der Kiste {ist} {nom}.
population: the city has {} inhabitants. = die Stadt hat {n} Einwohner.;
the country has {} inhabitants. = das Land hat {n} Einwohner.; about {} people = etwa {n} Menschen;
more than {} people = mehr als {n} Menschen; almost {} people = fast {n} Menschen;
Berlin has {} inhabitants. = Berlin hat {n} Einwohner.
year: in {} = im Jahr {year}; since {} = seit {year}; in the spring of {} = im Frühling {year};
in the summer of {} = im Sommer {year}; in the autumn of {} = im Herbst {year};
in the winter of {} = im Winter {year};
the house was built in {}. = das Haus wurde im Jahr {year} gebaut.;
the church was built in {}. = die Kirche wurde im Jahr {year} gebaut.;
the letter was written in {}. = der Brief wurde im Jahr {year} geschrieben.;
it happened in {}. = es geschah im Jahr {year}.
kilometre: {} = {nom}; the village is {} away. = das Dorf ist {acc} entfernt.;
the river is {} long. = der Fluss ist {acc} lang.
metre: {} = {nom}; the tower is {} high. = der Turm ist {acc} hoch.;
the lake is {} deep. = der See ist {acc} tief.
kilogram: {} = {nom}; the box weighs {}. = die Kiste wiegt {acc}.
litre: {} = {nom}; the barrel holds {}. = das Fass fasst {acc}.
degree: {} = {nom}; the temperature rose by {}. = die Temperatur stieg um {acc}.
percent: {} = {nom}; prices rose by {}. = die Preise stiegen um {acc}.;
prices fell by {}. = die Preise sanken um {acc}.
date: the {} = der {nom}; on the {} = am {dat}; until the {} = bis zum {dat};
since the {} = seit dem {dat}; from the {} on = ab dem {dat};
today is the {}. = heute ist der {nom}.; tomorrow is the {}. = morgen ist der {nom}.;
her birthday is on the {}. = ihr Geburtstag ist am {dat}.;
school starts on the {}. = die Schule beginnt am {dat}.;
we are leaving on the {}. = wir reisen am {dat} ab.
time: at {} = um {time}; until {} = bis {time}; it is {}. = es ist {time}.;
the train leaves at {}. = der Zug fährt um {time} ab.;
the bus arrives at {}. = der Bus kommt um {time} an.;
the film starts at {}. = der Film beginnt um {time}.;
the shop closes at {}. = das Geschäft schließt um {time}.
price: {} = {nom}; for {} = für {acc}; that comes to {}. = das macht {acc}.
cost: the {goods} costs {}. = {the_goods} kostet {acc}.
duration: {} = {nom}; for {} = {acc} lang; in {} = in {dat}; after {} = nach {dat};
{} ago = vor {dat}; the journey takes {}. = die Fahrt dauert {acc}.;
the war lasted {}. = der Krieg dauerte {acc}.
short duration: the meeting lasted {}. = die Sitzung dauerte {acc}.;
the train leaves in {}. = der Zug fährt in {dat} ab.
""")
_PATTERNS["short duration"] = _PATTERNS["duration"] + _PATTERNS["short duration"]

# What somebody did; the German pattern begins with the verb, in the third person singular.
_DEEDS = _patterns("""
count: bought {} = kaufte {acc}; sold {} = verkaufte {acc}; counted {} = zählte {acc};
needed {} = brauchte {acc}; had {} = hatte {acc}; found {} = fand {acc}; saw {} = sah {acc}
ordinal: won for the {} time = gewann zum {stem}en Mal
year: {was} born in {} = wurde im Jahr {year} geboren
date: {was} born on the {} = wurde am {dat} geboren
time: got up at {} = stand um {time} auf
price: paid {} for the {goods} = bezahlte {acc} für {the_goods}
duration: waited for {} = wartete {acc} lang; worked for {} = arbeitete {acc} lang;
slept for {} = schlief {acc} lang
""")


def _fill(rng: Random, name: str, source: str, target: dict[str, str], deed: bool = False) -> Pair:
    """Fills a pattern; with `deed`, one of `_DEEDS` with a random subject."""
    if deed:
        who = rng.choice(words.SUBJECTS)
        source_pattern, target_pattern = _pick(rng, _DEEDS[name])
        verb, rest = target_pattern.split(" ", 1)
        source_pattern = f"{who.english} {source_pattern}."
        target_pattern = f"{who.german} {who.past(verb)} {rest}."
        target = {**target, "was": who.english_was}
    else:
        source_pattern, target_pattern = _pick(rng, _PATTERNS[name])
    return _finish(rng, source_pattern.format(source, **target), target_pattern.format(**target))


def _pick(rng: Random, entries: Sequence[Any]) -> Any:
    """Draws an entry; a single entry uses no random draw."""
    return rng.choice(entries) if len(entries) > 1 else entries[0]


def _finish(rng: Random, source: str, target: str) -> Pair:
    """Capitalises half of the pairs that end in a full stop, and removes the stop from the others."""
    if not source.endswith("."):
        return source, target
    if rng.random() < 0.5:
        return source[:-1], target[:-1]
    return source[0].upper() + source[1:], target[0].upper() + target[1:]


# Plain numbers


def _number(rng: Random, low: int, high: int, before_noun: bool = False) -> int:
    """Draws a number from low..high; all lengths are equally likely, and zeros more likely than 1 in 10.

    Before a German noun, it draws no numbers that end in 01, because usage varies.
    """
    while True:
        length = rng.randint(len(str(low)), len(str(high)))
        n = rng.randint(1, 9)
        for _ in range(length - 1):
            n = 10 * n + (0 if rng.random() < 0.25 else rng.randint(0, 9))
        if low <= n <= high and not (before_noun and n > 1 and n % 100 == 1):
            return n


def _draw_cardinal(rng: Random) -> Value:
    """Draws mostly numbers below ten thousand, some below a million, and a few round millions."""
    kind = rng.random()
    if kind < 0.03:
        return (_number(rng, 1, 999, before_noun=True) * 1_000_000,)
    return (_number(rng, 0, 999_999 if kind < 0.2 else 9_999),)


def _label(rng: Random, n: int) -> Pair:
    """Phrases for a thing with a number: page twenty-one, Seite einundzwanzig."""
    return _fill(rng, "label", english(n), {"nom": german(n)})


def _ordinal(rng: Random, n: int) -> Pair:
    """Phrases for the n-th thing; the German ending depends on gender, case and article."""
    source, target = words.ordinal(n)
    return _fill(rng, "ordinal", source, {"stem": target}, deed=rng.random() < 0.15)


def _count(rng: Random, n: int) -> Pair:
    """Phrases for counted things: she bought one apple, sie kaufte einen Apfel."""
    source, target = counted(n, rng.choice(NOUNS["things"]))
    there_is, ist = ("there is", "ist") if n == 1 else ("there are", "sind")
    target |= {"there_is": there_is, "ist": ist}
    return _fill(rng, "count", source, target, deed=rng.random() >= 0.15)


def _age(rng: Random, n: int) -> Pair:
    """Phrases for an age: she is twenty-one years old, sie ist einundzwanzig Jahre alt."""
    who = rng.choice(words.SUBJECTS)
    source, target = counted(n, _UNITS["year"])
    source = f"{who.english} {who.english_is} {source} old."
    return _finish(rng, source, f"{who.german} {who.german_is} {target['acc']} alt.")


def _draw_population(rng: Random) -> Value:
    """Draws thousands of people, or millions in steps of a hundred thousand."""
    if rng.random() < 0.3:
        return (_number(rng, 10, 999, before_noun=True) * 100_000,)
    return (_number(rng, 1_000, 99_999 if rng.random() < 0.7 else 999_999, before_noun=True),)


def _population(rng: Random, n: int) -> Pair:
    return _fill(rng, "population", english(n), {"n": german(n)})


def _year(rng: Random, n: int) -> Pair:
    """Phrases for a year: in nineteen eighty-four, im Jahr neunzehnhundertvierundachtzig."""
    source, target = words.year(n)
    return _fill(rng, "year", source, {"year": target}, deed=rng.random() < 0.25)


# Decimals and measures

_UNITS = {noun.english: noun for name in ("measures", "time") for noun in NOUNS[name]}
_LARGEST = {"kilometre": 2_000, "metre": 9_999, "kilogram": 999, "litre": 999, "percent": 200}
_LARGEST |= {"hour": 48, "week": 60, "month": 30}  # 99 for other units


def _draw_decimal(rng: Random) -> Value:
    """Draws a whole part below a thousand and one or two digits."""
    whole = 0 if rng.random() < 0.1 else _number(rng, 1, 999)
    last = str(rng.randint(1, 9))
    return whole, last if rng.random() < 0.5 else str(rng.randint(0, 9)) + last


def _decimal(rng: Random, whole: int, digits: str) -> Pair:
    minus = "minus " * (rng.random() < 0.2)
    source, target = words.decimal(whole, digits)
    return minus + source, minus + target


def _draw_measure(rng: Random) -> Value:
    """Draws a measure, whole or with one decimal: (3, "5", "kilometre")."""
    unit = rng.choice(NOUNS["measures"]).english
    if rng.random() < 0.4:
        return _number(rng, 1, 99), str(rng.randint(1, 9)), unit
    return _number(rng, 1, _LARGEST.get(unit, 99), before_noun=True), "", unit


def _measure(rng: Random, n: int, digits: str, name: str) -> Pair:
    """Phrases for a measure: three point five metres, drei Komma fünf Meter."""
    unit = _UNITS[name]
    if not digits:
        return _fill(rng, name, *counted(n, unit))
    source, target = words.decimal(n, digits)
    forms = dict.fromkeys(CASES, f"{target} {unit.german_plural}")
    return _fill(rng, name, f"{source} {unit.english_plural}", forms)


# Dates and times

_PARTS_OF_DAY = {  # hours
    ("in the morning", "morgens"): range(5, 10),
    ("in the afternoon", "nachmittags"): range(1, 6),
    ("in the evening", "abends"): range(6, 11),
}


def _draw_date(rng: Random) -> Value:
    """Draws a day and month; with probability 0.4 also a year from 1900 to 2029."""
    month = rng.randint(1, 12)
    day = rng.randint(1, int(WORDS["months"][month - 1][2]))
    return (day, month) if rng.random() < 0.6 else (day, month, rng.randint(1900, 2029))


def _date(rng: Random, day: int, month: int, year: int | None = None) -> Pair:
    """Phrases for a date: on the twenty-first of March, am einundzwanzigsten März."""
    source, stem = words.ordinal(day)
    english_month, german_month, _ = WORDS["months"][month - 1]
    source = f"{source} of {english_month}"
    target = {"nom": f"{stem}e {german_month}", "dat": f"{stem}en {german_month}"}
    if year is None:
        if rng.random() >= 0.2:
            return _fill(rng, "date", source, target)
        weekday, german_weekday = rng.choice(WORDS["weekdays"])
        return f"on {weekday}, the {source}", f"am {german_weekday}, dem {target['dat']}"
    english_year, german_year = words.year(year)
    target = {case: f"{date} {german_year}" for case, date in target.items()}
    return _fill(rng, "date", f"{source} {english_year}", target, deed=rng.random() < 0.4)


def _draw_time(rng: Random) -> Value:
    """Draws an hour and a minute: hours to twelve for spoken times, larger ones for timetable style."""
    if rng.random() < 0.35:
        return rng.randint(13, 23), rng.randint(1, 59)
    hour = rng.randint(1, 12)
    if rng.random() < 0.7:
        return hour, rng.randrange(0, 60, 5)
    minute = rng.randint(1, 20)
    return hour, minute if rng.random() < 0.5 else 60 - minute


def _time(rng: Random, hour: int, minute: int) -> Pair:
    """Phrases for a time of day: at half past three, um halb vier."""
    if hour > 12:
        source = f"{english(hour)} {words.english_two_digits(minute)}"
        target = f"{german(hour)} Uhr {german(minute)}"
    else:
        source, target = _clock(hour, minute)
        parts = [part for part, hours in _PARTS_OF_DAY.items() if hour in hours]
        if parts and rng.random() < 0.3:
            part, german_part = rng.choice(parts)
            source, target = f"{source} {part}", f"{target} {german_part}"
    return _fill(rng, "time", source, {"time": target}, deed=rng.random() < 0.25)


def _clock(hour: int, minute: int) -> Pair:
    """Spells a time on a twelve-hour clock: (3, 35) is "twenty-five to four", "fünf nach halb vier"."""
    (hour_words, this), (next_words, after) = words.cardinal(hour), words.cardinal(hour % 12 + 1)
    if minute == 0:
        return f"{hour_words} o'clock", f"{words.german_stem(hour)} Uhr"
    if minute == 30:
        return f"half past {hour_words}", f"halb {after}"
    distance = min(minute, 60 - minute)
    if distance % 5:
        source, forms = counted(distance, _UNITS["minute"])
        target = forms["nom"]
    else:
        source, target = ("a quarter", "Viertel") if distance == 15 else words.cardinal(distance)
    source += f" past {hour_words}" if minute < 30 else f" to {next_words}"
    if distance == 25:
        return source, f"fünf {'vor' if minute < 30 else 'nach'} halb {after}"
    return source, f"{target} nach {this}" if minute < 30 else f"{target} vor {after}"


# Prices and durations

_TWO_UNITS_OF_TIME = (
    *(("hour", "minute", 59), ("minute", "second", 59), ("day", "hour", 23)),
    *(("week", "day", 6), ("year", "month", 11)),
)


def _sum_of(*parts: tuple[int, words.Noun]) -> tuple[str, dict[str, str]]:
    """Spells one or two counted units, joined by "and"."""
    sources, targets = zip(*(counted(n, unit) for n, unit in parts), strict=True)
    return " and ".join(sources), {case: " und ".join(t[case] for t in targets) for case in CASES}


def _draw_price(rng: Random) -> Value:
    """Draws whole units below ten thousand, mostly below a thousand, and cents."""
    kind = rng.random()
    most = 9_999 if kind < 0.25 else 999
    whole = 0 if kind < 0.1 else _number(rng, 1, most, before_noun=True)
    return whole, 0 if kind > 0.7 else rng.randint(1, 99)


def _price(rng: Random, whole: int, cents: int) -> Pair:
    """Phrases for a price: twelve euros and ninety cents, zwölf Euro und neunzig Cent."""
    parts = [(whole, rng.choice(NOUNS["currencies"])), (cents, NOUNS["cents"][0])]
    source, target = _sum_of(*(part for part in parts if part[0]))
    kind, goods = rng.random(), rng.choice(NOUNS["goods"])
    target |= {"goods": goods.english, "the_goods": goods.the("nom" if kind < 0.3 else "acc")}
    return _fill(rng, "cost" if kind < 0.3 else "price", source, target, deed=0.3 <= kind < 0.5)


def _draw_duration(rng: Random) -> Value:
    """Draws a duration in one unit or two adjacent ones: (3, "hour", 20, "minute")."""
    if rng.random() < 0.6:
        unit = rng.choice(sorted(noun.english for noun in NOUNS["time"]))
        return _number(rng, 1, _LARGEST.get(unit, 99), before_noun=True), unit
    unit, smaller, most = rng.choice(_TWO_UNITS_OF_TIME)
    return _number(rng, 1, 99, before_noun=True), unit, _number(rng, 1, most), smaller


def _duration(rng: Random, *value: Any) -> Pair:
    """Phrases for a duration: three days ago, vor drei Tagen."""
    source, target = _sum_of(*zip(value[::2], [_UNITS[unit] for unit in value[1::2]], strict=True))
    deed = rng.random() < 0.25
    short = value[1] in ("minute", "hour") and not deed
    return _fill(rng, "short duration" if short else "duration", source, target, deed)


# The kinds


class Kind(NamedTuple):
    """A kind of phrase; kinds of the same family hold out the same values."""

    name: str
    family: str
    share: int
    draw: Callable[[Random], Value]
    phrase: Callable[..., Pair]  # called with the random generator and the parts of the value


KINDS = (
    Kind("cardinal", "number", 18, _draw_cardinal, lambda rng, n: words.cardinal(n)),
    Kind("label", "number", 6, lambda rng: (_number(rng, 1, 999),), _label),
    Kind(
        *("ordinal", "number", 10),
        lambda rng: (_number(rng, 1, 1_000 if rng.random() < 0.3 else 99),),
        _ordinal,
    ),
    Kind("count", "number", 16, lambda rng: (_number(rng, 1, 9_999, before_noun=True),), _count),
    Kind("age", "number", 3, lambda rng: (rng.randint(1, 100),), _age),
    Kind("population", "number", 5, _draw_population, _population),
    Kind(
        *("year", "number", 8),
        lambda rng: (rng.randint(1900 if rng.random() < 0.5 else 1100, 2029),),
        _year,
    ),
    Kind("decimal", "decimal", 5, _draw_decimal, _decimal),
    Kind("measure", "measure", 8, _draw_measure, _measure),
    Kind("date", "date", 10, _draw_date, _date),
    Kind("time", "time", 12, _draw_time, _time),
    Kind("price", "price", 12, _draw_price, _price),
    Kind("duration", "duration", 8, _draw_duration, _duration),
)

FAMILIES = [*dict.fromkeys(kind.family for kind in KINDS)]
"""The families of phrases: the kinds of quantities."""


# The corpus


def split_of(family: str, value: Value) -> str:
    """Returns the split that a value belongs to, by its checksum: "train", "dev" or "test".

    One value in ten goes to dev and one in ten to test. Values whose words cannot be composed from
    others are always for training: single numbers that are below twenty or round (40, 300), and durations
    and measures with a one (one day, two hours and one minute), which shows the German gender.
    """
    if family == "number" and (value[0] < 20 or not str(value[0])[1:].strip("0")):
        return "train"
    if family in ("measure", "duration") and 1 in value:
        return "train"
    return {0: "dev", 1: "test"}.get(zlib.crc32(repr((family, *value)).encode()) % 10, "train")


def examples(split: str) -> Iterator[tuple[Kind, Value, Pair]]:
    """Yields the phrases of a split, always the same and without duplicates.

    Sentences that differ only in the capital letter and full stop count as duplicates.
    """
    rng = Random(f"translate_ende_numbers {split}")
    shares = [kind.share for kind in KINDS]
    seen: set[str] = set()
    while len(seen) < SIZES[split]:
        (kind,) = rng.choices(KINDS, shares)
        value = kind.draw(rng)
        if split_of(kind.family, value) != split:
            continue
        pair = kind.phrase(rng, *value)
        key = pair[0].removesuffix(".").lower()
        if key not in seen:
            seen.add(key)
            yield kind, value, pair


def pairs(split: str) -> Iterator[Pair]:
    """Yields the sentence pairs (English, German) of a split."""
    yield from (pair for _, _, pair in examples(split))
