"""Creates the optimizer that the settings name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from t2t_keras import schedules
from t2t_keras.errors import UserError
from t2t_keras.optimizers.adafactor import Adafactor
from t2t_keras.optimizers.adam import Adam, AdamW, MultistepAdam
from t2t_keras.optimizers.momentum import SGD, Momentum
from t2t_keras.settings import HParams
from t2t_keras.t2t_names import snake_case


def create(
    hp: HParams, train_steps: int | None = None, **keras_arguments: Any
) -> keras.optimizers.Optimizer:
    """Returns the Keras optimizer of `hp.optimizer` with the schedule of `hp`.

    It gives its variables by T2T's names: `t2t_slots()` returns, for each slot name, a variable or
    None per variable of the model, in order; `t2t_scalars()` returns the others, float32 or int32
    scalars by name.

    Clipping by `hp.clip_grad_norm`, the loss of `hp.weight_decay` (`with_weight_decay`) and the
    mean over `hp.optimizer_multistep_accumulate_steps` batches are left to the training step, which
    sees the gradient of the whole batch.

    Args:
        hp: the settings.
        train_steps: length of the run, for schedules that decay towards its end.
        **keras_arguments: arguments of the Keras optimizer, for use without our training step, such
            as `global_clipnorm` and `gradient_accumulation_steps` for plain `model.fit`.

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
        learning_rate=schedules.learning_rate_schedule(hp, train_steps),
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
_OPTIMIZERS: dict[str, tuple[Callable[..., keras.optimizers.Optimizer], dict[str, str]]] = {
    "adam": (Adam, _ADAM),
    "true_adam": (Adam, _ADAM),
    "multistep_adam": (
        MultistepAdam,
        {**_ADAM, "accumulate_steps": "optimizer_multistep_accumulate_steps"},
    ),
    "adam_w": (AdamW, {**_ADAM, "decay": "weight_decay"}),
    "adafactor": (Adafactor, _ADAFACTOR),
    "momentum": (Momentum, _MOMENTUM),
    "sgd": (SGD, {}),
}
"""Class by T2T's name, and the setting of each of its arguments."""
