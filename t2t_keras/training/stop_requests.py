"""Signals that ask a run to save and leave."""

from __future__ import annotations

import signal
import threading
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopRequests:
    """Notes SIGTERM, SIGINT and SIGHUP inside a `with` block, where they do nothing else.

    A second SIGINT is a `KeyboardInterrupt`, for those who cannot wait; a signal that is ignored,
    as SIGHUP is by `nohup`, stays so. Outside the main thread, where Python allows no handlers,
    nothing is noted.
    """

    def __init__(self) -> None:
        self.name = ""
        """Of the first signal that came, such as "SIGTERM"; empty so far."""
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequests:
        if threading.current_thread() is threading.main_thread():
            self._before = {
                number: signal.signal(number, self._note)
                for number in SIGNALS
                if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN
            }
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        if self.name and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.name = self.name or signal.Signals(number).name
