"""Runs measurements in separate processes, each with the Python of its library."""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path

from step_timing import TURN

HERE = Path(__file__).parent
TIMEOUT = 900
MODELS = {
    "tiny": {"layers": 2, "hidden": 128, "filter": 512, "heads": 4},
    "base": {"layers": 6, "hidden": 512, "filter": 2048, "heads": 8},
    "big": {"layers": 6, "hidden": 1024, "filter": 4096, "heads": 16},
}


PRECISIONS = ("float32", "bfloat16", "float16")


def some_of(allowed: Collection[str]) -> Callable[[str], list[str]]:
    """Returns a type for `argparse`: names separated by commas, each of them one of those allowed."""

    def parsed(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in allowed]:
            message = f"{unknown[0]!r} is not one of {', '.join(allowed)}"
            raise argparse.ArgumentTypeError(message)
        return names

    return parsed


def numbers(text: str) -> list[int]:
    """Reads numbers from 1 separated by commas; a type for `argparse`."""
    found = [int(number) for number in text.split(",")]
    if min(found) < 1:
        raise argparse.ArgumentTypeError(f"numbers are 1 or more, got {min(found)}")
    return found


def existing(text: str) -> Path:
    """Returns the path of a file that there is; a type for `argparse`."""
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    return Path(text)


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
    load = os.getloadavg()[0]
    try:
        done = subprocess.run(
            command(python, script, spec),
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return {"failure": f"not done after {TIMEOUT} seconds"}
    return told(done.returncode, done.stdout, done.stderr, load)


def measured_in_turn(jobs: list[tuple[str, str, dict]]) -> list[dict]:
    """Does the same for several jobs that `step_timing.answer` answers; their steps alternate.

    So the ratios hold on a machine whose speed changes within minutes, too. The processes live side by
    side: memory has to hold them all.
    """
    running = [Stepping(*job) for job in jobs]
    for order in itertools.cycle([running, running[::-1]]):  # none always follows another
        if not any(process.alive for process in running):
            break
        for process in order:
            process.step()
    return [process.result() for process in running]


class Stepping:
    """A process that waits for its turn before each step."""

    def __init__(self, *job):
        python, script, spec = job
        self.load, self.lines = os.getloadavg()[0], [""]
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            command(python, script, {**spec, "in_turn": True}),
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        self.alive = self._until_turn()

    def step(self) -> None:
        if self.alive:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            self.alive = self._until_turn()

    def result(self) -> dict:
        self.errors.seek(0)
        return told(self.process.wait(), self.lines[-1], self.errors.read(), self.load)

    def _until_turn(self) -> bool:
        """Waits until the process asks for its turn; returns False at its end."""
        for line in self.process.stdout:
            if line == TURN:
                return True
            self.lines.append(line)
        return False


def command(python: str, script: str, spec: dict) -> list[str]:
    return [python, str(HERE / script), json.dumps(spec)]


def environment() -> dict[str, str]:
    return {"TF_ENABLE_ONEDNN_OPTS": "1", **os.environ}  # as our commands have it


def told(returncode: int, output: str, errors: str, load: float) -> dict:
    """Returns what a process measured, or {"failure": why}."""
    if returncode:
        lines = errors.strip().splitlines() or [f"exit code {returncode}"]
        return {"failure": lines[-1][:200]}
    return {**json.loads(output.splitlines()[-1]), "load_before": load}
