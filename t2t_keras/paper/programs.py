"""Subprocesses run one after the other, with signals forwarded, and a lock against a second start."""

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
    """Runs programs; as a context manager, forwards SIGTERM, SIGINT and SIGHUP to the running one.

    Each has its own process group, so that it gets Ctrl-C once.

    Args:
        lock: open file that stays locked while a program lives, even if this process is gone.
    """

    def __init__(self, lock: BinaryIO):
        self.signal: signal.Signals | None = None
        """First signal received."""
        self._lock = lock
        self._running: subprocess.Popen | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Programs:
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup makes SIGHUP
                self._before[number] = signal.signal(number, self._forward)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def run(self, command: Sequence[str], output: Path | None = None) -> int:
        """Runs a program and returns its exit code, or minus the signal that killed it.

        Args:
            command: program and arguments.
            output: file for its standard output; by default it shares ours.
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
            if self.signal is not None:  # it came before the program was started
                self._running.send_signal(self.signal)
            code = self._running.wait()
            self._running = None
        return code

    def _forward(self, number: int, frame: Any) -> None:
        self.signal = self.signal or signal.Signals(number)
        if self._running is not None:
            self._running.send_signal(number)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[BinaryIO]:
    """Locks a file and yields it; prints a line if it has to wait for another process.

    Raises:
        UserError: the file cannot be written.
    """
    with writing(path.parent):
        opened = open_locked(path, str(path.parent))
    with opened as file:
        yield file
