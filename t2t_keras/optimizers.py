"""Optimizers by T2T's names."""

from __future__ import annotations

import keras

from t2t_keras.errors import UserError, nearest
from t2t_keras.schedules import learning_rate_schedule
from t2t_keras.settings import HParams


def create(hp: HParams, train_steps: int | None = None) -> keras.optimizers.Optimizer:
    """Returns the Keras optimizer of `hp.optimizer` with the schedule of `hp`.

    T2T's "adam" (LazyAdam, which equals Adam because T2T makes its gradients dense) and
    "true_adam" are Keras's Adam with the same epsilon inside. Clipping by `hp.clip_grad_norm` is
    the training step's work, since it must see the gradient of the whole batch.

    Args:
        hp: the settings.
        train_steps: length of the run, for the schedules that decay towards its end.

    Raises:
        UserError: the optimizer or weight decay asked for is not offered.
    """
    names = ("adam", "true_adam")
    if hp.optimizer not in names:
        raise UserError(
            f"hparam optimizer={hp.optimizer} is not supported; allowed: {', '.join(names)}."
            f"{nearest(hp.optimizer, names)}"
        )
    if hp.weight_decay:
        raise UserError(f"hparam weight_decay={hp.weight_decay} is not supported; allowed: 0.")
    return keras.optimizers.Adam(
        learning_rate=learning_rate_schedule(hp, train_steps),
        beta_1=hp.optimizer_adam_beta1,
        beta_2=hp.optimizer_adam_beta2,
        epsilon=hp.optimizer_adam_epsilon,
    )
