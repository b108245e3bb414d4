"""Runs measurements in separate processes, each with the Python of its library."""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TIMEOUT = 900
MODELS = {
    "tiny": {"layers": 2, "hidden": 128, "filter": 512, "heads": 4},
    "base": {"layers": 6, "hidden": 512, "filter": 2048, "heads": 8},
    "big": {"layers": 6, "hidden": 1024, "filter": 4096, "heads": 16},
}


class Results(list):
    """The measurements so far, also written to a file after each addition."""

    def __init__(self, path: str | None):
        super().__init__()
        self._path = path

    def append(self, result: dict) -> None:
        super().append(result)
        if self._path:
            told = {"cores": os.cpu_count(), "command": sys.argv, "results": self}
            Path(self._path).write_text(json.dumps(told, indent=1) + "\n")


def measured(python: str, script: str, spec: dict) -> dict:
    """Runs a script of this folder with a job and returns the JSON of its last line, or {"failure": why}."""
    command = [python, str(HERE / script), json.dumps(spec)]
    load = os.getloadavg()[0]
    environment = {"TF_ENABLE_ONEDNN_OPTS": "1", **os.environ}  # as our commands have it
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return {"failure": f"not done after {TIMEOUT} seconds"}
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"failure": lines[-1][:200]}
    return {**json.loads(done.stdout.splitlines()[-1]), "load_before": load}
