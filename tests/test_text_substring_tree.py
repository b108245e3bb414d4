"""The tree of frequent substrings: by hand, and against plain counting."""

import random
from collections import Counter

import numpy as np
import pytest

from t2t_keras.text import subword_builder
from t2t_keras.text.subword_builder import SubstringTree


def nodes(tree):
    return np.arange(len(tree._parents))


def counts(tree, places):
    found = tree.count(np.array(places))
    return dict(zip(tree.substrings(nodes(tree)), found.tolist(), strict=True))


def test_by_hand():
    # "ab_" three times, "b_" twice; a place is a character of "ab_b_".
    tree = SubstringTree("ab_b_", np.array([3, 3, 3, 2, 2]), max_length=9, min_count=3)
    everywhere = {"a": 3, "b": 5, "_": 5, "ab": 3, "b_": 5, "ab_": 3}
    assert counts(tree, range(5)) == everywhere
    assert counts(tree, [0, 3]) == {"a": 3, "b": 2, "_": 0, "ab": 3, "b_": 2, "ab_": 3}

    kept, left = tree.select(tree.count(np.arange(5)), min_count=3)
    assert tree.substrings(np.flatnonzero(kept)) == ["b_", "ab_"]
    # ab_ leaves nothing of ab and a, b_ nothing of b.
    remaining = dict(zip(tree.substrings(nodes(tree)), left.tolist(), strict=True))
    assert remaining == {"a": 0, "b": 0, "_": 5, "ab": 0, "b_": 5, "ab_": 3}
    assert tree.longest(kept).tolist() == [3, 2, 1, 2, 1]
    assert tree.substrings(tree.characters) == ["_", "a", "b"]


@pytest.mark.parametrize("few_keys", [0, 10**9], ids=["sorted", "counted"])
@pytest.mark.parametrize("max_length", [1, 3, 99])
@pytest.mark.parametrize("min_count", [1, 4, 30])
def test_equals_plain_counting(monkeypatch, few_keys, max_length, min_count):
    monkeypatch.setattr(subword_builder, "_FEW_KEYS", few_keys)
    rng = random.Random(5)
    tokens = ["".join(rng.choices("ab𝒜\ud800", k=rng.randrange(9))) + "_" for _ in range(60)]
    weights = [rng.randrange(1, 5) for _ in tokens]
    everywhere, at_starts = Counter(), Counter()
    for token, n in zip(tokens, weights, strict=True):
        for start in range(len(token)):
            for end in range(start + 1, min(len(token), start + max_length) + 1):
                everywhere[token[start:end]] += n
                at_starts[token[start:end]] += n * (start == 0)
    expected = {s for s, n in everywhere.items() if n >= min_count or len(s) == 1}

    tree = SubstringTree(
        "".join(tokens), np.repeat(weights, [len(token) for token in tokens]), max_length, min_count
    )
    lengths = np.array([len(token) for token in tokens])
    starts = np.cumsum(lengths) - lengths
    assert counts(tree, range(lengths.sum())) == {s: everywhere[s] for s in expected}
    assert counts(tree, starts) == {s: at_starts[s] for s in expected}
