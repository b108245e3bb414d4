"""The checkpoints of a run: model, optimizer and step. The step is the place in the data, too.

A checkpoint is T2T's: `model.ckpt-<step>` with T2T's variable names, Adam's slots among them.
"""

from __future__ import annotations

import glob
import os

import numpy as np
import tensorflow as tf

from t2t_keras.checkpoints.names import SLOTS, is_table, split_table, t2t_variables
from t2t_keras.checkpoints.t2t import assign, checkpoints_in, model_arrays, read, write
from t2t_keras.errors import UserError

PREFIX = "model.ckpt-"


class RunCheckpoints:
    """Saves and restores everything a run needs to go on.

    Args:
        directory: of the run.
        model: a `Transformer`.
        optimizer: its Keras Adam, built.
        keep: how many checkpoints stay on disk (T2T's `--keep_checkpoint_max`); 0 keeps all.
    """

    def __init__(self, directory: str, model, optimizer, keep: int = 20):
        self.directory = directory
        self.model = model
        self.optimizer = optimizer
        self.keep = keep

    def save(self) -> str:
        """Writes a checkpoint of the current step and returns its prefix."""
        step = int(self.optimizer.iterations)
        prefix = os.path.join(self.directory, f"{PREFIX}{step}")
        try:
            write(prefix, {**model_arrays(self.model), **self._optimizer_arrays(step)})
            self._write_index()
            self._remove_old()
        except (OSError, tf.errors.OpError) as error:
            raise UserError(f"checkpoint {prefix} cannot be written: {error}") from error
        return prefix

    def restore_latest(self) -> int:
        """Restores the newest checkpoint, if there is one, and returns its step, else 0."""
        found = self._on_disk()
        if not found:
            return 0
        prefix = found[-1]
        arrays = read(prefix)
        assign(self.model, arrays, prefix)
        for name, slot in self._slots().items():
            if name not in arrays:
                raise UserError(f"checkpoint {prefix} has no {name}: it cannot be trained on.")
            slot.assign(arrays[name])
        step = int(arrays["global_step"])
        self.optimizer.iterations.assign(step)
        return step

    def _slots(self):
        """T2T's names of the optimizer's slots -> Keras variables."""
        by_kind = [
            [v for v in self.optimizer.variables if v.path.endswith(kind)]
            for kind in ("_momentum", "_velocity")
        ]
        slots = {}
        variables = self.model.trainable_variables
        for name, variable in t2t_variables(self.model).items():
            index = next(i for i, other in enumerate(variables) if other is variable)
            for slot, of_kind in zip(SLOTS, by_kind, strict=True):
                slots[f"training/{name}/{slot}"] = of_kind[index]
        return slots

    def _optimizer_arrays(self, step: int) -> dict[str, np.ndarray]:
        arrays: dict[str, np.ndarray] = {
            "global_step": np.asarray(step, np.int64),
            # What T2T's Adam multiplies up: beta to the power of the coming step.
            "training/beta1_power": np.asarray(self.optimizer.beta_1 ** (step + 1), np.float32),
            "training/beta2_power": np.asarray(self.optimizer.beta_2 ** (step + 1), np.float32),
        }
        for name, slot in self._slots().items():
            value = np.asarray(slot)
            if is_table(name):
                table, kind = name.rsplit("/", 1)
                shards = self.model.hp.symbol_modality_num_shards
                for piece_name, piece in split_table(table, value, shards).items():
                    arrays[f"{piece_name}/{kind}"] = piece
            else:
                arrays[name] = value
        return arrays

    def _on_disk(self) -> list[str]:
        return checkpoints_in(self.directory, PREFIX)

    def _write_index(self):
        """Writes TensorFlow's `checkpoint` file, which names the newest and all others."""
        names = [os.path.basename(prefix) for prefix in self._on_disk()]
        lines = [f'model_checkpoint_path: "{names[-1]}"']
        lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
        path = os.path.join(self.directory, "checkpoint")
        with open(path + ".unfinished", "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        os.replace(path + ".unfinished", path)

    def _remove_old(self):
        if not self.keep:
            return
        for prefix in self._on_disk()[: -self.keep]:
            os.remove(prefix + ".index")  # first: without it nobody takes the rest for one
            for path in glob.glob(glob.escape(prefix) + ".*"):
                os.remove(path)
        self._write_index()
