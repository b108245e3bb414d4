"""`translate_ende_numbers`: its words and sentences, against translations written by hand."""

import hashlib
import re
from collections import defaultdict

import pytest

from t2t_keras.problems import numbers


def rows(text):
    """(before the colon, English, German) of each line."""
    return re.findall(r"^(.+?): (.+) = (.+)$", text, re.MULTILINE)


SPELLED = rows("""
german 0: zero = null
german 1: one = eins
german 16: sixteen = sechzehn
german 17: seventeen = siebzehn
german 21: twenty-one = einundzwanzig
german 30: thirty = dreißig
german 77: seventy-seven = siebenundsiebzig
german 101: one hundred and one = einhunderteins
german 345: three hundred and forty-five = dreihundertfünfundvierzig
german 1001: one thousand and one = eintausendeins
german 101021: one hundred and one thousand and twenty-one = einhunderteintausendeinundzwanzig
ordinal 1: first = erst
ordinal 3: third = dritt
ordinal 7: seventh = siebt
ordinal 8: eighth = acht
ordinal 12: twelfth = zwölft
ordinal 19: nineteenth = neunzehnt
ordinal 33: thirty-third = dreiunddreißigst
year 1648: sixteen forty-eight = sechzehnhundertachtundvierzig
year 1901: nineteen oh one = neunzehnhunderteins
year 2001: two thousand and one = zweitausendeins
year 2010: twenty ten = zweitausendzehn
clock 1, 15: a quarter past one = Viertel nach eins
clock 12, 45: a quarter to one = Viertel vor eins
clock 9, 40: twenty to ten = zwanzig vor zehn
clock 3, 35: twenty-five to four = fünf nach halb vier
""")

# Every pattern once, in words that occur
SENTENCES = rows("""
ordinal: the eleventh letter = der elfte Brief
ordinal: the forty-ninth book = das neunundvierzigste Buch
ordinal: on the twenty-seventh day = am siebenundzwanzigsten Tag
ordinal: in the fifth week = in der fünften Woche
ordinal: for the seventh time = zum siebten Mal
ordinal: this is my forty-first letter = das ist mein einundvierzigster Brief
ordinal: this is her twenty-eighth book = das ist ihr achtundzwanzigstes Buch
ordinal: My brother won for the thirty-fifth time. = Mein Bruder gewann zum fünfunddreißigsten Mal.
count: They sold one apple. = Sie verkauften einen Apfel.
count: she found one book = sie fand ein Buch
count: The children found one cup. = Die Kinder fanden eine Tasse.
count: the children bought two hundred and twenty-one books = die Kinder kauften zweihunderteinundzwanzig Bücher
count: he saw four hundred and seventy-eight keys = er sah vierhundertachtundsiebzig Schlüssel
age: I am fifty-one years old = ich bin einundfünfzig Jahre alt
age: They are sixty-four years old. = Sie sind vierundsechzig Jahre alt.
year: in twelve hundred = im Jahr zwölfhundert
year: since two thousand and eight = seit zweitausendacht
year: in the summer of seventeen ninety = im Sommer siebzehnhundertneunzig
year: The house was built in fifteen hundred. = Das Haus wurde im Jahr fünfzehnhundert gebaut.
year: They were born in eighteen oh two. = Sie wurden im Jahr achtzehnhundertzwei geboren.
date: on the thirty-first of July = am einunddreißigsten Juli
date: until the thirteenth of April = bis zum dreizehnten April
date: since the twenty-first of December = seit dem einundzwanzigsten Dezember
date: Her birthday is on the thirtieth of September. = Ihr Geburtstag ist am dreißigsten September.
date: we are leaving on the fourth of September = wir reisen am vierten September ab
date: we were born on the seventh of July = wir wurden am siebten Juli geboren
time: at twenty-five past three = um fünf vor halb vier
time: until five past eight = bis fünf nach acht
time: It is one o'clock. = Es ist ein Uhr.
time: the train leaves at half past eleven = der Zug fährt um halb zwölf ab
time: the film starts at half past twelve = der Film beginnt um halb eins
time: He got up at twenty past eleven. = Er stand um zwanzig nach elf auf.
price: for one dollar and twenty-five cents = für einen Dollar und fünfundzwanzig Cent
price: That comes to one euro. = Das macht einen Euro.
price: The book costs thirteen euros and ninety-one cents. = Das Buch kostet dreizehn Euro und einundneunzig Cent.
price: The coat costs eighty-eight euros. = Der Mantel kostet achtundachtzig Euro.
price: they paid one euro and fifteen cents for the lamp = sie bezahlten einen Euro und fünfzehn Cent für die Lampe
""")


@pytest.fixture(scope="module")
def corpus():
    return {split: list(numbers.examples(split)) for split in numbers.SIZES}


@pytest.mark.parametrize(("what", "english", "german"), SPELLED)
def test_spelling(what, english, german):
    """Numbers, ordinals without their German ending, years and times are spelled as by hand."""
    name, values = what.split(" ", 1)
    spelled = getattr(numbers, name)(*map(int, values.split(", ")))
    if name == "german":
        spelled = numbers.english(int(values)), spelled
    assert spelled == (english, german)


def test_sentences(corpus):
    """English sentences have the translation and the kind that they have by hand."""
    found = {pair[0]: (kind, *pair) for part in corpus.values() for kind, _, pair in part}
    assert [found[row[1]] for row in SENTENCES] == SENTENCES


def test_splits(corpus):
    """Splits have their sizes and all kinds of phrases; a value is in one of them alone."""
    assert {split: len(part) for split, part in corpus.items()} == numbers.SIZES
    splits = defaultdict(set)
    for split, part in corpus.items():
        assert {kind for kind, *_ in part} == set(numbers.KINDS)
        for _, value, _ in part:
            splits[value].add(split)
    assert max(len(found) for found in splits.values()) == 1
    assert {numbers.split_of((n,)) for n in (*range(20), 20, 90, 100, 7000)} == {"train"}


def test_every_sentence_has_one_translation_each_way(corpus):
    """So that BLEU 100 is possible; none has 101 before a German noun, where usage varies."""
    pairs = [pair for part in corpus.values() for *_, pair in part]
    assert len({*pairs}) == len(dict(pairs)) == len({german for _, german in pairs}) == 25_000
    for english, german in pairs:
        assert re.fullmatch(r"[A-Za-z',. -]+", english)
        assert re.fullmatch(r"[A-Za-zÄÖÜäöüß,. ]+", german)
        assert not re.search(r"(hundert|tausend)eins [A-ZÄÖÜ]", german)


def test_the_same_every_time(corpus):
    """Sentences are the same on every machine and Python: published scores are scores of these."""
    digests = {}
    for split, part in corpus.items():
        lines = "".join(f"{english}\t{german}\n" for _, _, (english, german) in part)
        digests[split] = hashlib.sha256(lines.encode()).hexdigest()[:16]
    assert digests == {
        "train": "cd484a20d17cc9d1",
        "dev": "b2a6f6b2f84012b4",
        "test": "09c9606dc84fde2f",
    }


def test_problem_and_text_files(tmp_path):
    """The problem's samples are the lines of the files that `write` writes."""
    problem = numbers.TranslateEndeNumbers()
    assert [item["split"] for item in problem.dataset_splits] == list(numbers.SIZES)
    files = tmp_path / "test.en", tmp_path / "test.de"
    numbers.write("test", *files)
    written = (path.read_text("utf-8").splitlines() for path in files)
    samples = [tuple(s.values()) for s in problem.generate_samples("data", "tmp", "test")]
    assert list(zip(*written, strict=True)) == samples == list(numbers.pairs("test"))
