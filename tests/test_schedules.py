"""Learning rates: T2T's own curves, and the other factors by hand from their definitions."""

import json
import math

import golden
import keras
import numpy as np
import pytest

from t2t_keras.schedules import learning_rate_schedule
from t2t_keras.settings import HParams


def rates(schedule, steps):
    return [float(schedule(step)) for step in steps]


def settings(schedule, **values):
    return HParams(learning_rate_schedule=schedule, learning_rate_warmup_steps=100, **values)


@pytest.mark.parametrize("model", ["base_prenorm", "base_v1_postnorm", "separate_embeddings"])
def test_curve_of_tensor2tensor(model):
    arrays = golden.load(model).arrays
    schedule = learning_rate_schedule(golden.load(model).hp)
    assert len(arrays["schedule_steps"]) == 13
    ours = rates(schedule, arrays["schedule_steps"])
    np.testing.assert_allclose(ours, arrays["schedule"], rtol=1e-6)
    np.testing.assert_allclose(  # the three updates that were made from step 4000 on
        rates(schedule, [4000, 4001, 4002]), arrays["learning_rates"], rtol=1e-6
    )


HALF = math.sqrt(0.5)
EXPONENTIAL = {"learning_rate_decay_steps": 50, "learning_rate_decay_rate": 0.25}


@pytest.mark.parametrize(
    ("hp", "train_steps", "expected"),
    [
        (settings("constant", learning_rate_constant=0.5), None, {0: 0.5, 900: 0.5}),
        (settings("linear_warmup"), None, {0: 0.0, 50: 0.5, 100: 1.0, 900: 1.0}),
        (settings("rsqrt_decay"), None, {0: 0.1, 100: 0.1, 400: 0.05}),
        (settings("rsqrt_normalized_decay"), None, {0: 1.0, 100: 1.0, 400: 0.5}),
        (settings("rsqrt_hidden_size", hidden_size=64), None, {0: 0.125, 900: 0.125}),
        (settings("linear_decay", learning_rate_decay_steps=40), 200, {0: 1.0, 160: 1.0, 180: 0.5, 200: 0.0, 300: 0.0}),
        (settings("cosdecay", learning_rate_decay_steps=800), None, {0: 1.0, 100: 1.0, 200: 0.5 + HALF / 2, 400: 0.5, 600: 0.5 - HALF / 2}),
        (settings("single_cycle_cos_decay"), 500, {0: 1.0, 100: 1.0, 200: 0.5 + HALF / 2, 300: 0.5, 400: 0.5 - HALF / 2}),
        (settings("multi_cycle_cos_decay", learning_rate_decay_steps=400), None, {0: 1.0, 100: 1.0, 200: 0.5 + HALF / 2, 300: 0.5, 900: 1.0, 1100: 0.5}),
        (settings("exp_decay", **EXPONENTIAL), None, {0: 1.0, 100: 1.0, 125: 0.5, 150: 0.25, 175: 0.125}),
        (settings("exp_decay", **EXPONENTIAL, learning_rate_decay_staircase=True), None, {100: 1.0, 149: 1.0, 150: 0.25, 199: 0.25}),
        (settings(" linear_warmup * constant*rsqrt_decay*", learning_rate_constant=2.0), None, {0: 0.0, 50: 0.1, 400: 0.1}),
        (settings("linear_warmup", optimizer_multistep_accumulate_steps=8), None, {0: 0.0, 4: 0.005, 400: 0.5, 800: 1.0}),
    ],
)  # fmt: skip
def test_factor(hp, train_steps, expected):
    schedule = learning_rate_schedule(hp, train_steps)
    assert rates(schedule, expected) == pytest.approx(list(expected.values()), rel=1e-5)


@pytest.mark.parametrize(
    ("scheme", "values", "expected"),
    [
        ("none", {}, {100: 1.0, 900: 1.0}),
        ("", {}, {100: 1.0, 900: 1.0}),
        ("sqrt", {}, {100: 500.0, 101: 500.0, 104: 250.0, 200: 50.0}),
        ("exp", EXPONENTIAL, {100: 1.0, 125: 0.5, 200: 0.0625}),
        ("cosine", {"learning_rate_cosine_cycle_steps": 400}, {100: 0.5 + HALF / 2, 200: 0.5, 300: 0.5 - HALF / 2, 600: 0.5, 800: 1.0}),
        ("cyclelinear10x", {}, {100: 3.3, 150: 1.8, 200: 0.3, 250: 1.8, 300: 3.3}),
        ("piecewise", {"learning_rate_boundaries": [200, 350], "learning_rate_multiples": [0.5, 0.1]}, {100: 1.0, 200: 1.0, 201: 0.5, 350: 0.5, 351: 0.1, 9000: 0.1}),
    ],
)  # fmt: skip
def test_legacy_schemes(scheme, values, expected):
    hp = settings("legacy", learning_rate_decay_scheme=scheme, learning_rate=1.0, **values)
    sgd = learning_rate_schedule(hp.replace(optimizer="sgd"))
    assert rates(sgd, expected) == pytest.approx(list(expected.values()), rel=1e-5)
    # up to the end of the warm-up from 0.01, exponentially; float32 costs T2T the last digits
    assert rates(sgd, [0, 50]) == pytest.approx([0.01, 0.1], rel=1e-4)
    adam = learning_rate_schedule(hp.replace(optimizer="true_adam"))
    assert float(adam(100)) == pytest.approx(0.002 * float(sgd(100)), rel=1e-6)
    half = learning_rate_schedule(hp.replace(optimizer="sgd", learning_rate=0.5))
    assert float(half(100)) == pytest.approx(0.5 * float(sgd(100)), rel=1e-6)
    other = learning_rate_schedule(hp.replace(optimizer="Adam"))
    assert float(other(7)) == float(sgd(7))  # no correction: T2T looks for "adam"


def piecewise(boundaries, multiples):
    steps = {"learning_rate_boundaries": boundaries, "learning_rate_multiples": multiples}
    return settings("legacy", learning_rate_decay_scheme="piecewise", **steps)


@pytest.mark.parametrize(
    ("hp", "train_steps", "message"),
    [
        (settings("linear_decay"), None, "factor 'linear_decay' of learning_rate_schedule needs train_steps above 0, got None"),
        (settings("single_cycle_cos_decay"), 100, "needs more train_steps than learning_rate_warmup_steps (100), got 100"),
        (settings("constant*linear_warmup").replace(learning_rate_warmup_steps=0), None, "needs learning_rate_warmup_steps above 0, got 0"),
        (settings("cosdecay", learning_rate_decay_steps=0), None, "needs learning_rate_decay_steps above 0, got 0"),
        (piecewise([], []), None, "learning_rate_decay_scheme 'piecewise' needs increasing learning_rate_boundaries"),
        (piecewise([5, 3], [1, 2]), None, "as many learning_rate_multiples, got [5.0, 3.0] and [1.0, 2.0]"),
        (piecewise([5, 8], [1]), None, "got [5.0, 8.0] and [1.0]"),
    ],
)  # fmt: skip
def test_wrong_schedule_is_one_line(hp, train_steps, message, refused):
    with refused() as caught:
        learning_rate_schedule(hp, train_steps)
    assert message in str(caught.value)


def test_is_a_keras_schedule():
    schedule = learning_rate_schedule(settings("constant*linear_decay"), train_steps=10000)
    assert isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule)
    written = json.dumps(keras.optimizers.schedules.serialize(schedule))
    again = keras.optimizers.schedules.deserialize(json.loads(written))
    assert rates(again, [0, 7000]) == rates(schedule, [0, 7000])
    adam = keras.optimizers.Adam.from_config(keras.optimizers.Adam(schedule).get_config())
    assert float(adam.learning_rate) == pytest.approx(1.0)


def test_rates_are_float32_for_any_integer_step():
    for name in ("constant", "legacy", "constant*linear_warmup*cosdecay"):
        rate = learning_rate_schedule(settings(name))(keras.ops.cast(3, "int64"))
        assert keras.backend.standardize_dtype(rate.dtype) == "float32"
        assert tuple(rate.shape) == ()
