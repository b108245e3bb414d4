"""Dates, years and times of day."""

from __future__ import annotations

from random import Random

from t2t_keras.problems.numbers import english, german
from t2t_keras.problems.numbers.patterns import SUBJECTS, Pair, Value, fill, finish

_MONTHS = (
    ("January", "Januar", 31),
    ("February", "Februar", 29),
    ("March", "März", 31),
    ("April", "April", 30),
    ("May", "Mai", 31),
    ("June", "Juni", 30),
    ("July", "Juli", 31),
    ("August", "August", 31),
    ("September", "September", 30),
    ("October", "Oktober", 31),
    ("November", "November", 30),
    ("December", "Dezember", 31),
)

_WEEKDAYS = (
    ("Monday", "Montag"),
    ("Tuesday", "Dienstag"),
    ("Wednesday", "Mittwoch"),
    ("Thursday", "Donnerstag"),
    ("Friday", "Freitag"),
    ("Saturday", "Samstag"),
    ("Sunday", "Sonntag"),
)

_DATES = (
    ("the {}", "der {nom}"),
    ("on the {}", "am {dat}"),
    ("until the {}", "bis zum {dat}"),
    ("since the {}", "seit dem {dat}"),
    ("from the {} on", "ab dem {dat}"),
    ("today is the {}.", "heute ist der {nom}."),
    ("tomorrow is the {}.", "morgen ist der {nom}."),
    ("her birthday is on the {}.", "ihr Geburtstag ist am {dat}."),
    ("school starts on the {}.", "die Schule beginnt am {dat}."),
    ("we are leaving on the {}.", "wir reisen am {dat} ab."),
)

_YEARS = (
    ("in {}", "im Jahr {year}"),
    ("since {}", "seit {year}"),
    ("in the spring of {}", "im Frühling {year}"),
    ("in the summer of {}", "im Sommer {year}"),
    ("in the autumn of {}", "im Herbst {year}"),
    ("in the winter of {}", "im Winter {year}"),
    ("the house was built in {}.", "das Haus wurde im Jahr {year} gebaut."),
    ("the church was built in {}.", "die Kirche wurde im Jahr {year} gebaut."),
    ("the letter was written in {}.", "der Brief wurde im Jahr {year} geschrieben."),
    ("it happened in {}.", "es geschah im Jahr {year}."),
)

_TIMES = (
    ("at {}", "um {time}"),
    ("until {}", "bis {time}"),
    ("it is {}.", "es ist {time}."),
    ("the train leaves at {}.", "der Zug fährt um {time} ab."),
    ("the bus arrives at {}.", "der Bus kommt um {time} an."),
    ("the film starts at {}.", "der Film beginnt um {time}."),
    ("the shop closes at {}.", "das Geschäft schließt um {time}."),
)

_PARTS_OF_DAY = (  # English, German, the hours that it goes with
    ("in the morning", "morgens", range(5, 10)),
    ("in the afternoon", "nachmittags", range(1, 6)),
    ("in the evening", "abends", range(6, 11)),
)


def draw_date(rng: Random) -> Value:
    """A day and month, two times in five with a year of 1900 to 2029."""
    month = rng.randint(1, 12)
    day = rng.randint(1, _MONTHS[month - 1][2])
    if rng.random() < 0.6:
        return day, month
    return day, month, rng.randint(1900, 2029)


def date(rng: Random, value: Value) -> Pair:
    """A date in a phrase: on the twenty-first of March, am einundzwanzigsten März."""
    day, month = value[:2]
    source = f"{english.ordinal(day)} of {_MONTHS[month - 1][0]}"
    stem, german_month = german.ordinal(day), _MONTHS[month - 1][1]
    target = {"nom": f"{stem}e {german_month}", "dat": f"{stem}en {german_month}"}
    if len(value) == 2 and rng.random() < 0.2:
        weekday = rng.choice(_WEEKDAYS)
        return f"on {weekday[0]}, the {source}", f"am {weekday[1]}, dem {target['dat']}"
    if len(value) == 3:
        source += f" {english.year(value[2])}"
        target = {case: f"{words} {german.year(value[2])}" for case, words in target.items()}
        if rng.random() < 0.4:
            return _born(rng, f"on the {source}", f"am {target['dat']}")
    return fill(rng, _DATES, source, target)


def draw_year(rng: Random) -> Value:
    """A year of 1100 to 2029, every second one of recent times."""
    return (rng.randint(1900 if rng.random() < 0.5 else 1100, 2029),)


def year(rng: Random, value: Value) -> Pair:
    """A year in a phrase: in nineteen eighty-four, im Jahr neunzehnhundertvierundachtzig."""
    (n,) = value
    source, target = english.year(n), german.year(n)
    if rng.random() < 0.25:
        return _born(rng, f"in {source}", f"im Jahr {target}")
    return fill(rng, _YEARS, source, {"year": target})


def _born(rng: Random, source: str, target: str) -> Pair:
    subject = rng.choice(SUBJECTS)
    return finish(
        rng,
        f"{subject.english} {subject.english_was} born {source}.",
        f"{subject.german} {subject.german_verb('wurde')} {target} geboren.",
    )


def draw_time(rng: Random) -> Value:
    """An hour and a minute: up to twelve as people say it, above as timetables do."""
    if rng.random() < 0.35:
        return rng.randint(13, 23), rng.randint(1, 59)
    hour = rng.randint(1, 12)
    if rng.random() < 0.7:
        return hour, rng.randrange(0, 60, 5)
    minute = rng.randint(1, 20)
    return hour, minute if rng.random() < 0.5 else 60 - minute


def time(rng: Random, value: Value) -> Pair:
    """A time of day in a phrase: at half past three, um halb vier."""
    hour, minute = value
    if hour > 12:
        source = f"{english.cardinal(hour)} {english.two_digits(minute)}"
        target = f"{german.cardinal(hour)} Uhr {german.cardinal(minute)}"
    else:
        source, target = english_clock(hour, minute), german_clock(hour, minute)
        parts = [part for part in _PARTS_OF_DAY if hour in part[2]]
        if parts and rng.random() < 0.3:
            part = rng.choice(parts)
            source, target = f"{source} {part[0]}", f"{target} {part[1]}"
    if rng.random() < 0.25:
        subject = rng.choice(SUBJECTS)
        return finish(
            rng,
            f"{subject.english} got up at {source}.",
            f"{subject.german} {subject.german_verb('stand')} um {target} auf.",
        )
    return fill(rng, _TIMES, source, {"time": target})


def english_clock(hour: int, minute: int) -> str:
    """The time on a dial of twelve hours: (3, 35) is "twenty-five to four"."""
    if minute == 0:
        return f"{english.cardinal(hour)} o'clock"
    if minute == 30:
        return f"half past {english.cardinal(hour)}"
    distance = min(minute, 60 - minute)
    words = "a quarter" if distance == 15 else english.cardinal(distance)
    if distance % 5:
        words = english.counted(distance, "minute", "minutes")
    if minute < 30:
        return f"{words} past {english.cardinal(hour)}"
    return f"{words} to {english.cardinal(hour % 12 + 1)}"


def german_clock(hour: int, minute: int) -> str:
    """The time on a dial of twelve hours: (3, 35) is "fünf nach halb vier"."""
    this_hour, next_hour = german.cardinal(hour), german.cardinal(hour % 12 + 1)
    if minute == 0:
        return f"{german.stem(hour)} Uhr"
    near_half = {25: "fünf vor halb", 30: "halb", 35: "fünf nach halb"}
    if minute in near_half:
        return f"{near_half[minute]} {next_hour}"
    distance = min(minute, 60 - minute)
    words = "Viertel" if distance == 15 else german.cardinal(distance)
    if distance % 5:
        words = "eine Minute" if distance == 1 else f"{words} Minuten"
    return f"{words} nach {this_hour}" if minute < 30 else f"{words} vor {next_hour}"
