"""Building vocabularies: by hand, by the plain form of the algorithm, and as tensor2tensor did."""

import json
import random
import string
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from t2t_keras.errors import UserError
from t2t_keras.text import SubwordTextEncoder, read_lines, subword_builder, tokenizer
from t2t_keras.text.subword_builder import SubstringTree
from t2t_keras.text.tokenizer import ESCAPE_CHARACTERS, escape

SHARED = Path(__file__).parents[2] / "shared"


def test_one_word_by_hand():
    # "ab_" three times. Round 1 keeps ab_ and, since b starts a cut too, b_; from round 2 on the
    # only cut is in front of ab_, which takes all from its prefixes. Then the alphabet, 23
    # characters that count nothing, in falling order.
    encoder = SubwordTextEncoder.build_from_generator(["ab ab", "ab"], target_size=26)
    characters = "updba_\\SOE><;9876543210"
    assert encoder.all_subtoken_strings == ("<pad>_", "<EOS>_", "ab_", *characters)


def test_subtokens_are_shorter_than_max_subtoken_length():
    encoder = SubwordTextEncoder.build_from_generator(["ab"] * 3, 26, max_subtoken_length=3)
    assert encoder.all_subtoken_strings[2:5] == ("ab", "_", "u")


def plainly(lines, min_count, max_subtoken_length, reserved):
    """T2T's four rounds without any shortcut; a reserved token is listed once."""
    tokens = Counter(token for line in lines for token in tokenizer.encode(line))
    alphabet = ESCAPE_CHARACTERS.union(*tokens, *reserved) - {"\n"}
    reserved = [escape(token, alphabet) for token in reserved]
    subtokens = set(alphabet)
    for _ in range(4):
        counts = Counter()
        for token, n in tokens.items():
            text = escape(token, alphabet)
            start = 0
            while start < len(text):
                for end in range(start + 1, min(len(text), start + max_subtoken_length - 1) + 1):
                    counts[text[start:end]] += n
                ends = range(start + 1, len(text) + 1)
                start = max(end for end in ends if text[start:end] in subtokens)
        kept = []
        for candidate in sorted([s for s, n in counts.items() if n >= min_count], key=len)[::-1]:
            n = counts[candidate]
            if n >= min_count:
                kept += [(n, candidate)] * (candidate not in alphabet)
                for end in range(1, len(candidate)):
                    counts[candidate[:end]] -= n
        ranked = sorted(kept + [(counts[c], c) for c in alphabet], reverse=True)
        ranked = reserved + [s for _, s in ranked if s not in reserved]
        subtokens = set(ranked)
    return ranked


@pytest.mark.parametrize("few_keys", [0, 10**9], ids=["sorted", "counted"])
@pytest.mark.parametrize("max_subtoken_length", [2, 4, 1000])
@pytest.mark.parametrize("extra", [[], ["abc", "[x]", "b"]])
def test_shortcuts_change_nothing(monkeypatch, max_subtoken_length, extra, few_keys):
    monkeypatch.setattr(subword_builder, "_CUTS_SIDE_BY_SIDE", 3)
    monkeypatch.setattr(subword_builder, "_FEW_KEYS", few_keys)
    rng = random.Random(3)
    reserved = ["<pad>", "<EOS>", *extra]
    for target in (20, 40, 60):
        weights = (9, 6, 4, 5, 1, 1, 1, 1, 1, 1)
        lines = ["".join(rng.choices("abc _\n,é𝒜\ud800", weights, k=40)) for _ in range(8)]
        lines += ["abb" * 9 + " " + "a" * 20, "defghij " * 20]  # repeat themselves
        # T2T bisects the minimum count between 1 and 1000.
        low, high, tried = 1, 1000, []
        while True:
            min_count = (low + high) // 2
            tried.append(plainly(lines, min_count, max_subtoken_length, reserved))
            size = len(tried[-1])
            if abs(size - target) * 100 < target or low >= high or min_count < 2:
                break
            low, high = (min_count + 1, high) if size > target else (low, min_count - 1)
        expected = min(tried, key=lambda subtokens: abs(len(subtokens) - target))
        build = SubwordTextEncoder.build_from_generator
        encoder = build(lines, target, max_subtoken_length, reserved)
        assert list(encoder.all_subtoken_strings) == expected


def test_an_extra_reserved_token_has_one_id(tmp_path):
    reserved = ["<pad>", "<EOS>", "low"]
    encoder = SubwordTextEncoder.build_from_generator(["low low low\n"], 40, None, reserved)
    assert encoder.encode("low") == [2]
    encoder.store_to_file(tmp_path / "vocab")
    assert SubwordTextEncoder(tmp_path / "vocab").encode("low\n") == encoder.encode("low\n")


@pytest.mark.parametrize(
    ("lines", "arguments", "message"),
    [
        ([], {}, "There is no text"),
        ([""], {}, "There is no text"),
        (["a"], {"target_size": 0}, "size is 0; it must be at least 1"),
        (["a"], {"reserved_tokens": ["<EOS>", "<pad>"]}, "must begin with <pad>, <EOS>"),
    ],
)
def test_refuses_what_gives_no_vocabulary(lines, arguments, message):
    with pytest.raises(UserError, match=message):
        SubwordTextEncoder.build_from_generator(lines, **{"target_size": 30, **arguments})


@pytest.mark.parametrize(
    ("token", "max_subtoken_length"),
    [("a" * 20_000, None), ("".join(random.Random(0).choices(string.hexdigits, k=200_000)), 200)],
    ids=["one letter", "random letters"],
)
def test_time_is_linear_in_the_length_of_a_token(token, max_subtoken_length):
    start = time.process_time()
    lines = ["the cat sat on the mat"] * 500 + [token]
    encoder = SubwordTextEncoder.build_from_generator(lines, 300, max_subtoken_length)
    assert encoder.decode(encoder.encode(token)) == token
    assert time.process_time() - start < 12  # 2 s; with the square of the length, a minute


@pytest.mark.skipif(not SHARED.exists(), reason="needs T2T's reference numbers in ../shared")
@pytest.mark.parametrize("lines_per_language", [2000, 10000])
def test_equals_t2t_byte_for_byte(tmp_path, lines_per_language):
    golden = SHARED / "golden/text"
    builds = json.loads((golden / "vocab_builds.json").read_text()).items()
    [(name, build)] = [b for b in builds if b[1]["lines_per_language"] == lines_per_language]
    lines = []
    for language in ("en", "de"):
        path = SHARED / f"data/multi30k/train.{language}.gz"
        lines += read_lines(path)[:lines_per_language]
    sizes = build["target_size"], build["max_subtoken_length"]
    encoder = SubwordTextEncoder.build_from_generator(lines, *sizes)
    encoder.store_to_file(tmp_path / name)
    assert encoder.vocab_size == build["built_size"]
    assert (tmp_path / name).read_bytes() == (golden / name).read_bytes()


def test_tree_by_hand():
    # "ab_" three times, "b_" twice; a place is a character of "ab_b_".
    tree = SubstringTree("ab_b_", np.array([3, 3, 3, 2, 2]), max_length=9, min_count=3)
    everywhere, starts = tree.count(np.arange(5)), tree.count(np.array([0, 3]))
    nodes = tree.substrings(np.arange(len(everywhere)))
    # ab, which occurs where ab_ does, is no node.
    assert dict(zip(nodes, everywhere, strict=True)) == {"a": 3, "b": 5, "_": 5, "b_": 5, "ab_": 3}
    assert dict(zip(nodes, starts, strict=True)) == {"a": 3, "b": 2, "_": 0, "b_": 2, "ab_": 3}

    kept, left = tree.select(everywhere, min_count=3)
    assert tree.substrings(np.flatnonzero(kept)) == ["ab_", "b_"]
    # ab_ leaves nothing of a, b_ nothing of b.
    assert dict(zip(nodes, left, strict=True)) == {"a": 0, "b": 0, "_": 5, "b_": 5, "ab_": 3}
    assert tree.longest(kept).tolist() == [3, 2, 1, 2, 1]
    assert tree.substrings(tree.characters) == ["_", "a", "b"]
