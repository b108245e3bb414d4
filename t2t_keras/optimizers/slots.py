"""The common parts of T2T's optimizers: slots by variable, dense gradients of tables, weight decay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

_Tensor = Any
_Variable = Any


class Slots:
    """The slots of an optimizer: the variables that it keeps for each variable of the model.

    Args:
        variables: Keras variables.
        by_variable: the slots of each variable by name, Keras variables, in the order in which T2T
            creates them.
    """

    def __init__(self, variables: Sequence[_Variable], by_variable: Sequence[dict[str, _Variable]]):
        self.by_variable = list(by_variable)
        self._known: list[_Variable] = []
        self._places: dict[int, int] = {}
        for place, variable in enumerate(variables):
            for same in _appearances(variable):
                self._known.append(same)  # kept alive, so that no other object gets its id
                self._places[id(same)] = place

    def place(self, variable: _Variable) -> int:
        """Returns the index of a variable.

        Args:
            variable: the Keras variable, or what Keras passes to `update_step` instead: the backend's
                variable, or one replica's part of that.
        """
        return self._places[id(variable)]

    def __getitem__(self, variable: _Variable) -> dict[str, _Variable]:
        """Returns the slots of a variable (see `place`) by name."""
        return self.by_variable[self.place(variable)]

    def by_t2t_name(self, optimizer: str) -> dict[str, list[_Variable | None]]:
        """Returns T2T's slot names -> the slot (or None) of each variable, in order.

        Args:
            optimizer: T2T's name of the optimizer. TensorFlow 1 names a variable's slots `Adam`,
                `Adam_1`, `Adam_2`, in the order of their creation.
        """
        rows = [list(slots.values()) for slots in self.by_variable]
        return {
            f"{optimizer}_{i}" if i else optimizer: [
                row[i] if i < len(row) else None for row in rows
            ]
            for i in range(max(len(row) for row in rows))
        }


def new_slot(
    optimizer: keras.optimizers.Optimizer, variable: _Variable, name: str, shape: Sequence[int]
) -> _Variable:
    """Creates a slot of float32 zeros for `variable`."""
    path = variable.path.replace("/", "_")
    return optimizer.add_variable(shape=tuple(shape), dtype="float32", name=f"{path}_{name}")


def _appearances(variable: _Variable) -> list[_Variable]:
    """Returns a Keras variable, its backend variable, and each replica's part of that."""
    value = variable.value
    if not hasattr(value, "assign"):  # JAX's array, which every update replaces
        return [variable]
    return [variable, value, *getattr(value, "values", ())]


def dense_gradient(gradient: _Tensor, variable: _Variable) -> _Tensor:
    """Returns a gradient as one tensor of the variable's shape, as T2T does.

    Args:
        gradient: a tensor, or TensorFlow's `IndexedSlices` of looked-up rows, which may repeat.
            (Keras's Adam would sum the squares of repeated rows instead of squaring their sum.)
        variable: its variable.
    """
    if not hasattr(gradient, "indices"):
        return gradient
    return ops.add(ops.zeros(variable.shape, gradient.dtype), gradient)


def is_decayed(name: str, variable: _Variable) -> bool:
    """Returns True if T2T decays a variable: all except vectors whose name ends in "bias".

    Not decayed are biases of feed-forward layers and of layer normalisation; its scales are.

    Args:
        name: T2T's name of the variable, as in `checkpoints.t2t_variables`.
        variable: the variable, or anything with its shape.
    """
    return not (len(variable.shape) == 1 and name.endswith("bias"))


def with_weight_decay(
    gradients: Sequence[_Tensor], variables: Sequence[_Variable], names: Sequence[str], rate: float
) -> list[_Tensor]:
    """Returns the gradients of the loss with T2T's weight decay (utils/optimize.py).

    T2T adds `rate` / 2 times the sum of squares of the decayed variables to the mean loss per
    token, before gradients are clipped, with every optimizer, even "adam_w", which has a decay of
    its own.

    Args:
        gradients: gradient of the mean loss per token for each variable.
        variables: the variables.
        names: T2T's name of each variable.
        rate: T2T's `weight_decay`.
    """
    if not rate:
        return list(gradients)
    return [
        dense_gradient(gradient, variable) + rate * ops.cast(variable, gradient.dtype)
        if is_decayed(name, variable)
        else gradient
        for gradient, variable, name in zip(gradients, variables, names, strict=True)
    ]
