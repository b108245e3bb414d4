"""Long jobs: their progress lines, and the signals that ask them to save and stop."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
import time
from typing import Any

from t2t_keras.errors import Terminal, printable

_COLUMNS = 80  # of a terminal of unknown width


class Progress:
    """Shows a job's progress: one rewritten line on a terminal, elsewhere a line now and then.

    Args:
        every: seconds between lines that are not rewritten, and before the first of them.
        stream: where to write; standard error by default.
        rewrite: False writes separate lines to a terminal, too.
        quiet: True writes nothing.
    """

    def __init__(self, every: float = 30.0, stream=None, rewrite: bool = True, quiet: bool = False):
        self.every = every
        stream = stream or sys.stderr
        # Bypasses `Terminal`: the escapes that this class writes must reach the terminal.
        self.stream = stream.stream if isinstance(stream, Terminal) else stream
        self.live = rewrite and self.stream.isatty()
        self.quiet = quiet
        self._last = time.monotonic()
        self._open = False  # there is a line to rewrite

    def show(self, line: str, now: float, share: float | None = None, force: bool = False) -> None:
        """Writes the current line, if one is due.

        Args:
            line: text in parts separated by two spaces; a narrow terminal drops the last parts.
            now: the time by `time.monotonic`.
            share: fraction of the work done, for a bar if there is room for it; None if unknown.
            force: True writes the line even if none is due.
        """
        line = printable(line)
        if self.live:
            try:
                columns = os.get_terminal_size(self.stream.fileno()).columns or _COLUMNS
            except (OSError, ValueError):  # the terminal is gone, or there is none: $COLUMNS
                columns = shutil.get_terminal_size((_COLUMNS, 0)).columns
            bar = "" if share is None else f"[{'#' * int(20 * share):<20}] "
            if len(bar + line) < columns:
                line = bar + line
            while len(line) >= columns and "  " in line:
                line = line.rpartition("  ")[0]
            self._write(f"\r{line[: columns - 1]}\033[K")
            self._open = True
        elif force or now - self._last >= self.every:
            self._last = now
            self._write(line + "\n")

    def say(self, line: str) -> None:
        self._write(("\r\033[K" if self._open else "") + printable(line) + "\n")
        self._open = False

    def warn(self, message: str) -> None:
        self.say(f"warning: {message}")

    def end(self) -> None:
        """Ends a line that is being rewritten."""
        if self._open:
            self._write("\n")
            self._open = False

    def _write(self, text: str) -> None:
        if not self.quiet:
            with contextlib.suppress(OSError):  # the job continues without its terminal or `tee`
                self.stream.write(text)
                self.stream.flush()


class CountProgress(Progress):
    """Shows a count and its rate every few seconds.

    A line begins with `name`; the count has a `unit`, such as "MB", and if known a final `total`. The
    rate leaves out what was `done` at the start.
    """

    def __init__(self, name: str, unit: str, total: float | None = None, done: float = 0):
        super().__init__(every=5.0, rewrite=False)
        self.name, self.unit, self.total, self.before = name, unit, total, done
        self._start = self._last

    def update(self, done: float) -> None:
        now = time.monotonic()
        rate = (done - self.before) / max(now - self._start, 1e-9)
        rate_text = f"{rate:,.1f}" if rate < 100 else f"{rate:,.0f}"
        total = f" of {self.total:,.0f}" if self.total else ""
        self.show(f"{self.name}: {done:,.0f}{total} {self.unit}, {rate_text} {self.unit}/s", now)


def duration(seconds: float) -> str:
    """3725 -> "1:02:05"."""
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class StopRequests:
    """Records SIGTERM, SIGINT and SIGHUP inside a `with` block, where they have no other effect.

    A second SIGINT raises `KeyboardInterrupt`, for users who cannot wait. A signal that is ignored, as
    SIGHUP is under `nohup`, stays ignored. Outside the main thread nothing is recorded.
    """

    def __init__(self) -> None:
        self.name = ""  # the first signal that came, such as "SIGTERM"; empty until then
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequests:
        self.name = ""
        if threading.current_thread() is threading.main_thread():
            self._before = {
                number: signal.signal(number, self._record)
                for number in SIGNALS
                if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN
            }
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _record(self, number: int, frame: Any) -> None:
        if self.name and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.name = self.name or signal.Signals(number).name


class UnhandledSignals(StopRequests):
    """Lets signals end the process: for waits of TensorFlow, in which no Python handler runs."""

    _record: Any = signal.SIG_DFL


class EndAtSignals(StopRequests):
    """Ends a command that has nothing to save: the first signal raises `KeyboardInterrupt`.

    Python discards what is raised in a destructor, or while it collects garbage: it is raised again every `seconds`.
    """

    seconds = 3.0

    def __exit__(self, *error: object) -> None:
        if self.name:
            signal.setitimer(signal.ITIMER_REAL, 0)
        super().__exit__(*error)

    def _record(self, number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)  # for another one, if this does not end it
        super()._record(number, frame)
        signal.signal(signal.SIGALRM, self._record)
        signal.setitimer(signal.ITIMER_REAL, self.seconds)
        raise KeyboardInterrupt
