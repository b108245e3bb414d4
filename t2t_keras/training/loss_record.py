"""The loss of training: its mean over every so many steps, and whether it diverges."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

TOO_MUCH = 1.5
"""Of how many times the first loss, or that of knowing nothing if it is more, is too much."""

PATIENCE = 1000
"""Steps without a better one before it counts as diverged; a high learning rate may swing back."""


class Mean(NamedTuple):
    """Of the steps since the last multiple of `every`."""

    loss: float
    """Nats a target token, as trained (smoothed)."""
    target_tokens: float
    positions: float
    """Padded, of both sides."""


class LossRecord:
    """Adds up the loss between the steps that are multiples of a number.

    Sums are float64, and what they hold in between is part of a checkpoint, so that a run that
    was stopped gives the same means at the same steps.

    Args:
        every: the number.
        knowing_nothing: the loss of a network that takes all tokens for as likely, nats a token.
    """

    def __init__(self, every: int, knowing_nothing: float = 0.0):
        self.every = every
        self._knowing_nothing = knowing_nothing
        self._sums = np.zeros(3)
        self._first = math.nan
        self._last_fair = 0

    def add(self, step: int, totals: Any) -> Mean | None:
        """Counts the `Totals` of the steps before `step`; returns the mean if it is a multiple."""
        self._sums += [totals.loss, totals.tokens, totals.positions]
        if step % self.every:
            return None
        loss, tokens, positions = (float(x) for x in self._sums)
        self._sums[:] = 0
        mean = Mean(loss / max(tokens, 1.0), tokens, positions)
        if math.isnan(self._first):
            self._first = mean.loss
        if mean.loss <= TOO_MUCH * self._fair:
            self._last_fair = step
        return mean

    @property
    def _fair(self) -> float:
        return max(self._first, self._knowing_nothing)

    def trouble(self, step: int, loss: float, gradient_norm: float) -> str:
        """What is wrong after `step`, with the latest loss and norm; empty if nothing."""
        if not math.isfinite(loss):
            return f"the loss became {loss} before step {step}"
        if not math.isfinite(gradient_norm):
            return f"the norm of the gradient became {gradient_norm} before step {step}"
        if step - self._last_fair > PATIENCE and step // self.every * self.every > self._last_fair:
            of_what = (
                "the first steps" if self._first >= self._knowing_nothing else "knowing nothing"
            )
            return (
                f"the loss has been above {TOO_MUCH} times that of {of_what} ({self._fair:.2f}) "
                f"since step {self._last_fair}: it diverges"
            )
        return ""

    def state(self) -> np.ndarray:
        """What a checkpoint holds of it, [5] float64."""
        return np.array([*self._sums, self._first, self._last_fair], np.float64)

    def restore(self, state: np.ndarray) -> None:
        """Goes on where `state` was."""
        self._sums = np.array(state[:3], np.float64)
        self._first, self._last_fair = float(state[3]), int(state[4])
