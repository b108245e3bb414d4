"""A whole run: data, steps, evaluation, checkpoints, and going on after a stop."""

from __future__ import annotations

import dataclasses
import math
import time

import keras
import tensorflow as tf

from t2t_keras import data, optimizers
from t2t_keras.checkpoints import write_settings
from t2t_keras.data.on_the_fly import TextBatches
from t2t_keras.data.reading import plain_errors
from t2t_keras.decoding import DecodeSettings
from t2t_keras.errors import UserError
from t2t_keras.settings import HParams
from t2t_keras.training.evaluation import Evaluation
from t2t_keras.training.progress import Progress
from t2t_keras.training.run_checkpoint import RunCheckpoints
from t2t_keras.training.scalars import ScalarLog
from t2t_keras.training.step import TrainStep
from t2t_keras.transformer import Transformer


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    """What a run does besides its hyperparameters; T2T's flags of the same names.

    Args:
        train_steps: steps of the whole run, those before a restart included.
        local_eval_frequency: steps between evaluations; a checkpoint is written at each.
        eval_steps: batches of an evaluation; 0 takes all.
        save_checkpoints_secs: also write a checkpoint whenever so many seconds have passed; 0: no.
        keep_checkpoint_max: checkpoints kept on disk; 0 keeps all.
        random_seed: of weights, data order and dropout.
        xla: compile forward and backward with XLA; None: where there is a GPU.
        decode: how evaluation decodes.
    """

    train_steps: int = 250000
    local_eval_frequency: int = 1000
    eval_steps: int = 100
    save_checkpoints_secs: float = 0
    keep_checkpoint_max: int = 20
    random_seed: int = 0
    xla: bool | None = None
    decode: DecodeSettings = dataclasses.field(default_factory=DecodeSettings)


class Trainer:
    """Trains a problem with a set of hyperparameters in a directory of its own.

    Args:
        problem: a `Problem` whose data has been generated.
        hp: the hyperparameters.
        data_dir: where the data is.
        output_dir: where the run is; a run that is there already goes on.
        settings: how long, how often, how.
        tmp_dir: where source files are; given, they are read on the fly, and no shards are needed.

    Raises:
        UserError: the data is absent or damaged, the directory cannot be written or holds another
            run, or a setting is not offered.
    """

    def __init__(
        self,
        problem,
        hp: HParams,
        data_dir: str,
        output_dir: str,
        settings: TrainSettings = TrainSettings(),
        tmp_dir: str | None = None,
    ):
        self.settings = settings
        self.output_dir = output_dir
        keras.utils.set_random_seed(settings.random_seed)
        self.batches, dev = (
            _batches(problem, split, data_dir, tmp_dir, hp, settings.random_seed)
            for split in ("train", "dev")
        )
        encoders = problem.get_feature_encoders(data_dir)
        self.model = Transformer(
            hp,
            source_vocab_size=encoders["inputs"].vocab_size,
            target_vocab_size=encoders["targets"].vocab_size,
            target_space_id=problem.target_space_id,
        )
        optimizer = optimizers.create(hp, settings.train_steps)
        has_gpu = bool(tf.config.list_physical_devices("GPU"))
        xla = has_gpu if settings.xla is None else settings.xla
        self.step = TrainStep(self.model, optimizer, seed=settings.random_seed, xla=xla)
        run = {
            "problem": problem.name,
            "random_seed": settings.random_seed,
            "on_the_fly": tmp_dir is not None,
        }
        write_settings(output_dir, hp, {**self.model.description(), **run})
        self.checkpoints = RunCheckpoints(
            output_dir, self.model, optimizer, settings.keep_checkpoint_max
        )
        self.evaluation = Evaluation(
            self.model, dev.dataset(), encoders, settings.decode, settings.eval_steps
        )
        self.train_log = ScalarLog(output_dir)
        self.eval_log = ScalarLog(f"{output_dir}/eval")
        self._run_steps = tf.function(self._steps)

    def run(self) -> dict[str, float]:
        """Trains from the newest checkpoint to `train_steps`; returns the last evaluation."""
        s = self.settings
        step = self.checkpoints.restore_latest()
        progress = Progress(s.train_steps)
        if step:
            progress.say(f"going on after step {step} of {self.output_dir}")
        with plain_errors():
            return self._run(step, progress)

    def _run(self, step: int, progress: Progress) -> dict[str, float]:
        s = self.settings
        iterator = iter(self.batches.dataset(start_step=step))
        figures: dict[str, float] = {}
        chunk, saved = 1, time.monotonic()
        while step < s.train_steps:
            next_event = min(_next_multiple(step, s.local_eval_frequency), s.train_steps)
            steps = min(chunk, next_event - step)
            seconds = self._train(iterator, step, steps, progress)
            step += steps
            # As many steps as take about a second: seldom enough to cost nothing.
            chunk = max(1, min(1000, int(steps / seconds)))
            evaluate = step == next_event
            if evaluate or 0 < s.save_checkpoints_secs < time.monotonic() - saved:
                self.checkpoints.save()
                saved = time.monotonic()
            if evaluate:
                figures = self._evaluate(step, progress)
        return figures or self._evaluate(step, progress)

    def _train(self, iterator, step: int, steps: int, progress: Progress) -> float:
        start = time.perf_counter()
        loss, tokens = (float(x) for x in self._run_steps(iterator, tf.constant(steps)))
        seconds = time.perf_counter() - start
        loss /= max(tokens, 1.0)
        step += steps
        rate = float(self.step.optimizer.learning_rate)
        if not math.isfinite(loss):
            raise UserError(
                f"the loss became {loss} before step {step}: lower the learning rate (or raise "
                "learning_rate_warmup_steps), set clip_grad_norm, and restart from "
                f"the last checkpoint in {self.output_dir}."
            )
        progress.update(step, steps, loss, rate, tokens, seconds)
        self.train_log.write(
            step,
            {"loss": loss, "learning_rate": rate, "target_tokens_per_second": tokens / seconds},
        )
        return seconds

    def _steps(self, iterator, steps):
        loss, tokens = 0.0, 0.0
        for _ in tf.range(steps):
            step_loss, step_tokens = self.step(next(iterator))
            loss += step_loss
            tokens += step_tokens
        return loss, tokens

    def _evaluate(self, step: int, progress: Progress) -> dict[str, float]:
        figures = self.evaluation()
        bleu = f"  BLEU {figures['bleu']:.2f}" if "bleu" in figures else ""
        progress.say(
            f"step {step}: dev loss {figures['loss']:.4f}  accuracy {figures['accuracy']:.4f}{bleu}"
        )
        self.eval_log.write(step, figures)
        self.train_log.flush()
        self.eval_log.flush()
        return figures


def _batches(problem, split: str, data_dir: str, tmp_dir: str | None, hp: HParams, seed: int):
    if tmp_dir is None:
        return data.Batches(problem, split, data_dir, hp, seed=seed)
    return TextBatches(problem, split, data_dir, tmp_dir, hp, seed=seed)


def _next_multiple(step: int, of: int) -> int:
    return (step // of + 1) * of
