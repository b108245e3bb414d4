"""The line that tells how far a file is."""

from __future__ import annotations

import sys
import time

from t2t_keras.decoding.by_length import Done
from t2t_keras.training.progress import duration


class LineProgress:
    """Shows lines done, tokens a second and the time left, on one line that is rewritten.

    Where the output is no terminal, a line is written every `every` seconds instead. The first
    batch, for which TensorFlow makes its graph, does not count for the speed.

    Args:
        every: seconds between lines when the output is not a terminal.
        stream: where to write; standard error unless given.
    """

    def __init__(self, every: float = 30.0, stream=None):
        self.every = every
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self.lines = 0  # in all; 0: unknown
        self._bytes_left = 0
        self._done = 0
        self._tokens = self._bytes = 0
        self._start: float | None = None  # when the first batch was done
        self._last = time.monotonic()
        self._open = False  # a line that is to be rewritten

    def expect(self, lines: int, text_bytes: int) -> None:
        """Says how much there is; long lines take longer than short ones."""
        self.lines = lines
        self._bytes_left += text_bytes

    def skip(self, lines: int, text_bytes: int) -> None:
        """Notes what was done before."""
        self._done += lines
        self._bytes_left -= text_bytes

    def update(self, done: Done) -> None:
        """Counts a batch and shows it."""
        now = time.monotonic()
        self._done += done.lines
        if self.lines:  # a batch that was half done before counts twice
            self._done = min(self._done, self.lines)
        self._bytes_left -= done.text_bytes
        if self._start is None:
            self._start = now
        else:
            self._tokens += done.tokens
            self._bytes += done.text_bytes
        if self.live:
            self.stream.write(f"\r{self._bar()}{self._line(now)}\033[K")
            self._open = True
        elif now - self._last >= self.every:
            self._last = now
            self.stream.write(self._line(now) + "\n")
        self.stream.flush()

    def say(self, line: str) -> None:
        """Writes a line of its own."""
        self.stream.write(("\r\033[K" if self._open else "") + line + "\n")
        self.stream.flush()
        self._open = False

    def warn(self, message: str) -> None:
        """Writes what should not pass unnoticed."""
        self.say(f"warning: {message}")

    def end(self) -> None:
        """Leaves the line that is rewritten."""
        if self._open:
            self.stream.write("\n")
            self.stream.flush()
            self._open = False

    def _bar(self) -> str:
        return f"[{'#' * (20 * self._done // self.lines):<20}] " if self.lines else ""

    def _line(self, now: float) -> str:
        total = f"/{self.lines:,}" if self.lines else ""
        line = f"{self._done:,}{total} sentences"
        seconds = now - (self._start or now)
        if seconds and self._tokens:
            line += f"  {self._tokens / seconds:,.0f} tokens/s"
        if seconds and self._bytes and self.lines:
            line += f"  {duration(max(0, self._bytes_left) * seconds / self._bytes)} left"
        return line
