"""Numbers in words, English to German: the default problem, which needs no downloads.

Do not change the sequence of random draws: published scores are of these sentences.
"""

import zlib
from collections.abc import Iterator
from pathlib import Path
from random import Random

from t2t_keras.data import Text2ClassProblem, Text2SelfProblem, Text2TextProblem
from t2t_keras.data.problem import SPLITS, with_shards
from t2t_keras.data.text_problem import PathLike, Samples
from t2t_keras.registry import register_problem

SIZES = {"train": 24_000, "dev": 500, "test": 500}

Pair = tuple[str, str]  # English, German
Value = tuple[int, ...]  # what a phrase spells


def _table(text: str, separator: str | None = None) -> list[list[str]]:
    return [entry.split(separator) for entry in " ".join(text.split()).split("; ")]


_ENGLISH, _GERMAN = _table("""zero one two three four five six seven eight nine ten eleven twelve
thirteen fourteen fifteen sixteen seventeen eighteen nineteen
twenty thirty forty fifty sixty seventy eighty ninety;
null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf
dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn
zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig""")
_ENGLISH_ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth"}
_ENGLISH_ORDINALS |= {"eight": "eighth", "nine": "ninth", "twelve": "twelfth"}
_GERMAN_ORDINALS = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}
_MONTHS = _table("""January Januar 31; February Februar 29; March März 31; April April 30;
May Mai 31; June Juni 30; July Juli 31; August August 31; September September 30;
October Oktober 31; November November 30; December Dezember 31""")

# Nouns: English, the German plural, and one of them in the German accusative.
_THINGS = _table("""book Bücher ein Buch; apple Äpfel einen Apfel; egg Eier ein Ei;
letter Briefe einen Brief; flower Blumen eine Blume; picture Bilder ein Bild; cup Tassen eine Tasse;
key Schlüssel einen Schlüssel; chair Stühle einen Stuhl; bottle Flaschen eine Flasche;
shirt Hemden ein Hemd; coin Münzen eine Münze""")
_EURO, _DOLLAR, _CENT, _YEAR = _table("""euro Euro einen Euro; dollar Dollar einen Dollar;
cent Cent einen Cent; year Jahre ein Jahr""")

_SLOTS, *_ROWS = _table(
    """who,wer,is,was,ist,n,en; I,ich,am,was,bin,,; he,er,is,was,ist,,; she,sie,is,was,ist,,;
    Anna,Anna,is,was,ist,,; my brother,mein Bruder,is,was,ist,,; we,wir,are,were,sind,n,en;
    they,sie,are,were,sind,n,en; the children,die Kinder,are,were,sind,n,en""",
    ",",
)
_SUBJECTS = [dict(zip(_SLOTS, row, strict=True)) for row in _ROWS]
"""What patterns take of a subject; the last two end German verbs: kaufte, kauften; sah, sahen."""

_PATTERNS = {
    kind: _table(patterns, " = ")
    for kind, patterns in {
        "cardinal": "{} = {}",
        "ordinal": """the {} letter = der {}e Brief; the {} book = das {}e Buch;
            on the {} day = am {}en Tag; in the {} week = in der {}en Woche;
            for the {} time = zum {}en Mal; this is my {} letter. = das ist mein {}er Brief.;
            this is her {} book. = das ist ihr {}es Buch.;
            {who} won for the {} time. = {wer} gewann{en} zum {}en Mal.""",
        "count": """{who} bought {}. = {wer} kaufte{n} {}.; {who} sold {}. = {wer} verkaufte{n} {}.;
            {who} found {}. = {wer} fand{en} {}.; {who} saw {}. = {wer} sah{en} {}.""",
        "age": "{who} {is} {} old. = {wer} {ist} {} alt.",
        "year": """in {} = im Jahr {}; since {} = seit {}; in the summer of {} = im Sommer {};
            the house was built in {}. = das Haus wurde im Jahr {} gebaut.;
            {who} {was} born in {}. = {wer} wurde{n} im Jahr {} geboren.""",
        "date": """on the {} = am {}; until the {} = bis zum {}; since the {} = seit dem {};
            her birthday is on the {}. = ihr Geburtstag ist am {}.;
            we are leaving on the {}. = wir reisen am {} ab.;
            {who} {was} born on the {}. = {wer} wurde{n} am {} geboren.""",
        "time": """at {} = um {}; until {} = bis {}; it is {}. = es ist {}.;
            the train leaves at {}. = der Zug fährt um {} ab.;
            the film starts at {}. = der Film beginnt um {}.;
            {who} got up at {}. = {wer} stand{en} um {} auf.""",
        "price": """for {} = für {}; that comes to {}. = das macht {}.;
            the book costs {}. = das Buch kostet {}.; the coat costs {}. = der Mantel kostet {}.;
            {who} paid {} for the lamp. = {wer} bezahlte{n} {} für die Lampe.""",
    }.items()
}
"""Patterns by kind, English = German; {} is the place of what is spelled."""

KINDS = list(_PATTERNS)

# Spelling


def english(n: int) -> str:
    """Spells 0 <= n < 10**6: 345 is "three hundred and forty-five"."""
    if n < 20:
        return _ENGLISH[n]
    if n < 100:
        tens, unit = divmod(n, 10)
        return _ENGLISH[18 + tens] + (f"-{_ENGLISH[unit]}" if unit else "")
    size, name = (1_000, "thousand") if n >= 1_000 else (100, "hundred")
    count, rest = divmod(n, size)
    link = " and " if rest < 100 else " "
    return f"{english(count)} {name}" + (link + english(rest) if rest else "")


def german_stem(n: int) -> str:
    """Spells 0 <= n < 10**6 as the first part of a compound: 21 is "einundzwanzig", 1 is "ein"."""
    if n < 20:
        return _GERMAN[n]
    if n < 100:
        tens, unit = divmod(n, 10)
        return (f"{_GERMAN[unit]}und" if unit else "") + _GERMAN[18 + tens]
    size, name = (1_000, "tausend") if n >= 1_000 else (100, "hundert")
    count, rest = divmod(n, size)
    return german_stem(count) + name + (german_stem(rest) if rest else "")


def german(n: int) -> str:
    """Spells 0 <= n < 10**6 as in counting: a final one is "eins" (einhunderteins)."""
    return german_stem(n) + ("s" if n % 100 == 1 else "")


def ordinal(n: int) -> Pair:
    """Spells 1 <= n < 100, in German without its ending: "twenty-first", "einundzwanzigst"."""
    tens, dash, last = english(n).rpartition("-")
    regular = f"{last[:-1]}ieth" if last.endswith("y") else f"{last}th"
    stem = f"{german_stem(n)}st" if n >= 20 else _GERMAN_ORDINALS.get(n, f"{german_stem(n)}t")
    return tens + dash + _ENGLISH_ORDINALS.get(last, regular), stem


def year(n: int) -> Pair:
    """Spells 1100 <= n < 2100 as it is spoken: "nineteen oh one", "neunzehnhunderteins"."""
    if n // 10 == 200:
        return english(n), german(n)
    century, rest = divmod(n, 100)
    half = f"oh {english(rest)}" if rest < 10 else english(rest)
    target = f"{german_stem(century)}hundert{german(rest) if rest else ''}"
    return f"{english(century)} {half if rest else 'hundred'}", german(n) if n >= 2000 else target


def clock(hour: int, minute: int) -> Pair:
    """Spells a time on a twelve-hour clock: (3, 35) is "twenty-five to four", "fünf nach halb vier"."""
    after = hour % 12 + 1
    if minute == 0:
        return f"{english(hour)} o'clock", f"{german_stem(hour)} Uhr"
    if minute == 30:
        return f"half past {english(hour)}", f"halb {german(after)}"
    past, distance = minute < 30, min(minute, 60 - minute)
    source = "a quarter" if distance == 15 else english(distance)
    source += f" past {english(hour)}" if past else f" to {english(after)}"
    if distance == 25:
        return source, f"fünf {'vor' if past else 'nach'} halb {german(after)}"
    target = "Viertel" if distance == 15 else german(distance)
    return source, f"{target} nach {german(hour)}" if past else f"{target} vor {german(after)}"


def counted(n: int, noun: list[str]) -> Pair:
    """Spells a number of things, in the German accusative: "one apple", "einen Apfel"."""
    name, plural, article, one = noun
    if n == 1:
        return f"one {name}", f"{article} {one}"
    return f"{english(n)} {name}s", f"{german(n)} {plural}"


# The corpus


def _number(rng: Random, digits: int) -> int:
    """Draws a number before a noun, not 101, 201, ..., which German treats in two ways."""
    n = rng.randint(1, 10 ** rng.randint(1, digits) - 1)
    return n + 1 if n > 1 and n % 100 == 1 else n


def _draw(rng: Random, kind: str) -> tuple[Value, Pair]:
    """Draws a value of a kind of phrase, and spells it."""
    match kind:
        case "cardinal":
            n = rng.randrange(10 ** rng.randint(1, rng.choice((4, 6))))
            return (n,), (english(n), german(n))
        case "ordinal":
            n = rng.randint(1, 99)
            return (n,), ordinal(n)
        case "count":
            n = _number(rng, 4)
            return (n,), counted(n, rng.choice(_THINGS))
        case "age":
            n = rng.randint(1, 100)
            return (n,), counted(n, _YEAR)
        case "year":
            n = rng.randint(1100, 2029)
            return (n,), year(n)
        case "date":
            month = rng.randint(1, 12)
            english_month, german_month, days = _MONTHS[month - 1]
            day = rng.randint(1, int(days))
            source, stem = ordinal(day)
            return (day, month), (f"{source} of {english_month}", f"{stem}en {german_month}")
        case "time":
            minute = rng.choice((rng.randrange(0, 60, 5), rng.randint(2, 58)))
            hour = rng.randint(1, 12)
            return (hour, minute), clock(hour, minute)
    whole, cents = _number(rng, 3), rng.choice((0, rng.randint(1, 99)))
    source, target = counted(whole, rng.choice((_EURO, _DOLLAR)))
    if cents:
        more, mehr = counted(cents, _CENT)
        source, target = f"{source} and {more}", f"{target} und {mehr}"
    return (whole, cents), (source, target)


def split_of(value: Value) -> str:
    """Returns the split of a value, by its checksum: one in ten is for dev, one in ten for test.

    Single numbers below twenty and round ones (40, 300) are for training: others are composed of them.
    """
    if len(value) == 1 and (value[0] < 20 or not str(value[0])[1:].strip("0")):
        return "train"
    return {0: "dev", 1: "test"}.get(zlib.crc32(repr(value).encode()) % 10, "train")


def examples(split: str) -> Iterator[tuple[str, Value, Pair]]:
    """Yields the kind, value and sentences of the examples of a split, always the same; none are equal.

    A clause (its pattern ends in a full stop) gets a capital letter, or loses the stop.
    """
    rng = Random(f"translate_ende_numbers {split}")
    seen: set[str] = set()
    while len(seen) < SIZES[split]:
        kind = rng.choice(KINDS)
        value, spelled = _draw(rng, kind)
        who, patterns = rng.choice(_SUBJECTS), rng.choice(_PATTERNS[kind])
        is_sentence = rng.random() < 0.5
        source, target = (patterns[i].format(spelled[i], **who) for i in (0, 1))
        if source in seen or split_of(value) != split:
            continue
        seen.add(source)
        if source.endswith(".") and is_sentence:
            source, target = source[0].upper() + source[1:], target[0].upper() + target[1:]
        elif source.endswith("."):
            source, target = source[:-1], target[:-1]
        yield kind, value, (source, target)


def pairs(split: str) -> Iterator[Pair]:
    """Yields the sentences of a split, English and German."""
    return (pair for _, _, pair in examples(split))


def write(split: str, english_path: PathLike, german_path: PathLike) -> None:
    """Writes the sentences of a split, "train", "dev" or "test", to two text files, one per line."""
    texts = zip(*pairs(split), strict=True)
    for path, sentences in zip((english_path, german_path), texts, strict=True):
        Path(path).write_text("".join(f"{line}\n" for line in sentences), encoding="utf-8")


# The problems


class _Numbers:
    """Attributes that the problems share."""

    approx_vocab_size = 2**9  # long German numbers become a few subwords
    dataset_splits = with_shards(SPLITS, train=1)
    is_generate_per_split = True  # each split has its own values


@register_problem
class TranslateEndeNumbers(_Numbers, Text2TextProblem):
    """Numbers, dates, times and prices, and sentences with them, in English and German words.

    24,000 pairs for training, 500 for dev, 500 for test, always the same. Values in dev and test do not
    occur in training, so a good score shows that the model has learned the rules. Each English sentence
    has one German translation, so BLEU 100 is possible.
    """

    def generate_samples(self, data_dir: PathLike, tmp_dir: PathLike, split: str) -> Samples:
        """Yields `{"inputs": English, "targets": German}`; both directories are unused."""
        return ({"inputs": source, "targets": target} for source, target in pairs(split))


@register_problem
class LanguagemodelEnNumbers(_Numbers, Text2SelfProblem):
    """The English sentences of `translate_ende_numbers`, for a language model."""

    def generate_samples(self, data_dir: PathLike, tmp_dir: PathLike, split: str) -> Samples:
        return ({"targets": source} for source, _ in pairs(split))


@register_problem
class QuantityEnNumbers(_Numbers, Text2ClassProblem):
    """The English sentences of `translate_ende_numbers`, classified by the kind of quantity in them."""

    num_classes = len(KINDS)

    def class_labels(self, data_dir: PathLike | None = None) -> list[str]:
        return KINDS

    def generate_samples(self, data_dir: PathLike, tmp_dir: PathLike, split: str) -> Samples:
        for kind, _, (source, _) in examples(split):
            yield {"inputs": source, "label": KINDS.index(kind)}
