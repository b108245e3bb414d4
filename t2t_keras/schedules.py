"""T2T's learning rate schedules: products of named functions of the step."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import keras
from keras import ops

from t2t_keras.errors import UserError
from t2t_keras.settings import SETTINGS, HParams

__all__ = ["learning_rate_schedule"]

_Tensor = Any


def learning_rate_schedule(hp: HParams, train_steps: int | None = None) -> FactorSchedule:
    """Returns the schedule of `hp.learning_rate_schedule`, such as "constant*rsqrt_decay".

    Args:
        hp: the settings; only `hidden_size`, `optimizer`, `optimizer_multistep_accumulate_steps`
            and those whose names begin with `learning_rate` are read.
        train_steps: length of the training, for "linear_decay" and "single_cycle_cos_decay".

    Raises:
        UserError: a setting is not allowed, or a factor or decay scheme lacks one that it needs.
    """
    others = ("hidden_size", "optimizer", "optimizer_multistep_accumulate_steps")
    values = hp.to_dict()
    names = [name for name in values if name.startswith("learning_rate") or name in others]
    return FactorSchedule({name: values[name] for name in names} | {"train_steps": train_steps})


@keras.saving.register_keras_serializable(package="t2t_keras")
class FactorSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """T2T's `learning_rate_schedule` (utils/learning_rate.py), in float32.

    Step 0 is the first update. With `optimizer_multistep_accumulate_steps` = n, a step counts as 1/n.

    Its `settings` are T2T's by name, as `learning_rate_schedule` collects them.
    """

    def __init__(self, settings: dict[str, Any]):
        super().__init__()
        self.settings = dict(settings)
        for name, value in settings.items():
            if name in SETTINGS:
                SETTINGS[name].checked(name, value)
        self._factors = []
        for name in filter(None, map(str.strip, settings["learning_rate_schedule"].split("*"))):
            who = f"factor {name!r} of learning_rate_schedule"
            self._factors.append(_FACTORS[name](_Settings(who=who, **settings)))
        self._batches = settings["optimizer_multistep_accumulate_steps"] or 1

    def __call__(self, step: _Tensor) -> _Tensor:
        """Returns the learning rate of the update at `step`, a float32 scalar."""
        step = ops.cast(step, "float32") / self._batches
        rate = ops.ones((), "float32")
        for factor in self._factors:
            rate = rate * factor(step)
        return rate

    def get_config(self) -> dict[str, Any]:
        return {"settings": self.settings}


_Factor = Callable[[_Tensor], _Tensor]


class _Settings(SimpleNamespace):
    """The settings as one factor reads them; errors name the factor, `who`."""

    def positive(self, name: str) -> float:
        value = getattr(self, name)
        if value is None or value <= 0:
            raise UserError(f"{self.who} needs {name} above 0, got {value}")
        return value


def _linear_warmup(hp: _Settings) -> _Factor:
    warmup = hp.positive("learning_rate_warmup_steps")
    return lambda step: ops.minimum(1.0, step / warmup)


def _linear_decay(hp: _Settings) -> _Factor:
    """Falls from 1 to 0 in the last `learning_rate_decay_steps` steps of the training."""
    decay, end = hp.positive("learning_rate_decay_steps"), hp.positive("train_steps")
    return lambda step: ops.clip((end - step) / decay, 0.0, 1.0)


def _rsqrt_decay(hp: _Settings, normalized: bool = False) -> _Factor:
    warmup = hp.positive("learning_rate_warmup_steps")
    scale = warmup**0.5 if normalized else 1.0
    return lambda step: scale * ops.rsqrt(ops.maximum(step, float(warmup)))


def _exp_decay(hp: _Settings, from_step: float = 0.0) -> _Factor:
    decay, warmup = hp.positive("learning_rate_decay_steps"), hp.learning_rate_warmup_steps
    return lambda step: _power(hp, ops.maximum(step - warmup, from_step) / decay)


def _cosdecay(hp: _Settings) -> _Factor:
    """Stays at 1 during the warm-up, then follows a cosine that began at step 0."""
    decay, warmup = hp.positive("learning_rate_decay_steps"), hp.learning_rate_warmup_steps
    return lambda step: ops.where(step <= warmup, 1.0, _half_cosine(step, decay))


def _single_cycle_cos_decay(hp: _Settings) -> _Factor:
    """Follows a cosine from 1 at the end of the warm-up to 0 at the end of the training."""
    warmup = hp.learning_rate_warmup_steps
    length = hp.positive("train_steps") - warmup
    if length <= 0:
        raise UserError(
            f"{hp.who} needs more train_steps than learning_rate_warmup_steps ({warmup}), "
            f"got {hp.train_steps}"
        )
    return lambda step: _half_cosine(ops.maximum(step - warmup, 0.0), length)


def _multi_cycle_cos_decay(hp: _Settings) -> _Factor:
    """Follows a cosine from 1 at the end of the warm-up, with a period of twice the decay steps."""
    decay, warmup = hp.positive("learning_rate_decay_steps"), hp.learning_rate_warmup_steps
    return lambda step: _half_cosine(ops.maximum(step - warmup, 0.0), decay)


def _legacy(hp: _Settings) -> _Factor:
    """T2T's older schedules; "noam", with Adam and learning rate 0.1, is the paper's section 5.3.

    All others grow exponentially from 0.01 to 1 in the steps of the warm-up first.
    """
    scale = hp.learning_rate * (0.002 if "adam" in hp.optimizer else 1.0)
    scheme = hp.learning_rate_decay_scheme or "none"
    hp = _Settings(**{**vars(hp), "who": f"learning_rate_decay_scheme {scheme!r}"})
    multiplier = _SCHEMES[scheme](hp)
    warmup = hp.learning_rate_warmup_steps
    if scheme == "noam" or not warmup:
        return lambda step: scale * multiplier(step)

    def warmed_up(step: _Tensor) -> _Tensor:
        # The root and its power as in T2T: in float32 they do not cancel exactly.
        root = ops.exp(ops.log(ops.cast(0.01, "float32")) / warmup)
        return scale * ops.where(step < warmup, ops.power(root, warmup - step), multiplier(step))

    return warmed_up


def _noam(hp: _Settings) -> _Factor:
    warmup = hp.positive("learning_rate_warmup_steps")
    scale = 5000.0 * hp.hidden_size**-0.5
    return lambda step: scale * ops.minimum((step + 1) * warmup**-1.5, ops.rsqrt(step + 1))


def _piecewise(hp: _Settings) -> _Factor:
    """Is 1 up to the first of `learning_rate_boundaries`, and after each boundary its multiple."""
    steps = [float(step) for step in hp.learning_rate_boundaries]
    multiples = list(hp.learning_rate_multiples)
    if not steps or steps != sorted(set(steps)) or len(steps) != len(multiples):
        raise UserError(
            f"{hp.who} needs increasing learning_rate_boundaries and as many "
            f"learning_rate_multiples, got {steps} and {multiples}"
        )

    def multiple(step: _Tensor) -> _Tensor:
        rate = ops.ones((), "float32")
        for begins, value in zip(steps, multiples, strict=True):
            rate = ops.where(step > begins, value, rate)
        return rate

    return multiple


def _cosine(hp: _Settings) -> _Factor:
    cycle = hp.positive("learning_rate_cosine_cycle_steps")
    return lambda step: _half_cosine(cycle - ops.abs(cycle - ops.mod(step, 2.0 * cycle)), cycle)


def _cycle_linear_10x(hp: _Settings) -> _Factor:
    """Rises from 0.3 to 3 and falls back, each in `learning_rate_warmup_steps` steps."""
    cycle = hp.positive("learning_rate_warmup_steps")
    return lambda step: 3.0 * (1.1 - ops.abs(ops.mod(step, 2.0 * cycle) / cycle - 1.0))


def _power(hp: _Settings, exponent: _Tensor) -> _Tensor:
    exponent = ops.floor(exponent) if hp.learning_rate_decay_staircase else exponent
    return ops.power(hp.learning_rate_decay_rate, exponent)


def _half_cosine(position: _Tensor, length: float) -> _Tensor:
    """Returns half a period of a cosine: 1 at position 0, 0 at position `length`."""
    return 0.5 * (1.0 + ops.cos(math.pi * position / length))


_FACTORS: dict[str, Callable[[_Settings], _Factor]] = {
    "constant": lambda hp: lambda step: hp.learning_rate_constant,
    "linear_warmup": _linear_warmup,
    "linear_decay": _linear_decay,
    "rsqrt_decay": _rsqrt_decay,
    "rsqrt_normalized_decay": lambda hp: _rsqrt_decay(hp, normalized=True),
    "rsqrt_hidden_size": lambda hp: lambda step: hp.hidden_size**-0.5,
    "exp_decay": _exp_decay,
    "cosdecay": _cosdecay,
    "single_cycle_cos_decay": _single_cycle_cos_decay,
    "multi_cycle_cos_decay": _multi_cycle_cos_decay,
    "legacy": _legacy,
}

_SCHEMES: dict[str, Callable[[_Settings], _Factor]] = {
    "none": lambda hp: lambda step: 1.0,
    "noam": _noam,
    "exp": lambda hp: _exp_decay(hp, from_step=-math.inf),
    "piecewise": _piecewise,
    "cosine": _cosine,
    "cyclelinear10x": _cycle_linear_10x,
    "sqrt": lambda hp: (
        lambda step: 500.0 * ops.rsqrt(ops.maximum(step - hp.learning_rate_warmup_steps, 1.0))
    ),
}
