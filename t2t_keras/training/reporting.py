"""What a run says of itself: progress lines, times of its phases, TensorBoard events, loss, and `run.json`."""

from __future__ import annotations

import contextlib
import datetime
import math
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.checkpoints.run_directory import RUN_FILE, read_settings
from t2t_keras.files import write_json
from t2t_keras.progress import Progress, duration

# The line that tells how a run is going


class Speed:
    """Tokens and operations a second, over all steps but those of the first call.

    The first call compiles.

    Args:
        operations_a_position: of a training step, see `operations_a_position`.
        peak: operations a second that the devices are capable of; 0: unknown.
    """

    def __init__(self, operations_a_position: float = 0.0, peak: float = 0.0):
        self._operations, self._peak = operations_a_position, peak
        self._compiled = False
        self._seconds = self._steps = self._tokens = self._positions = 0.0

    def add(self, steps: int, totals: Any, seconds: float) -> None:
        """Counts `steps` more steps with their `Totals`, which took `seconds`."""
        if self._compiled:
            self._steps += steps
            self._tokens += totals.tokens + totals.source_tokens
            self._positions += totals.positions
            self._seconds += seconds
        self._compiled = True

    def figures(self) -> dict[str, float]:
        """What is known so far: steps, real tokens and padded ones a second, both sides; of 1,
        the share of the machine's peak, padding counted as work."""
        if not self._seconds:
            return {}
        figures = {
            "steps_per_second": self._steps / self._seconds,
            "tokens_per_second": self._tokens / self._seconds,
            "padded_tokens_per_second": self._positions / self._seconds,
        }
        if self._peak:
            rate = self._positions / self._seconds * self._operations
            figures["share_of_matrix_peak"] = rate / self._peak
        return figures


class TrainingProgress(Progress):
    """Shows step, epoch, loss, learning rate, speed and time left.

    Args:
        total: steps of the whole run.
        speed: of the training.
        steps_per_epoch: None: unknown.
        **settings: of `Progress`.
    """

    def __init__(
        self, total: int, speed: Speed, steps_per_epoch: float | None = None, **settings: Any
    ):
        super().__init__(**settings)
        self.total = total
        self.speed = speed
        self.steps_per_epoch = steps_per_epoch
        self._shown = False

    def update(self, step: int, loss: float, rate: float) -> None:
        """Shows that `step` is done, with the latest loss and learning rate."""
        epoch = f"  epoch {step / self.steps_per_epoch:.2f}" if self.steps_per_epoch else ""
        line = f"step {step}/{self.total}{epoch}  loss {loss:.3f}  lr {rate:.2e}"
        figures = self.speed.figures()
        if figures:
            line += f"  {figures['tokens_per_second']:,.0f} tokens/s"
            line += f" ({figures['padded_tokens_per_second']:,.0f} padded"
            if "share_of_matrix_peak" in figures:
                line += f", {figures['share_of_matrix_peak']:.0%} of the matrix peak"
            left = (self.total - step) / figures["steps_per_second"]
            line += f")  {duration(left)} left"
        share = step / self.total
        self.show(line, time.monotonic(), share, force=step == self.total or not self._shown)
        self._shown = True


# How long a run spends on what


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


# Curves and pictures for TensorBoard, written without needing TensorBoard installed


# SummaryMetadata(plugin_data=PluginData(plugin_name="scalars"), data_class=DATA_CLASS_SCALAR)
_SCALAR = b"\n\x09\n\x07scalars\x20\x01"
# The same of "images" and DATA_CLASS_BLOB_SEQUENCE
_IMAGE = b"\n\x08\n\x06images\x20\x03"


class EventLog:
    """Writes what has a name and a step to an event file in a directory; without one, nowhere."""

    def __init__(self, directory: str | None):
        self._writer = (
            tf.summary.create_file_writer(directory)
            if directory is not None
            else tf.summary.create_noop_writer()
        )

    def write(self, step: int, values: dict[str, float]) -> None:
        """Writes points of curves."""
        with self._writer.as_default(step):
            for name, value in values.items():
                tf.summary.write(name, tf.constant(value, tf.float32), metadata=_SCALAR)

    def write_images(self, step: int, images: dict[str, np.ndarray]) -> None:
        """Writes pictures, [height, width, 3] uint8 each."""
        with self._writer.as_default(step):
            for name, image in images.items():
                height, width, _ = image.shape
                sizes = [str(width).encode(), str(height).encode()]
                png = tf.io.encode_png(image)
                tf.summary.write(name, tf.stack([*sizes, png]), metadata=_IMAGE)

    def flush(self) -> None:
        self._writer.flush()


# What a model attends to in a sentence, as pictures for TensorBoard


ATTENTION_PIXELS = 8
"""Width and height of a weight."""


def attention_images(model, batch) -> dict[str, np.ndarray]:
    """Pictures of every layer's attention in the first sentence of a batch.

    Args:
        model: a `Transformer`.
        batch: of {"inputs": [B, S], "targets": [B, T]}, or of packed rows.

    Returns:
        By name ("encoder/layer_0" and so on, "decoder", "encdec"), [height, width, 3] uint8: the
        heads side by side, queries from top to bottom, keys from left to right, white where the
        weight is 0 and dark where it is 1.
    """
    first = {name: np.asarray(feature)[:1] for name, feature in batch.items()}
    first["inputs"], first["targets"] = (
        ids[:, : np.flatnonzero(ids[0])[-1] + 1] for ids in (first["inputs"], first["targets"])
    )
    length = {side: first[side].shape[1] for side in ("inputs", "targets")}
    for name in first:  # what goes with the ids of packed rows
        first[name] = first[name][:, : length[name.split("_")[0]]]
    _, weights = model(first, training=False, return_attention_weights=True)
    return {
        f"{kind}/layer_{number}": _picture(np.asarray(layer)[0])
        for kind, layers in weights.items()
        for number, layer in enumerate(layers)
    }


def _picture(heads: np.ndarray) -> np.ndarray:
    """Weights [H, T, S] as [T * ATTENTION_PIXELS, H * (S + 1) * ATTENTION_PIXELS - ATTENTION_PIXELS, 3], heads a column apart."""
    shades = 255 - np.round(255 * heads).astype(np.uint8)
    shades = shades.repeat(ATTENTION_PIXELS, 1).repeat(ATTENTION_PIXELS, 2)
    gap = np.full((shades.shape[1], ATTENTION_PIXELS), 200, np.uint8)
    columns = [part for head in shades for part in (gap, head)][1:]
    return np.concatenate(columns, 1)[:, :, None].repeat(3, 2)


# The loss of training: its mean over every so many steps, and whether it diverges


DIVERGED_AT = 1.5
"""So many times the first loss, or that of a uniform prediction (log V) if it is more, is too much."""

DIVERGED_AFTER = 1000
"""Steps without a better one before it counts as diverged; a high learning rate may swing back."""


class Mean(NamedTuple):
    """Of the steps since the last multiple of `every`."""

    loss: float
    """Nats a target token, as trained (smoothed)."""
    target_tokens: float
    positions: float
    """Padded, of both sides."""


class LossRecord:
    """Adds up the loss between the steps that are multiples of a number.

    Sums are float64, and what they hold in between is part of a checkpoint, so that a run that
    was stopped gives the same means at the same steps.

    Args:
        every: the number.
        uniform: the loss of a uniform prediction (log V), nats per token.
    """

    def __init__(self, every: int, uniform: float = 0.0):
        self.every = every
        self._uniform = uniform
        self._sums = np.zeros(3)
        self._first = math.nan
        self._last_fair = 0

    def add(self, step: int, totals: Any) -> Mean | None:
        """Counts the `Totals` of the steps before `step`; returns the mean if it is a multiple."""
        self._sums += [totals.loss, totals.tokens, totals.positions]
        if step % self.every:
            return None
        loss, tokens, positions = (float(x) for x in self._sums)
        self._sums[:] = 0
        mean = Mean(loss / max(tokens, 1.0), tokens, positions)
        if math.isnan(self._first):
            self._first = mean.loss
        if mean.loss <= DIVERGED_AT * self._fair:
            self._last_fair = step
        return mean

    @property
    def _fair(self) -> float:
        return max(self._first, self._uniform)

    def trouble(self, step: int, loss: float, gradient_norm: float) -> str:
        """What is wrong after `step`, with the latest loss and norm; empty if nothing."""
        if not math.isfinite(loss):
            return f"the loss became {loss} before step {step}"
        if not math.isfinite(gradient_norm):
            return f"the norm of the gradient became {gradient_norm} before step {step}"
        if (
            step - self._last_fair > DIVERGED_AFTER
            and step // self.every * self.every > self._last_fair
        ):
            of_what = "the first steps" if self._first >= self._uniform else "a uniform prediction"
            return (
                f"the loss has been above {DIVERGED_AT} times that of {of_what} ({self._fair:.2f}) "
                f"since step {self._last_fair}: it diverges"
            )
        return ""

    def state(self) -> np.ndarray:
        """What a checkpoint holds of it, [5] float64."""
        return np.array([*self._sums, self._first, self._last_fair], np.float64)

    def restore(self, state: np.ndarray) -> None:
        """Goes on where `state` was."""
        self._sums = np.array(state[:3], np.float64)
        self._first, self._last_fair = float(state[3]), int(state[4])


# What `run.json` says of each start of a run: when, with what, on what, and how it ended


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
        write_json(self._path, {**read_settings(str(self._path.parent))[1], STARTS: self._starts})


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
