"""`translate_ende_numbers`: its words and sentences, against translations written by hand."""

import hashlib
import re
from collections import defaultdict
from pathlib import Path

import pytest

from t2t_keras.problems import numbers

# (before the colon, English, German) of each line: what is spelled, then every pattern once.
PARTS = Path(__file__).with_name("data").joinpath("numbers.txt").read_text("utf-8").split("\n\n")
SPELLED, SENTENCES = (re.findall(r"^(.+?): (.+) = (.+)$", part, re.MULTILINE) for part in PARTS)


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
    digests = {"train": "cd484a20d17cc9d1", "dev": "b2a6f6b2f84012b4", "test": "09c9606dc84fde2f"}
    for split, part in corpus.items():
        lines = "".join(f"{english}\t{german}\n" for _, _, (english, german) in part)
        assert hashlib.sha256(lines.encode()).hexdigest()[:16] == digests.pop(split)
    assert not digests


def test_problem_and_text_files(tmp_path):
    problem = numbers.TranslateEndeNumbers()
    assert [item["split"] for item in problem.dataset_splits] == list(numbers.SIZES)
    files = tmp_path / "test.en", tmp_path / "test.de"
    numbers.write("test", *files)
    written = (path.read_text("utf-8").splitlines() for path in files)
    samples = [tuple(s.values()) for s in problem.generate_samples("data", "tmp", "test")]
    assert list(zip(*written, strict=True)) == samples == list(numbers.pairs("test"))
