"""The examples of batch number `step`; tests/test_properties.py: none is lost or repeated."""

from collections import Counter

import numpy as np
import pytest

from t2t_keras.data.reading import Buckets, EndlessPlan, OncePlan

BUCKETS = Buckets(edges=[4, 7, 12], sizes=[9, 5, 3], shortest=0, longest=12)


def lengths(number):
    return np.random.RandomState(0).randint(1, 13, number)


def rows(batches):
    return [int(row) for batch in batches for row in batch.rows]


def take(plan, start, number):
    return [plan.batch(step) for step in range(start, start + number)]


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
    plan = EndlessPlan(np.array([1, 12, 1, 12, 5, 12] * 9), BUCKETS, 0, shuffle=False, mix=False)
    last = [int(batch.rows[-1]) for batch in take(plan, 0, plan.batches_before(1))]
    assert last == sorted(last)
    assert last[0] == 5
    shuffled = EndlessPlan(lengths(5000), BUCKETS, 0, shuffle=True, mix=False)
    seen = Counter(batch.bucket for batch in take(shuffled, 0, shuffled.batches_before(1) // 2))
    for bucket, members in enumerate(shuffled.members):
        assert seen[bucket] == pytest.approx(len(members) / BUCKETS.sizes[bucket] / 2, abs=2)


def test_once_in_order_is_as_they_fill_and_then_the_rest():
    # Batches of 9 short, 5 middle and 3 long ones.
    plan = OncePlan(np.array([12, 1, 12, 6, 12, 1, 12, 1]), BUCKETS, 0, shuffle=False, mix=False)
    found = [(batch.bucket, batch.rows.tolist()) for batch in take(plan, 0, len(plan))]
    assert found == [(2, [0, 2, 4]), (0, [1, 5, 7]), (1, [3]), (2, [6])]


def test_orders_are_these_on_every_machine_and_with_every_numpy():
    """Computed with NumPy 1.24.4 and 2.4.6; with other numbers, runs could not go on."""
    plan = EndlessPlan(lengths(60), BUCKETS, seed=7, shuffle=True, mix=True)
    assert [batch.bucket for batch in take(plan, 0, 12)] == [2, 0, 0, 2, 1, 2, 2, 2, 1, 2, 2, 1]
    assert plan.batch(1000).rows.tolist() == [55, 58, 17, 10, 30]
