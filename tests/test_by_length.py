"""Batches of items of about one length: what goes together, in which order results come, memory."""

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.decoding.by_length import BatchLimits, ByLength, Done, plan


class Item(NamedTuple):
    number: int
    length: int

    @property
    def text_bytes(self):
        return 10 * self.length


class Doubled:
    """Doubles lengths, notes batches, and has memory for so many tokens."""

    def __init__(self, memory=10**9):
        self.memory = memory
        self.batches = []

    def size(self, item):
        return item.length

    def order(self, item):
        return -item.length

    def run(self, items, longest):
        if len(items) * max(item.length for item in items) > self.memory:
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
        self.batches.append(([item.length for item in items], longest))
        return [2 * item.length for item in items]

    def without(self, item):
        return -1

    def tokens(self, result):
        return result


def items(*lengths):
    return [Item(n, length) for n, length in enumerate(lengths, start=1)]


def by_length(work, report=None, **limits):
    return ByLength(work, BatchLimits(**limits), report or pytest.fail)


def test_results_have_the_order_of_the_items():
    lengths = np.random.default_rng(0).integers(1, 50, 200).tolist()
    work = Doubled()
    results = list(by_length(work, items=7, window=64).results(items(*lengths)))
    assert results == [2 * length for length in lengths]
    ordered = [length for batch, _ in work.batches for length in batch]
    for start in (0, 64, 128, 192):
        window = slice(start, start + 64)
        assert ordered[window] == sorted(lengths[window], reverse=True)
    assert max(len(batch) for batch, _ in work.batches) == 7


def test_a_batch_has_so_many_items_and_so_many_tokens():
    sizes = list(enumerate([9, 5, 5, 4, 4, 2, 2, 2, 1, 1]))
    assert plan(sizes, BatchLimits(tokens=10)) == [[0], [1, 2], [3, 4], [5, 6, 7, 8, 9]]
    assert plan(sizes, BatchLimits(items=3, tokens=10)) == [[0], [1, 2], [3, 4], [5, 6, 7], [8, 9]]
    assert plan(sizes, BatchLimits(tokens=1)) == [[n] for n in range(10)]
    assert plan(sizes, BatchLimits()) == [list(range(10))]
    rising = [(0, 1), (1, 1), (2, 9), (3, 1)]
    assert plan(rising, BatchLimits(tokens=10)) == [[0, 1], [2], [3]]


def test_results_come_before_all_items_are_read():
    read = []

    def endless():
        while True:
            read.append(1)
            yield Item(len(read), 3)

    results = by_length(Doubled(), items=2, window=4).results(endless())
    assert [next(results), next(results)] == [6, 6]
    assert len(read) == 4


def test_says_what_each_batch_has_done_when_its_results_are_there():
    done, seen = [], []
    work = by_length(Doubled(), items=2, window=4)
    for result in work.results(items(3, 1, 5, 2, 7), done=lambda d: done.append((d, list(seen)))):
        seen.append(result)
    assert done == [
        (Done(2, 80, 16, [(3, 10), (1, 6)]), [6]),
        (Done(2, 30, 6, [(4, 4), (2, 2)]), [6, 2, 10, 4]),
        (Done(1, 70, 14, [(5, 14)]), [6, 2, 10, 4, 14]),
    ]


def test_items_of_no_size_keep_their_place():
    assert list(by_length(Doubled(), window=2).results(items(0, 0, 4, 0, 1))) == [-1, -1, 8, -1, 2]


@pytest.mark.parametrize("fixed", [False, True])
def test_skips_results(fixed):
    """With fixed batches, those that are needed at all are made whole."""
    lengths = [1, 8, 2, 7, 3, 6, 4, 5]
    for skip in range(9):
        work = Doubled()
        limits = by_length(work, items=2, window=4, fixed=fixed)
        first = limits.first_of_window(skip)
        results = limits.results(items(*lengths)[first:], skip - first)
        assert list(results) == [2 * length for length in lengths[skip:]]
        whole = [[8, 7], [2, 1], [6, 5], [4, 3]]
        if fixed:
            assert all(batch in whole for batch, _ in work.batches)
        else:
            assert sum(len(batch) for batch, _ in work.batches) == 8 - skip


@pytest.mark.parametrize("fixed", [False, True])
def test_works_on_what_is_not_known(fixed):
    work = Doubled()
    limits = by_length(work, items=2, window=4, fixed=fixed)
    results = list(limits.results(items(1, 8, 2, 7, 3), known={2, 4, 1}))
    assert results == [-1, -1, 4, -1, 6]
    assert [batch for batch, _ in work.batches] == ([[2, 1], [3]] if fixed else [[2], [3]])


def test_a_batch_too_large_for_memory_is_halved():
    told = []
    work = Doubled(memory=30)
    lengths = [10] * 9 + [9] * 8
    made = by_length(work, told.append, items=8).results(items(*lengths))
    assert list(made) == [2 * length for length in lengths]
    # 8 x 10 and 4 x 10 fail; from then on nothing above 20 tokens is tried.
    assert told == [
        f"{n} sentences of up to 10 tokens do not fit into memory: halved, as all batches of that "
        "size from now on"
        for n in (8, 4)
    ]
    assert [len(batch) for batch, _ in work.batches[:4]] == [2, 2, 2, 2]
    assert all(len(batch) * max(batch) <= 20 for batch, _ in work.batches)
    assert {longest for batch, longest in work.batches if 9 in batch and 10 not in batch} <= {9, 10}


def test_the_halves_know_the_longest_of_their_batch():
    work = Doubled(memory=10)
    list(by_length(work, lambda line: None, items=4).results(items(5, 4, 2, 1)))
    assert work.batches == [([5, 4], 5), ([2, 1], 5)]


def test_an_item_too_large_for_memory_is_left_out():
    told = []
    results = by_length(Doubled(memory=5), told.append).results(items(4, 50, 3))
    assert list(results) == [8, -1, 6]
    assert told[-1] == "line 2 does not fit into memory: it is left out"
