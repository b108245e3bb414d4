"""Cutting text into tokens and joining them again, against tensor2tensor's own tokens."""

import gzip
import itertools
import json
import random
import unicodedata
from pathlib import Path

import pytest

from t2t_keras.text import tokenizer
from t2t_keras.text.tokenizer import ALPHANUMERIC_RANGES

SHARED = Path(__file__).parents[2] / "shared"


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        (" ", [" "]),
        ("a", ["a"]),
        ("a b", ["a", "b"]),
        (" a b ", [" ", "a", "b", " "]),
        ("a  b", ["a", "  ", "b"]),
        ("a, b.", ["a", ", ", "b", "."]),
        ("a\nb", ["a", "\n", "b"]),
        ("x_1\t2", ["x", "_", "1", "\t", "2"]),
        ("½²Ⅷ٣日", ["½²Ⅷ٣日"]),  # No, No, Nl, Nd, Lo
        ("e\u0301t", ["e", "\u0301", "t"]),  # a combining accent is no letter
        ("a 𝒜 😀b", ["a", "𝒜", " 😀", "b"]),
    ],
)
def test_splits_where_words_end(text, tokens):
    assert tokenizer.encode(text) == tokens
    assert tokenizer.decode(tokens) == text


def by_character(text):
    """T2T's rule, one character after the other."""
    words = [any(first <= ord(c) <= last for first, last in ALPHANUMERIC_RANGES) for c in text]
    cuts = [i for i in range(1, len(text)) if words[i] != words[i - 1]]
    runs = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    return [run for i, run in enumerate(runs) if run and (run != " " or i in (0, len(runs) - 1))]


def test_spaces_count_only_between_two_words():
    for length in range(7):
        for text in map("".join, itertools.product(" a,", repeat=length)):
            assert tokenizer.encode(text) == by_character(text)


@pytest.mark.parametrize("characters", [" aé,—", " aé,—𝒜😀\U0001f3ff"])
def test_random_text_is_cut_by_character(characters):
    rng = random.Random(2)
    for _ in range(2000):
        text = "".join(rng.choices(characters, k=20))
        assert tokenizer.encode(text) == by_character(text)


def test_random_text_comes_back():
    rng = random.Random(1)
    code_points = [*range(0xD800), *range(0xE000, 0x110000)]
    for _ in range(2000):
        text = "".join(rng.choice([" ", "a", chr(rng.choice(code_points))]) for _ in range(12))
        tokens = tokenizer.encode(text)
        assert tokenizer.decode(tokens) == text
        assert " " not in tokens[1:-1]


def test_the_table_is_that_of_unicode_14():
    # U+11F04 is a letter since Unicode 15 only.
    assert len(tokenizer.encode("a\U00011f04")) == 2
    size = sum(last - first + 1 for first, last in ALPHANUMERIC_RANGES)
    assert size == 133_547  # the count of categories L* and N* in Unicode 14.0


@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="Python has another Unicode")
def test_the_table_equals_python_3_11():
    words = {c for first, last in ALPHANUMERIC_RANGES for c in range(first, last + 1)}
    assert words == {c for c in range(0x110000) if unicodedata.category(chr(c))[0] in "LN"}


@pytest.mark.skipif(not SHARED.exists(), reason="needs T2T's reference numbers in ../shared")
def test_equals_t2t_on_every_case():
    with gzip.open(SHARED / "golden/text/subword_cases.json.gz", "rt", encoding="utf-8") as file:
        cases = json.load(file)
    assert [tokenizer.encode(case["text"]) for case in cases] == [c["tokens"] for c in cases]
