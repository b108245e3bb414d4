"""What the directory of a run tells of it, ended or not: settings, starts, curves, checkpoints."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import glob
import math
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t2t_keras.checkpoints.average import AVERAGES
from t2t_keras.checkpoints.names import SCOPE, is_slot
from t2t_keras.checkpoints.run_directory import INFERENCE_ONLY, read_settings
from t2t_keras.checkpoints.t2t import step_in_name, variable_shapes
from t2t_keras.errors import UserError
from t2t_keras.inspection.events import Event, read_events
from t2t_keras.settings import HParams
from t2t_keras.training.evaluation import METRICS, EvaluationHistory
from t2t_keras.training.reporting import STARTS
from t2t_keras.training.run_checkpoint import BEST_FILE

T2T_FLAGS = ("flags.txt", "flags_t2t.txt")
"""Where tensor2tensor leaves the flags of a training."""

_T2T_FACTS = ("problem", "hparams_set", "train_steps", "random_seed")

# The ends of the tags of T2T's evaluations -> our figure, and its factor.
_T2T_FIGURES = {
    "neg_log_perplexity": ("loss", -1.0),
    "accuracy": ("accuracy", 1.0),
    "approx_bleu_score": ("approx_bleu", 100.0),
}


class Point(NamedTuple):
    """Of a curve."""

    step: int
    hours: float
    """Of training until then, without what lay between starts; NaN: not known."""
    value: float


class Checkpoint(NamedTuple):
    """A checkpoint on disk."""

    name: str
    step: int | None
    """None: its name ends in no step, as that of an average may."""
    written: float
    """Seconds since 1970."""
    size: int
    """Bytes of all its files."""
    best: bool
    """Whether the file `best` names it."""


@dataclasses.dataclass(frozen=True)
class Run:
    """A run as its directory has it.

    Args:
        directory: as it was named.
        hparams: the settings; None: not recorded.
        facts: what `run.json` says; of T2T's runs, what the flags do.
        starts: each start by `RunRecord`, oldest first.
        training: the curves of training by name: "loss", "learning_rate", "tokens_per_second", ...
        dev: the figures of dev by name: "loss", "accuracy", "bleu" or "f1".
        test: the same of test, as far as `t2t-keras-eval` measured them.
        checkpoints: oldest first.
        parameters: of the model; None: not known.
    """

    directory: str
    hparams: HParams | None
    facts: Mapping[str, Any]
    starts: Sequence[Mapping[str, Any]]
    training: Mapping[str, Sequence[Point]]
    dev: Mapping[str, Sequence[Point]]
    test: Mapping[str, Sequence[Point]]
    checkpoints: Sequence[Checkpoint]
    parameters: int | None

    @property
    def step(self) -> int:
        """The last one that anything is known of."""
        steps = [curve[-1].step for curve in (*self.training.values(), *self.dev.values()) if curve]
        steps += [checkpoint.step or 0 for checkpoint in self.checkpoints]
        steps += [start.get("step", 0) for start in self.starts[-1:]]
        return max(steps, default=0)

    @property
    def train_steps(self) -> int | None:
        """How many steps it was to have, when last started; None: not recorded."""
        steps = (self.starts[-1] if self.starts else self.facts).get("train_steps")
        return int(steps) if steps is not None else None

    @property
    def is_running(self) -> bool | None:
        """Whether the process of a start without a recorded end lives; None: not known here."""
        last = self.starts[-1] if self.starts else {}
        if last.get("ended", "-") or "process" not in last or last["host"] != platform.node():
            return None
        return _is_alive(last["process"])

    @property
    def written(self) -> float:
        """When the newest checkpoint or event was written, seconds since 1970; 0: there is none."""
        return max((_modified(path) for path in _files(self.directory)), default=0.0)


def read_run(directory: str) -> Run:
    """Reads what there is of a run, of ours or of tensor2tensor.

    Args:
        directory: its `--output_dir`, also while it is written to, or any directory of checkpoints.

    Raises:
        UserError: there is no such directory, no run in it, or a file that cannot be read.
    """
    directory = os.path.expanduser(directory)
    path = Path(directory)
    if not path.is_dir():
        raise _no_directory(directory)
    if not _holds_run(path):
        raise _no_run(path)
    hparams, facts = read_settings(directory)
    if not facts:
        facts = _t2t_facts(path)
        hparams = hparams and hparams.named(facts.get("hparams_set", ""))
    averages = facts.get(INFERENCE_ONLY, False)  # which have the starts of the run beside them
    starts = [] if averages else facts.get(STARTS, [])
    begins = [float(start["started_seconds"]) for start in starts]
    training = {tag: _points(curve, begins) for tag, curve in read_events(directory).items()}
    if "global_step/sec" in training:  # T2T
        training["steps_per_second"] = training.pop("global_step/sec")
    checkpoints = _checkpoints(path)
    return Run(
        directory=directory,
        hparams=hparams,
        facts=facts,
        starts=starts,
        training=training,
        dev=_curves(_dev(path), training),
        test=_curves(_logged_figures(path / "eval_test"), training),
        checkpoints=checkpoints,
        parameters=_parameters(directory, starts, checkpoints),
    )


def sources_of_averages(run: Run) -> list[str]:
    """The directories whose checkpoints were averaged here; empty if this is no such place."""
    if not run.facts.get(INFERENCE_ONLY):
        return []
    prefixes = [prefix for sources in run.facts.get(AVERAGES, {}).values() for prefix in sources]
    return list(dict.fromkeys(os.path.dirname(prefix) for prefix in prefixes))


def is_of_t2t(run: Run) -> bool:
    """Whether tensor2tensor has left its flags beside a run."""
    return any((Path(run.directory) / name).exists() for name in T2T_FLAGS)


# Whether there is one


def _holds_run(path: Path) -> bool:
    patterns = ("run.json", "hparams.json", "*.index", "events.out.tfevents.*", *T2T_FLAGS)
    return any(next(path.glob(pattern), None) for pattern in patterns)


def _no_directory(directory: str) -> UserError:
    if os.path.exists(directory) or os.path.exists(directory + ".index"):
        where = os.path.dirname(directory) or "."
        return UserError(f"{directory} is no directory: name that of the run, such as {where}.")
    return UserError(f"{directory} does not exist: name the --output_dir of a training.")


def _no_run(path: Path) -> UserError:
    below = [child for child in sorted(path.glob("*/")) if _holds_run(child)]
    hint = f" There is one in {below[0]}." if below else ""
    return UserError(
        f"{path} holds no run: there is neither run.json nor a checkpoint nor an event file of "
        f"TensorBoard; name the --output_dir of a training.{hint}"
    )


# Facts


def _t2t_facts(path: Path) -> dict[str, Any]:
    facts = {}
    for name in T2T_FLAGS:
        with contextlib.suppress(OSError):
            for line in (path / name).read_text("utf-8", "replace").splitlines():
                flag, _, value = line.removeprefix("--").partition("=")
                if flag in _T2T_FACTS and value:
                    facts[flag] = value
    return facts


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True


def _files(directory: str) -> Iterator[str]:
    for pattern in ("*.index", "events.out.tfevents.*", "run.json"):
        yield from glob.glob(os.path.join(glob.escape(directory), pattern))


def _modified(path: str) -> float:
    try:
        return os.path.getmtime(path)
    except OSError:  # removed meanwhile
        return 0.0


def _parameters(
    directory: str, starts: Sequence[Mapping[str, Any]], checkpoints: Sequence[Checkpoint]
) -> int | None:
    """As recorded, or as the newest checkpoint that can be read has them."""
    if starts and "parameters" in starts[-1]:
        return starts[-1]["parameters"]
    for checkpoint in reversed(checkpoints):
        with contextlib.suppress(UserError):
            shapes = variable_shapes(os.path.join(directory, checkpoint.name))
            ours = [n for n in shapes if n.startswith(f"{SCOPE}/") and not is_slot(n)]
            return sum(math.prod(shapes[name]) for name in ours)
    return None


# Curves


def _points(curve: Sequence[Event], begins: Sequence[float]) -> list[Point]:
    """A curve with the hours that its run had taken, by the times when starts began."""
    points, seconds = [], 0.0
    before = begins[0] if begins else curve[0].time
    for step, time, value in curve:
        start = bisect.bisect_right(begins, time)
        since = max(before, begins[start - 1]) if start else before
        seconds += max(0.0, time - since)
        before = time
        points.append(Point(step, seconds / 3600, value))
    return points


def _dev(path: Path) -> dict[int, dict[str, float]]:
    """The figures of dev by step: of `evaluations.jsonl` or else, of T2T's runs, in `eval/`."""
    recorded = EvaluationHistory(str(path), until=2**63, write=False).figures
    return recorded or _logged_figures(path / "eval")


def _logged_figures(path: Path) -> dict[int, dict[str, float]]:
    """The figures of evaluations by step, from event files of ours or T2T's."""
    curves = read_events(path)
    names = {tag: (tag, 1.0) for tag in METRICS}
    of_t2t = {
        tag: _T2T_FIGURES[end]
        for tag in curves
        if tag.startswith("metrics-") and (end := tag.rsplit("/", 1)[-1]) in _T2T_FIGURES
    }
    figures: dict[int, dict[str, float]] = {}
    for tag, (name, factor) in (of_t2t or names).items():
        for event in curves.get(tag, []):
            figures.setdefault(event.step, {})[name] = factor * event.value
    return figures


def _curves(
    figures: Mapping[int, Mapping[str, float]], training: Mapping[str, Sequence[Point]]
) -> dict[str, list[Point]]:
    """The figures by name, with the hours of the training around each step."""
    longest = max(training.values(), key=len, default=[])
    steps = [0, *(point.step for point in longest)]
    hours = [0.0, *(point.hours for point in longest)]
    curves: dict[str, list[Point]] = {}
    for step in sorted(figures):
        when = float(np.interp(step, steps, hours)) if longest else math.nan
        for name, value in figures[step].items():
            curves.setdefault(name, []).append(Point(step, when, value))
    return curves


# Checkpoints


def _checkpoints(path: Path) -> list[Checkpoint]:
    best = ""
    with contextlib.suppress(OSError):
        best = (path / BEST_FILE).read_text("utf-8").strip()
    found = []
    for index in path.glob("*.index"):
        name = index.name.removesuffix(".index")
        with contextlib.suppress(FileNotFoundError):  # a run removes old ones while it goes on
            files = [index, *path.glob(f"{glob.escape(name)}.data-*")]
            size = sum(file.stat().st_size for file in files)
            step = step_in_name(name) if name.rsplit("-", 1)[-1].isdigit() else None
            found.append(Checkpoint(name, step, index.stat().st_mtime, size, name == best))
    return sorted(found, key=lambda c: (c.step is None, c.step or 0, c.name))
