"""T2T's learning rate schedules: products of named functions of the step."""

from __future__ import annotations

import math
from collections.abc import Callable
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
        train_steps: length of the training; only "linear_decay" and "single_cycle_cos_decay"
            need it.

    Raises:
        UserError: a setting is not allowed, or a factor or decay scheme lacks one that it needs.
    """
    names = ("hidden_size", "optimizer", "optimizer_multistep_accumulate_steps")
    settings = {
        name: value
        for name, value in hp.to_dict().items()
        if name in names or name.startswith("learning_rate")
    }
    return FactorSchedule({**settings, "train_steps": train_steps})


@keras.saving.register_keras_serializable(package="t2t_keras")
class FactorSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """T2T's `learning_rate_schedule` (utils/learning_rate.py), in float32.

    Step 0 is the first update. With an optimizer that accumulates n gradients for each update, a
    step counts as 1/n.

    Args:
        settings: T2T's settings by name, as `learning_rate_schedule` collects them.
    """

    def __init__(self, settings: dict[str, Any]):
        super().__init__()
        self.settings = dict(settings)
        for name, value in settings.items():
            if name in SETTINGS:
                SETTINGS[name].checked(name, value)
        written = settings["learning_rate_schedule"]
        self._factors = [_factor(n.strip(), settings) for n in written.split("*") if n.strip()]
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


def _factor(name: str, settings: dict[str, Any]) -> _Factor:
    return _FACTORS[name](_FactorSettings(f"factor {name!r} of learning_rate_schedule", settings))


class _FactorSettings:
    """The settings as one factor reads them; errors name the factor."""

    def __init__(self, who: str, settings: dict[str, Any]):
        self.who = who
        self.settings = settings

    def __getattr__(self, name: str) -> Any:
        return self.settings[name]

    def positive(self, name: str) -> float:
        value = self.settings[name]
        if value is None or value <= 0:
            raise UserError(f"{self.who} needs {name} above 0, got {value}")
        return value


def _constant(hp: _FactorSettings) -> _Factor:
    return lambda step: hp.learning_rate_constant


def _rsqrt_hidden_size(hp: _FactorSettings) -> _Factor:
    return lambda step: hp.hidden_size**-0.5


def _linear_warmup(hp: _FactorSettings) -> _Factor:
    warmup = hp.positive("learning_rate_warmup_steps")
    return lambda step: ops.minimum(1.0, step / warmup)


def _linear_decay(hp: _FactorSettings) -> _Factor:
    """Falls from 1 to 0 in the last `learning_rate_decay_steps` steps of the training."""
    decay = hp.positive("learning_rate_decay_steps")
    end = hp.positive("train_steps")
    return lambda step: ops.clip((end - step) / decay, 0.0, 1.0)


def _rsqrt_decay(hp: _FactorSettings) -> _Factor:
    warmup = hp.positive("learning_rate_warmup_steps")
    return lambda step: ops.rsqrt(ops.maximum(step, float(warmup)))


def _rsqrt_normalized_decay(hp: _FactorSettings) -> _Factor:
    warmup = hp.positive("learning_rate_warmup_steps")
    return lambda step: warmup**0.5 * ops.rsqrt(ops.maximum(step, float(warmup)))


def _exp_decay(hp: _FactorSettings) -> _Factor:
    progress = _steps_after_warmup(hp)
    decay = hp.positive("learning_rate_decay_steps")
    return lambda step: _power(hp, progress(step) / decay)


def _cosdecay(hp: _FactorSettings) -> _Factor:
    """Stays at 1 during the warm-up, then follows a cosine that began at step 0."""
    decay = hp.positive("learning_rate_decay_steps")
    warmup = hp.learning_rate_warmup_steps
    return lambda step: ops.where(step <= warmup, 1.0, _half_cosine(step, decay))


def _single_cycle_cos_decay(hp: _FactorSettings) -> _Factor:
    """Follows a cosine from 1 at the end of the warm-up to 0 at the end of the training."""
    progress = _steps_after_warmup(hp)
    length = hp.positive("train_steps") - hp.learning_rate_warmup_steps
    if length <= 0:
        raise UserError(
            f"{hp.who} needs more train_steps than learning_rate_warmup_steps "
            f"({hp.learning_rate_warmup_steps}), got {hp.train_steps}"
        )
    return lambda step: _half_cosine(progress(step), length)


def _multi_cycle_cos_decay(hp: _FactorSettings) -> _Factor:
    """Follows a cosine from 1 at the end of the warm-up, with a period of twice the decay steps."""
    progress = _steps_after_warmup(hp)
    decay = hp.positive("learning_rate_decay_steps")
    return lambda step: _half_cosine(progress(step), decay)


def _legacy(hp: _FactorSettings) -> _Factor:
    """T2T's older schedules; "noam", with Adam and learning rate 0.1, is the paper's section 5.3."""
    scale = hp.learning_rate * (0.002 if "adam" in hp.optimizer else 1.0)
    scheme = hp.learning_rate_decay_scheme or "none"
    multiplier = _SCHEMES[scheme](
        _FactorSettings(f"learning_rate_decay_scheme {scheme!r}", hp.settings)
    )
    return lambda step: scale * multiplier(step)


def _noam(hp: _FactorSettings) -> _Factor:
    warmup = hp.positive("learning_rate_warmup_steps")
    scale = 5000.0 * hp.hidden_size**-0.5
    return lambda step: scale * ops.minimum((step + 1) * warmup**-1.5, ops.rsqrt(step + 1))


def _warmed_up(decay: Callable[[_FactorSettings], _Factor]) -> Callable[[_FactorSettings], _Factor]:
    """Grows exponentially from 0.01 to 1 during the warm-up, then follows `decay`."""

    def factor(hp: _FactorSettings) -> _Factor:
        warmup, decayed = hp.learning_rate_warmup_steps, decay(hp)
        if not warmup:
            return decayed

        def risen_or_decayed(step: _Tensor) -> _Tensor:
            # The root and its power as in T2T: in float32 they do not cancel exactly.
            root = ops.exp(ops.log(ops.cast(0.01, "float32")) / warmup)
            return ops.where(step < warmup, ops.power(root, warmup - step), decayed(step))

        return risen_or_decayed

    return factor


def _no_decay(hp: _FactorSettings) -> _Factor:
    return lambda step: 1.0


def _exponential(hp: _FactorSettings) -> _Factor:
    decay = hp.positive("learning_rate_decay_steps")
    return lambda step: _power(hp, (step - hp.learning_rate_warmup_steps) / decay)


def _piecewise(hp: _FactorSettings) -> _Factor:
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


def _cosine(hp: _FactorSettings) -> _Factor:
    cycle = hp.positive("learning_rate_cosine_cycle_steps")
    return lambda step: _half_cosine(cycle - ops.abs(cycle - ops.mod(step, 2.0 * cycle)), cycle)


def _cycle_linear_10x(hp: _FactorSettings) -> _Factor:
    """Rises from 0.3 to 3 and falls back, each in `learning_rate_warmup_steps` steps."""
    cycle = hp.positive("learning_rate_warmup_steps")
    return lambda step: 3.0 * (1.1 - ops.abs(ops.mod(step, 2.0 * cycle) / cycle - 1.0))


def _sqrt(hp: _FactorSettings) -> _Factor:
    warmup = hp.learning_rate_warmup_steps
    return lambda step: 500.0 * ops.rsqrt(ops.maximum(step - warmup, 1.0))


def _steps_after_warmup(hp: _FactorSettings) -> _Factor:
    return lambda step: ops.maximum(step - hp.learning_rate_warmup_steps, 0.0)


def _power(hp: _FactorSettings, exponent: _Tensor) -> _Tensor:
    exponent = ops.floor(exponent) if hp.learning_rate_decay_staircase else exponent
    return ops.power(hp.learning_rate_decay_rate, exponent)


def _half_cosine(position: _Tensor, length: float) -> _Tensor:
    """Returns half a period of a cosine: 1 at position 0, 0 at position `length`."""
    return 0.5 * (1.0 + ops.cos(math.pi * position / length))


_FACTORS: dict[str, Callable[[_FactorSettings], _Factor]] = {
    "constant": _constant,
    "linear_warmup": _linear_warmup,
    "linear_decay": _linear_decay,
    "rsqrt_decay": _rsqrt_decay,
    "rsqrt_normalized_decay": _rsqrt_normalized_decay,
    "rsqrt_hidden_size": _rsqrt_hidden_size,
    "exp_decay": _exp_decay,
    "cosdecay": _cosdecay,
    "single_cycle_cos_decay": _single_cycle_cos_decay,
    "multi_cycle_cos_decay": _multi_cycle_cos_decay,
    "legacy": _legacy,
}

_SCHEMES: dict[str, Callable[[_FactorSettings], _Factor]] = {
    "none": _warmed_up(_no_decay),
    "noam": _noam,
    "exp": _warmed_up(_exponential),
    "piecewise": _warmed_up(_piecewise),
    "cosine": _warmed_up(_cosine),
    "cyclelinear10x": _warmed_up(_cycle_linear_10x),
    "sqrt": _warmed_up(_sqrt),
}
