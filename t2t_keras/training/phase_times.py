"""How long a run spends on what."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class PhaseTimes:
    """Adds up seconds by the name of a phase.

    Attributes:
        seconds: by phase, in the order in which phases first ended.
    """

    def __init__(self):
        self.seconds: dict[str, float] = {}

    def add(self, phase: str, seconds: float) -> None:
        """Counts `seconds` more of a phase."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    @contextlib.contextmanager
    def of(self, phase: str) -> Iterator[None]:
        """Counts the time inside, however it ends."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(phase, time.perf_counter() - start)

    def rounded(self) -> dict[str, float]:
        """The seconds to three digits, for files."""
        return {phase: round(seconds, 3) for phase, seconds in self.seconds.items()}
