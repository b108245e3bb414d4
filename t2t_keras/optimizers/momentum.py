"""Gradient descent with and without momentum, as in TensorFlow 1."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from t2t_keras.optimizers.slots import Slots, dense_gradient, new_slot

_Variable = Any
_Array = Any


@keras.saving.register_keras_serializable("t2t_keras")
class Momentum(keras.optimizers.Optimizer):
    """Gradient descent with momentum, a decaying sum of gradients (T2T's "momentum").

    As in TensorFlow 1, the learning rate multiplies the sum. In `keras.optimizers.SGD` it multiplies
    each gradient before it is added, which differs if the rate changes.

    Args:
        learning_rate: a float or a schedule.
        momentum: decay of the sum at each update (T2T's `optimizer_momentum_momentum`).
        nesterov: True for Nesterov momentum (T2T's `optimizer_momentum_nesterov`).
        **kwargs: arguments of every Keras optimizer.
    """

    def __init__(self, learning_rate=0.01, *, momentum: float = 0.9, nesterov=False, **kwargs):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.momentum = momentum
        self.nesterov = nesterov

    def build(self, variables):
        """Creates a slot per Keras variable: the sum of its gradients."""
        if self.built:
            return
        super().build(variables)
        sums = [{"sum": new_slot(self, variable, "sum", variable.shape)} for variable in variables]
        self.slots = Slots(variables, sums)

    def update_step(self, gradient, variable, learning_rate):
        """Updates a variable from its gradient."""
        kept = self.slots[variable]["sum"]
        gradient = ops.cast(dense_gradient(gradient, variable), "float32")
        rate = ops.cast(learning_rate, "float32")
        total = self.momentum * ops.convert_to_tensor(kept) + gradient
        direction = gradient + self.momentum * total if self.nesterov else total
        self.assign(kept, total)
        self.assign_sub(variable, ops.cast(rate * direction, variable.dtype))

    def t2t_slots(self) -> dict[str, list[_Variable | None]]:
        """Returns the slot of each variable, in order, by T2T's slot name."""
        return self.slots.by_t2t_name("Momentum")

    def t2t_scalars(self) -> dict[str, _Array]:
        """Returns nothing: T2T has no other variables."""
        return {}

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "momentum": self.momentum, "nesterov": self.nesterov}


@keras.saving.register_keras_serializable("t2t_keras")
class SGD(keras.optimizers.SGD):
    """Plain gradient descent (T2T's "sgd"); the arguments are those of `keras.optimizers.SGD`."""

    def t2t_slots(self) -> dict[str, list[_Variable | None]]:
        """Returns nothing: T2T has no slots."""
        return {}

    def t2t_scalars(self) -> dict[str, _Array]:
        """Returns nothing: T2T has no other variables."""
        return {}
