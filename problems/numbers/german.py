"""How German spells numbers, and how they bend the words beside them."""

from __future__ import annotations

from typing import NamedTuple

_SMALL = [
    "null", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn",
    "elf", "zwölf", "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn",
    "neunzehn",
]  # fmt: skip
_TENS = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]
_IRREGULAR_ORDINALS = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}

_ONE = {  # the article "ein" by gender, for the nominative, accusative and dative
    "m": {"nom": "ein", "acc": "einen", "dat": "einem"},
    "f": {"nom": "eine", "acc": "eine", "dat": "einer"},
    "n": {"nom": "ein", "acc": "ein", "dat": "einem"},
}
_THE = {
    "m": {"nom": "der", "acc": "den"},
    "f": {"nom": "die", "acc": "die"},
    "n": {"nom": "das", "acc": "das"},
}


class Noun(NamedTuple):
    """A noun in both languages; the gender is "m", "f" or "n"."""

    english: str
    english_plural: str
    german: str
    german_plural: str
    gender: str


def stem(n: int) -> str:
    """Spells 0 <= n < 10**6 as the front of a compound, where one is "ein": 21 is "einundzwanzig"."""
    if n < 20:
        return _SMALL[n]
    if n < 100:
        tens, unit = divmod(n, 10)
        return (f"{_SMALL[unit]}und" if unit else "") + _TENS[tens - 2]
    size, name = (1_000, "tausend") if n >= 1_000 else (100, "hundert")
    count, rest = divmod(n, size)
    return stem(count) + name + (stem(rest) if rest else "")


def cardinal(n: int) -> str:
    """Spells 0 <= n < 10**9 as counted or read out: 345 is "dreihundertfünfundvierzig".

    One hundred and one thousand keep their one (einhundert, eintausend); a final one is "eins"
    (einhunderteins); millions are nouns of their own (eine Million, zwei Millionen), so that their
    number must not end in 01 either.
    """
    millions, rest = divmod(n, 1_000_000)
    if millions:
        head = "eine Million" if millions == 1 else f"{attributive(millions)} Millionen"
        return f"{head} {cardinal(rest)}" if rest else head
    return stem(n) + ("s" if n % 100 == 1 else "")


def attributive(n: int) -> str:
    """Spells n >= 2 before a noun. Numbers that end in 01 waver there in German: do not use them."""
    if n % 100 == 1:
        raise ValueError(f"{n} has no settled form before a noun")
    return cardinal(n)


def ordinal(n: int) -> str:
    """The n-th without its ending, 1 <= n < 10**6: 21 is "einundzwanzigst" (-e, -en, -er)."""
    head, last = n - n % 100, n % 100
    if last == 0 or last >= 20:
        return stem(n) + "st"
    return (stem(head) if head else "") + _IRREGULAR_ORDINALS.get(last, _SMALL[last] + "t")


def decimal(whole: int, digits: str) -> str:
    """Spells a decimal fraction digit by digit: (3, "14") is "drei Komma eins vier"."""
    return f"{cardinal(whole)} Komma " + " ".join(cardinal(int(digit)) for digit in digits)


def year(n: int) -> str:
    """Spells a year of 1100 to 2099 as it is spoken: 1984 is "neunzehnhundertvierundachtzig"."""
    if n >= 2000:
        return cardinal(n)
    century, rest = divmod(n, 100)
    return f"{stem(century)}hundert" + (cardinal(rest) if rest else "")


def counted(n: int, noun: Noun, case: str) -> str:
    """Counts things in the case "nom", "acc" or "dat": one day is "ein", "einen" or "einem Tag"."""
    if n == 1:
        return f"{_ONE[noun.gender][case]} {noun.german}"
    plural = noun.german_plural
    if case == "dat" and not plural.endswith(("n", "s")):
        plural += "n"
    return f"{attributive(n)} {plural}"


def the(noun: Noun, case: str) -> str:
    """The noun with its definite article, in the case "nom" or "acc": "der Tisch", "den Tisch"."""
    return f"{_THE[noun.gender][case]} {noun.german}"
