"""`translate_ende_numbers`: its sentences, against translations written by hand, and its text files."""

from __future__ import annotations

import ast
import hashlib
import re
from collections import defaultdict
from itertools import islice
from random import Random

import pytest

from t2t_keras.problems.numbers import TranslateEndeNumbers, words
from t2t_keras.problems.numbers.__main__ import main
from t2t_keras.problems.numbers.pairs import KINDS, SIZES, examples, pairs, split_of

KIND = {kind.name: kind for kind in KINDS}


def rows(text):
    """(before the colon, English, German) of each line."""
    return re.findall(r"^(.+?): (.+) = (.+)$", text, re.MULTILINE)


CARDINALS = rows("""
0: zero = null
1: one = eins
11: eleven = elf
12: twelve = zwölf
16: sixteen = sechzehn
17: seventeen = siebzehn
20: twenty = zwanzig
21: twenty-one = einundzwanzig
30: thirty = dreißig
40: forty = vierzig
66: sixty-six = sechsundsechzig
77: seventy-seven = siebenundsiebzig
99: ninety-nine = neunundneunzig
100: one hundred = einhundert
101: one hundred and one = einhunderteins
111: one hundred and eleven = einhundertelf
345: three hundred and forty-five = dreihundertfünfundvierzig
630: six hundred and thirty = sechshundertdreißig
1_000: one thousand = eintausend
1_001: one thousand and one = eintausendeins
2_005: two thousand and five = zweitausendfünf
7_716: seven thousand seven hundred and sixteen = siebentausendsiebenhundertsechzehn
21_000: twenty-one thousand = einundzwanzigtausend
101_021: one hundred and one thousand and twenty-one = einhunderteintausendeinundzwanzig
1_000_000: one million = eine Million
2_300_000: two million three hundred thousand = zwei Millionen dreihunderttausend
21_000_000: twenty-one million = einundzwanzig Millionen
""")

ORDINALS = rows("""
1: first = erst
2: second = zweit
3: third = dritt
5: fifth = fünft
7: seventh = siebt
8: eighth = acht
9: ninth = neunt
12: twelfth = zwölft
19: nineteenth = neunzehnt
20: twentieth = zwanzigst
21: twenty-first = einundzwanzigst
33: thirty-third = dreiunddreißigst
100: one hundredth = einhundertst
101: one hundred and first = einhunderterst
117: one hundred and seventeenth = einhundertsiebzehnt
1000: one thousandth = eintausendst
""")

YEARS = rows("""
1100: eleven hundred = elfhundert
1648: sixteen forty-eight = sechzehnhundertachtundvierzig
1789: seventeen eighty-nine = siebzehnhundertneunundachtzig
1901: nineteen oh one = neunzehnhunderteins
1984: nineteen eighty-four = neunzehnhundertvierundachtzig
2000: two thousand = zweitausend
2001: two thousand and one = zweitausendeins
2010: twenty ten = zweitausendzehn
2024: twenty twenty-four = zweitausendvierundzwanzig
""")

# Kind and value, a sentence of it, its translation.
PHRASES = rows("""
decimal 3, "5": three point five = drei Komma fünf
decimal 1, "01": minus one point zero one = minus eins Komma null eins
decimal 21, "14": twenty-one point one four = einundzwanzig Komma eins vier
label 101: in room one hundred and one = in Zimmer einhunderteins
label 1: The train leaves from platform one. = Der Zug fährt von Gleis eins ab.
ordinal 3: the third letter = der dritte Brief
ordinal 21: on the twenty-first day = am einundzwanzigsten Tag
ordinal 8: in the eighth week = in der achten Woche
ordinal 17: for the seventeenth time = zum siebzehnten Mal
ordinal 1: This is my first letter. = Das ist mein erster Brief.
ordinal 30: this is her thirtieth book = das ist ihr dreißigstes Buch
ordinal 7: we won for the seventh time = wir gewannen zum siebten Mal
count 21: she bought twenty-one books = sie kaufte einundzwanzig Bücher
count 21: She bought twenty-one books. = Sie kaufte einundzwanzig Bücher.
count 1: he bought one apple = er kaufte einen Apfel
count 1: I found one coin = ich fand eine Münze
count 1: they sold one picture = sie verkauften ein Bild
count 12: The children saw twelve keys. = Die Kinder sahen zwölf Schlüssel.
count 200: Anna had two hundred cups = Anna hatte zweihundert Tassen
count 1: there is one chair in the house = im Haus ist ein Stuhl
count 36: There are thirty-six eggs in the box. = In der Kiste sind sechsunddreißig Eier.
age 1: my brother is one year old = mein Bruder ist ein Jahr alt
age 42: I am forty-two years old = ich bin zweiundvierzig Jahre alt
age 16: They are sixteen years old. = Sie sind sechzehn Jahre alt.
population 1000000: about one million people = etwa eine Million Menschen
population 3700000: Berlin has three million seven hundred thousand inhabitants. = Berlin hat drei Millionen siebenhunderttausend Einwohner.
year 1984: in nineteen eighty-four = im Jahr neunzehnhundertvierundachtzig
year 1830: since eighteen thirty = seit achtzehnhundertdreißig
year 1905: The house was built in nineteen oh five. = Das Haus wurde im Jahr neunzehnhundertfünf gebaut.
year 2012: we were born in twenty twelve = wir wurden im Jahr zweitausendzwölf geboren
date 21, 3: on the twenty-first of March = am einundzwanzigsten März
date 1, 1: the first of January = der erste Januar
date 31, 12: until the thirty-first of December = bis zum einunddreißigsten Dezember
date 3, 5: on Monday, the third of May = am Montag, dem dritten Mai
date 7, 6: Today is the seventh of June. = Heute ist der siebte Juni.
date 16, 7: we are leaving on the sixteenth of July = wir reisen am sechzehnten Juli ab
date 3, 10, 1990: she was born on the third of October nineteen ninety = sie wurde am dritten Oktober neunzehnhundertneunzig geboren
time 3, 0: at three o'clock = um drei Uhr
time 1, 0: it is one o'clock = es ist ein Uhr
time 3, 30: at half past three = um halb vier
time 12, 30: at half past twelve = um halb eins
time 1, 15: at a quarter past one = um Viertel nach eins
time 3, 45: until a quarter to four = bis Viertel vor vier
time 12, 45: at a quarter to one = um Viertel vor eins
time 7, 10: at ten past seven in the morning = um zehn nach sieben morgens
time 9, 40: at twenty to ten in the evening = um zwanzig vor zehn abends
time 3, 25: at twenty-five past three = um fünf vor halb vier
time 3, 35: at twenty-five to four = um fünf nach halb vier
time 3, 1: at one minute past three = um eine Minute nach drei
time 3, 48: at twelve minutes to four = um zwölf Minuten vor vier
time 17, 42: at seventeen forty-two = um siebzehn Uhr zweiundvierzig
time 21, 5: The train leaves at twenty-one oh five. = Der Zug fährt um einundzwanzig Uhr fünf ab.
time 6, 30: she got up at half past six = sie stand um halb sieben auf
price 12, 90: twelve euros and ninety cents = zwölf Euro und neunzig Cent
price 1, 0: one euro = ein Euro
price 1, 0: The book costs one euro. = Das Buch kostet einen Euro.
price 1, 1: for one dollar and one cent = für einen Dollar und einen Cent
price 0, 75: that comes to seventy-five cents = das macht fünfundsiebzig Cent
price 60, 0: we paid sixty dollars for the coat = wir bezahlten sechzig Dollar für den Mantel
duration 1, "day": one day = ein Tag
duration 1, "day": in one day = in einem Tag
duration 1, "day": for one day = einen Tag lang
duration 1, "hour": after one hour = nach einer Stunde
duration 3, "day": three days ago = vor drei Tagen
duration 2, "week": in two weeks = in zwei Wochen
duration 6, "month": six months ago = vor sechs Monaten
duration 3, "hour", 20, "minute": The journey takes three hours and twenty minutes. = Die Fahrt dauert drei Stunden und zwanzig Minuten.
duration 2, "year", 1, "month": after two years and one month = nach zwei Jahren und einem Monat
duration 8, "hour": the children slept for eight hours = die Kinder schliefen acht Stunden lang
measure 3, "5", "metre": The tower is three point five metres high. = Der Turm ist drei Komma fünf Meter hoch.
measure 1, "", "kilometre": the river is one kilometre long = der Fluss ist einen Kilometer lang
measure 1, "", "percent": prices rose by one percent = die Preise stiegen um ein Prozent
measure 1, "", "degree": the temperature rose by one degree = die Temperatur stieg um einen Grad
measure 17, "", "kilogram": the box weighs seventeen kilograms = die Kiste wiegt siebzehn Kilogramm
""")


@pytest.mark.parametrize(
    ("spell", "n", "english", "german"),
    [
        *((words.cardinal, *row) for row in CARDINALS),
        *((words.ordinal, *row) for row in ORDINALS),
        *((words.year, *row) for row in YEARS),
    ],
)
def test_spelling(spell, n, english, german):
    """Numbers, ordinals without their German ending, and years are spelled as by hand."""
    assert spell(int(n)) == (english, german)


@pytest.mark.parametrize(("phrase", "english", "german"), PHRASES)
def test_phrases(phrase, english, german):
    """A kind of phrase words a value in this sentence, too, and translates it so."""
    kind, value = phrase.split(" ", 1)
    value = ast.literal_eval(f"({value},)")
    rng = Random(0)
    phrases = (KIND[kind].phrase(rng, *value) for _ in range(20_000))
    assert dict(islice((pair for pair in phrases if pair[0] == english), 1)) == {english: german}


@pytest.fixture(scope="module")
def corpus():
    return {split: list(examples(split)) for split in SIZES}


def test_sizes(corpus):
    """Splits have their sizes, and all kinds of phrases."""
    sizes = {split: len(part) for split, part in corpus.items()}
    assert sizes == {"train": 24_000, "dev": 500, "test": 500}
    for part in corpus.values():
        assert {kind.name for kind, *_ in part} == set(KIND)


def test_values_are_held_out(corpus):
    """A value of a family is in one split alone; what is learned by heart is for training."""
    splits = defaultdict(set)
    for split, part in corpus.items():
        for kind, value, _ in part:
            splits[kind.family, value].add(split)
    assert max(len(found) for found in splits.values()) == 1
    by_heart = (*range(20), 20, 90, 100, 7000, 1_000_000)
    assert {split_of("number", (n,)) for n in by_heart} == {"train"}
    assert split_of("duration", (1, "month")) == "train"


def test_every_sentence_has_one_translation_each_way(corpus):
    """So that BLEU 100 is possible."""
    there, back = {}, {}
    for part in corpus.values():
        for _, _, (english, german) in part:
            assert there.setdefault(english, german) == german
            assert back.setdefault(german, english) == english
    assert len(there) == 25_000


def test_the_same_every_time(corpus):
    """Sentences are the same on every machine and Python: published scores are scores of these."""
    digests = {}
    for split, part in corpus.items():
        lines = "".join(f"{english}\t{german}\n" for _, _, (english, german) in part)
        digests[split] = hashlib.sha256(lines.encode()).hexdigest()
    assert digests == {
        "train": "4d211d572dbfda0b286a3992b26207e017d9218bd8496366444379a553291b23",
        "dev": "a0a48ed9a3d2623283c7e150d855cffef2b2377fc2ca14a19209f66bba944ce3",
        "test": "d1260f0471796a72e7fe778a38fc974efcf8868dcaf88549e983cf5088926fc2",
    }


def test_only_words(corpus):
    """Sentences are letters and punctuation; none has 101 before a German noun, where usage varies."""
    for part in corpus.values():
        for _, _, (english, german) in part:
            assert re.fullmatch(r"[A-Za-z',. -]+", english)
            assert re.fullmatch(r"[A-Za-zÄÖÜäöüß,. ]+", german)
            assert 1 <= len(re.findall(r"[\w']+|[-.,]", english)) <= 30
            assert not re.search(r"(hundert|tausend)eins (?!Komma)[A-ZÄÖÜ]", german)


def test_problem():
    """The problem yields the pairs of each of its splits."""
    problem = TranslateEndeNumbers()
    assert problem.is_generate_per_split
    assert [item["split"] for item in problem.dataset_splits] == list(SIZES)
    samples = problem.generate_samples("data", "tmp", "test")
    assert [(sample["inputs"], sample["targets"]) for sample in samples] == list(pairs("test"))


# Text files


def test_writes_the_sentences_of_a_split_line_by_line(tmp_path):
    """The module run as a program writes two files that pair up line by line."""
    files = tmp_path / "test.en", tmp_path / "test.de"
    main(["test", *map(str, files)])
    written = (path.read_text("utf-8").splitlines() for path in files)
    assert list(zip(*written, strict=True)) == list(pairs("test"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], r"usage: .* train\|dev\|test ENGLISH_FILE GERMAN_FILE"),
        (["test", "a"], "usage: "),
        (["eval", "a", "b"], "usage: "),
        (["test", "/absent/a", "b"], "^/absent/a cannot be written: No such file or directory"),
    ],
)
def test_mistakes_end_in_one_line(arguments, message):
    """The program tells its usage, or which file it cannot write."""
    with pytest.raises(SystemExit, match=message):
        main(arguments)
