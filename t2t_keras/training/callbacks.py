"""Callbacks for Keras's `model.fit`: checkpoints, BLEU or F1 on dev, the trainer's dropout masks."""

from typing import Any

import keras
import numpy as np

from t2t_keras import optimizers
from t2t_keras.checkpoints import write_settings
from t2t_keras.checkpoints.names import slot_variables
from t2t_keras.checkpoints.run_directory import describe
from t2t_keras.checkpoints.t2t import checkpoints_in, step_in_name
from t2t_keras.errors import UserError
from t2t_keras.layers import keep_mask_scope
from t2t_keras.training.run_checkpoint import PREFIX, RunCheckpoints
from t2t_keras.training.train_step import PhiloxKeepMask, mask_seeds, sum_of_replicas


class SaveCheckpoints(keras.callbacks.Callback):
    """Saves checkpoints that T2T and the commands can read and a run can resume from.

    A checkpoint has the model, the optimizer and the step under T2T's names; the settings are in the
    run's directory. With `prepare_fit` and a dataset that starts at the restored step, the losses
    after a restart are those of an uninterrupted run:

        saving = SaveCheckpoints(model, directory, every=1000)
        batches = t2t_keras.data.dataset(..., start_step=saving.restore())
        model.fit(batches, callbacks=[saving], ...)

    Args:
        model: a `Transformer`, compiled with one of `t2t_keras.optimizers`.
        directory: directory of the run; created if absent.
        every: steps between checkpoints; 0 saves only at the end of an epoch.
        keep: number of newest checkpoints to keep on disk; 0 keeps all.

    Raises:
        UserError: the directory holds a run with other settings or cannot be written, or the
            optimizer is not one of `t2t_keras.optimizers`.
    """

    def __init__(self, model, directory: str, *, every: int = 0, keep: int = 20):
        super().__init__()
        if every < 0:
            raise UserError(f"every must be 0 or more steps, got {every}.")
        self.every = every
        self._run = _Run(model)
        write_settings(directory, model.hp, describe(model))
        self._checkpoints = RunCheckpoints(directory, self._run, keep)

    def restore(self) -> int:
        """Restores the newest checkpoint; returns its step, 0 if there is none."""
        found = self._checkpoints.restore_latest({"global_step": np.asarray(0)})
        step = int(found["global_step"]) if found else 0
        self._run.optimizer.iterations.assign(step)
        return step

    def on_train_batch_end(self, batch, logs=None):
        # With `steps_per_execution` a "batch" is several steps, which may skip a multiple of `every`.
        if self.every and self._run.step // self.every > self._saved // self.every:
            self._save()

    def on_train_begin(self, logs=None):
        directory = self._checkpoints.directory
        found = [] if self._checkpoints.newest else checkpoints_in(directory, PREFIX)
        if self._run.optimizer is not self._run.model.optimizer:
            raise UserError("the model was compiled again: create SaveCheckpoints after that.")
        if found and step_in_name(found[-1]) > self._run.step:
            raise UserError(f"{directory} holds a longer run: call restore() before fit.")
        self._saved = self._run.step

    def on_epoch_end(self, epoch, logs=None):
        self._save()

    def _save(self):
        self._checkpoints.save({})
        self._saved = self._run.step


class EvaluateOnDev(keras.callbacks.Callback):
    """Adds the metrics of a `training.Evaluation` to the logs of an epoch: "val_loss", "val_bleu" and so on.

    `evaluation` is called at the end of each `every`-th epoch, from 1. Later callbacks in the list, such as
    `keras.callbacks.EarlyStopping`, can monitor them.
    """

    def __init__(self, evaluation, every: int = 1):
        super().__init__()
        if every < 1:
            raise UserError(f"every must be 1 or more epochs, got {every}.")
        self.evaluation, self.every = evaluation, every

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None and (epoch + 1) % self.every == 0:
            logs.update({f"val_{name}": value for name, value in self.evaluation().items()})


class _Run:
    """A compiled model as the engine of `RunCheckpoints`."""

    def __init__(self, model):
        optimizer: Any = model.optimizer if model.compiled else None
        if not isinstance(optimizer, optimizers.WITH_SLOTS):
            raise UserError(
                "only a model compiled with an optimizer of t2t_keras.optimizers can be saved as a "
                f"run, got {type(optimizer).__name__}."
            )
        if optimizer.gradient_accumulation_steps:
            raise UserError(
                "gradients that Keras accumulates with gradient_accumulation_steps cannot be saved: "
                "train with t2t-keras-train."
            )
        self.model, self.optimizer = model, optimizer
        with model.distribute_strategy.scope():
            optimizer.build(model.trainable_variables)
        slot_variables(model, optimizer.t2t_slots())  # refuses weights that have no place, of LoRA

    @property
    def step(self) -> int:
        return int(np.asarray(self.optimizer.iterations))

    def state(self):
        """Returns the optimizer's variables that T2T has no names for, such as Keras's averages, by number."""
        known = {id(each) for slots in self.optimizer.t2t_slots().values() for each in slots}
        unknown = [each for each in self.optimizer.variables if id(each) not in known]
        others = [each for each in unknown if each.name not in ("iteration", "learning_rate")]
        return {f"optimizer/{number}": each for number, each in enumerate(others)}


def prepare_fit(model, seed: int = 0) -> None:
    """Makes `fit` draw dropout masks like the trainer, and weigh the tokens of all replicas equally.

    Without it, masks are Keras's: not repeatable after a restart, and the same on all replicas. Call it
    after `compile`; it applies to all later calls of `fit`. A mask also depends on the shape of its
    batch: without XLA, the trainer's batches are those of `data.trim_padding`.

    Args:
        model: a `Transformer`, compiled without a loss.
        seed: seed of the masks, which also depend on the step, the replica and the call site.
    """

    def train_step(data):
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        batches = optimizer.variables[0]  # `iterations` counts updates, if gradients accumulate
        with keep_mask_scope(PhiloxKeepMask(mask_seeds(seed, batches))):
            return type(model).train_step(model, data)

    model.train_step = train_step
    model.sum_over_replicas = sum_of_replicas
