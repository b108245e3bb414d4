"""What the optimizers share: slots, gradients of tables, and T2T's weight decay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

_Tensor = Any
_Variable = Any


# ----------------------------------------------------------------------------
# The slots of an optimizer: found by variable, and listed by T2T's names.


class Slots:
    """What an optimizer keeps for each variable.

    Args:
        variables: Keras variables.
        by_variable: for each of them its slots by name, Keras variables, in the order in which T2T
            makes them.
    """

    def __init__(self, variables: Sequence[_Variable], by_variable: Sequence[dict[str, _Variable]]):
        self.by_variable = list(by_variable)
        self._known: list[_Variable] = []
        self._places: dict[int, int] = {}
        for place, variable in enumerate(variables):
            for same in _appearances(variable):
                self._known.append(same)  # or its id might come to mean another object
                self._places[id(same)] = place

    def place(self, variable: _Variable) -> int:
        """Which of the variables this is.

        Args:
            variable: the Keras variable, or what Keras hands to `update_step` in its place: the
                backend's variable, or one replica's part of that.
        """
        return self._places[id(variable)]

    def __getitem__(self, variable: _Variable) -> dict[str, _Variable]:
        """The slots of a variable (see `place`) by name."""
        return self.by_variable[self.place(variable)]

    def by_t2t_name(self, optimizer: str) -> dict[str, list[_Variable | None]]:
        """T2T's slot names -> for each variable, in their order, its slot or None.

        Args:
            optimizer: T2T's name of the optimizer. TensorFlow 1 calls a variable's slots `Adam`,
                `Adam_1`, `Adam_2`, in the order in which they are made.
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
    """Makes a slot of float32 zeros for `variable`."""
    path = variable.path.replace("/", "_")
    return optimizer.add_variable(shape=tuple(shape), dtype="float32", name=f"{path}_{name}")


def _appearances(variable: _Variable) -> list[_Variable]:
    """A Keras variable, the backend's variable in it, and the replicas' parts of that."""
    value = variable.value
    if not hasattr(value, "assign"):  # an array, which changes with every update
        return [variable]
    return [variable, value, *getattr(value, "values", ())]


# ----------------------------------------------------------------------------
# Gradients of looked-up rows as whole tensors, which T2T makes of them too.


def dense_gradient(gradient: _Tensor, variable: _Variable) -> _Tensor:
    """A gradient as one tensor of the variable's shape.

    Args:
        gradient: a tensor, or what TensorFlow has where rows were looked up: rows and their
            numbers, some more than once. (Keras's Adam would add up the squares of such rows
            instead of squaring their sum.)
        variable: to which it belongs.
    """
    if not hasattr(gradient, "indices"):
        return gradient
    return ops.add(ops.zeros(variable.shape, gradient.dtype), gradient)


# ----------------------------------------------------------------------------
# The weight decay that T2T adds to the loss, as gradients.


def is_decayed(name: str, variable: _Variable) -> bool:
    """Whether T2T decays a variable: every one but vectors whose name ends in "bias".

    Those are the biases of feed-forward layers and of layer normalisation, not its scales.

    Args:
        name: T2T's name of the variable, as `checkpoints.t2t_variables` has it.
        variable: the variable, or anything with its shape.
    """
    return not (len(variable.shape) == 1 and name.endswith("bias"))


def with_weight_decay(
    gradients: Sequence[_Tensor],
    variables: Sequence[_Variable],
    names: Sequence[str],
    rate: float,
) -> list[_Tensor]:
    """The gradients of a loss to which T2T's weight decay is added (utils/optimize.py).

    T2T adds `rate` / 2 times the sum of squares of the decayed variables to the mean loss per
    token, with every optimizer, before gradients are clipped. (With "adam_w" it does that too, on
    top of that optimizer's own decay.)

    Args:
        gradients: of the loss per token, one for each variable.
        variables: to which they belong.
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
