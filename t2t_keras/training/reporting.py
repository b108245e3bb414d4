"""Reports of a run: progress line, TensorBoard events, loss, and its starts in `run.json`."""

import contextlib
import datetime
import math
import os
import platform
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from google.protobuf.struct_pb2 import Struct
from tensorflow.core.framework.summary_pb2 import SummaryMetadata
from tensorflow.core.util.event_pb2 import Event, SessionLog

import t2t_keras
from t2t_keras.checkpoints.run_directory import RUN_FILE, STARTS, read_settings
from t2t_keras.data.records import message
from t2t_keras.errors import explained
from t2t_keras.files import write_json
from t2t_keras.progress import Progress, duration
from t2t_keras.settings import HParams
from t2t_keras.training.train_step import StepSums


class TrainingProgress(Progress):
    """Shows step, epoch, loss, learning rate, speed and time left.

    Attributes:
        speed: steps, and real and padded tokens of both sides, per second of all steps except those of
            the first update, which compiles; empty until the second.
    """

    def __init__(self, total: int, steps_per_epoch: float | None = None, **settings: Any):
        super().__init__(**settings)
        self.total, self.steps_per_epoch = total, steps_per_epoch
        self.speed: dict[str, float] = {}
        self._step: int | None = None
        self._totals, self._seconds = np.zeros(3), 0.0  # of steps, tokens and positions
        self._recent = np.zeros(2)  # of the loss and its tokens

    def update(self, step: int, sums: StepSums, seconds: float, rate: float) -> None:
        """Shows that `step` is done, after `seconds` for steps with these sums."""
        first, steps = self._step is None, step - (self._step or 0)
        if not first:
            self._totals += [steps, sums.tokens + sums.source_tokens, sums.positions]
            self._seconds += seconds
            names = ("steps_per_second", "tokens_per_second", "padded_tokens_per_second")
            self.speed = dict(zip(names, (self._totals / self._seconds).tolist(), strict=True))
        self._step = step
        # The weight of a step is 0.99 of that of the next one, so about the last hundred count.
        self._recent = 0.99**steps * self._recent + [sums.loss, sums.tokens]
        loss = self._recent[0] / max(self._recent[1], 1.0)
        # A narrow terminal shows only the first ones.
        parts = [f"step {step}/{self.total}", f"mean loss {loss:.3f}"]
        if self.speed:
            left = (self.total - step) / self.speed["steps_per_second"]
            parts.insert(0, f"{duration(left)} left")
            parts.append(f"{self.speed['tokens_per_second']:,.0f} tokens/s")
        if self.steps_per_epoch:
            parts.append(f"epoch {step / self.steps_per_epoch:.2f}")
        parts.append(f"lr {rate:.2e}")
        if self.speed:
            parts.append(f"{self.speed['padded_tokens_per_second']:,.0f} padded tokens/s")
        share = step / self.total
        self.show("  ".join(parts), time.monotonic(), share, force=first or step == self.total)


# Curves and texts for TensorBoard, which does not have to be installed


def _metadata(plugin: str, data_class: str = "TENSOR", content: bytes = b"") -> SummaryMetadata:
    """Returns the metadata that name a value's TensorBoard plugin."""
    plugin_data = SummaryMetadata.PluginData(plugin_name=plugin, content=content)
    return SummaryMetadata(plugin_data=plugin_data, data_class=f"DATA_CLASS_{data_class}")


class EventLog:
    """Writes curves, settings and facts to an event file; without a directory it writes nothing.

    With `resumed_from`, TensorBoard drops what earlier files have after that step: it is repeated.
    """

    def __init__(self, directory: str | None, resumed_from: int = 0):
        self._directory = directory
        no_writer = tf.summary.create_noop_writer
        with self._writing():
            if directory and resumed_from:
                _write_start(directory, resumed_from + 1)
            self._writer = tf.summary.create_file_writer(directory) if directory else no_writer()

    def write(self, step: int, values: dict[str, float]) -> None:
        with self._writing(), self._writer.as_default(step):
            for name, value in values.items():
                metadata = _metadata("scalars", "SCALAR")
                tf.summary.write(name, tf.constant(value, tf.float32), metadata=metadata)

    def write_run(self, step: int, hparams: HParams, facts: Mapping[str, Any]) -> None:
        """Writes settings and facts of a run as text, and the settings for the "HParams" page."""
        settings = hparams.to_dict()
        with self._writing(), self._writer.as_default(step):
            for name, values in (("settings", settings), ("run", facts)):
                table = tf.constant(_markdown_table(values))
                tf.summary.write(name, table, metadata=_metadata("text"))
            start = Struct()  # has the same fields as the beginning of a `SessionStartInfo`
            for name, value in settings.items():
                start[name] = value if isinstance(value, int | float) else str(value)
            metadata = _metadata("hparams", content=message(3, start.SerializeToString()))
            tf.summary.write("_hparams_/session_start_info", tf.zeros([0]), metadata=metadata)

    def flush(self) -> None:
        """Writes buffered events to disk."""
        with self._writing():
            self._writer.flush()

    def _writing(self) -> contextlib.AbstractContextManager[None]:
        return explained(f"events in {self._directory} cannot be written", tf.errors.OpError)


def _write_start(directory: str, step: int) -> None:
    """Writes an event file with a mark from which step on earlier files are out of date."""
    now, start = time.time(), SessionLog(status=SessionLog.START)
    # TensorBoard reads files in the order of their names: after earlier ones, before TensorFlow's own.
    name = f"events.out.tfevents.{int(now):010d}.{platform.node()}.{os.getpid()}.0.start"
    tf.io.gfile.makedirs(directory)
    with tf.io.TFRecordWriter(os.path.join(directory, name)) as file:
        file.write(Event(wall_time=now, file_version="brain.Event:2").SerializeToString())
        file.write(Event(wall_time=now, step=step, session_log=start).SerializeToString())


def _markdown_table(values: Mapping[str, Any]) -> str:
    """Returns a Markdown table of names and values, with only the newest of the starts."""
    rows = {name: value for name, value in values.items() if name != STARTS}
    rows |= values.get(STARTS, [{}])[-1]
    lines = [f"| {name} | `{value}` |".replace(" `` ", " ") for name, value in rows.items()]
    return "\n".join(["| | |", "|---|---|", *lines])


# The loss: its mean over a number of steps, and divergence

DIVERGED_AT = 1.5
"""A loss diverges above this factor times the larger of the first loss and log V (uniform prediction)."""

DIVERGED_AFTER = 1000
"""Steps above that before a run counts as diverged; it may recover from a high learning rate."""


class LossRecord:
    """Averages the loss over every `every` steps, up to each multiple.

    Sums are float64 and part of a checkpoint, so that a resumed run has the same means at the same
    steps. `uniform` is the loss of a uniform prediction (log V), in nats per token.
    """

    def __init__(self, every: int, uniform: float = 0.0):
        self.every, self._uniform = every, uniform
        self._sums = np.zeros(3)
        self._first = math.nan
        self._last_good = 0

    def add(self, step: int, sums: StepSums) -> float | None:
        """Adds the sums of the steps before `step`; at a multiple of `every` returns the mean loss."""
        self._sums += [sums.loss, sums.tokens, sums.positions]
        if step % self.every:
            return None
        mean = float(self._sums[0]) / max(float(self._sums[1]), 1.0)
        self._sums[:] = 0
        if math.isnan(self._first):
            self._first = mean
        if mean <= DIVERGED_AT * max(self._first, self._uniform):
            self._last_good = step
        return mean

    def divergence(self, step: int, loss: float, gradient_norm: float) -> str:
        """Describes what is wrong with the loss and norm after `step`, or returns ""."""
        if not math.isfinite(loss):
            return f"the loss became {loss} before step {step}"
        if not math.isfinite(gradient_norm):
            return f"the norm of the gradient became {gradient_norm} before step {step}"
        good = self._last_good
        if step - good > DIVERGED_AFTER and not step % self.every:  # a mean has just been taken
            what = "the first steps" if self._first >= self._uniform else "a uniform prediction"
            reference = max(self._first, self._uniform)
            return (
                f"the loss has been above {DIVERGED_AT} times that of {what} ({reference:.2f}) "
                f"since step {good}: it diverges"
            )
        return ""

    def state(self) -> np.ndarray:
        """Returns the state for a checkpoint, [5] float64."""
        return np.array([*self._sums, self._first, self._last_good], np.float64)

    def restore(self, state: np.ndarray) -> None:
        self._sums = np.array(state[:3], np.float64)
        self._first, self._last_good = float(state[3]), int(state[4])


# The starts of a run in `run.json`


class RunRecord:
    """The starts of a run in `run.json`: time, command, machine and result of each.

    Args:
        directory: directory of the run; locked, or a start that another process writes would be lost.
        write: False leaves the file unchanged.
        **facts: facts of this start, such as the number of replicas.
    """

    def __init__(self, directory: str, write: bool = True, **facts: Any):
        self._path = Path(directory) / RUN_FILE
        self._write = write
        self.earlier: list[dict[str, Any]] = read_settings(directory)[1].get(STARTS, [])
        """The starts before this one, oldest first."""
        start = {
            "started": _now(),
            "started_seconds": int(time.time()),
            "command": shlex.join(sys.argv),
            "versions": versions(),
            "host": platform.node(),
            "process": os.getpid(),
            **facts,
        }
        self._starts = [*self.earlier, start]
        self.first_started = float(self._starts[0]["started_seconds"])
        """Time of the first start of the run, seconds since 1970."""

    def note(self, **facts: Any) -> None:
        """Adds facts and the time to this start, and writes `run.json`."""
        self._starts[-1].update(facts, noted=_now())
        if self._write:
            run = read_settings(str(self._path.parent))[1]
            write_json(self._path, {**run, STARTS: self._starts})


def versions() -> dict[str, str]:
    """Returns the versions of the packages that a run depends on."""
    return {
        "t2t_keras": t2t_keras.__version__,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "python": platform.python_version(),
    }


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
