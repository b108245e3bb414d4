"""Means of the loss, the same however steps are bundled, and a loss that diverges."""

import math

import numpy as np
import pytest

from t2t_keras.training.engine import Totals
from t2t_keras.training.reporting import LossRecord


def totals(loss, tokens=10.0):
    return Totals(loss * tokens, tokens, 9.0, 30.0, 1.0)


def test_gives_the_mean_over_tokens_at_multiples():
    record = LossRecord(4)
    assert record.add(2, totals(3.0, tokens=30)) is None
    mean = record.add(4, totals(1.0, tokens=10))
    assert mean.loss == pytest.approx((90 + 10) / 40)
    assert (mean.target_tokens, mean.positions) == (40, 60)
    assert record.add(8, totals(7.0)).loss == pytest.approx(7.0)


def test_goes_on_in_between():
    losses = np.random.default_rng(0).uniform(1, 9, 12).astype(np.float32)
    whole, parts = LossRecord(6), LossRecord(6)
    expected = [whole.add(step, totals(loss)) for step, loss in enumerate(losses, 1)]
    found = [parts.add(step, totals(loss)) for step, loss in enumerate(losses[:9], 1)]
    restored = LossRecord(6)
    restored.restore(parts.state())
    found += [restored.add(step, totals(loss)) for step, loss in enumerate(losses[9:], 10)]
    assert found == expected


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_trouble(value):
    record = LossRecord(10)
    assert "the loss became" in record.trouble(3, value, 1.0)
    assert "norm of the gradient became" in record.trouble(3, 2.0, value)
    assert record.trouble(3, 2.0, 1.0) == ""


def test_a_loss_far_above_the_first_for_long_is_trouble():
    record = LossRecord(100)
    said = {}
    for step in range(100, 2400, 100):
        record.add(step, totals(4.0 if step <= 300 else 6.5))
        said[step] = record.trouble(step, 6.5, 1.0)
    assert said[1300] == ""
    assert "above 1.5 times that of the first steps (4.00) since step 300" in said[1400]


def test_a_loss_below_that_of_knowing_nothing_is_no_trouble():
    """As of a run that begins with good weights, at the height of its learning rate."""
    record = LossRecord(100, knowing_nothing=6.0)
    for step in range(100, 6000, 100):
        record.add(step, totals(0.02 if step == 100 else 8.9))
        assert record.trouble(step, 8.9, 1.0) == ""
    for step in range(6000, 7200, 100):
        record.add(step, totals(9.1))
    assert "that of knowing nothing (6.00) since step 5900" in record.trouble(7100, 9.1, 1.0)


def test_a_loss_that_comes_down_again_is_no_trouble():
    record = LossRecord(100)
    for step in range(100, 6000, 100):
        record.add(step, totals(4.0 if step % 1000 == 0 or step == 100 else 9.0))
        assert record.trouble(step, 9.0, 1.0) == ""
