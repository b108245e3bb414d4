"""Cleaning: the pairs that each rule drops, and their counts."""

import random

import pytest

from t2t_keras.data.generation import Cleaner, CleaningRules
from t2t_keras.errors import UserError


def pair(inputs, targets):
    return {"inputs": inputs, "targets": targets}


def test_no_rule_keeps_everything():
    samples = [pair("a", ""), pair("a" * 9999, "1"), pair("a", ""), pair("same", "same")]
    cleaner = Cleaner(CleaningRules())
    assert cleaner.keep(samples) == samples
    assert cleaner.dropped.total() == 0


@pytest.mark.parametrize(
    ("rule", "kept", "dropped", "reason"),
    [
        ({"max_characters": 5}, ("äöüßé", "x"), ("x", "äöüßé!"), "too long"),
        ({"max_ratio": 2}, ("abcd", "xy"), ("ab", "vwxyz"), "unequal lengths"),
        ({"max_ratio": 2}, ("ab", "abcd"), ("", "x"), "unequal lengths"),
        ({"min_letters": 0.5}, ("a b 12", "дом"), ("fine", "a 123"), "few letters"),
        ({"min_letters": 0.5}, ("家", "house"), ("...", "fine"), "few letters"),
        ({"copies": True}, ("same", "Same"), ("same", "same"), "copy"),
    ],
)
def test_each_rule(rule, kept, dropped, reason):
    cleaner = Cleaner(CleaningRules(**rule))
    assert cleaner.keep([pair(*kept), pair(*dropped)]) == [pair(*kept)]
    assert cleaner.dropped == {reason: 1}


def test_duplicates_are_found_across_calls_and_within_one():
    generator = random.Random(1)
    samples = [pair(str(generator.randrange(3000)), "x") for _ in range(10_000)]
    cleaner = Cleaner(CleaningRules(duplicates=True))
    kept = [
        s for start in range(0, 10_000, 700) for s in cleaner.keep(samples[start : start + 700])
    ]
    first_of_each = list({sample["inputs"]: sample for sample in samples}.values())
    assert kept == first_of_each
    assert cleaner.dropped == {"duplicate": 10_000 - len(first_of_each)}


def test_pairs_that_differ_in_one_side_are_no_duplicates():
    samples = [pair("a", "b"), pair("a", "c"), pair("d", "b"), pair("ab", ""), pair("", "ab")]
    assert Cleaner(CleaningRules(duplicates=True)).keep(samples) == samples


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"max_characters": -1}, "max_characters is -1; it must be 0 or more"),
        ({"max_ratio": 0.5}, "max_ratio is 0.5; it must be 1 or more, or 0"),
        ({"min_letters": 2.0}, "min_letters is 2.0; it must be from 0 to 1"),
    ],
)
def test_impossible_rules(rule, message):
    with pytest.raises(UserError, match=message):
        CleaningRules(**rule)
