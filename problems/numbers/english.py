"""How English spells numbers: cardinals, ordinals, decimals and years."""

from __future__ import annotations

_SMALL = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
]  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_IRREGULAR_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}


def cardinal(n: int) -> str:
    """Spells 0 <= n < 10**9: 345 is "three hundred and forty-five"."""
    if n < 20:
        return _SMALL[n]
    if n < 100:
        tens, unit = divmod(n, 10)
        return _TENS[tens - 2] + (f"-{_SMALL[unit]}" if unit else "")
    for size, name in ((1_000_000, "million"), (1_000, "thousand")):
        if n >= size:
            count, rest = divmod(n, size)
            link = " and " if rest < 100 else " "
            return f"{cardinal(count)} {name}" + (link + cardinal(rest) if rest else "")
    hundreds, rest = divmod(n, 100)
    return f"{_SMALL[hundreds]} hundred" + (f" and {cardinal(rest)}" if rest else "")


def ordinal(n: int) -> str:
    """Spells the n-th, n >= 1: 21 is "twenty-first"."""
    words = cardinal(n)
    cut = max(words.rfind(" "), words.rfind("-")) + 1
    head, last = words[:cut], words[cut:]
    if last in _IRREGULAR_ORDINALS:
        return head + _IRREGULAR_ORDINALS[last]
    if last.endswith("y"):
        return head + last[:-1] + "ieth"
    return head + last + "th"


def decimal(whole: int, digits: str) -> str:
    """Spells a decimal fraction digit by digit: (3, "14") is "three point one four"."""
    return f"{cardinal(whole)} point " + " ".join(_SMALL[int(digit)] for digit in digits)


def year(n: int) -> str:
    """Spells a year of 1100 to 2099 as it is spoken: 1984 is "nineteen eighty-four"."""
    if 2000 <= n <= 2009:
        return cardinal(n)
    century, rest = divmod(n, 100)
    if rest == 0:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {two_digits(rest)}"


def two_digits(n: int) -> str:
    """Spells 1 <= n <= 99 as the second half of a year or a time: 5 is "oh five"."""
    return f"oh {_SMALL[n]}" if n < 10 else cardinal(n)


def counted(n: int, singular: str, plural: str) -> str:
    """Counts things: (1, "book", "books") is "one book"."""
    return f"{cardinal(n)} {singular if n == 1 else plural}"


def capitalised(sentence: str) -> str:
    """The same words with a capital first letter, in either language."""
    return sentence[0].upper() + sentence[1:]
