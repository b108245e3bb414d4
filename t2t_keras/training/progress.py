"""The line that tells how a run is going."""

from __future__ import annotations

import sys
import time


class Progress:
    """Shows step, loss, learning rate, speed and time left, on one line that is rewritten.

    Where the output is no terminal, a line is written every `every` seconds instead.

    Args:
        total: steps of the whole run.
        every: seconds between lines when the output is not a terminal.
        stream: where to write; standard error unless given.
    """

    def __init__(self, total: int, every: float = 30.0, stream=None):
        self.total = total
        self.every = every
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self._last_line = -every
        self._compiled = False
        self._seconds = 0.0
        self._steps = 0
        self._tokens = 0.0

    def update(
        self, step: int, steps: int, loss: float, rate: float, tokens: float, seconds: float
    ):
        """Counts `steps` more steps, which saw `tokens` target tokens in `seconds`.

        The first call is left out of the speed: it compiles.
        """
        line = f"step {step}/{self.total}  loss {loss:.3f}  lr {rate:.2e}"
        if self._compiled:
            self._steps += steps
            self._tokens += tokens
            self._seconds += seconds
            left = (self.total - step) * self._seconds / self._steps
            speed = self._tokens / self._seconds
            line += f"  {speed:,.0f} target tokens/s  {duration(left)} left"
        self._compiled = True
        now = time.monotonic()
        if self.live:
            bar = "#" * (20 * step // self.total)
            self.stream.write(f"\r[{bar:<20}] {line}\033[K")
        elif now - self._last_line > self.every or step == self.total:
            self._last_line = now
            self.stream.write(line + "\n")
        self.stream.flush()

    def say(self, line: str):
        """Writes a line of its own."""
        self.stream.write(("\r\033[K" if self.live else "") + line + "\n")
        self.stream.flush()


def duration(seconds: float) -> str:
    """3725 -> "1:02:05"."""
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
