"""Optimizers by T2T's names: Adam's numbers in float64, and what is refused."""

import keras
import numpy as np
import pytest

import t2t_keras as t2t
from t2t_keras.errors import UserError


def settings(overrides=""):
    return t2t.registry.hparams("transformer_base").override(overrides)


@pytest.mark.parametrize("name", ["adam", "true_adam"])
def test_adam_step_by_step(name):
    """lr_t = lr sqrt(1 - b2^t) / (1 - b1^t); epsilon beside the root, as in T2T (TensorFlow 1)."""
    hp = settings(
        f"optimizer={name},optimizer_adam_beta1=0.8,optimizer_adam_beta2=0.9,"
        "optimizer_adam_epsilon=0.01,learning_rate_warmup_steps=2"
    )
    optimizer = t2t.optimizers.create(hp)
    variable = keras.Variable(np.array([1.0, -2.0, 3.0], "float32"))
    optimizer.build([variable])
    schedule = t2t.schedules.learning_rate_schedule(hp)
    value, m, v = np.array([1.0, -2.0, 3.0]), 0.0, 0.0
    for t in range(1, 6):
        gradient = np.array([0.5, -0.1 * t, 0.0])
        m, v = 0.8 * m + 0.2 * gradient, 0.9 * v + 0.1 * gradient**2
        rate = float(schedule(t - 1)) * (1 - 0.9**t) ** 0.5 / (1 - 0.8**t)
        value = value - rate * m / (v**0.5 + 0.01)
        optimizer.apply([gradient.astype("float32")], [variable])
        np.testing.assert_allclose(variable, value, rtol=1e-5)
    assert int(optimizer.iterations) == 5


def test_the_first_update_has_the_rate_of_step_zero():
    """T2T's base schedule starts at 0, so its first update changes nothing."""
    optimizer = t2t.optimizers.create(settings())
    variable = keras.Variable(np.ones(2, "float32"))
    optimizer.build([variable])
    optimizer.apply([np.ones(2, "float32")], [variable])
    np.testing.assert_array_equal(variable, [1, 1])
    optimizer.apply([np.ones(2, "float32")], [variable])
    assert np.all(np.asarray(variable) < 1)


@pytest.mark.parametrize(
    ("overrides", "wanted"),
    [
        ("optimizer=adamm", "optimizer=adamm is not supported; allowed: adam, true_adam.*adam"),
        ("optimizer=adafactor", "optimizer=adafactor is not supported"),
        ("weight_decay=0.1", "weight_decay=0.1 is not supported; allowed: 0"),
    ],
)
def test_refused(overrides, wanted):
    with pytest.raises(UserError, match=wanted) as error:
        t2t.optimizers.create(settings(overrides))
    assert "\n" not in str(error.value)
