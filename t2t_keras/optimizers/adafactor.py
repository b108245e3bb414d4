"""T2T's Adafactor: second moments per row and column instead of per weight."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from t2t_keras.errors import UserError, nearest
from t2t_keras.optimizers.slots import Slots, dense_gradient, new_slot

EPSILON_1 = 1e-30
"""Added to a squared gradient (T2T's `epsilon1`)."""

EPSILON_2 = 1e-3
"""Lower bound of a variable's root mean square as a factor of its rate (T2T's `epsilon2`)."""

_TABLE = re.compile(r"(^|/)(shared_embedding|source_embedding|target_embedding|softmax)/table$")

_Array = Any
_Tensor = Any
_Variable = Any


@keras.saving.register_keras_serializable("t2t_keras")
class Adafactor(keras.optimizers.Optimizer):
    """Adafactor (https://arxiv.org/abs/1804.04235; T2T's "adafactor", utils/adafactor.py).

    Everything is float32. The second moment of a variable with two or more dimensions is stored as
    its means over the last and over the second last dimension; the update is clipped by its root
    mean square; the learning rate is relative to the root mean square of the variable.

    Args:
        learning_rate: a float or a schedule.
        beta_1: decay of the mean of updates; 0 for none (T2T's `optimizer_adafactor_beta1`).
        beta_2: decay of the second moment if `decay_type` is "adam".
        decay_type: decay of the second moment at update t = 1, 2, ...: "pow" is
            1 - t^-memory_exponent, "adam" is beta_2 with Adam's bias correction.
        memory_exponent: see `decay_type`.
        clipping_threshold: the largest root mean square of an update, before the learning rate;
            None does not clip.
        factored: True stores second moments of matrices per row and column.
        multiply_by_parameter_scale: True makes the learning rate relative to the variable.
        table_shards: the number of pieces into which T2T splits an embedding table by rows
            (`symbol_modality_num_shards`). Each is a separate variable in T2T, with its own column
            moments, clipping and scale.
        **kwargs: arguments of every Keras optimizer.

    Raises:
        UserError: the decay type is unknown.
    """

    def __init__(
        self,
        learning_rate=0.001,
        *,
        beta_1: float = 0.0,
        beta_2: float = 0.999,
        decay_type: str = "pow",
        memory_exponent: float = 0.8,
        clipping_threshold: float | None = 1.0,
        factored: bool = True,
        multiply_by_parameter_scale: bool = True,
        table_shards: int = 1,
        **kwargs,
    ):
        super().__init__(learning_rate=learning_rate, **kwargs)
        if decay_type not in _DECAYS:
            raise UserError(
                f"unknown optimizer_adafactor_decay_type {decay_type!r}."
                f"{nearest(decay_type, _DECAYS)} Known: {', '.join(_DECAYS)}"
            )
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.decay_type = decay_type
        self.memory_exponent = memory_exponent
        self.clipping_threshold = clipping_threshold
        self.factored = factored
        self.multiply_by_parameter_scale = multiply_by_parameter_scale
        self.table_shards = table_shards

    def build(self, variables):
        """Creates the slots of these Keras variables.

        They are `m`, of the variable's shape; `vr` and `vc`, without its last and its second last
        dimension; or `v` if not factored. The `vc` of a table's shards are concatenated.
        """
        if self.built:
            return
        super().build(variables)
        self.shards = [
            min(self.table_shards, variable.shape[0]) if _TABLE.search(variable.path) else 1
            for variable in variables
        ]
        slots = []
        for variable, shards in zip(variables, self.shards, strict=True):
            shapes = self._slot_shapes(tuple(variable.shape), shards)
            slots.append({n: new_slot(self, variable, n, shape) for n, shape in shapes.items()})
        self.slots = Slots(variables, slots)

    def _slot_shapes(self, shape: tuple[int, ...], shards: int) -> dict[str, tuple[int, ...]]:
        shapes = {"m": shape} if self.beta_1 else {}
        if not self.factored or len(shape) < 2:
            return {**shapes, "v": shape}
        *outer, rows, columns = shape
        return {**shapes, "vr": (*outer, rows), "vc": (*outer, shards * columns)}

    def update_step(self, gradient, variable, learning_rate):
        """Updates a variable from its gradient."""
        place = self.slots.place(variable)
        shards = self.shards[place]
        longer = variable.shape[0] % shards if shards > 1 else 0
        kept = {"value": variable, **self.slots.by_variable[place]}
        old = {name: _cut(ops.cast(x, "float32"), shards, longer) for name, x in kept.items()}
        gradient = ops.cast(dense_gradient(gradient, variable), "float32")
        rate = ops.cast(learning_rate, "float32")
        decay = _DECAYS[self.decay_type](self, ops.cast(self.iterations, "float32") + 1.0)
        new = [
            self._updated(block, {name: old[name][i] for name in old}, rate, decay)
            for i, block in enumerate(_cut(gradient, shards, longer))
        ]
        for name, holder in kept.items():
            joined = _joined([block[name] for block in new], holder.shape)
            self.assign(holder, ops.cast(joined, holder.dtype))

    def _updated(
        self, gradient: _Tensor, old: dict[str, _Tensor], rate: _Tensor, decay: _Tensor
    ) -> dict[str, _Tensor]:
        """Returns the new values and slots of N T2T variables of the same shape.

        Args:
            gradient: [N, ...].
            old: their values and slots, [N, ...] each.
            rate: the learning rate.
            decay: decay of the second moment.
        """
        squared = ops.square(gradient) + EPSILON_1
        new = {}
        if "v" in old:
            new["v"] = decay * old["v"] + (1.0 - decay) * squared
            step = gradient * ops.rsqrt(new["v"])
        else:
            new["vr"] = decay * old["vr"] + (1.0 - decay) * ops.mean(squared, -1)
            new["vc"] = decay * old["vc"] + (1.0 - decay) * ops.mean(squared, -2)
            mean = ops.mean(new["vr"], -1, keepdims=True)
            step = gradient * ops.expand_dims(ops.rsqrt(new["vr"] / mean), -1)
            step = step * ops.expand_dims(ops.rsqrt(new["vc"]), -2)
        if self.clipping_threshold is not None:
            step = step / ops.maximum(1.0, _root_mean_square(step) / self.clipping_threshold)
        if self.multiply_by_parameter_scale:
            rate = rate * ops.maximum(_root_mean_square(old["value"]), EPSILON_2)
        step = rate * step
        if "m" in old:
            new["m"] = step = self.beta_1 * old["m"] + (1.0 - self.beta_1) * step
        new["value"] = old["value"] - step
        return new

    def t2t_slots(self) -> dict[str, list[_Variable | None]]:
        """T2T's slot names -> the slot (or None) of each variable, in order."""
        return self.slots.by_t2t_name("Adafactor")

    def t2t_scalars(self) -> dict[str, _Array]:
        """Returns nothing: T2T has no other variables."""
        return {}

    def get_config(self) -> dict[str, Any]:
        names = (
            *("beta_1", "beta_2", "decay_type", "memory_exponent", "clipping_threshold"),
            *("factored", "multiply_by_parameter_scale", "table_shards"),
        )
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def _pow_decay(optimizer: Adafactor, update: _Tensor) -> _Tensor:
    return 1.0 - ops.power(update, -optimizer.memory_exponent)


def _adam_decay(optimizer: Adafactor, update: _Tensor) -> _Tensor:
    beta = ops.cast(optimizer.beta_2, "float32")
    return beta * (1.0 - ops.power(beta, update - 1.0)) / (1.0 - ops.power(beta, update))


_DECAYS: dict[str, Callable[[Adafactor, _Tensor], _Tensor]] = {
    "pow": _pow_decay,
    "adam": _adam_decay,
}


def _cut(tensor: _Tensor, pieces: int, longer: int) -> list[_Tensor]:
    """Splits along the first axis, and stacks pieces of the same length: a list of [N, ...].

    The first `longer` pieces have one more row than the others, as in
    `checkpoints.names.split_table`.
    """
    length, *inner = tuple(tensor.shape) or (1,)
    size, rest = divmod(length, pieces)
    if not longer:
        return [ops.reshape(tensor, (pieces, size, *inner))]
    middle = longer * size + rest
    return [
        ops.reshape(tensor[:middle], (longer, middle // longer, *inner)),
        ops.reshape(tensor[middle:], (pieces - longer, size, *inner)),
    ]


def _joined(blocks: list[_Tensor], shape: Sequence[int]) -> _Tensor:
    flat = [ops.reshape(block, (-1, *block.shape[2:])) for block in blocks]
    return ops.reshape(flat[0] if len(flat) == 1 else ops.concatenate(flat), tuple(shape))


def _root_mean_square(tensor: _Tensor) -> _Tensor:
    """Returns the root mean square of each of N tensors: [N, ...] -> [N, 1, ...]."""
    axes = tuple(range(1, len(tensor.shape)))
    return ops.sqrt(ops.mean(ops.square(tensor), axis=axes, keepdims=True))
