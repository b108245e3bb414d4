"""The examples of batch number `step`: none lost or repeated, the same from any start."""

from collections import Counter

import numpy as np
import pytest

from t2t_keras.data.reading import Buckets, EndlessPlan, OncePlan

BUCKETS = Buckets(edges=[4, 7, 12], sizes=[9, 5, 3], shortest=0, longest=12)


def lengths(number, seed=0, longest=12):
    return np.random.RandomState(seed).randint(1, longest + 1, number)


def rows(batches):
    return [int(row) for batch in batches for row in batch.rows]


def take(plan, start, number):
    return [plan.batch(step) for step in range(start, start + number)]


def same(one, other):
    return all(
        a.bucket == b.bucket and a.rows.tolist() == b.rows.tolist()
        for a, b in zip(one, other, strict=True)
    )


CASES = [
    (number, seed, shuffle, mix)
    for number in (1, 2, 7, 40, 173, 1000)
    for seed in (0, 1, 2**40 + 5)
    for shuffle, mix in ((True, True), (True, False), (False, False))
]


@pytest.mark.parametrize(("number", "seed", "shuffle", "mix"), CASES)
def test_each_bucket_is_one_permutation_after_the_other(number, seed, shuffle, mix):
    """Joined in the order in which they were cut, a bucket's batches are whole epochs."""
    sizes = lengths(number, seed % 97)
    plan = EndlessPlan(sizes, BUCKETS, seed, shuffle, mix)
    batches = take(plan, 0, plan.batches_before(12))
    assert {len(batch.rows) == BUCKETS.sizes[batch.bucket] for batch in batches} <= {True}
    for bucket, members in enumerate(plan.members):
        fitting = (sizes >= [0, 5, 8][bucket]) & (sizes <= BUCKETS.edges[bucket])
        assert members.tolist() == np.flatnonzero(fitting).tolist()
        expected = 12 * len(members) // BUCKETS.sizes[bucket] * BUCKETS.sizes[bucket]
        counts = Counter(rows(b for b in batches if b.bucket == bucket))
        assert counts.total() == expected
        # Twelve epochs but for what fills no batch yet: the end of the last permutations.
        if expected:
            left = 12 * len(members) - expected
            least = 12 - -(-left // len(members))
            assert set(counts) <= set(members.tolist())
            assert all(least <= counts[int(row)] <= 12 for row in members)


@pytest.mark.parametrize("seed", range(8))
def test_no_example_comes_again_before_the_others_of_its_bucket_came(seed):
    plan = EndlessPlan(lengths(211, seed), BUCKETS, seed, shuffle=True, mix=False)
    streams = {bucket: [] for bucket in range(3)}
    for batch in take(plan, 0, plan.batches_before(9)):
        streams[batch.bucket] += batch.rows.tolist()
    for bucket, members in enumerate(plan.members):
        stream, n = streams[bucket], len(members)
        epochs = [stream[i : i + n] for i in range(0, len(stream) - n + 1, n)]
        assert len(epochs) >= 8
        assert all(sorted(epoch) == members.tolist() for epoch in epochs)
        assert len({tuple(epoch) for epoch in epochs}) == len(epochs)


@pytest.mark.parametrize("mix", [False, True])
@pytest.mark.parametrize("number", [3, 50, 400])
def test_any_batch_can_be_asked_for_at_once(number, mix):
    def new():
        return EndlessPlan(lengths(number), BUCKETS, 3, shuffle=True, mix=mix)

    whole = take(new(), 0, 150)
    for start in (1, 2, 17, 99, 100, 101, 149):
        assert same(take(new(), start, 150 - start), whole[start:])
    jumping = new()
    for step in np.random.RandomState(0).permutation(150):
        assert same([jumping.batch(int(step))], [whole[step]])


def test_epochs_and_steps_agree_without_going_through_them():
    plan = EndlessPlan(lengths(100), BUCKETS, 0, shuffle=True, mix=True)
    for epoch in [*range(40), 10**6, 10**9]:
        first, end = plan.batches_before(epoch), plan.batches_before(epoch + 1)
        assert {plan.epoch_of(step) for step in (first, end - 1)} == {epoch}
    assert plan.batches_before(10**6) == pytest.approx(10**6 * plan.batches_per_epoch, abs=3)
    plan.batch(10**9)


def test_batches_of_an_epoch_are_permuted_when_mixed():
    sizes = lengths(3000)
    plain = EndlessPlan(sizes, BUCKETS, 0, shuffle=True, mix=False)
    mixed = EndlessPlan(sizes, BUCKETS, 0, shuffle=True, mix=True)
    for epoch in range(3):
        span = plain.batches_before(epoch), plain.batches_before(epoch + 1)
        one, other = ([tuple(plan.batch(s).rows) for s in range(*span)] for plan in (plain, mixed))
        assert one != other
        assert sorted(one) == sorted(other)


def test_without_mixing_batches_come_as_they_fill():
    """A batch comes when its last example in file order has come."""
    sizes = np.array([1, 12, 1, 12, 5, 12] * 9)
    plan = EndlessPlan(sizes, BUCKETS, 0, shuffle=False, mix=False)
    last = [int(batch.rows[-1]) for batch in take(plan, 0, plan.batches_before(1))]
    assert last == sorted(last)
    assert last[0] == 5
    shuffled = EndlessPlan(lengths(5000), BUCKETS, 0, shuffle=True, mix=False)
    seen = Counter(batch.bucket for batch in take(shuffled, 0, shuffled.batches_before(1) // 2))
    for bucket, members in enumerate(shuffled.members):
        assert seen[bucket] == pytest.approx(len(members) / BUCKETS.sizes[bucket] / 2, abs=2)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_once_has_every_example_once(seed, shuffle):
    plan = OncePlan(lengths(177, seed, longest=15), BUCKETS, seed, shuffle, mix=shuffle)
    batches = take(plan, 0, len(plan))
    kept = np.flatnonzero(lengths(177, seed, longest=15) <= 12).tolist()
    assert sorted(rows(batches)) == kept
    assert plan.examples == len(kept)
    full = [len(batch.rows) == BUCKETS.sizes[batch.bucket] for batch in batches]
    assert full.count(False) <= 3


def test_once_in_order_is_as_they_fill_and_then_the_rest():
    # Batches of 9 short, 5 middle and 3 long ones.
    sizes = np.array([12, 1, 12, 6, 12, 1, 12, 1])
    plan = OncePlan(sizes, BUCKETS, 0, shuffle=False, mix=False)
    found = [(batch.bucket, batch.rows.tolist()) for batch in take(plan, 0, len(plan))]
    assert found == [(2, [0, 2, 4]), (0, [1, 5, 7]), (1, [3]), (2, [6])]


def test_lengths_out_of_range_are_in_no_batch():
    buckets = BUCKETS._replace(shortest=3)
    sizes = np.array([2, 3, 12, 13])
    assert sorted(rows(take(OncePlan(sizes, buckets, 0, False, False), 0, 2))) == [1, 2]
    assert set(rows(take(EndlessPlan(sizes, buckets, 0, True, True), 0, 9))) == {1, 2}


def test_orders_are_these_on_every_machine_and_with_every_numpy():
    """Computed with NumPy 1.24.4 and 2.4.6; with other numbers, runs could not go on."""
    plan = EndlessPlan(lengths(60), BUCKETS, seed=7, shuffle=True, mix=True)
    buckets = [batch.bucket for batch in take(plan, 0, 12)]
    assert buckets == [2, 0, 0, 2, 1, 2, 2, 2, 1, 2, 2, 1]
    assert plan.batch(1000).rows.tolist() == [55, 58, 17, 10, 30]
