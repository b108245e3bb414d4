"""The line that tells how a run is going."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any


class Speed:
    """Tokens and operations a second, over all steps but those of the first call.

    The first call compiles.

    Args:
        operations_a_position: of a training step, see `operations_a_position`.
        peak: operations a second that the devices are capable of; 0: unknown.
    """

    def __init__(self, operations_a_position: float = 0.0, peak: float = 0.0):
        self._operations, self._peak = operations_a_position, peak
        self._compiled = False
        self._seconds = self._steps = self._tokens = self._positions = 0.0

    def add(self, steps: int, totals: Any, seconds: float) -> None:
        """Counts `steps` more steps with their `Totals`, which took `seconds`."""
        if self._compiled:
            self._steps += steps
            self._tokens += totals.tokens + totals.source_tokens
            self._positions += totals.positions
            self._seconds += seconds
        self._compiled = True

    def figures(self) -> dict[str, float]:
        """What is known so far: steps, real tokens and padded ones a second, both sides; of 1,
        the share of the machine's peak, padding counted as work."""
        if not self._seconds:
            return {}
        figures = {
            "steps_per_second": self._steps / self._seconds,
            "tokens_per_second": self._tokens / self._seconds,
            "padded_tokens_per_second": self._positions / self._seconds,
        }
        if self._peak:
            rate = self._positions / self._seconds * self._operations
            figures["share_of_matrix_peak"] = rate / self._peak
        return figures


class Progress:
    """Shows step, epoch, loss, learning rate, speed and time left, on one line that is rewritten.

    Where the output is no terminal, a line is written every `every` seconds instead.

    Args:
        total: steps of the whole run.
        speed: what to take the speed from.
        steps_an_epoch: None: unknown.
        every: seconds between lines when the output is not a terminal.
        stream: where to write; standard error unless given.
        quiet: write nothing.
    """

    def __init__(
        self,
        total: int,
        speed: Speed,
        steps_an_epoch: float | None = None,
        every: float = 30.0,
        stream=None,
        quiet: bool = False,
    ):
        self.total = total
        self.speed = speed
        self.steps_an_epoch = steps_an_epoch
        self.every = every
        self.stream = stream or sys.stderr
        self.quiet = quiet
        self.live = self.stream.isatty()
        self._last_line = -every

    def update(self, step: int, loss: float, rate: float) -> None:
        """Shows that `step` is done, with the latest loss and learning rate."""
        epoch = f"  epoch {step / self.steps_an_epoch:.2f}" if self.steps_an_epoch else ""
        line = f"step {step}/{self.total}{epoch}  loss {loss:.3f}  lr {rate:.2e}"
        figures = self.speed.figures()
        if figures:
            line += f"  {figures['tokens_per_second']:,.0f} tokens/s"
            line += f" ({figures['padded_tokens_per_second']:,.0f} padded"
            if "share_of_matrix_peak" in figures:
                line += f", {figures['share_of_matrix_peak']:.0%} of the matrix peak"
            left = (self.total - step) / figures["steps_per_second"]
            line += f")  {duration(left)} left"
        now = time.monotonic()
        if self.quiet:
            return
        if self.live:
            bar = "#" * (20 * step // self.total)
            self._write(f"\r[{bar:<20}] {line}\033[K")
        elif now - self._last_line > self.every or step == self.total:
            self._last_line = now
            self._write(line + "\n")

    def say(self, line: str) -> None:
        """Writes a line of its own."""
        if not self.quiet:
            self._write(("\r\033[K" if self.live else "") + line + "\n")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the run goes on without its terminal or `tee`
            self.stream.write(text)
            self.stream.flush()


def duration(seconds: float) -> str:
    """3725 -> "1:02:05"."""
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
