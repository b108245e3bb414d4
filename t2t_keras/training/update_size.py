"""How many batches, and how large, make an update of `tokens_per_update` tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from t2t_keras.data import Batches
from t2t_keras.data.on_the_fly import TextBatches
from t2t_keras.errors import UserError
from t2t_keras.settings import HParams

SLACK = 0.1
"""How much an update may be off before batches are made smaller than `batch_size`."""

ON_THE_FLY = 0.75
"""Target tokens for each of `batch_size`, where lengths are not known beforehand."""


class UpdateSize(NamedTuple):
    """Of every step of a run."""

    batches: int  # for one step
    tokens: float  # target tokens of a step, on the average


def fit_to_update(
    batches_for: Callable[[HParams], Batches | TextBatches], hp: HParams, replicas: int
) -> tuple[Batches | TextBatches, UpdateSize]:
    """Returns the batches of a training, and how many of them make a step.

    Without `hp.tokens_per_update` a step is one batch. With it, a step takes as few batches as
    `hp.batch_size` lets, of that size if this comes within `SLACK` of the tokens, and else smaller.

    Args:
        batches_for: makes the batches of given settings.
        hp: the settings.
        replicas: of all hosts.

    Raises:
        UserError: `tokens_per_update` is negative, less than one token a replica, or set besides
            `optimizer_multistep_accumulate_steps`.
    """
    batches = batches_for(hp)
    wanted = hp.tokens_per_update
    if not wanted:
        return batches, UpdateSize(1, 0.0)
    if wanted < replicas:
        raise UserError(
            f"hparam tokens_per_update must be {replicas} or more, one for each replica, or 0 for "
            f"one batch, got {wanted}."
        )
    if hp.optimizer_multistep_accumulate_steps > 1:
        raise UserError(
            "hparams tokens_per_update and optimizer_multistep_accumulate_steps both say how many "
            "batches make an update: leave one of them at 0."
        )
    needed = wanted / _tokens(batches, hp, replicas)
    number = max(1, math.ceil(needed / (1 + SLACK)))
    if needed / number < 1 - SLACK:
        hp = hp.replace(batch_size=max(1, round(hp.batch_size * needed / number)))
        batches = batches_for(hp)
    return batches, UpdateSize(number, number * _tokens(batches, hp, replicas))


def _tokens(batches: Batches | TextBatches, hp: HParams, replicas: int) -> float:
    if isinstance(batches, Batches):
        return batches.target_tokens_per_batch
    return ON_THE_FLY * hp.batch_size * replicas
