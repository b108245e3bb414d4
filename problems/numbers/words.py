"""English and German words: spelled-out numbers in all their forms, nouns, subjects and verbs."""

from __future__ import annotations

import re
from typing import NamedTuple

Pair = tuple[str, str]  # English, German

_ENGLISH = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    *("nineteen", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"),
)
_GERMAN = (
    *("null", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn"),
    *("elf", "zwölf", "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn"),
    *("neunzehn", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig"),
    "neunzig",
)
_TENS = 18  # the index of twenty is 18 + 2

_ENGLISH_ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth"}
_ENGLISH_ORDINALS |= {"eight": "eighth", "nine": "ninth", "twelve": "twelfth"}
_GERMAN_ORDINALS = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}

CASES = ("nom", "acc", "dat")
_EIN = {"m": "ein einen einem", "f": "eine eine einer", "n": "ein ein einem"}
_DER = {"m": "der den dem", "f": "die die der", "n": "das das dem"}


class Noun(NamedTuple):
    """A noun in both languages; the gender is "m", "f" or "n"."""

    english: str
    english_plural: str
    german: str
    german_plural: str
    gender: str

    def the(self, case: str) -> str:
        """Returns the German noun with its article: "der Tisch"; in the accusative "den Tisch"."""
        return f"{_DER[self.gender].split()[CASES.index(case)]} {self.german}"


class Subject(NamedTuple):
    """The subject of a sentence, with its forms of "to be"."""

    english: str
    german: str
    english_is: str
    english_was: str
    german_is: str

    def past(self, singular: str) -> str:
        """Conjugates a German verb in the past tense for this subject: kaufte, kauften."""
        if self.german_is != "sind":
            return singular
        return singular + ("n" if singular.endswith("e") else "en")


def english(n: int) -> str:
    """Spells 0 <= n < 10**9: 345 is "three hundred and forty-five"."""
    if n < 20:
        return _ENGLISH[n]
    if n < 100:
        tens, unit = divmod(n, 10)
        return _ENGLISH[_TENS + tens] + (f"-{_ENGLISH[unit]}" if unit else "")
    sizes = ((1_000_000, "million"), (1_000, "thousand"), (100, "hundred"))
    size, name = next(pair for pair in sizes if n >= pair[0])
    count, rest = divmod(n, size)
    link = " and " if rest < 100 else " "
    return f"{english(count)} {name}" + (link + english(rest) if rest else "")


def german_stem(n: int) -> str:
    """Spells 0 <= n < 10**6 as the first part of a compound: 21 is "einundzwanzig", 1 is "ein"."""
    if n < 20:
        return _GERMAN[n]
    if n < 100:
        tens, unit = divmod(n, 10)
        return (f"{_GERMAN[unit]}und" if unit else "") + _GERMAN[_TENS + tens]
    size, name = (1_000, "tausend") if n >= 1_000 else (100, "hundert")
    count, rest = divmod(n, size)
    return german_stem(count) + name + (german_stem(rest) if rest else "")


def german(n: int) -> str:
    """Spells 0 <= n < 10**9 as in counting or reading aloud: 345 is "dreihundertfünfundvierzig".

    A final one is "eins" (einhunderteins). Millions are nouns (eine Million, zwei Millionen), so
    the number of millions must not end in 01.
    """
    millions, rest = divmod(n, 1_000_000)
    if millions:
        head = "eine Million" if millions == 1 else f"{german(millions)} Millionen"
        return f"{head} {german(rest)}" if rest else head
    return german_stem(n) + ("s" if n % 100 == 1 else "")


def cardinal(n: int) -> Pair:
    """Spells 0 <= n < 10**9."""
    return english(n), german(n)


def ordinal(n: int) -> Pair:
    """Spells an ordinal, 1 <= n < 10**6, in German without ending: "twenty-first", "einundzwanzigst"."""
    words = english(n)
    cut = max(words.rfind(" "), words.rfind("-")) + 1
    head, last = words[:cut], words[cut:]
    regular = f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th"
    head += _ENGLISH_ORDINALS.get(last, regular)
    rest = n % 100
    if rest == 0 or rest >= 20:
        return head, f"{german_stem(n)}st"
    stem = german_stem(n - rest) if n > rest else ""
    return head, stem + _GERMAN_ORDINALS.get(rest, f"{_GERMAN[rest]}t")


def decimal(whole: int, digits: str) -> Pair:
    """Spells a decimal number: (3, "14") is "three point one four", "drei Komma eins vier"."""
    spoken = [[spell(int(digit)) for digit in digits] for spell in (english, german)]
    source, target = (" ".join(words) for words in spoken)
    return f"{english(whole)} point {source}", f"{german(whole)} Komma {target}"


def year(n: int) -> Pair:
    """Spells a year of 1100 to 2099 as it is spoken: "nineteen oh one", "neunzehnhunderteins"."""
    century, rest = divmod(n, 100)
    source = f"{english(century)} {english_two_digits(rest) if rest else 'hundred'}"
    target = f"{german_stem(century)}hundert{german(rest) if rest else ''}"
    return english(n) if 2000 <= n <= 2009 else source, german(n) if n >= 2000 else target


def english_two_digits(n: int) -> str:
    """Spells 1 <= n <= 99 as the second half of a year or a time: 5 is "oh five"."""
    return f"oh {_ENGLISH[n]}" if n < 10 else english(n)


def counted(n: int, noun: Noun) -> tuple[str, dict[str, str]]:
    """Spells a number of things: "one day" and, by case, "ein Tag", "einen Tag", "einem Tag"."""
    if n == 1:
        forms = [f"{article} {noun.german}" for article in _EIN[noun.gender].split()]
        return f"one {noun.english}", dict(zip(CASES, forms, strict=True))
    plural, dative = noun.german_plural, noun.german_plural
    if not dative.endswith(("n", "s")):
        dative += "n"
    forms = [f"{german(n)} {word}" for word in (plural, plural, dative)]
    return f"{english(n)} {noun.english_plural}", dict(zip(CASES, forms, strict=True))


def table(text: str) -> dict[str, list[str]]:
    """Parses `name: entry; entry; ...`, with each name at the start of a line."""
    rows = (
        " ".join(row.split()).split(": ", 1) for row in re.split(r"\n(?=[a-z ]+: )", text.strip())
    )
    return {name: entries.split("; ") for name, entries in rows}


WORDS = {
    name: [entry.split(", ") for entry in entries]
    for name, entries in table("""
weekdays: Monday, Montag; Tuesday, Dienstag; Wednesday, Mittwoch; Thursday, Donnerstag;
Friday, Freitag; Saturday, Samstag; Sunday, Sonntag
months: January, Januar, 31; February, Februar, 29; March, März, 31; April, April, 30; May, Mai, 31;
June, Juni, 30; July, Juli, 31; August, August, 31; September, September, 30; October, Oktober, 31;
November, November, 30; December, Dezember, 31
subjects: I, ich, am, was, bin; he, er, is, was, ist; she, sie, is, was, ist;
we, wir, are, were, sind; they, sie, are, were, sind; Anna, Anna, is, was, ist;
Peter, Peter, is, was, ist; my brother, mein Bruder, is, was, ist;
the children, die Kinder, are, were, sind
""").items()
}
SUBJECTS = [Subject(*forms) for forms in WORDS["subjects"]]

NOUNS = {
    name: [Noun(*entry.split()) for entry in entries]
    for name, entries in table("""
things: book books Buch Bücher n; apple apples Apfel Äpfel m; egg eggs Ei Eier n;
letter letters Brief Briefe m; flower flowers Blume Blumen f; picture pictures Bild Bilder n;
cup cups Tasse Tassen f; key keys Schlüssel Schlüssel m; chair chairs Stuhl Stühle m;
bottle bottles Flasche Flaschen f; shirt shirts Hemd Hemden n; coin coins Münze Münzen f
goods: book books Buch Bücher n; bicycle bicycles Fahrrad Fahrräder n; lamp lamps Lampe Lampen f;
jacket jackets Jacke Jacken f; table tables Tisch Tische m; coat coats Mantel Mäntel m
currencies: euro euros Euro Euro m; dollar dollars Dollar Dollar m
cents: cent cents Cent Cent m
measures: kilometre kilometres Kilometer Kilometer m; metre metres Meter Meter m;
kilogram kilograms Kilogramm Kilogramm n; litre litres Liter Liter m; degree degrees Grad Grad m;
percent percent Prozent Prozent n
time: second seconds Sekunde Sekunden f; minute minutes Minute Minuten f;
hour hours Stunde Stunden f; day days Tag Tage m; week weeks Woche Wochen f;
month months Monat Monate m; year years Jahr Jahre n
""").items()
}
