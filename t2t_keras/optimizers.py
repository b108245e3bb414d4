"""T2T's optimizers as Keras optimizers; they import only Keras."""

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from t2t_keras import schedules
from t2t_keras.errors import UserError, require_one_of
from t2t_keras.settings import HParams
from t2t_keras.t2t_names import snake_case

__all__ = ["SGD", "Adafactor", "Adam", "AdamW", "Momentum", "MultistepAdam"]
__all__ += ["create", "is_decayed", "with_weight_decay"]

_Array = Any
_Tensor = Any
_Variable = Any

# Slots, and gradients of tables and with weight decay


class _WithSlots(keras.optimizers.Optimizer):
    """An optimizer with slots: variables that it keeps for each variable of the model."""

    t2t_name = ""

    def slot_shapes(self, place: int, variable: _Variable) -> dict[str, Sequence[int]]:
        """Returns the shape of each slot of a Keras variable, in the order in which T2T creates them."""
        return {}

    def build(self, variables):
        """Creates the slots of Keras variables, float32 zeros."""
        if self.built:
            return
        super().build(variables)
        self.slots: list[dict[str, _Variable]] = []
        self.places: dict[int, int] = {}  # by the id of what `update_step` may get for a variable
        for place, variable in enumerate(variables):
            path, slots = variable.path.replace("/", "_"), {}
            for name, shape in self.slot_shapes(place, variable).items():
                slots[name] = self.add_variable(shape, dtype="float32", name=f"{path}_{name}")
            self.slots.append(slots)
            self.places[id(variable)] = place
            if keras.backend.backend() == "tensorflow":  # its variable, or one replica's part of it
                parts = (variable.value, *getattr(variable.value, "values", ()))
                self.places |= {id(part): place for part in parts}

    def t2t_slots(self) -> dict[str, list[_Variable | None]]:
        """Returns T2T's slot names -> the slot (or None) of each variable, in order.

        TensorFlow 1 names a variable's slots `Adam`, `Adam_1`, `Adam_2`, in the order of their creation.
        """
        name, rows = self.t2t_name, itertools.zip_longest(*(s.values() for s in self.slots))
        return {f"{name}_{i}" if i else name: list(row) for i, row in enumerate(rows)}

    def t2t_scalars(self) -> dict[str, _Array]:
        """Returns nothing: T2T has no other variables."""
        return {}


def _dense_gradient(gradient: _Tensor, variable: _Variable) -> _Tensor:
    """Returns a gradient, which may be TensorFlow's `IndexedSlices`, as one tensor, as T2T does.

    (Keras's Adam would sum the squares of repeated rows instead of squaring their sum.)
    """
    if not hasattr(gradient, "indices"):
        return gradient
    return ops.add(ops.zeros(variable.shape, gradient.dtype), gradient)


def is_decayed(name: str, variable: _Variable) -> bool:
    """Returns True if T2T decays a variable: all except vectors whose T2T name ends in "bias".

    Not decayed are biases of feed-forward layers and of layer normalisation; its scales are.
    """
    return not (len(variable.shape) == 1 and name.endswith("bias"))


def with_weight_decay(
    gradients: Sequence[_Tensor], variables: Sequence[_Variable], names: Sequence[str], rate: float
) -> list[_Tensor]:
    """Returns the gradients of the loss with T2T's weight decay (utils/optimize.py).

    T2T adds `rate` / 2 times the sum of squares of the decayed variables to the mean loss per
    token, before gradients are clipped; also with "adam_w", which has a decay of its own.

    Args:
        gradients, variables: gradient of the mean loss per token for each variable.
        names: T2T's name of each variable, as in `checkpoints.t2t_variables`.
        rate: T2T's `weight_decay`.
    """
    if not rate:
        return list(gradients)
    return [
        _dense_gradient(gradient, variable) + rate * ops.cast(variable, gradient.dtype)
        if is_decayed(name, variable)
        else gradient
        for gradient, variable, name in zip(gradients, variables, names, strict=True)
    ]


# Adam. Keras's update adds epsilon outside the root, as TensorFlow 1 does


@keras.saving.register_keras_serializable("t2t_keras")
class Adam(keras.optimizers.Adam):
    """Adam (T2T's "true_adam", and "adam": LazyAdam, which is the same for T2T's dense gradients).

    The arguments are those of `keras.optimizers.Adam`.
    """

    slot_endings = {"Adam": "_momentum", "Adam_1": "_velocity"}
    """T2T's names of slots -> how Keras's names of them end."""

    def update_step(self, gradient, variable, learning_rate):
        """Updates a variable from its gradient."""
        super().update_step(_dense_gradient(gradient, variable), variable, learning_rate)

    def t2t_slots(self) -> dict[str, list[_Variable | None]]:
        """Returns T2T's slot names -> the slot of each variable, in order."""
        endings = self.slot_endings.items()
        found = {name: [v for v in self.variables if v.name.endswith(end)] for name, end in endings}
        return {name: slots for name, slots in found.items() if slots}

    def t2t_scalars(self) -> dict[str, _Array]:
        """Returns T2T's other variables: both betas to the power of the next update's number, float32."""
        update = int(ops.convert_to_numpy(self.iterations)) + 1
        return {
            f"training/beta{i}_power": ops.convert_to_numpy(ops.cast(beta**update, "float32"))
            for i, beta in ((1, self.beta_1), (2, self.beta_2))
        }


@keras.saving.register_keras_serializable("t2t_keras")
class MultistepAdam(Adam):
    """Adam on the mean gradient of several batches (T2T's "multistep_adam").

    Each of these gradients is already divided by the tokens of its batch. Moments and powers of beta
    count updates as steps; the learning rate counts batches (see `FactorSchedule`).

    The caller computes the mean: a training step that calls `update_step` with it, or Keras with as
    many `gradient_accumulation_steps`.

    Args:
        accumulate_steps: batches per update (T2T's `optimizer_multistep_accumulate_steps`).
        **kwargs: arguments of `keras.optimizers.Adam`.
    """

    slot_endings = {**Adam.slot_endings, "Adam_2": "_gradient_accumulator"}

    def __init__(self, *, accumulate_steps: int, **kwargs):
        super().__init__(**kwargs)
        self.accumulate_steps = accumulate_steps

    def apply(self, grads, trainable_variables=None):
        """Accumulates a batch's gradients and updates at every n-th batch; Keras's `fit` calls it.

        Raises:
            UserError: Keras does not accumulate `accumulate_steps` gradients.
        """
        if self.accumulate_steps not in (1, self.gradient_accumulation_steps):
            raise UserError(
                f"this optimizer updates after every {self.accumulate_steps} batches "
                "(optimizer_multistep_accumulate_steps), but Keras would update after every "
                f"{self.gradient_accumulation_steps or 1}: for model.fit, create it with "
                f"gradient_accumulation_steps={self.accumulate_steps}"
            )
        super().apply(grads, trainable_variables)

    def t2t_scalars(self) -> dict[str, _Array]:
        """Returns Adam's scalars, and `iter` if Keras counts batches: 0 before an updating batch."""
        scalars = super().t2t_scalars()
        if self.gradient_accumulation_steps:
            (batches,) = (v for v in self.variables if v.name == "iteration")
            phase = (int(batches) + 1) % self.gradient_accumulation_steps
            scalars["training/iter"] = ops.convert_to_numpy(ops.cast(phase, "int32"))
        return scalars

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "accumulate_steps": self.accumulate_steps}


@keras.saving.register_keras_serializable("t2t_keras")
class AdamW(Adam):
    """Adam after a decay of every variable (T2T's "adam_w").

    Each update first reduces a variable by the fraction `decay`, independent of the learning rate
    (Keras's `AdamW` multiplies the two).

    Args:
        decay: T2T's `weight_decay`.
        **kwargs: arguments of `keras.optimizers.Adam`.
    """

    slot_endings = {"AdamW": "_momentum", "AdamW_1": "_velocity"}

    def __init__(self, *, decay: float, **kwargs):
        super().__init__(**kwargs)
        self.decay = decay

    def exclude_from_weight_decay(self, var_list=None, var_names=None):
        """Raises UserError: the decay is of every variable."""
        raise UserError("AdamW decays every variable: use keras.optimizers.AdamW to exclude some.")

    def update_step(self, gradient, variable, learning_rate):
        """Decays a variable and then updates it from its gradient."""
        self.assign_sub(variable, ops.multiply(variable, self.decay))
        super().update_step(gradient, variable, learning_rate)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "decay": self.decay}


# Gradient descent with and without momentum, as in TensorFlow 1


@keras.saving.register_keras_serializable("t2t_keras")
class Momentum(_WithSlots):
    """Gradient descent with momentum, a decaying sum of gradients (T2T's "momentum").

    As in TensorFlow 1, the learning rate multiplies the sum. In `keras.optimizers.SGD` it multiplies
    each gradient before it is added, which differs if the rate changes.

    Args:
        learning_rate: a float or a schedule.
        momentum: decay of the sum at each update (T2T's `optimizer_momentum_momentum`).
        nesterov: True for Nesterov momentum (T2T's `optimizer_momentum_nesterov`).
        **kwargs: arguments of every Keras optimizer.
    """

    t2t_name = "Momentum"

    def __init__(self, learning_rate=0.01, *, momentum: float = 0.9, nesterov=False, **kwargs):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.momentum, self.nesterov = momentum, nesterov

    def slot_shapes(self, place, variable):
        return {"sum": variable.shape}

    def update_step(self, gradient, variable, learning_rate):
        """Updates a variable from its gradient."""
        kept = self.slots[self.places[id(variable)]]["sum"]
        gradient = ops.cast(_dense_gradient(gradient, variable), "float32")
        rate = ops.cast(learning_rate, "float32")
        total = self.momentum * ops.convert_to_tensor(kept) + gradient
        direction = gradient + self.momentum * total if self.nesterov else total
        self.assign(kept, total)
        self.assign_sub(variable, ops.cast(rate * direction, variable.dtype))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "momentum": self.momentum, "nesterov": self.nesterov}


@keras.saving.register_keras_serializable("t2t_keras")
class SGD(_WithSlots, keras.optimizers.SGD):
    """Plain gradient descent (T2T's "sgd"); the arguments are those of `keras.optimizers.SGD`."""


# Adafactor: second moments per row and column instead of per weight

_EPSILON_1 = 1e-30
"""Added to a squared gradient (T2T's `epsilon1`)."""

_EPSILON_2 = 1e-3
"""Lower bound of a variable's root mean square as a factor of its rate (T2T's `epsilon2`)."""

_TABLE = re.compile(r"(^|/)(shared_embedding|source_embedding|target_embedding|softmax)/table$")


@keras.saving.register_keras_serializable("t2t_keras")
class Adafactor(_WithSlots):
    """Adafactor (https://arxiv.org/abs/1804.04235; T2T's "adafactor", utils/adafactor.py).

    Everything is float32. The second moment of a variable with two or more dimensions is stored as
    its means over the last and over the second last dimension; the update is clipped by its root
    mean square; the learning rate is relative to the root mean square of the variable.

    Args:
        learning_rate: a float or a schedule.
        beta_1: decay of the mean of updates; 0 for none (T2T's `optimizer_adafactor_beta1`).
        beta_2: decay of the second moment if `decay_type` is "adam".
        decay_type: decay of the second moment at update t = 1, 2, ...: "pow" is
            1 - t^-memory_exponent, "adam" is beta_2 with Adam's bias correction; others are a `UserError`.
        memory_exponent: see `decay_type`.
        clipping_threshold: the largest root mean square of an update before the rate, or None.
        factored: True stores second moments of matrices per row and column.
        multiply_by_parameter_scale: True makes the learning rate relative to the variable.
        table_shards: the number of pieces into which T2T splits an embedding table by rows
            (`symbol_modality_num_shards`). Each is a separate variable in T2T, with its own column
            moments, clipping and scale.
        **kwargs: arguments of every Keras optimizer.
    """

    t2t_name = "Adafactor"

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
        require_one_of("optimizer_adafactor_decay_type", decay_type, ("pow", "adam"))
        self.beta_1, self.beta_2 = beta_1, beta_2
        self.decay_type, self.memory_exponent = decay_type, memory_exponent
        self.clipping_threshold, self.factored = clipping_threshold, factored
        self.multiply_by_parameter_scale = multiply_by_parameter_scale
        self.table_shards = table_shards

    def build(self, variables):
        self.shards = [  # the number of pieces into which T2T splits a variable by rows
            self.table_shards if _TABLE.search(variable.path) else 1 for variable in variables
        ]
        super().build(variables)

    def slot_shapes(self, place, variable):
        """Returns the shapes of the mean update `m` and of the second moment `v`.

        If factored, that is `vr` and `vc`, without the variable's last and its second last dimension;
        the `vc` of a table's shards are concatenated.
        """
        shape = tuple(variable.shape)
        shapes = {"m": shape} if self.beta_1 else {}
        if not self.factored or len(shape) < 2:
            return {**shapes, "v": shape}
        *outer, rows, columns = shape
        return {**shapes, "vr": (*outer, rows), "vc": (*outer, self.shards[place] * columns)}

    def update_step(self, gradient, variable, learning_rate):
        """Updates a variable from its gradient."""
        place = self.places[id(variable)]
        shards = self.shards[place]
        longer = variable.shape[0] % shards if shards > 1 else 0
        kept = {"value": variable, **self.slots[place]}
        old = {name: _cut(ops.cast(x, "float32"), shards, longer) for name, x in kept.items()}
        gradient = ops.cast(_dense_gradient(gradient, variable), "float32")
        rate = ops.cast(learning_rate, "float32")
        update = ops.cast(self.iterations, "float32") + 1.0
        if self.decay_type == "pow":
            decay = 1.0 - ops.power(update, -self.memory_exponent)
        else:
            beta = ops.cast(self.beta_2, "float32")
            decay = beta * (1.0 - ops.power(beta, update - 1.0)) / (1.0 - ops.power(beta, update))
        new = [
            self._updated(block, {name: old[name][i] for name in old}, rate, decay)
            for i, block in enumerate(_cut(gradient, shards, longer))
        ]
        for name, holder in kept.items():
            flat = [ops.reshape(block[name], (-1, *block[name].shape[2:])) for block in new]
            joined = flat[0] if len(flat) == 1 else ops.concatenate(flat)
            self.assign(holder, ops.cast(ops.reshape(joined, tuple(holder.shape)), holder.dtype))

    def _updated(
        self, gradient: _Tensor, old: dict[str, _Tensor], rate: _Tensor, decay: _Tensor
    ) -> dict[str, _Tensor]:
        """Returns the new values and slots of N T2T variables of the same shape, [N, ...] each."""
        squared = ops.square(gradient) + _EPSILON_1
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
            rate = rate * ops.maximum(_root_mean_square(old["value"]), _EPSILON_2)
        step = rate * step
        if "m" in old:
            new["m"] = step = self.beta_1 * old["m"] + (1.0 - self.beta_1) * step
        new["value"] = old["value"] - step
        return new

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **{name: getattr(self, name) for name in _ADAFACTOR}}


def _cut(tensor: _Tensor, pieces: int, longer: int) -> list[_Tensor]:
    """Splits along the first axis, and stacks pieces of the same length: a list of [N, ...].

    The first `longer` pieces have one more row, as in `checkpoints.names.split_table`.
    """
    tensor = ops.reshape(tensor, (-1, *tensor.shape[1:]))  # a scalar gets an axis
    size, rest = divmod(tensor.shape[0], pieces)
    middle = longer * size + rest
    parts = ((tensor[:middle], longer), (tensor[middle:], pieces - longer))
    return [ops.reshape(part, (n, part.shape[0] // n, *tensor.shape[1:])) for part, n in parts if n]


def _root_mean_square(tensor: _Tensor) -> _Tensor:
    """Returns the root mean square of each of N tensors: [N, ...] -> [N, 1, ...]."""
    axes = tuple(range(1, len(tensor.shape)))
    return ops.sqrt(ops.mean(ops.square(tensor), axis=axes, keepdims=True))


# By settings


def create(
    hp: HParams,
    train_steps: int | None = None,
    schedule: schedules.FactorSchedule | None = None,
    **keras_arguments: Any,
) -> keras.optimizers.Optimizer:
    """Returns the Keras optimizer of `hp.optimizer` with the schedule of `hp`.

    It gives its variables by T2T's names: `t2t_slots()` returns, for each slot name, a variable or None per
    variable of the model, in order; `t2t_scalars()` returns the others, float32 or int32 scalars by name.

    Clipping by `hp.clip_grad_norm`, the loss of `hp.weight_decay` (`with_weight_decay`) and the
    mean over `hp.optimizer_multistep_accumulate_steps` batches are left to the training step, which
    sees the gradient of the whole batch.

    Args:
        hp: the settings.
        train_steps: length of the run, for schedules that decay towards its end.
        schedule: the schedule of `hp`, if there is one already.
        **keras_arguments: for use without our training step, such as `global_clipnorm` and
            `gradient_accumulation_steps` for plain `model.fit`.

    Raises:
        UserError: a setting is not allowed, or the optimizer or schedule lacks one that it needs.
    """
    hp.check("training")  # settings from a record have not been checked yet
    name = snake_case(hp.optimizer)  # T2T's sets write both adafactor and Adafactor
    make, settings = _OPTIMIZERS[name]
    if name == "multistep_adam" and hp.optimizer_multistep_accumulate_steps < 1:
        raise UserError(
            "optimizer=multistep_adam needs optimizer_multistep_accumulate_steps of 1 or more, "
            f"got {hp.optimizer_multistep_accumulate_steps}"
        )
    return make(
        learning_rate=schedule or schedules.learning_rate_schedule(hp, train_steps),
        **{keyword: getattr(hp, setting) for keyword, setting in settings.items()},
        **keras_arguments,
    )


_ADAM = {
    "beta_1": "optimizer_adam_beta1",
    "beta_2": "optimizer_adam_beta2",
    "epsilon": "optimizer_adam_epsilon",
}
_ADAFACTOR = {
    "beta_1": "optimizer_adafactor_beta1",
    "beta_2": "optimizer_adafactor_beta2",
    "decay_type": "optimizer_adafactor_decay_type",
    "memory_exponent": "optimizer_adafactor_memory_exponent",
    "clipping_threshold": "optimizer_adafactor_clipping_threshold",
    "factored": "optimizer_adafactor_factored",
    "multiply_by_parameter_scale": "optimizer_adafactor_multiply_by_parameter_scale",
    "table_shards": "symbol_modality_num_shards",
}
_MOMENTUM = {"momentum": "optimizer_momentum_momentum", "nesterov": "optimizer_momentum_nesterov"}
WITH_SLOTS = (Adam, _WithSlots)
"""The classes whose `t2t_slots` checkpoints hold."""

_MULTISTEP_ADAM = {**_ADAM, "accumulate_steps": "optimizer_multistep_accumulate_steps"}
_OPTIMIZERS: dict[str, tuple[Callable[..., keras.optimizers.Optimizer], dict[str, str]]] = {
    "adam": (Adam, _ADAM),
    "true_adam": (Adam, _ADAM),
    "multistep_adam": (MultistepAdam, _MULTISTEP_ADAM),
    "adam_w": (AdamW, {**_ADAM, "decay": "weight_decay"}),
    "adafactor": (Adafactor, _ADAFACTOR),
    "momentum": (Momentum, _MOMENTUM),
    "sgd": (SGD, {}),
}
"""Class by T2T's name, and the setting of each of its arguments."""
