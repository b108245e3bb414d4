"""Evenly spaced text for a vocabulary."""

import pytest

from t2t_keras.data.pair_source import evenly_spaced


def taken(lines, characters):
    return list(evenly_spaced(lambda k: lines[k - 1 :: k], len(lines), characters))


def test_a_short_text_is_taken_whole():
    assert taken(["a", "", "bc"], 3) == ["a", "", "bc"]
    assert taken([], 3) == []
    assert taken(["", ""], 3) == ["", ""]


@pytest.mark.parametrize(
    ("characters", "k"), [(40_000, 1), (39_999, 2), (20_000, 2), (4_000, 10), (3_999, 11)]
)
def test_lines_come_from_the_whole_text(characters, k):
    lines = [f"{number:04d}" for number in range(10_000)]  # 40,000 characters
    assert taken(lines, characters) == lines[k - 1 :: k]


def test_no_more_than_asked_for_when_later_lines_are_longer():
    lines = ["a"] * 1000 + ["b" * 100] * 1000  # expected by the first 1000: 2000 characters
    found = taken(lines, 1000)
    assert found == ["a"] * 500 + ["b" * 100] * 5
