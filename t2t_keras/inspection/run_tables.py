"""What is to be said of one run, or of several side by side, as tables."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from t2t_keras import registry
from t2t_keras.errors import UserError
from t2t_keras.inspection.run_curves import best
from t2t_keras.inspection.runs import Point, Run, is_of_t2t, sources_of_averages
from t2t_keras.progress import duration
from t2t_keras.settings import HParams
from t2t_keras.training.evaluation import METRICS, QUALITIES

NOTHING = "-"

PHASES = {
    "training": "training",
    "compilation": "first step, which compiles",
    "evaluation": "evaluation",
    "saving": "saving checkpoints",
    "restoring": "restoring a checkpoint",
}
"""What `seconds` of a start in `run.json` are by, and how that is said."""

OTHER = "all else"

TIME = "time"


class Table(NamedTuple):
    """Rows of text; the first cell of each says what the others are."""

    title: str
    head: list[str]
    """Empty: none is needed."""
    rows: list[list[str]]
    whole: bool = False
    """Whether cells must stay in one line, to be copied."""


def names(runs: Sequence[Run]) -> list[str]:
    """A short name for each run: the end of its directory, as much of it as tells them apart."""
    paths = [os.path.abspath(run.directory) for run in runs]
    for parts in range(1, 4):
        short = ["/".join(path.split(os.sep)[-parts:]) for path in paths]
        if len(set(short)) == len(short):
            return short
    return paths


def tables(runs: Sequence[Run], now: float) -> list[Table]:
    """All that is said of runs besides their curves and single evaluations.

    Args:
        runs: one or more.
        now: seconds since 1970, from which ages are counted.
    """
    overview = _side_by_side("", runs, [_facts(run, now) for run in runs])
    started_with = _side_by_side("started with", runs, [_circumstances(run) for run in runs])
    found = [overview, _settings(runs), _times(runs), started_with, _commands(runs)]
    for name, run in zip(names(runs), runs, strict=True):
        of_run = f" of {name}" if len(runs) > 1 else ""
        found += [_starts(run, of_run), _checkpoints(run, of_run, now)]
    return [table for table in found if table.rows]


def evaluations(run: Run, of_run: str = "") -> Table:
    """Every evaluation on dev."""
    values = {name: {p.step: p.value for p in curve} for name, curve in run.dev.items()}
    steps = sorted({step for curve in values.values() for step in curve})
    rows = [
        [f"{step:,}", *(_figure(name, curve.get(step)) for name, curve in values.items())]
        for step in steps
    ]
    return Table(f"evaluations on dev{of_run}", ["step", *map(_title, values)], rows)


def seconds_by_phase(run: Run) -> dict[str, float]:
    """What all starts of a run together spent on what, by the words for it.

    What is not counted in any phase, such as making the model, is "all else". Empty if the run has
    no record of it.
    """
    seconds: dict[str, float] = {}
    for start in run.starts:
        for phase, spent in start.get("seconds", {}).items():
            seconds[phase] = seconds.get(phase, 0.0) + spent
    known = {words: seconds[phase] for phase, words in PHASES.items() if phase in seconds}
    total = sum(_length(start) for start in run.starts if "seconds" in start)
    return {**known, OTHER: max(0.0, total - sum(known.values()))} if known else {}


def state(run: Run, now: float) -> str:
    """Whether a run goes on, how it ended, or what else is in its directory."""
    if run.starts:
        return run.starts[-1].get("ended") or _without_end(run, now)
    averaged = sources_of_averages(run)
    if averaged:
        return f"averages of checkpoints of {', '.join(averaged)}"
    if is_of_t2t(run):
        return f"a run of tensor2tensor, last written {_ago(now - run.written)} ago"
    if run.checkpoints:
        return "checkpoints, without a record of their training"
    return "settings alone: no training has begun"


def _without_end(run: Run, now: float) -> str:
    last = run.starts[-1]
    ago = f"last written {_ago(now - run.written)} ago"
    if run.is_running is None:
        return f"no end is recorded; {ago} on {last['host']}"
    if not run.is_running:
        return f"ended without a word, perhaps killed: process {last['process']} is gone; {ago}"
    words = f"running as process {last['process']}"
    speed = run.training.get("steps_per_second")
    if speed and run.train_steps:
        left = max(0, run.train_steps - run.step) / speed[-1].value
        words += f", {duration(left)} of training left"
    return words


# All runs side by side


def _side_by_side(title: str, runs: Sequence[Run], columns: Sequence[Mapping[str, str]]) -> Table:
    """A row for each name of the first column, unless nothing is known of it in any."""
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    head = ["", *names(runs)] if len(runs) > 1 else []
    return Table(title, head, [row for row in rows if {*row[1:]} != {NOTHING}])


def _facts(run: Run, now: float) -> dict[str, str]:
    facts = {
        "directory": run.directory,
        "state": state(run, now),
        "step": _step(run),
        "problem": _said(run.facts.get("problem")),
        "hparams set": _said(_set_name(run)),
        "parameters": f"{run.parameters:,}" if run.parameters else NOTHING,
    }
    for name, less in METRICS.items():
        facts[f"best {_title(name)} on dev"] = _at(name, best(run.dev.get(name, ()), less))
    for name in METRICS:
        facts[f"{_title(name)} on test"] = _at(name, next(reversed(run.test.get(name, ())), None))
    for name, form in (("tokens", ",.0f"), ("steps", ".2f")):
        speed = run.training.get(f"{name}_per_second")
        facts[f"{name} a second"] = f"{speed[-1].value:{form}}" if speed else NOTHING
    return facts


def _step(run: Run) -> str:
    if run.train_steps is not None:
        return f"{run.step:,} of {run.train_steps:,}"
    return f"{run.step:,}" if run.step else NOTHING


def _circumstances(run: Run) -> dict[str, str]:
    """What the last start was done with, settings aside."""
    last = run.starts[-1] if run.starts else {}
    sizes = [run.facts.get(f"{side}_vocab_size") for side in ("source", "target")]
    return {
        "random seed": _said(run.facts.get("random_seed")),
        "precision": _said(run.facts.get("precision")),
        "moving average": _said(run.facts.get("ema") or None),
        "on the fly": _said(run.facts.get("on_the_fly") or None),
        "vocabulary": _said([size for size in sizes if size is not None] or None),
        **{n: _said(last.get(n)) for n in ("replicas", "hosts", "devices", "programs", "host")},
        "versions": _said([f"{n} {v}" for n, v in last.get("versions", {}).items()] or None),
    }


def _commands(runs: Sequence[Run]) -> Table:
    commands = [run.starts[-1].get("command", "") if run.starts else "" for run in runs]
    if len(runs) == 1:
        return Table("command", [], [[c] for c in commands if c], whole=True)
    rows = [[n, c] for n, c in zip(names(runs), commands, strict=True) if c]
    return Table("commands", [], rows, whole=True)


def _settings(runs: Sequence[Run]) -> Table:
    """Of one run, what differs from its set; of several, what differs between them."""
    if len(runs) == 1:
        return _settings_of_one(runs[0])
    columns = [run.hparams.to_dict() if run.hparams else {} for run in runs]
    known = [column for column in columns if column]
    every = sorted({name for column in known for name in column})
    rows = [
        [name, *(_said(column[name]) if name in column else NOTHING for column in columns)]
        for name in every
    ]
    filled = [bool(column) for column in columns]
    differing = [
        row
        for row in rows
        if len({cell for cell, there in zip(row[1:], filled, strict=True) if there}) > 1
    ]
    return Table("settings that differ", ["", *names(runs)], differing)


def _settings_of_one(run: Run) -> Table:
    if run.hparams is None:
        return Table("", [], [])
    reference, name = _set(_set_name(run))
    differing = run.hparams.diff(reference)
    rows = [[key, _said(theirs), _said(mine)] for key, (mine, theirs) in differing.items()]
    return Table(f"settings that differ from {name}", ["", "the set", "this run"], rows)


def _set(set_name: str) -> tuple[HParams, str]:
    """The set of a name, or the defaults where it is not known here, and what to call it."""
    if set_name:
        try:
            return registry.hparams(set_name), set_name
        except UserError:  # of a user's directory that is not named
            return HParams(), f"transformer_base_v1 ({set_name} is not known here: --t2t_usr_dir)"
    return HParams(), "transformer_base_v1"


def _times(runs: Sequence[Run]) -> Table:
    columns = [seconds_by_phase(run) for run in runs]
    totals = [sum(column.values()) for column in columns]
    rows = []
    for phase in (*PHASES.values(), OTHER):
        if any(phase in column for column in columns):
            rows.append(
                [phase]
                + [
                    f"{duration(column[phase])}  {column[phase] / (total or 1):.0%}"
                    if phase in column
                    else NOTHING
                    for column, total in zip(columns, totals, strict=True)
                ]
            )
    if rows:
        rows.append(["together", *(duration(total) if total else NOTHING for total in totals)])
    return Table(TIME, ["", *names(runs)] if len(runs) > 1 else [], rows)


# One run


def _starts(run: Run, of_run: str) -> Table:
    rows = [
        [
            _date(start["started_seconds"]),
            f"{start.get('from_step', 0):,}",
            f"{start['step']:,}" if "step" in start else NOTHING,
            duration(_length(start)),
            start.get("ended") or ("running" if run.is_running else "not recorded"),
        ]
        for start in run.starts
    ]
    return Table(f"starts{of_run}", ["begun (UTC)", "from step", "to step", "took", "end"], rows)


def _checkpoints(run: Run, of_run: str, now: float) -> Table:
    rows = [
        [
            checkpoint.name,
            f"{checkpoint.size / 1e6:,.1f} MB",
            f"{_ago(now - checkpoint.written)} ago",
            "best on dev" if checkpoint.best else "",
        ]
        for checkpoint in run.checkpoints
    ]
    return Table(f"checkpoints{of_run}", ["", "size", "written", ""], rows)


# Words


def _set_name(run: Run) -> str:
    return str(run.facts.get("hparams_set", ""))


def _title(metric: str) -> str:
    return QUALITIES.get(metric, metric.replace("_", " "))


def _figure(metric: str, value: float | None) -> str:
    return NOTHING if value is None else f"{value:{'.2f' if metric in QUALITIES else '.4f'}}"


def _at(metric: str, point: Point | None) -> str:
    return f"{_figure(metric, point.value)} at step {point.step:,}" if point else NOTHING


def _said(value: Any) -> str:
    """A value of a setting or a fact, as one writes it."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(map(_said, value)) or "[]"
    return str(value)


def _length(start: Mapping[str, Any]) -> float:
    """Seconds from the beginning of a start to its last sign of life in `run.json`."""
    noted = datetime.datetime.fromisoformat(start.get("noted", start["started"]))
    began = datetime.datetime.fromisoformat(start["started"])
    return (noted - began).total_seconds()


def _date(seconds: float) -> str:
    when = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return f"{when:%Y-%m-%d %H:%M}"


def _ago(seconds: float) -> str:
    """The largest unit that there is more than one of: 7300 -> "2 hours"."""
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} seconds"
