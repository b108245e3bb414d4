"""Summary of training runs as text, read from the files in their directories.

TensorBoard draws the curves of the same event files; see docs/inspect.md.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import os
import platform
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras import registry
from t2t_keras.checkpoints.average import AVERAGES
from t2t_keras.checkpoints.run_directory import INFERENCE_ONLY, flags_of_t2t, read_settings
from t2t_keras.checkpoints.t2t import step_in_name
from t2t_keras.errors import UserError
from t2t_keras.inspection.events import Point, read_events
from t2t_keras.progress import duration
from t2t_keras.settings import HParams
from t2t_keras.training.evaluation import METRICS, QUALITIES, EvaluationHistory
from t2t_keras.training.reporting import STARTS
from t2t_keras.training.run_checkpoint import BEST_FILE

_UNKNOWN = "-"
_WIDTH = 92  # letters of a table's columns together
_SPARKS = "▁▂▃▄▅▆▇█"
_SPARKLINE = 32  # letters

_FACTS = ("problem", "hparams_set", "random_seed", "precision")
_FACTS_OF_START = ("parameters", "replicas", "devices", "versions")

# T2T's metrics by the end of their tag -> our name and a factor.
_METRICS_OF_T2T = {
    "neg_log_perplexity": ("loss", -1.0),
    "accuracy": ("accuracy", 1.0),
    "approx_bleu_score": ("approx_bleu", 100.0),
}

# Split, name, title, format, and whether less is better (None: neither).
_CURVES: tuple[tuple[str, str, str, str, bool | None], ...] = (
    ("training", "loss", "training loss, nats per target token", ".3f", True),
    ("dev", "loss", "dev loss, nats per target token", ".3f", True),
    ("dev", "bleu", "dev BLEU", ".2f", False),
    ("dev", "f1", "dev F1", ".2f", False),
    ("dev", "approx_bleu", "dev approximate BLEU of tensor2tensor", ".2f", False),
    ("dev", "accuracy", "dev accuracy", ".3f", False),
    ("training", "learning_rate", "learning rate", ".2e", None),
    ("training", "gradient_norm", "gradient norm", ".3g", None),
    ("training", "tokens_per_second", "tokens per second, mean since the start", ",.0f", None),
)


Curves = Mapping[str, Sequence[Point]]


@dataclasses.dataclass(frozen=True)
class Run:
    """Contents of a run's directory.

    Args:
        directory: as it was named.
        hparams: settings; None if not recorded.
        facts: of `run.json` or, of a run of tensor2tensor, its flags.
        starts: entries of `RunRecord`, oldest first.
        training: curves by name: "loss", "learning_rate", "tokens_per_second", ...
        dev: curves by metric: "loss", "accuracy", "bleu" or "f1".
        test: the same, from `t2t-keras-eval`.
        checkpoints: prefixes, by step; averages last.
    """

    directory: str
    hparams: HParams | None
    facts: Mapping[str, Any]
    starts: Sequence[Mapping[str, Any]]
    training: Curves
    dev: Curves
    test: Curves
    checkpoints: Sequence[str]

    @property
    def step(self) -> int:
        """Newest step of any curve, checkpoint or start."""
        steps = [curve[-1].step for curve in (*self.training.values(), *self.dev.values()) if curve]
        steps += [_step(prefix) or 0 for prefix in self.checkpoints]
        return max(steps + [start.get("step", 0) for start in self.starts[-1:]], default=0)

    @property
    def train_steps(self) -> int | None:
        """Steps that the last start was to reach; None if not recorded."""
        steps = (self.starts[-1] if self.starts else self.facts).get("train_steps")
        return None if steps is None else int(steps)

    @property
    def written(self) -> float:
        """Modification time of the newest file, seconds since 1970."""
        patterns = ("*.index", "events.out.tfevents.*", "run.json")
        paths = (path for pattern in patterns for path in Path(self.directory).glob(pattern))
        return max(map(_modified, paths), default=0.0)


def read_run(directory: str) -> Run:
    """Reads a run of ours or of tensor2tensor, also while it is written to.

    Args:
        directory: an `--output_dir`, or any directory of checkpoints.

    Raises:
        UserError: the directory does not exist, holds no run, or a file cannot be read.
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
        # The record of averages is a copy of their run's.
        starts=[] if facts.get(INFERENCE_ONLY) else facts.get(STARTS, []),
        training=training,
        dev=dev if recorded.figures else _evaluations(path / "eval"),
        test=_evaluations(path / "eval_test"),
        checkpoints=sorted(
            (str(index.with_suffix("")) for index in path.glob("*.index")),
            key=lambda prefix: (_step(prefix) is None, _step(prefix) or 0, prefix),
        ),
    )


def _require_run(path: Path) -> None:
    """Raises a `UserError` unless the directory holds a run."""
    if not path.is_dir():
        if path.exists() or os.path.exists(f"{path}.index"):
            raise UserError(f"{path} is not a directory: name that of the run, {path.parent}.")
        raise UserError(f"{path} does not exist: name the --output_dir of a training.")
    if not _holds_run(path):
        below = [child for child in sorted(path.glob("*/")) if _holds_run(child)]
        hint = f" There is one in {below[0]}." if below else ""
        raise UserError(
            f"{path} holds no run: it has no run.json, checkpoint or event file of TensorBoard; "
            f"name the --output_dir of a training.{hint}"
        )


def _holds_run(path: Path) -> bool:
    patterns = ("run.json", "hparams.json", "*.index", "events.out.tfevents.*", "flags.txt")
    return any(next(path.glob(pattern), None) for pattern in patterns)


def _evaluations(path: Path) -> dict[str, list[Point]]:
    """Reads the metrics in event files of ours or T2T's."""
    metrics = {}
    for tag, curve in read_events(path).items():
        name, factor = _METRICS_OF_T2T.get(tag.rsplit("/", 1)[-1], ("", 0.0))
        if tag.startswith("metrics-") and name:
            metrics[name] = [Point(step, factor * value) for step, value in curve]
        elif tag in METRICS:
            metrics.setdefault(tag, curve)
    return metrics


def _step(prefix: str) -> int | None:
    """Returns the step of a checkpoint; None if its name ends in none, as that of an average may."""
    return step_in_name(prefix) if prefix.rsplit("-", 1)[-1].isdigit() else None


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # removed by the run meanwhile
        return 0.0


def run_summary(runs: Sequence[Run], now: float) -> list[str]:
    """Returns lines that describe one run, or compare several in columns.

    Args:
        runs: one or more.
        now: seconds since 1970, from which ages are counted.
    """
    names = [run.directory for run in runs]
    facts = [_facts(run, now) for run in runs]
    rows = [[name, *(column[name] for column in facts)] for name in facts[0]]
    rows = [row for row in rows if {*row[1:]} != {_UNKNOWN}]
    lines = _table([["", *names], *rows] if len(runs) > 1 else rows)
    for split, name, title, form, less_is_better in _CURVES:
        curves = [_finite(getattr(run, split).get(name, ())) for run in runs]
        if any(curves):
            lines += ["", f"{title}:", *_curve_lines(names, curves, form, less_is_better)]
    title, rows = _settings_of_one(runs[0]) if len(runs) == 1 else _settings_of_several(runs)
    if rows:
        head = ["", *names] if len(runs) > 1 else ["", "the set", "this run"]
        lines += ["", f"{title}:", *_table([head, *rows])]
    for name, run in zip(names, runs, strict=True):
        if run.starts and "command" in run.starts[-1]:
            lines += ["", f"command of {name}:", f"  {run.starts[-1]['command']}"]
    return lines


def _facts(run: Run, now: float) -> dict[str, str]:
    """Returns the rows of the overview."""
    last = run.starts[-1] if run.starts else {}
    rows: dict[str, Any] = {"directory": run.directory, "state": state(run, now)}
    rows["step"] = f"{run.step:,}" if run.step or run.train_steps else None
    if run.train_steps:
        rows["step"] += f" of {run.train_steps:,}"
    rows |= {name: run.facts.get(name) for name in _FACTS}
    rows |= {name: last.get(name) for name in _FACTS_OF_START}
    for name, less in METRICS.items():
        title = QUALITIES.get(name, name)
        rows[f"best dev {title}"] = _at(name, _best(_finite(run.dev.get(name, ())), less))
        rows[f"test {title}"] = _at(name, next(reversed(run.test.get(name, ())), None))
    rows["starts"] = len(run.starts)
    rows["time"] = _times(run)
    rows["checkpoints"] = _checkpoints(run, now)
    return {name.replace("_", " "): _said(value or None) for name, value in rows.items()}


def state(run: Run, now: float) -> str:
    """Returns how a run ended, that it is running, or what else its directory holds."""
    written = f"last written {_ago(now - run.written)}"
    if not run.starts:
        if run.facts.get(INFERENCE_ONLY):
            prefixes = [p for sources in run.facts.get(AVERAGES, {}).values() for p in sources]
            of = ", ".join(dict.fromkeys(map(os.path.dirname, prefixes)))
            return f"averages of checkpoints of {of}"
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
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True


def _times(run: Run) -> str | None:
    """Returns how long a run took, and the shares of its phases: "1:02:05: training 80%, ..."."""
    total, seconds = 0.0, Counter[str]()
    for start in run.starts:
        times = (start.get("noted", start["started"]), start["started"])
        noted, started = map(datetime.datetime.fromisoformat, times)
        total += (noted - started).total_seconds()
        seconds.update(start.get("seconds", {}))
    shares = ", ".join(
        f"{phase} {spent / (total or 1):.0%}" for phase, spent in seconds.most_common()
    )
    return f"{duration(total)}{shares and ': '}{shares}" if run.starts else None


def _checkpoints(run: Run, now: float) -> str | None:
    if not run.checkpoints:
        return None
    newest = Path(run.checkpoints[-1])
    size = sum(path.stat().st_size for path in newest.parent.glob(f"{newest.name}.data-*"))
    age = _ago(now - _modified(Path(f"{newest}.index")))
    words = f"{len(run.checkpoints)}; newest {newest.name}, {size / 1e6:,.1f} MB, {age}"
    best = Path(run.directory) / BEST_FILE
    return words + (f"; best {best.read_text('utf-8').strip()}" if best.exists() else "")


def _settings_of_one(run: Run) -> tuple[str, list[list[str]]]:
    """Returns what differs from the run's hparams set."""
    reference, name = HParams(), "transformer_base_v1"
    if set_name := str(run.facts.get("hparams_set", "")):
        try:
            reference, name = registry.hparams(set_name), set_name
        except UserError:  # of a user directory
            name += f" ({set_name} is not known here: --t2t_usr_dir)"
    differing = run.hparams.diff(reference) if run.hparams else {}
    rows = [[key, _said(theirs), _said(mine)] for key, (mine, theirs) in differing.items()]
    return f"settings that differ from {name}", rows


def _settings_of_several(runs: Sequence[Run]) -> tuple[str, list[list[str]]]:
    """Returns what differs between runs; one without settings does not count."""
    known = [run.hparams for run in runs if run.hparams]
    names = sorted({name for hp in known for name in known[0].diff(hp)})
    values = [run.hparams.to_dict() if run.hparams else {} for run in runs]
    return "settings that differ", [[name, *(_said(v.get(name)) for v in values)] for name in names]


def _finite(points: Sequence[Point]) -> list[Point]:
    return [point for point in points if math.isfinite(point.value)]


def _best(points: Sequence[Point], less_is_better: bool) -> Point | None:
    """Returns the best point, the first of equals."""
    sign = 1 if less_is_better else -1
    return min(points, key=lambda point: sign * point.value, default=None)


def _curve_lines(
    names: Sequence[str], curves: Sequence[Sequence[Point]], form: str, less: bool | None
) -> Iterator[str]:
    """Yields a line for each run: a sparkline, all on one scale, and its first, last and best points."""
    values = [point.value for curve in curves for point in curve]
    low, high = min(values), max(values)
    for name, curve in zip(names, curves, strict=True):
        if not curve:
            continue
        steps = np.linspace(curve[0].step, curve[-1].step, _SPARKLINE)
        heights = (np.interp(steps, *np.array(curve).T) - low) / ((high - low) or 1)
        drawn = "".join(_SPARKS[round(height)] for height in heights * (len(_SPARKS) - 1))
        points = {"first": curve[0], "last": curve[-1]}
        if less is not None:
            points["best"] = _best(curve, less) or curve[0]
        told = ", ".join(f"{n} {p.value:{form}} at step {p.step:,}" for n, p in points.items())
        yield f"  {drawn}  {told}" + (f"  {name}" if len(names) > 1 else "")


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns rows of text in columns; the last columns wrap long cells."""
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


def _at(metric: str, point: Point | None) -> str | None:
    form = ".2f" if metric in QUALITIES else ".4f"
    return f"{point.value:{form}} at step {point.step:,}" if point else None


def _said(value: Any) -> str:
    """Returns a setting or a fact as text."""
    if value is None or value == "":
        return _UNKNOWN
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_said, value)) or "[]"
    return str(value)


def _ago(seconds: float) -> str:
    """Returns an age in the largest unit of which it has two: 7300 -> "2 hours ago"."""
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} seconds ago"
