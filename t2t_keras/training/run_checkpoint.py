"""The checkpoints of a run, with everything needed to resume. The step also gives the data position.

A checkpoint is in T2T's format: `model.ckpt-<step>` with T2T's names of variables and optimizer slots.
Training state that T2T has no name for has our own names.
"""

import dataclasses
import glob
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.checkpoints import t2t
from t2t_keras.checkpoints.names import is_table, slot_variables, split_table
from t2t_keras.checkpoints.t2t import checkpoints_in
from t2t_keras.errors import UserError, warn
from t2t_keras.files import write_text, writing

PREFIX = "model.ckpt-"
_ENGINE = "engine/"  # begins our names of the engine's state
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
        raise UserError(f"{path} must hold the name of a checkpoint, got {name[:60]!r}: remove it.")
    return name


@dataclasses.dataclass
class RunCheckpoints:
    """Saves and restores everything needed to resume a run."""

    directory: str
    engine: Any
    """The `Engine` with model, optimizer and extra training state."""
    keep: int = 20
    """Number of newest checkpoints to keep (T2T's `--keep_checkpoint_max`); 0 keeps all."""
    keep_every_hours: float = 0
    """One checkpoint per this many hours is kept permanently (T2T's
    `--keep_checkpoint_every_n_hours`); 0: none."""
    run_started: float = 0
    """The time from which these hours count, in seconds since 1970."""

    def __post_init__(self):
        self.newest = ""
        """Prefix of the checkpoint saved or restored last; empty if there is none."""
        self._damaged: set[str] = set()
        self._for_good: set[str] = set()

    def save(self, extra: Mapping[str, Any]) -> None:
        """Writes a checkpoint of this step and further arrays, unless it exists; removes old ones."""
        step = self.engine.step
        prefix = self.prefix(step)
        if prefix == self.newest:
            return
        arrays = t2t.model_arrays(self.engine.model)
        for name, variable in self._state().items():
            scope, _, kind = name.rpartition("/")
            value = np.asarray(variable)
            if is_table(name) and not name.startswith(_ENGINE):
                # T2T splits the slots of an embedding table like the table.
                pieces = split_table(scope, value, self.engine.model.hp.symbol_modality_num_shards)
                arrays.update({f"{piece}/{kind}": part for piece, part in pieces.items()})
            else:
                arrays[name] = value
        arrays.update(self.engine.optimizer.t2t_scalars())
        t2t.write(prefix, {**arrays, **extra, "global_step": np.asarray(step, np.int64)})
        self.newest = prefix
        self._damaged.discard(prefix)
        self.remove_old()

    def restore_latest(self, extra: Mapping[str, Any]) -> dict[str, Any] | None:
        """Restores the newest checkpoint that is readable; warnings name those that are not.

        Args:
            extra: names as in `save`, with default values for those that the checkpoint lacks.

        Returns:
            The arrays of `extra` in the checkpoint, or None if there is no checkpoint.

        Raises:
            UserError: there are checkpoints but none is readable, or one is of another model.
        """
        found = checkpoints_in(self.directory, PREFIX)
        state = Path(self.directory) / t2t.STATE_FILE
        if text := state.read_text("utf-8", "replace") if state.exists() else "":
            unnamed = {prefix for prefix in found if f'{os.path.basename(prefix)}"' not in text}
            self._for_good = unnamed.difference(found[-1:])  # a killed process wrote the newest
        errors = []
        for prefix in reversed(found):
            try:
                arrays = t2t.read(prefix)
            except UserError as error:
                errors.append(str(error))
                warn(f"{error} It is left out.")
                self._damaged.add(prefix)
                continue
            t2t.assign(self.engine.model, arrays, prefix)
            for name, variable in self._state().items():
                if name not in arrays:
                    raise UserError(f"checkpoint {prefix} has no {name}: it cannot be resumed.")
                theirs, ours = list(arrays[name].shape), list(variable.shape)
                if theirs != ours:
                    raise UserError(
                        f"checkpoint {prefix} does not fit: {name} is {theirs} there and {ours} here."
                    )
                variable.assign(arrays[name])
            self.newest = prefix
            first = text.partition("\n")[0]
            if first and prefix == found[-1] and f'{os.path.basename(prefix)}"' not in first:
                warn(f"{state} names another checkpoint than {prefix}: to go back, remove this one")
            return {name: arrays.get(name, default) for name, default in extra.items()}
        if errors:
            raise UserError(
                f"none of the {len(found)} checkpoints in {self.directory} can be read; the first: "
                f"{errors[-1]} Remove them to start a new run."
            )
        return None

    def prefix(self, step: int) -> str:
        """Returns the prefix of the checkpoint of a step."""
        return os.path.join(self.directory, f"{PREFIX}{step}")

    def name_best(self, step: int) -> None:
        """Marks the checkpoint of `step` as the best in the file `best`, so that it stays on disk."""
        write_text(Path(self.directory) / BEST_FILE, f"{PREFIX}{step}\n")

    def remove_old(self) -> None:
        """Removes checkpoints that are not kept, and writes the file `checkpoint`.

        As TensorFlow's, this leaves out those that are kept permanently, by which later starts know them.
        """
        with writing(self.directory):
            found = checkpoints_in(self.directory, PREFIX)
            kept = [prefix for prefix in found if prefix not in self._damaged]
            best = os.path.join(self.directory, read_best(self.directory))
            last_kept, apart = self.run_started, 3600 * self.keep_every_hours
            for prefix in kept[: -max(1, self.keep)]:
                written = os.path.getmtime(prefix + ".index")
                if self.keep <= 0 or (apart and not 0 <= written - last_kept < apart):
                    self._for_good.add(prefix)
                if prefix in self._for_good:
                    last_kept = written
                elif prefix != best:
                    os.remove(prefix + ".index")  # first: without it the rest is no checkpoint
                    for path in glob.glob(glob.escape(prefix) + ".*"):
                        os.remove(path)
                    kept.remove(prefix)
            if names := [os.path.basename(each) for each in kept if each not in self._for_good]:
                write_text(Path(self.directory) / t2t.STATE_FILE, t2t.state_text(names))

    def clear_unfinished(self) -> None:
        """Removes the files of a process that was killed while it wrote or removed a checkpoint."""
        whole = set(checkpoints_in(self.directory, PREFIX))
        start = f"{glob.escape(self.directory)}/"
        leftovers = glob.glob(f"{start}.{PREFIX}*.unfinished*") + glob.glob(f"{start}*.incomplete")
        for path in glob.glob(f"{start}{PREFIX}*.data-*-of-*"):
            prefix = path.rpartition(".data-")[0]
            if prefix not in whole and prefix == self.prefix(t2t.step_in_name(prefix)):
                leftovers.append(path)
        with writing(self.directory):
            for path in leftovers:
                if os.path.isdir(path):
                    shutil.rmtree(path)
                else:
                    os.remove(path)

    def _state(self) -> dict[str, Any]:
        """T2T's names of the optimizer's slots, and ours of the engine's state -> variables."""
        state = slot_variables(self.engine.model, self.engine.optimizer.t2t_slots())
        return state | {f"{_ENGINE}{name}": each for name, each in self.engine.state().items()}
