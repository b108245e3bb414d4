"""Text summaries of training runs, from the files in their directories, without TensorFlow.

TensorBoard draws curves from the same event files; see docs/inspect.md.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import operator
import os
import platform
import struct
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from t2t_keras import protobuf, registry
from t2t_keras.checkpoints.average import AVERAGES
from t2t_keras.checkpoints.run_directory import INFERENCE_ONLY, flags_of_t2t, read_settings
from t2t_keras.checkpoints.t2t import step_in_name
from t2t_keras.data.generation.records import FOOTER_BYTES, HEADER_BYTES
from t2t_keras.errors import UserError
from t2t_keras.progress import duration
from t2t_keras.settings import HParams
from t2t_keras.training.evaluation import METRICS, QUALITIES, EvaluationHistory
from t2t_keras.training.reporting import STARTS
from t2t_keras.training.run_checkpoint import read_best

# A run's directory

_EVENTS = "events.out.tfevents.*"
_FILES = ("run.json", "hparams.json", "*.index", _EVENTS, "flags.txt")
"""A run's directory has at least one of these files."""

_T2T_METRICS = {  # end of the tag: our name, and a factor
    "neg_log_perplexity": ("loss", -1.0),
    "accuracy": ("accuracy", 1.0),
    "approx_bleu_score": ("approx_bleu", 100.0),
}


class Point(NamedTuple):
    """A point of a curve."""

    step: int
    value: float

    def describe(self, form: str) -> str:
        """Returns the formatted value and its step."""
        return f"{self.value:{form}} at step {self.step:,}"


Curves = Mapping[str, Sequence[Point]]


class Run(NamedTuple):
    """The contents of a run's directory."""

    directory: str
    hparams: HParams | None  # None if not recorded
    facts: Mapping[str, Any]  # the contents of `run.json` or, for a T2T run, its flags
    starts: Sequence[Mapping[str, Any]]  # entries of `RunRecord`, oldest first
    training: Curves  # by name: "loss", "learning_rate", "tokens_per_second", ...
    dev: Curves  # by metric: "loss", "accuracy", "bleu" or "f1"
    test: Curves  # the same, from `t2t-keras-eval`
    checkpoints: Sequence[str]  # prefixes, by step; averages last

    @property
    def step(self) -> int:
        """The latest step in any curve, checkpoint or start."""
        steps = [curve[-1].step for curve in (*self.training.values(), *self.dev.values()) if curve]
        steps += [_step(prefix) or 0 for prefix in self.checkpoints]
        return max(steps + [start.get("step", 0) for start in self.starts[-1:]], default=0)

    @property
    def train_steps(self) -> int | None:
        """The target number of steps at the last start; None if not recorded."""
        steps = (self.starts[-1] if self.starts else self.facts).get("train_steps")
        return None if steps is None else int(steps)

    @property
    def written(self) -> float:
        """The modification time of the newest file, in seconds since 1970."""
        times = [0.0]
        for path in (path for pattern in _FILES for path in Path(self.directory).glob(pattern)):
            with contextlib.suppress(OSError):  # the run may have deleted the file meanwhile
                times.append(path.stat().st_mtime)
        return max(times)


def read_run(directory: str) -> Run:
    """Reads a run of t2t_keras or tensor2tensor, even while it is in progress.

    Raises:
        UserError: the directory does not exist or contains no run, or a file cannot be read.
    """
    directory = os.path.expanduser(directory)
    path = Path(directory)
    _require_run(path)
    hparams, facts = read_settings(directory)
    if not facts:
        facts.update(flags_of_t2t(directory))
        hparams = hparams and hparams.named(facts.get("hparams_set", ""))
    training = read_events(directory)
    if "global_step/sec" in training:  # T2T's
        training["steps_per_second"] = training.pop("global_step/sec")
    recorded = EvaluationHistory(directory, until=2**63, write=False)
    dev = {name: [Point(*p) for p in zip(*recorded.of(name), strict=True)] for name in METRICS}
    return Run(
        directory=directory,
        hparams=hparams,
        facts=facts,
        # In a directory of averages, the record is a copy of their run's.
        starts=[] if facts.get(INFERENCE_ONLY) else facts.get(STARTS, []),
        training=training,
        dev=dev if recorded.figures else _evaluations(path / "eval"),
        test=_evaluations(path / "eval_test"),
        checkpoints=sorted(
            (str(index.with_suffix("")) for index in path.glob("[!.]*.index")),
            key=lambda prefix: (_step(prefix) is None, _step(prefix) or 0, prefix),
        ),
    )


def _require_run(path: Path) -> None:
    """Raises a `UserError` unless the directory contains a run."""
    if not path.is_dir():
        if path.exists() or os.path.exists(f"{path}.index"):
            raise UserError(f"{path} is not a directory: name the run's directory, {path.parent}.")
        raise UserError(f"{path} does not exist: name the --output_dir of a training.")
    if not _holds_run(path):
        below = [child for child in sorted(path.glob("*/")) if _holds_run(child)]
        hint = f" There is one in {below[0]}." if below else ""
        raise UserError(
            f"{path} contains no run: it has no run.json, checkpoint or TensorBoard event file; "
            f"name the --output_dir of a training.{hint}"
        )


def _holds_run(path: Path) -> bool:
    return any(next(path.glob(pattern), None) for pattern in _FILES)


def _evaluations(path: Path) -> dict[str, list[Point]]:
    """Reads the metrics in event files of t2t_keras or T2T."""
    metrics = {}
    for tag, curve in read_events(path).items():
        name, factor = _T2T_METRICS.get(tag.rsplit("/", 1)[-1], ("", 0.0))
        if tag.startswith("metrics-") and name:
            metrics[name] = [Point(step, factor * value) for step, value in curve]
        elif tag in METRICS:
            metrics.setdefault(tag, curve)
    return metrics


def _step(prefix: str) -> int | None:
    """Returns the step of a checkpoint; None if its name does not end in one (an average's may not)."""
    return step_in_name(prefix) if prefix.rsplit("-", 1)[-1].isdigit() else None


# TensorBoard's event files


def read_events(directory: str | os.PathLike) -> dict[str, list[Point]]:
    """Reads the scalars in a directory's event files, written by T2T, Keras or t2t_keras.

    If a run was resumed from an earlier step, the points that the previous start wrote after that step are
    dropped. A truncated file, such as that of a run in progress, is read up to where it ends.

    Returns:
        Curves by tag, with ascending steps; empty if there are no event files.

    Raises:
        UserError: a file cannot be opened.
    """
    curves: dict[str, list[Point]] = {}
    paths = Path(directory).glob(_EVENTS)  # sorted by the seconds in their names
    for path in sorted(paths, key=lambda path: (len(path.name.split(".")[3]), path.name)):
        for tag, point in _scalars(path):
            curve = curves.setdefault(tag, [])
            while curve and curve[-1].step >= point.step:
                curve.pop()
            curve.append(point)
    return curves


def _scalars(path: Path) -> Iterator[tuple[str, Point]]:
    # Nothing after the damaged part of a file can be read.
    with contextlib.suppress(IndexError, TypeError, struct.error, UnicodeDecodeError):
        for record in _records(path):
            event = list(protobuf.fields(record))
            step = operator.index(dict(event).get(2, 0))
            for summary in (value for number, value in event if number == 5):
                for tag, scalar in [_scalar(v) for n, v in protobuf.fields(summary) if n == 1]:
                    if scalar is not None:
                        yield tag, Point(step, scalar)


def _records(path: Path) -> Iterator[memoryview]:
    """Yields the records of a TFRecord file up to the first truncated one."""
    try:
        content, start = memoryview(path.read_bytes()), HEADER_BYTES
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    while start < len(content):
        (length,) = struct.unpack_from("<Q", content, start - HEADER_BYTES)
        if start + length + FOOTER_BYTES > len(content):
            return
        yield content[start : start + length]
        start += length + FOOTER_BYTES + HEADER_BYTES


def _scalar(message: memoryview) -> tuple[str, float | None]:
    """Returns the tag and scalar of a `Summary.Value`; ("", None) if it has no float32 scalar."""
    value = dict(protobuf.fields(message))
    tensor = dict(protobuf.fields(value.get(8, memoryview(b""))))
    scalar = value.get(2)  # simple_value, as T2T writes it
    if tensor.get(1) == 1:  # DT_FLOAT; tensor_content or float_val
        scalar = tensor.get(4) or tensor.get(5)
    if scalar is not None and len(scalar) == 4:
        (scalar,) = struct.unpack("<f", scalar)
        return bytes(value.get(1, b"")).decode("utf-8"), scalar
    return "", None


# The summary

_UNKNOWN = "-"
_WIDTH = 92  # total width of a table's columns, in characters

_FACTS = ("problem", "hparams_set", "random_seed", "precision")
_FACTS_OF_START = ("parameters", "replicas", "devices", "versions")

_TRAINING_CURVES = {
    "loss": ".3f",
    "learning_rate": ".2e",
    "gradient_norm": ".3g",
    "tokens_per_second": ",.0f",
}
"""The curves whose last point is shown, and its format."""


def run_summary(runs: Sequence[Run], now: float) -> list[str]:
    """Returns lines that describe one run, or compare several in columns.

    Args:
        runs: one or more runs.
        now: the current time, in seconds since 1970.
    """
    facts = [_facts(run, now) for run in runs]
    rows = [[name, *(column[name] for column in facts)] for name in facts[0]]
    lines = _table([row for row in rows if {*row[1:]} != {_UNKNOWN}])
    title, rows = _settings(runs)
    if rows[1:]:
        lines += ["", f"{title}:", *_table(rows)]
    for run in runs:
        if run.starts and "command" in run.starts[-1]:
            lines += ["", f"command of {run.directory}:", f"  {run.starts[-1]['command']}"]
    return lines


def _facts(run: Run, now: float) -> dict[str, str]:
    last = run.starts[-1] if run.starts else {}
    rows: dict[str, Any] = {"directory": run.directory, "state": state(run, now)}
    rows["step"] = f"{run.step:,}" if run.step or run.train_steps else None
    if run.train_steps:
        rows["step"] += f" of {run.train_steps:,}"
    rows |= {name: run.facts.get(name) for name in _FACTS}
    rows |= {name: last.get(name) for name in _FACTS_OF_START}
    for name, form in _TRAINING_CURVES.items():
        rows[f"training {name}"] = _last(run.training, name, form)
    for name, less_is_better in METRICS.items():
        best = min if less_is_better else max  # among equals, the first
        points = _finite(run.dev.get(name, ()))
        title = QUALITIES.get(name, name)
        form = ".2f" if name in QUALITIES else ".4f"
        rows[f"best dev {title}"] = points and best(points, key=lambda p: p.value).describe(form)
        rows[f"last dev {title}"] = _last(run.dev, name, form)
        rows[f"test {title}"] = _last(run.test, name, form)
    rows |= {"starts": len(run.starts), "time": _times(run), "checkpoints": None}
    if run.checkpoints:
        named = read_best(run.directory)
        rows["checkpoints"] = f"{len(run.checkpoints)}; newest {Path(run.checkpoints[-1]).name}"
        rows["checkpoints"] += named and f"; best {named}"
    return {name.replace("_", " "): _as_text(value or None) for name, value in rows.items()}


def state(run: Run, now: float) -> str:
    """Returns how a run ended, whether it is running, or what else its directory contains."""
    written = f"last written {_ago(now - run.written)}"
    if not run.starts:
        if run.facts.get(INFERENCE_ONLY):
            prefixes = [p for averaged in run.facts.get(AVERAGES, {}).values() for p in averaged]
            sources = ", ".join(dict.fromkeys(map(os.path.dirname, prefixes)))
            return f"averages of checkpoints of {sources}"
        if flags_of_t2t(run.directory):
            return f"a run of tensor2tensor, {written}"
        if run.checkpoints:
            return "checkpoints without a record of their training"
        return "settings only: no training has started"
    last = run.starts[-1]
    if last.get("ended"):
        return last["ended"]
    if "process" not in last or last["host"] != platform.node():
        return f"no end recorded; {written} on {last['host']}"
    if not _is_alive(last["process"]):
        return f"killed: process {last['process']} is gone; {written}"
    speed = run.training.get("steps_per_second")
    if not speed or not run.train_steps:
        return f"running as process {last['process']}"
    left = max(0, run.train_steps - run.step) / speed[-1].value
    return f"running as process {last['process']}, {duration(left)} of training left"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, PermissionError)  # the process of another user
    return True


def _times(run: Run) -> str | None:
    """Returns how long a run took, and the shares of its phases: "1:02:05: training 80%, ..."."""
    total, seconds = 0.0, Counter[str]()
    for start in run.starts:
        times = (start.get("noted", start["started"]), start["started"])
        noted, started = map(datetime.datetime.fromisoformat, times)
        total += (noted - started).total_seconds()
        seconds.update(start.get("seconds", {}))
    shares = [f"{phase} {spent / (total or 1):.0%}" for phase, spent in seconds.most_common()]
    words = [duration(total), ", ".join(shares)]
    return ": ".join(filter(None, words)) if run.starts else None


def _settings(runs: Sequence[Run]) -> tuple[str, list[list[str]]]:
    """Returns a title and the settings that differ between runs, or between one run and its hparams set."""
    title, names = "settings that differ", [run.directory for run in runs]
    sets = [run.hparams for run in runs]
    if len(runs) == 1:
        base, names = "transformer_base_v1", ["the set", "this run"]
        reference, set_name = HParams(), str(runs[0].facts.get("hparams_set", ""))
        try:
            reference, base = registry.hparams(set_name or base), set_name or base
        except UserError:  # a set of a user directory
            base += f" ({set_name} is unknown: give --t2t_usr_dir)"
        title, sets = f"{title} from {base}", [reference, *sets]
    known = [hp for hp in sets if hp]  # skips runs without settings
    differing = sorted({name for hp in known for name in known[0].diff(hp)})
    values = [hp.to_dict() if hp else {} for hp in sets]
    rows = [[name, *(_as_text(column.get(name)) for column in values)] for name in differing]
    return title, [["", *names], *rows]


def _finite(points: Sequence[Point]) -> list[Point]:
    return [point for point in points if math.isfinite(point.value)]


def _last(curves: Curves, name: str, form: str) -> str:
    points = _finite(curves.get(name, ()))
    return points[-1].describe(form) if points else ""


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns rows of text in columns; all but the first column wrap long cells."""
    first = max(len(row[0]) for row in rows)
    most = (_WIDTH - first) // (len(rows[0]) - 1)
    columns = [*zip(*rows, strict=True)][1:]
    widths = [first, *(min(most, max(map(len, column))) for column in columns)]
    lines = []
    for row in rows:
        cells = [textwrap.wrap(cell, width or 1) for cell, width in zip(row, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            padded = (f"{part:{width}}" for part, width in zip(parts, widths, strict=True))
            lines.append(f"  {'  '.join(padded)}".rstrip())
    return lines


def _as_text(value: Any) -> str:
    """Returns a setting or a fact as text."""
    if value is None or value == "":
        return _UNKNOWN
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_as_text, value)) or "[]"
    return str(value)


def _ago(seconds: float) -> str:
    """Returns an age in the largest unit that fits at least twice: 7300 -> "2 hours ago"."""
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} seconds ago"
