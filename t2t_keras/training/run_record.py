"""What `run.json` says of each start of a run: when, with what, on what, and how it ended."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from t2t_keras.checkpoints.run_directory import RUN_FILE, read_settings
from t2t_keras.errors import UserError
from t2t_keras.whole_file import whole_file

STARTS = "starts"


class RunRecord:
    """The list `starts` in `run.json`, whose last entry is this start.

    Args:
        directory: of the run; its `run.json` is there.
        write: whether to write to it.
        **facts: of this start, such as the number of replicas.
    """

    def __init__(self, directory: str, write: bool = True, **facts: Any):
        self._path = Path(directory) / RUN_FILE
        self._write = write
        self._starts = read_settings(directory)[1].get(STARTS, [])
        self.earlier: list[dict[str, Any]] = list(self._starts)
        """The starts before this one, oldest first."""
        self._starts.append(
            {
                "started": _now(),
                "started_seconds": int(time.time()),
                "command": shlex.join(sys.argv),
                "versions": versions(),
                "host": platform.node(),
                "process": os.getpid(),
                **facts,
            }
        )

    @property
    def first_started(self) -> float:
        """When the run was first started, seconds since 1970."""
        return float(self._starts[0]["started_seconds"])

    def note(self, **facts: Any) -> None:
        """Adds facts to this start, and the time, and writes `run.json`."""
        self._starts[-1].update(facts, noted=_now())
        if not self._write:
            return
        run = {**read_settings(str(self._path.parent))[1], STARTS: self._starts}
        try:
            with whole_file(self._path) as partial:
                partial.write_text(json.dumps(run, indent=1, sort_keys=True) + "\n", "utf-8")
        except OSError as error:
            raise UserError(f"{self._path} cannot be written: {error.strerror}.") from error


def versions() -> dict[str, str]:
    """Versions of what a run depends on."""
    import keras
    import tensorflow as tf

    import t2t_keras

    return {
        "t2t_keras": t2t_keras.__version__,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "python": platform.python_version(),
    }


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
