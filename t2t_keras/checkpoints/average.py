"""Averaging of checkpoints (section 6.1 of the paper)."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from t2t_keras.checkpoints import run_directory, t2t
from t2t_keras.checkpoints.names import SCOPE, is_weight
from t2t_keras.checkpoints.run_directory import AVERAGES, INFERENCE_ONLY, read_settings
from t2t_keras.errors import UserError, explained, warn
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
    prefixes = [os.path.abspath(t2t.resolve(prefix)) for prefix in prefixes]
    if not prefixes:
        raise UserError("there is no checkpoint to average: name one or more.")
    for number, prefix in enumerate(prefixes):
        if os.path.realpath(prefix) in map(os.path.realpath, prefixes[:number]):
            raise UserError(f"checkpoint {prefix} is listed twice: list it once.")
    sums = {name: np.zeros(shape, np.float64) for name, shape in _require_alike(prefixes).items()}
    beside = files_beside(output, prefixes)
    step = 0
    for prefix in prefixes:
        for name, array in t2t.each_variable(prefix, lambda name: name in sums or name == STEP):
            if name == STEP:
                step = max(step, int(array))
            else:
                sums[name] += array
    mean = {name: (sums.pop(name) / len(prefixes)).astype(np.float32) for name in list(sums)}
    directory = os.path.dirname(output) or "."
    with writing(directory):
        os.makedirs(directory, exist_ok=True)
        # Training itself locks the directory of a run.
        with locked_directory(directory) if beside else locked_name(output):
            # Other averages may have been written meanwhile.
            beside = files_beside(output, prefixes)
            t2t.write(output, {**mean, STEP: np.asarray(step, np.int64)}, beside)
    return step


def _require_alike(prefixes: Sequence[str]) -> dict[str, list[int]]:
    """Checks that checkpoints are of one network and task; returns the shapes of its weights."""
    first: dict[str, list[int]] = {}
    for prefix in prefixes:
        with t2t.reading(prefix) as reader:
            found = reader.get_variable_to_shape_map()
        shapes = {name: list(shape) for name, shape in found.items() if is_weight(name, found)}
        if not shapes:
            raise UserError(f"{prefix} has no variable {SCOPE}/...: it is no T2T Transformer.")
        first = first or shapes
        names = sorted({*first, *shapes})
        if name := next((name for name in names if shapes.get(name) != first.get(name)), ""):
            difference = f"{name} is {shapes.get(name, 'absent')}, not {first.get(name, 'absent')}"
        else:
            difference = _difference(os.path.dirname(prefixes[0]), os.path.dirname(prefix))
        if difference:
            raise UserError(f"{prefix} is of another model than {prefixes[0]}: {difference}.")
    return first


def files_beside(output: str, prefixes: Sequence[str]) -> dict[str, str]:
    """Checks that an average can be written to `output`; returns the files to write with it.

    A directory of averages gets their settings, a mark that makes `write_settings` refuse training
    there, and TensorFlow's file that makes the new one the latest checkpoint: name -> text. If there are
    no settings, the text is "", which removes those of an average that this one replaces. A run's
    directory keeps its own settings, and the result is empty.
    """
    if os.path.realpath(output) in map(os.path.realpath, prefixes):
        raise UserError(f"{output} is one of the checkpoints to average: give another output.")
    directory, name = os.path.split(output)
    directory = directory or "."
    recorded, run = read_settings(directory)
    there = t2t.checkpoints_in(directory) if os.path.isdir(directory) else []
    foreign = run or recorded or any(os.path.basename(path) != name for path in there)
    own = run.get(INFERENCE_ONLY, False) or not foreign
    others = {
        other: sources
        for other, sources in run.get(AVERAGES, {}).items()
        if other != name and os.path.exists(os.path.join(directory, other + ".index"))
    }
    if not own:
        run_directory.refuse_run_checkpoint(output)
    if not own or others:
        difference = _difference(os.path.dirname(prefixes[0]), directory)
        if difference:
            raise UserError(
                f"{directory} holds another model than {prefixes[0]}: {difference}; "
                "give the average another directory."
            )
    if not own:
        return {}
    source = Path(prefixes[-1]).parent
    run = {**read_settings(str(source))[1], INFERENCE_ONLY: True}
    settings = source / run_directory.HPARAMS_FILE
    return {
        run_directory.RUN_FILE: json_text({**run, AVERAGES: {**others, name: list(prefixes)}}),
        run_directory.HPARAMS_FILE: settings.read_text("utf-8") if settings.exists() else "",
        t2t.STATE_FILE: t2t.state_text([*others, name]),
    }


def _difference(first: str, other: str) -> str:
    """Returns the first difference between the settings in two directories, or ""."""
    (first_hp, first_run), (other_hp, other_run) = map(read_settings, (first, other))
    pairs = {}
    if first_hp and other_hp:
        differing = first_hp.diff(other_hp)
        pairs = {name: differing[name] for name in INFERENCE_SETTINGS if name in differing}
    identity = ("problem", "model", "source_vocab_size", "target_vocab_size", "target_space_id")
    for name in (*identity, "vocabulary"):
        values = (first_run.get(name), other_run.get(name))
        if None not in values and values[0] != values[1]:
            pairs[name] = values
    return next((f"{name} is {b}, not {a}" for name, (a, b) in pairs.items()), "")


# Selection of checkpoints


def last_checkpoints(
    prefix: str, count: int = 0, *, min_steps: int = 0, max_steps: int = 0, minutes: float = 0.0
) -> list[str]:
    """Returns the newest checkpoints whose names begin with `prefix`, oldest first.

    An unreadable checkpoint is skipped for the one before it, with a warning on standard error.

    Args:
        prefix: a directory, or a directory and the beginning of a name (T2T's `--prefix`). Of a
            run's directory, the checkpoints of the run, without averages beside them.
        count: number of checkpoints; 0 means all.
        min_steps, max_steps: limits on their steps (T2T has `--min_steps`); 0 means none.
        minutes: minimum time between two checkpoints by their files' times; 5 % less is enough.

    Raises:
        UserError: there are fewer than `count`, or none.
    """
    directory, start = (prefix, "") if os.path.isdir(prefix) else os.path.split(prefix)
    directory = directory or "."
    found = t2t.checkpoints_in(directory, start) if os.path.isdir(directory) else []
    if not start:
        own = [p for p in found if run_directory.RUN_CHECKPOINT.fullmatch(os.path.basename(p))]
        found = own or found
    chosen: list[str] = []
    before = float("inf")
    for candidate in reversed(found):
        step = t2t.step_in_name(candidate)
        if step < min_steps or (max_steps and step > max_steps):
            continue
        try:
            # A run may still be removing old ones.
            with explained(f"checkpoint {candidate} cannot be read", OSError):
                written = os.path.getmtime(candidate + ".index")
                if minutes and written > before - 0.95 * 60 * minutes:  # writing one takes time
                    continue
                t2t.require_whole(candidate)
        except UserError as error:
            warn(f"{error} It is left out.")
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
            f"{prefix} has {len(chosen)} intact checkpoints{among}{apart}, "
            f"{count or 'one or more'} were requested."
        )
    return chosen[::-1]
