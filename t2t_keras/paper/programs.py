"""Programs run one after the other: signals are passed on, and two starts do not mix."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from t2t_keras.files import open_locked, writing
from t2t_keras.progress import SIGNALS


class Programs:
    """Runs programs; as a `with` block, for SIGTERM, SIGINT and SIGHUP to reach them alone.

    Each has a process group of its own, so that Ctrl-C comes once, and ends as it does by itself.

    Args:
        lock: an open file that stays locked as long as a program lives, even without this one.
    """

    def __init__(self, lock: BinaryIO):
        self.signal: signal.Signals | None = None
        """The first that came."""
        self._lock = lock
        self._running: subprocess.Popen | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Programs:
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup makes SIGHUP
                self._before[number] = signal.signal(number, self._pass_on)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def run(self, command: Sequence[str], output: Path | None = None) -> int:
        """Runs a program to its end, and returns its exit code; negative: the signal that killed it.

        Args:
            command: the program and its arguments.
            output: a file for what it prints; by default it prints where we do.
        """
        sys.stdout.flush()
        with contextlib.ExitStack() as stack:
            printed = stack.enter_context(output.open("wb")) if output else None
            self._running = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                start_new_session=True,
                pass_fds=[self._lock.fileno()],
            )
            if self.signal is not None:  # it came before there was a program to pass it on to
                self._running.send_signal(self.signal)
            code = self._running.wait()
            self._running = None
        return code

    def _pass_on(self, number: int, frame: Any) -> None:
        self.signal = self.signal or signal.Signals(number)
        if self._running is not None:
            self._running.send_signal(number)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[BinaryIO]:
    """Yields a file that nobody else has locked; waits, and says so, while somebody has.

    Raises:
        UserError: it cannot be written.
    """
    with writing(path.parent):
        opened = open_locked(path, str(path.parent))
    with opened as file:
        yield file
