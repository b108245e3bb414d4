"""What stands beside an average: the settings of its checkpoints, and that it is not for training."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from t2t_keras.checkpoints.run_directory import (
    HPARAMS_FILE,
    INFERENCE_ONLY,
    RUN_FILE,
    read_settings,
)
from t2t_keras.checkpoints.t2t import checkpoints_in, write_state
from t2t_keras.errors import UserError
from t2t_keras.transformer import INFERENCE_SETTINGS
from t2t_keras.whole_file import whole_file

AVERAGES = "averages"
"""In `run.json`: the checkpoints of each average in the directory, by the name of the average."""

_IDENTITY = ("problem", "source_vocab_size", "target_vocab_size", "target_space_id")
_OF_A_RUN = re.compile(r"model\.ckpt-\d+")


def require_alike(prefixes: Sequence[str]) -> None:
    """Checks that the settings beside checkpoints describe one network and task.

    Raises:
        UserError: the first setting that differs, and of which checkpoint. What the directories do
            not record is not compared.
    """
    first, *others = dict.fromkeys(map(os.path.dirname, prefixes))
    for directory in others:
        difference = _difference(first, directory)
        if difference:
            prefix = next(p for p in prefixes if os.path.dirname(p) == directory)
            raise UserError(
                f"checkpoint {prefix} is of another model than {prefixes[0]}: {difference}."
            )


def choose_place(output: str, prefixes: Sequence[str]) -> AveragePlace:
    """Checks that an average of `prefixes` can stand at `output`; see `AveragePlace`.

    Raises:
        UserError: it would replace one of `prefixes`, be taken for a checkpoint of the run that is
            there, or stand beside settings of another model.
    """
    if os.path.realpath(output) in map(os.path.realpath, prefixes):
        raise UserError(f"{output} is one of the checkpoints to average: give another output.")
    place = AveragePlace(output, prefixes)
    if not place.own and _OF_A_RUN.fullmatch(place.name):
        raise UserError(
            f"{output} would be taken for a checkpoint of the run in {place.directory}: "
            "give the average another directory, or another name."
        )
    if not place.own or place.others:
        difference = _difference(os.path.dirname(prefixes[0]), place.directory)
        if difference:
            raise UserError(
                f"{place.directory} holds another model than {prefixes[0]}: {difference}; "
                "give the average another directory."
            )
    return place


class AveragePlace:
    """Where an average goes: into a directory of averages, or beside what something else left.

    In a directory of averages the settings are written, and the mark which makes
    `write_settings` refuse to train there. A run's directory keeps its own.

    Args:
        output: prefix of the average.
        prefixes: the checkpoints it is made from.
    """

    def __init__(self, output: str, prefixes: Sequence[str]):
        self.directory, self.name = os.path.split(output)
        self.directory = self.directory or "."
        self._prefixes = list(prefixes)
        recorded, run = read_settings(self.directory)
        foreign = run or recorded or self._checkpoints_there()
        self.own = run.get(INFERENCE_ONLY, False) or not foreign
        self.others = {
            name: sources
            for name, sources in run.get(AVERAGES, {}).items()
            if name != self.name and os.path.exists(os.path.join(self.directory, name + ".index"))
        }

    def write_settings(self) -> None:
        """Writes `hparams.json` and `run.json`, if the directory is for averages."""
        if not self.own:
            return
        source = os.path.dirname(self._prefixes[-1])
        _, run = read_settings(source)
        averages = {**self.others, self.name: self._prefixes}
        run = {**run, INFERENCE_ONLY: True, AVERAGES: averages}
        target = Path(self.directory)
        try:
            target.mkdir(parents=True, exist_ok=True)
            with whole_file(target / RUN_FILE) as partial:
                partial.write_text(json.dumps(run, indent=1, sort_keys=True) + "\n", "utf-8")
            if os.path.exists(os.path.join(source, HPARAMS_FILE)):
                with whole_file(target / HPARAMS_FILE) as partial:
                    shutil.copyfile(os.path.join(source, HPARAMS_FILE), partial)
            else:  # what is there is of an average that this one replaces
                (target / HPARAMS_FILE).unlink(missing_ok=True)
        except OSError as error:
            raise UserError(f"{target} cannot be written: {error.strerror}.") from error

    def point_to_result(self) -> None:
        """Makes the average what the directory stands for, if the directory is for averages."""
        if self.own:
            write_state(self.directory, [*self.others, self.name])

    def _checkpoints_there(self) -> bool:
        if not os.path.isdir(self.directory):
            return False
        names = map(os.path.basename, checkpoints_in(self.directory))
        return any(name != self.name for name in names)


def _difference(first: str, other: str) -> str:
    """How the settings in two directories differ: the first difference, or ""."""
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
