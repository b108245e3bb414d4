"""The checkpoints of a run, with everything needed to resume. The step also gives the data position.

A checkpoint is in T2T's format: `model.ckpt-<step>` with T2T's names of variables and optimizer slots.
Training state that T2T has no name for has our own names.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.checkpoints.names import is_table, slot_variables, split_table
from t2t_keras.checkpoints.t2t import (
    assign,
    checkpoints_in,
    model_arrays,
    read,
    step_in_name,
    write,
    write_state,
)
from t2t_keras.errors import UserError, warn
from t2t_keras.files import write_text, writing

PREFIX = "model.ckpt-"
BEST_FILE = "best"


def read_best(directory: str) -> str:
    """Returns the name in the file `best` of a run; "" if there is none."""
    path = Path(directory) / BEST_FILE
    if not path.exists():
        return ""
    try:
        name = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UserError(f"{path} cannot be read ({reason}): remove it to continue.") from error
    if not name.isprintable() or not name or "/" in name:
        raise UserError(
            f"{path} must hold the name of a checkpoint, got {name[:60]!r}: remove it to continue."
        )
    return name


class RunCheckpoints:
    """Saves and restores everything needed to resume a run.

    Args:
        directory: directory of the run.
        engine: the `Engine` with model, optimizer and extra training state.
        keep: number of newest checkpoints to keep (T2T's `--keep_checkpoint_max`); 0 keeps all.
        keep_every_hours: keep one checkpoint per this many hours permanently (T2T's
            `--keep_checkpoint_every_n_hours`); 0 keeps none.
        run_started: the time from which these hours count, in seconds since 1970.
    """

    def __init__(
        self,
        directory: str,
        engine,
        keep: int = 20,
        keep_every_hours: float = 0,
        run_started: float = 0,
    ):
        self.directory = directory
        self.engine = engine
        self.keep = keep
        self.keep_every_hours = keep_every_hours
        self.run_started = run_started
        self.newest = ""
        """Prefix of the checkpoint saved or restored last; empty if there is none."""
        self._damaged: set[str] = set()

    def save(self, extra: Mapping[str, Any]) -> None:
        """Writes a checkpoint of the current step, unless it exists, and removes old ones.

        Args:
            extra: further arrays by name.
        """
        step = self.engine.step
        prefix = self.prefix(step)
        if prefix == self.newest:
            return
        arrays = model_arrays(self.engine.model)
        for name, slot in self._slots().items():
            arrays.update(self._pieces(name, np.asarray(slot)))
        arrays.update(self.engine.optimizer.t2t_scalars())
        arrays.update({name: np.asarray(v) for name, v in self._engine_state().items()})
        write(prefix, {**arrays, **extra, "global_step": np.asarray(step, np.int64)})
        self.newest = prefix
        self._damaged.discard(prefix)
        self.remove_old()

    def restore_latest(self, extra: Mapping[str, Any]) -> dict[str, Any] | None:
        """Restores the newest checkpoint that is readable.

        A warning on standard error names those that are not.

        Args:
            extra: names as in `save`, with default values for those that the checkpoint lacks.

        Returns:
            The arrays of `extra` in the checkpoint, or None if there is no checkpoint.

        Raises:
            UserError: there are checkpoints but none is readable, or one is of another model.
        """
        found = self._on_disk()
        errors = []
        for prefix in reversed(found):
            try:
                arrays = read(prefix)
            except UserError as error:
                errors.append(str(error))
                warn(f"{error}; it is left out")
                self._damaged.add(prefix)
                continue
            self._assign(prefix, arrays)
            self.newest = prefix
            return {name: arrays.get(name, default) for name, default in extra.items()}
        if errors:
            raise UserError(
                f"none of the {len(found)} checkpoints in {self.directory} can be read; the first: "
                f"{errors[-1]}. Remove them to start a new run."
            )
        return None

    def prefix(self, step: int) -> str:
        """Returns the prefix of the checkpoint of a step."""
        return os.path.join(self.directory, f"{PREFIX}{step}")

    def name_best(self, step: int) -> None:
        """Marks the checkpoint of `step` as the best in the file `best`, so that it stays on disk."""
        write_text(Path(self.directory) / BEST_FILE, f"{PREFIX}{step}\n")

    def best(self) -> str:
        """Returns the prefix of the best checkpoint; "" if none is marked or it does not exist."""
        name = read_best(self.directory)
        prefix = os.path.join(self.directory, name)
        return prefix if name and os.path.exists(prefix + ".index") else ""

    def remove_old(self) -> None:
        """Removes old checkpoints, and writes the file `checkpoint`."""
        with writing(self.directory):
            kept = [prefix for prefix in self._on_disk() if prefix not in self._damaged]
            if self.keep:
                for prefix in self._old(kept[: -self.keep]):
                    _remove(prefix)
                    kept.remove(prefix)
            names = [os.path.basename(prefix) for prefix in kept]
            if names:
                write_state(self.directory, names)

    def clear_unfinished(self) -> None:
        """Removes the files of a process that was killed while it wrote or removed a checkpoint."""
        whole = set(checkpoints_in(self.directory, PREFIX))
        escaped = glob.escape(self.directory)
        leftovers = glob.glob(f"{escaped}/.{PREFIX}*.unfinished*")
        leftovers += glob.glob(f"{escaped}/*.incomplete")
        for path in glob.glob(f"{escaped}/{PREFIX}*.data-*-of-*"):
            prefix = path.rpartition(".data-")[0]
            if prefix not in whole and prefix == self.prefix(step_in_name(prefix)):
                leftovers.append(path)
        with writing(self.directory):
            for path in leftovers:
                if os.path.isdir(path):
                    shutil.rmtree(path)
                else:
                    os.remove(path)

    def _old(self, candidates: list[str]) -> list[str]:
        """Returns the candidates, ordered by step, that are not kept permanently."""
        old = []
        best = self.best()
        last_kept = self.run_started
        for prefix in candidates:
            written = os.path.getmtime(prefix + ".index")
            if self.keep_every_hours and written - last_kept >= 3600 * self.keep_every_hours:
                last_kept = written
            elif prefix != best:
                old.append(prefix)
        return old

    def _engine_state(self) -> dict[str, Any]:
        return {f"engine/{name}": variable for name, variable in self.engine.state().items()}

    def _slots(self) -> dict[str, Any]:
        """T2T's names of the optimizer's slots -> Keras variables."""
        return slot_variables(self.engine.model, self.engine.optimizer.t2t_slots())

    def _pieces(self, name: str, value: np.ndarray) -> dict[str, np.ndarray]:
        """Splits the slot of an embedding table like T2T's table; other slots are one piece."""
        if not is_table(name):
            return {name: value}
        table, kind = name.rsplit("/", 1)
        shards = self.engine.model.hp.symbol_modality_num_shards
        pieces = split_table(table, value, shards)
        return {f"{piece}/{kind}": part for piece, part in pieces.items()}

    def _assign(self, prefix: str, arrays: Mapping[str, np.ndarray]) -> None:
        assign(self.engine.model, arrays, prefix)
        for name, variable in {**self._slots(), **self._engine_state()}.items():
            if name not in arrays:
                raise UserError(
                    f"checkpoint {prefix} has no {name}: training cannot resume from it."
                )
            value = arrays[name]
            if tuple(value.shape) != tuple(variable.shape):
                raise UserError(
                    f"checkpoint {prefix} does not fit: {name} is {list(value.shape)} there and "
                    f"{list(variable.shape)} here."
                )
            variable.assign(value)

    def _on_disk(self) -> list[str]:
        return checkpoints_in(self.directory, PREFIX)


def _remove(prefix: str) -> None:
    os.remove(prefix + ".index")  # first: without it the other files are not a checkpoint
    for path in glob.glob(glob.escape(prefix) + ".*"):
        os.remove(path)
