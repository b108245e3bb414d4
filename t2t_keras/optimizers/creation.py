"""Optimizers by T2T's names."""

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

    Besides what every Keras optimizer has, it tells its variables by T2T's names: `t2t_slots()`
    gives for each slot name one variable or None for each variable of the model, in their order,
    and `t2t_scalars()` the rest, float32 or int32 scalars by name.

    Clipping by `hp.clip_grad_norm`, the loss of `hp.weight_decay` (`with_weight_decay`) and the
    mean over `hp.optimizer_multistep_accumulate_steps` batches are the training step's work, which
    sees the gradient of the whole batch.

    Args:
        hp: the settings.
        train_steps: length of the run, for the schedules that decay towards its end.
        **keras_arguments: more for the optimizer, where no training step of ours does that work:
            in plain `model.fit`, say, `global_clipnorm` and `gradient_accumulation_steps`.

    Raises:
        UserError: a setting is not allowed, or the optimizer or schedule lacks one that it needs.
    """
    hp.check("training")  # a record is taken as it is
    name = snake_case(hp.optimizer)  # T2T's sets write both adafactor and Adafactor
    make, settings = _MAKERS[name]
    return make(
        learning_rate=schedules.learning_rate_schedule(hp, train_steps),
        **settings(hp),
        **keras_arguments,
    )


def _adam(hp: HParams) -> dict[str, Any]:
    return {
        "beta_1": hp.optimizer_adam_beta1,
        "beta_2": hp.optimizer_adam_beta2,
        "epsilon": hp.optimizer_adam_epsilon,
    }


def _multistep_adam(hp: HParams) -> dict[str, Any]:
    batches = hp.optimizer_multistep_accumulate_steps
    if batches < 1:
        raise UserError(
            "optimizer=multistep_adam needs optimizer_multistep_accumulate_steps of 1 or more, "
            f"got {batches}"
        )
    return {**_adam(hp), "accumulate_steps": batches}


def _adam_w(hp: HParams) -> dict[str, Any]:
    return {**_adam(hp), "decay": hp.weight_decay}


def _adafactor(hp: HParams) -> dict[str, Any]:
    return {
        "beta_1": hp.optimizer_adafactor_beta1,
        "beta_2": hp.optimizer_adafactor_beta2,
        "decay_type": hp.optimizer_adafactor_decay_type,
        "memory_exponent": hp.optimizer_adafactor_memory_exponent,
        "clipping_threshold": hp.optimizer_adafactor_clipping_threshold,
        "factored": hp.optimizer_adafactor_factored,
        "multiply_by_parameter_scale": hp.optimizer_adafactor_multiply_by_parameter_scale,
        "table_shards": hp.symbol_modality_num_shards,
    }


def _momentum(hp: HParams) -> dict[str, Any]:
    return {
        "momentum": hp.optimizer_momentum_momentum,
        "nesterov": hp.optimizer_momentum_nesterov,
    }


def _sgd(hp: HParams) -> dict[str, Any]:
    return {}


_Maker = Callable[..., keras.optimizers.Optimizer]

_MAKERS: dict[str, tuple[_Maker, Callable[[HParams], dict[str, Any]]]] = {
    "adam": (Adam, _adam),
    "true_adam": (Adam, _adam),
    "multistep_adam": (MultistepAdam, _multistep_adam),
    "adam_w": (AdamW, _adam_w),
    "adafactor": (Adafactor, _adafactor),
    "momentum": (Momentum, _momentum),
    "sgd": (SGD, _sgd),
}
