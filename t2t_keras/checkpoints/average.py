"""Averaging of checkpoints (section 6.1 of the paper)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from t2t_keras.checkpoints.names import SCOPE, is_weight
from t2t_keras.checkpoints.run_directory import (
    AVERAGES,
    HPARAMS_FILE,
    INFERENCE_ONLY,
    RUN_CHECKPOINT,
    RUN_FILE,
    read_settings,
    refuse_run_checkpoint,
)
from t2t_keras.checkpoints.t2t import (
    STATE_FILE,
    checkpoints_in,
    each_variable,
    require_whole,
    resolve,
    state_text,
    step_in_name,
    variable_shapes,
    write,
)
from t2t_keras.errors import UserError, warn
from t2t_keras.files import json_text, locked_directory, locked_name, writing
from t2t_keras.network_settings import INFERENCE_SETTINGS

STEP = "global_step"


def average(prefixes: Sequence[str], output: str) -> int:
    """Writes the mean of the model variables of several checkpoints, and their settings beside it.

    The result is for inference only: it has no optimizer slots, and `run.json` beside it says so and
    lists the checkpoints. The sums are float64, the result float32. Memory is 12 bytes per parameter
    plus one variable, for any number of checkpoints.

    Args:
        prefixes: checkpoints, ours or T2T's, such as `dir/model.ckpt-1000`.
        output: prefix of the result.

    Returns:
        The `global_step` of the result: that of the newest checkpoint. (T2T writes 0.)

    Raises:
        UserError: a checkpoint cannot be read, or differs from the first in names, shapes or
            settings that affect the logits; or `output` cannot be written, or its directory has
            checkpoints of another model or run.
    """
    prefixes = [resolve(prefix) for prefix in prefixes]
    _require_different(prefixes)
    shapes = {prefix: _model_shapes(prefix) for prefix in prefixes}
    for prefix in prefixes[1:]:
        _require_shapes(shapes[prefixes[0]], shapes[prefix], prefixes[0], prefix)
    require_alike(prefixes)
    place = choose_place(output, prefixes)

    sums = {name: np.zeros(shape, np.float64) for name, shape in shapes[prefixes[0]].items()}
    step = 0
    for prefix in prefixes:
        for name, array in each_variable(prefix, lambda name: name in sums or name == STEP):
            if name == STEP:
                step = max(step, int(array))
            else:
                sums[name] += array
    mean = {name: (sums.pop(name) / len(prefixes)).astype(np.float32) for name in list(sums)}
    with place.locked():
        place = choose_place(output, prefixes)  # another average may have been written meanwhile
        write(output, {**mean, STEP: np.asarray(step, np.int64)}, place.beside())
    return step


def _require_different(prefixes: Sequence[str]) -> None:
    if not prefixes:
        raise UserError("there is no checkpoint to average: name one or more.")
    for number, prefix in enumerate(prefixes):
        if prefix in prefixes[:number]:
            raise UserError(f"checkpoint {prefix} is named twice: name each one once.")


def _model_shapes(prefix: str) -> dict[str, list[int]]:
    shapes = variable_shapes(prefix)
    ours = {name: list(shape) for name, shape in shapes.items() if is_weight(name, shapes)}
    if not ours:
        raise UserError(
            f"checkpoint {prefix} has no variable {SCOPE}/...: it is not of a T2T Transformer."
        )
    return ours


def _require_shapes(first: Mapping, other: Mapping, first_prefix: str, prefix: str) -> None:
    for name in sorted({*first, *other}):
        here, there = (shapes.get(name, "absent") for shapes in (other, first))
        if here != there:
            raise UserError(
                f"checkpoint {prefix} is of another model than {first_prefix}: {name} is {here}, "
                f"not {there}."
            )


# Settings beside an average


_IDENTITY = ("problem", "model", "source_vocab_size", "target_vocab_size", "target_space_id")


def require_alike(prefixes: Sequence[str]) -> None:
    """Checks that the settings beside all checkpoints describe the same network and task."""
    first, *others = dict.fromkeys(map(os.path.dirname, prefixes))
    for directory in others:
        difference = _difference(first, directory)
        if difference:
            prefix = next(p for p in prefixes if os.path.dirname(p) == directory)
            raise UserError(
                f"checkpoint {prefix} is of another model than {prefixes[0]}: {difference}."
            )


def choose_place(output: str, prefixes: Sequence[str]) -> AveragePlace:
    """Checks that an average of `prefixes` can be written to `output`; see `AveragePlace`."""
    if os.path.realpath(output) in map(os.path.realpath, prefixes):
        raise UserError(f"{output} is one of the checkpoints to average: give another output.")
    place = AveragePlace(output, prefixes)
    if not place.own:
        refuse_run_checkpoint(output)
    if not place.own or place.others:
        difference = _difference(os.path.dirname(prefixes[0]), place.directory)
        if difference:
            raise UserError(
                f"{place.directory} holds another model than {prefixes[0]}: {difference}; "
                "give the average another directory."
            )
    return place


class AveragePlace:
    """The place of an average: a directory of averages, or the directory of a run.

    A directory of averages gets the settings and a mark that makes `write_settings` refuse training
    there. A run's directory keeps its own settings.
    """

    def __init__(self, output: str, prefixes: Sequence[str]):
        self.directory, self.name = os.path.split(output)
        self.directory = self.directory or "."
        self._prefixes = list(prefixes)
        recorded, run = read_settings(self.directory)
        there = checkpoints_in(self.directory) if os.path.isdir(self.directory) else []
        foreign = run or recorded or any(os.path.basename(path) != self.name for path in there)
        self.own = run.get(INFERENCE_ONLY, False) or not foreign
        self.others = {
            name: sources
            for name, sources in run.get(AVERAGES, {}).items()
            if name != self.name and os.path.exists(os.path.join(self.directory, name + ".index"))
        }

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from writing here. (Training itself locks the directory of a run.)"""
        with writing(self.directory):
            os.makedirs(self.directory, exist_ok=True)
            if self.own:
                with locked_directory(self.directory):
                    yield
            else:
                with locked_name(os.path.join(self.directory, self.name)):
                    yield

    def beside(self) -> dict[str, str]:
        """Returns the files of a directory of averages to write with the average: name -> text.

        They are its settings and TensorFlow's file that makes it the latest checkpoint. If there are no
        settings, the text is "", which removes those of an average that this one replaces.
        """
        if not self.own:
            return {}
        source = Path(self._prefixes[-1]).parent
        _, run = read_settings(str(source))
        run = {**run, INFERENCE_ONLY: True, AVERAGES: {**self.others, self.name: self._prefixes}}
        settings = source / HPARAMS_FILE
        return {
            RUN_FILE: json_text(run),
            HPARAMS_FILE: settings.read_text("utf-8") if settings.exists() else "",
            STATE_FILE: state_text([*self.others, self.name]),
        }


def _difference(first: str, other: str) -> str:
    """Returns the first difference between the settings in two directories, or ""."""
    (first_hp, first_run), (other_hp, other_run) = map(read_settings, (first, other))
    pairs = {}
    if first_hp and other_hp:
        differing = first_hp.diff(other_hp)
        pairs = {name: differing[name] for name in INFERENCE_SETTINGS if name in differing}
    for name in _IDENTITY:
        values = (first_run.get(name), other_run.get(name))
        if None not in values and values[0] != values[1]:
            pairs[name] = values
    return next((f"{name} is {b}, not {a}" for name, (a, b) in pairs.items()), "")


# Selection of checkpoints


CLOCK_SLACK = 0.95
"""Fraction of `minutes` that is enough, because the time to write a checkpoint varies."""


def last_checkpoints(
    prefix: str, count: int = 0, *, min_steps: int = 0, max_steps: int = 0, minutes: float = 0.0
) -> list[str]:
    """Returns the newest checkpoints whose names begin with `prefix`, oldest first.

    An unreadable checkpoint is skipped for the one before it, with a warning on standard error.

    Args:
        prefix: a directory, or a directory and the beginning of a name (T2T's `--prefix`). Of a
            run's directory, the checkpoints of the run, without averages beside them.
        count: number of checkpoints; 0 means all.
        min_steps: minimum number of steps (T2T's `--min_steps`).
        max_steps: maximum number of steps; 0 means no limit.
        minutes: minimum time between two checkpoints, by the times of their files; 5 % less is
            enough.

    Raises:
        UserError: there are fewer than `count`, or none.
    """
    directory, start = (prefix, "") if os.path.isdir(prefix) else os.path.split(prefix)
    directory = directory or "."
    found = checkpoints_in(directory, start) if os.path.isdir(directory) else []
    if not start:
        own = [path for path in found if RUN_CHECKPOINT.fullmatch(os.path.basename(path))]
        found = own or found
    chosen: list[str] = []
    before = float("inf")
    for candidate in reversed(found):
        step = step_in_name(candidate)
        if step < min_steps or (max_steps and step > max_steps):
            continue
        try:
            written = _written(candidate)
            if minutes and written > before - minutes * 60 * CLOCK_SLACK:
                continue
            require_whole(candidate)
        except UserError as error:
            warn(f"{error}; it is left out")
            continue
        chosen.append(candidate)
        before = written
        if len(chosen) == count:
            break
    if len(chosen) < max(count, 1):
        steps = f" to {max_steps}" if max_steps else " or more"
        among = f" of {min_steps}{steps} steps" if min_steps or max_steps else ""
        apart = f" at least {minutes:g} minutes apart" if minutes else ""
        raise UserError(
            f"{prefix} has {len(chosen)} whole checkpoints{among}{apart}, "
            f"{count or 'one or more'} were asked for."
        )
    return chosen[::-1]


def _written(prefix: str) -> float:
    try:
        return os.path.getmtime(prefix + ".index")
    except OSError as error:  # a run may still be removing old checkpoints
        raise UserError(f"checkpoint {prefix} cannot be read: {error.strerror}") from error
