"""The exponential moving average of the weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf


class MovingAverage:
    """average = decay * average + (1 - decay) * weight after every update; the first is a copy.

    Made under the strategy's scope.

    Args:
        variables: the model's.
        decay: between 0 and 1.
    """

    def __init__(self, variables, decay: float):
        self.variables = list(variables)
        self.decay = decay
        self.updates = keras.Variable(0, dtype="int64", trainable=False, name="ema_updates")
        self.averages = [
            keras.Variable(
                tf.zeros(variable.shape), dtype="float32", trainable=False, name="average"
            )
            for variable in self.variables
        ]

    def update(self) -> None:
        """Takes the weights of now into account."""
        decay = tf.where(self.updates > 0, self.decay, 0.0)
        for average, variable in zip(self.averages, self.variables, strict=True):
            average.assign(average + (1.0 - decay) * (variable - average))
        self.updates.assign(self.updates + 1)

    def state(self, names) -> dict[str, keras.Variable]:
        """The variables, by name.

        Args:
            names: of the model's variables.
        """
        averages = {
            f"{name}/ema": average for name, average in zip(names, self.averages, strict=True)
        }
        return {"ema_updates": self.updates, **averages}

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """The model holds the averages inside; nothing happens before the first update."""
        if not int(np.asarray(self.updates)):
            yield
            return
        weights = [tf.identity(variable.value) for variable in self.variables]
        _assign(self.variables, [average.value for average in self.averages])
        try:
            yield
        finally:
            _assign(self.variables, weights)


def _assign(variables, values) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(tf.identity(value))
