"""The slots of an optimizer: found by variable, and listed by T2T's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

_Variable = Any


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
