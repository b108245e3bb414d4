"""The table of joins: every longest match is found in it, whatever the vocabulary."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from t2t_keras.text.graph_subwords import build_table

STRINGS = st.text(st.sampled_from("abc_") | st.characters(), min_size=1, max_size=20)


def join(table, first, second):
    slot = (table.base[first] + second) % len(table.owner)
    return table.joined[slot] if table.owner[slot] == first else 0


def block(table, string):
    """The number of a string of 2^k characters."""
    if len(string) == 1:
        return table.numbers.get(string, 0)
    half = len(string) // 2
    return join(table, block(table, string[:half]), block(table, string[half:]))


def longest_match(table, text):
    beginning = end = 0
    for level in reversed(range(table.levels)):
        part = text[end : end + 2**level]
        if len(part) == 2**level:
            number = block(table, part)
            joined = join(table, beginning, number) if end else number
            if joined >= table.first_beginning:
                beginning, end = joined, end + 2**level
    return table.match_id[beginning], table.match_length[beginning]


def check(vocabulary, texts):
    ids = {string: i for i, string in enumerate(sorted(vocabulary))}
    table = build_table(ids, "ab")
    assert {"a", "b", *"".join(vocabulary)} == set(table.numbers)
    for text in texts:
        matches = [text[:end] for end in range(1, len(text) + 1) if text[:end] in ids]
        longest = matches[-1] if matches else None
        assert longest_match(table, text) == ((ids[longest], len(longest)) if matches else (-1, 0))


@settings(max_examples=150, deadline=None, database=None)
@given(st.sets(STRINGS, max_size=30), st.lists(STRINGS, max_size=10))
def test_finds_the_longest_match(vocabulary, others):
    texts = [*others, *vocabulary, *(a + b for a in vocabulary for b in others)]
    check(vocabulary, texts)


def test_has_room_for_characters_that_many_others_follow():
    rng = np.random.default_rng(5)
    first, second = rng.integers(0x4E00, 0x5E00, (2, 40_000))
    vocabulary = {chr(0x4E00 + f % 40) + chr(s) for f, s in zip(first, second, strict=True)}
    check(vocabulary, [*list(vocabulary)[:500], "一", "一a", "ab"])


@pytest.mark.parametrize("vocabulary", [set(), {"a"}])
def test_tiny_vocabularies(vocabulary):
    check(vocabulary, ["a", "b", "c", "aa"])
