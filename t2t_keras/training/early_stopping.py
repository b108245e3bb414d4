"""When the figures of evaluation say that a run has learned what it will."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from t2t_keras.errors import UserError, nearest

METRICS = {"loss": True, "accuracy": False, "bleu": False, "f1": False}
"""The figures of an evaluation; whether less is better."""


@dataclasses.dataclass(frozen=True)
class EarlyStopping:
    """Ends a run when a figure of dev stays about the same (T2T's `--eval_early_stopping_*`).

    It ends when, from an evaluation `steps` or more steps ago on, no evaluation was better than
    that one by `delta`.

    Args:
        steps: how long; None: never.
        metric: "loss", "accuracy", or what the problem has of "bleu" and "f1".
        delta: how much better, in units of the metric (BLEU and F1: 0 to 100).
        minimize: whether less is better; None: of the loss, yes, of the others, no.
    """

    steps: int | None = None
    metric: str = "loss"
    delta: float = 0.1
    minimize: bool | None = None

    def __post_init__(self):
        if self.steps is not None and self.steps < 1:
            raise UserError(f"eval_early_stopping_steps must be 1 or more, got {self.steps}.")
        require_metric(self.metric)

    def reached(self, steps: Sequence[int], values: Sequence[float]) -> bool:
        """Whether to stop, after evaluations at `steps` (rising) that gave `values`."""
        if self.steps is None or not steps:
            return False
        long_ago = [i for i, step in enumerate(steps) if step <= steps[-1] - self.steps]
        if not long_ago:
            return False
        start = long_ago[-1]
        less = METRICS[self.metric] if self.minimize is None else self.minimize
        gains = (
            values[start] - value if less else value - values[start] for value in values[start:]
        )
        return all(gain < self.delta for gain in gains)


QUALITIES = {"bleu": "BLEU", "f1": "F1"}
"""Those that need decoding; how they are written in lines for people."""


def in_words(figures: Mapping[str, float]) -> str:
    """The figure of an evaluation that needed decoding, such as "  BLEU 27.30"; "" without any."""
    return "".join(
        f"  {title} {figures[name]:.2f}" for name, title in QUALITIES.items() if name in figures
    )


def require_metric(name: str) -> None:
    """Raises a `UserError` unless an evaluation gives a figure of that name."""
    if name not in METRICS:
        raise UserError(
            f"{name!r} is no figure of an evaluation; allowed: {', '.join(METRICS)}."
            f"{nearest(name, METRICS)}"
        )
