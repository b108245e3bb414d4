"""A whole run: data, steps, evaluation, checkpoints, and going on after a stop."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Iterator

import tensorflow as tf

from t2t_keras import data
from t2t_keras.checkpoints import load_t2t, resolve, write_settings
from t2t_keras.checkpoints.run_directory import left_out_of_t2t, read_settings
from t2t_keras.checkpoints.t2t import checkpoints_in
from t2t_keras.data.on_the_fly import TextBatches, stored_encoders
from t2t_keras.data.reading import plain_errors
from t2t_keras.decoding import DecodeSettings
from t2t_keras.errors import UserError
from t2t_keras.files import lock
from t2t_keras.matrix_peak import matrix_peak, operations_a_position, slower_than_float32
from t2t_keras.settings import HParams
from t2t_keras.training.distribution import Hosts, distribution
from t2t_keras.training.engine import Engine, EngineSettings
from t2t_keras.training.evaluation import (
    QUALITIES,
    EarlyStopping,
    Evaluation,
    EvaluationHistory,
    in_words,
    require_metric,
)
from t2t_keras.training.reporting import (
    EventLog,
    LossRecord,
    PhaseTimes,
    Progress,
    RunRecord,
    Speed,
    attention_images,
    versions,
)
from t2t_keras.training.run_checkpoint import PREFIX, RunCheckpoints
from t2t_keras.training.stop_requests import StopRequests
from t2t_keras.training.update_size import fit_to_update

LOSSES = "run/losses"
"""The name of the state of `LossRecord` in a checkpoint."""


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    """What a run does besides its hyperparameters; T2T's flags of the same names.

    Args:
        train_steps: steps of the whole run, those before a restart included.
        local_eval_frequency: steps between evaluations; a checkpoint is written at each.
        eval_steps: batches of an evaluation; 0 takes all.
        log_step_count_steps: steps between the points of TensorBoard's curves.
        save_checkpoints_secs: also write a checkpoint whenever so many seconds have passed; 0: no.
        keep_checkpoint_max: newest checkpoints kept on disk; 0 keeps all. The best one is kept
            besides.
        keep_checkpoint_every_n_hours: keep one of so many hours for good; 0: none.
        best_metric: the figure of dev that tells the best checkpoint; see `EarlyStopping`.
        early_stopping: when evaluation ends the run.
        warm_start_from: a checkpoint of ours or T2T's whose weights a new run begins with.
        compile_ahead: compile for all shapes before the first step.
        attention_images: draw the attention in a sentence of dev for TensorBoard, at evaluations.
        engine: devices, precision, seed and so on.
        decode: how evaluation decodes.
    """

    train_steps: int = 250000
    local_eval_frequency: int = 1000
    eval_steps: int = 100
    log_step_count_steps: int = 100
    save_checkpoints_secs: float = 0
    keep_checkpoint_max: int = 20
    keep_checkpoint_every_n_hours: float = 0
    best_metric: str = "loss"
    early_stopping: EarlyStopping = dataclasses.field(default_factory=EarlyStopping)
    warm_start_from: str | None = None
    compile_ahead: bool = False
    attention_images: bool = False
    engine: EngineSettings = dataclasses.field(default_factory=EngineSettings)
    decode: DecodeSettings = dataclasses.field(default_factory=DecodeSettings)


class Trainer:
    """Trains a problem with a set of hyperparameters in a directory of its own.

    Of several hosts, each runs one; the first writes and evaluates, and all must see its
    directory.

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
        _require_metrics(problem, settings)
        begun = os.path.isdir(output_dir) and checkpoints_in(output_dir, PREFIX)
        if settings.warm_start_from and not begun:
            resolve(settings.warm_start_from)
        if tmp_dir is not None:
            stored_encoders(problem, data_dir, tmp_dir)
        encoders, sizes = problem.get_feature_encoders(data_dir), problem.vocab_sizes(data_dir)
        # Before all else of TensorFlow: hosts must be joined before its first operation.
        place = distribution(settings.engine.distribute)
        options = data.BatchOptions(settings.engine.random_seed, *place[1:])
        self.batches, self.update_size = fit_to_update(
            lambda hp: _batches(problem, "train", data_dir, tmp_dir, hp, options),
            hp,
            place.replicas,
        )
        self.engine = engine = Engine(
            hp,
            source_vocab_size=sizes["inputs"],
            target_vocab_size=sizes["targets"],
            target_space_id=problem.target_space_id,
            settings=settings.engine,
            train_steps=settings.train_steps,
            batches_a_step=self.update_size.batches,
            loss_multiplier=problem.loss_multiplier,
        )
        self.model = engine.model
        if engine.hosts > 1:
            _require_updates(engine.steps_an_update, settings)
        self._packed = bool(getattr(problem, "packed_length", None))
        dev = _batches(problem, "dev", data_dir, tmp_dir, hp, data.BatchOptions(options.seed))
        self._begin_record(problem, hp, on_the_fly=tmp_dir is not None)
        self.checkpoints = RunCheckpoints(
            output_dir,
            engine,
            settings.keep_checkpoint_max,
            settings.keep_checkpoint_every_n_hours,
            self.record.first_started,
        )
        self.evaluation = Evaluation(
            self.model, dev.dataset(), encoders, settings.decode, settings.eval_steps, problem
        )
        self._hosts = Hosts(engine)
        self._losses = LossRecord(
            settings.log_step_count_steps,
            math.log(engine.model.target_vocab_size) * problem.loss_multiplier,
        )
        self._peak = matrix_peak(self.model.compute_dtype) if engine.is_chief else 0.0
        self._speed = Speed(operations_a_position(self.model), self._peak * _devices(engine))
        self._progress = Progress(
            settings.train_steps,
            self._speed,
            self._steps_an_epoch(),
            quiet=not engine.is_chief,
        )
        self._stop = StopRequests()
        self._times = PhaseTimes()
        self._trained = False

    def description(self) -> list[str]:
        """What the run is and what it runs on, for its first lines."""
        engine, precision = self.engine, self.model.compute_dtype
        names = ", ".join(f"{name} {version}" for name, version in versions().items())
        hosts = f" on {engine.hosts} hosts" if engine.hosts > 1 else ""
        size = self.update_size
        slower = slower_than_float32(precision) if engine.is_chief else ""
        number = f"{size.batches} {_plural('batch', size.batches, 'batches')}"
        update = [f"{number} an update, about {size.tokens:,.0f} target tokens"]
        return [
            self.batches.description(),
            *(update if size.tokens else []),
            engine.programs(self.batches.shapes),
            f"{engine.replicas} {_plural('replica', engine.replicas)}{hosts}, "
            f"{', '.join(_device_names())}; {precision}, of which matrix products reach "
            f"{self._peak / 1e9:,.0f} GFLOP/s a device",
            *([f"warning: {slower}"] if slower else []),
            names,
        ]

    def _steps_an_epoch(self) -> float | None:
        batches = getattr(self.batches, "batches_per_epoch", None)
        return batches and batches / self.update_size.batches

    def run(self) -> dict[str, float]:
        """Trains from the newest checkpoint to `train_steps`, or until it is stopped.

        SIGTERM, SIGINT, SIGHUP and early stopping end it as reaching `train_steps` does: a checkpoint is
        there, and what ended it is said in a line.

        Returns:
            The figures of the last evaluation; empty without any.

        Raises:
            UserError: the loss is no number or diverges, data is damaged, a file cannot be
                written.
        """
        with self._alone(), plain_errors(), self._stop:
            with self._times.of("restoring"):
                step = self._restore()
            self._progress.say(self._beginning(step))
            self.history = EvaluationHistory(self.output_dir, step, self.engine.is_chief)
            if self.engine.is_chief:
                self._tidy_checkpoints()
            self._log_to_tensorboard()
            self.record.note(from_step=step, ended="")
            if self.engine.is_chief:
                facts = read_settings(self.output_dir)[1]
                self.train_log.write_run(step, self.model.hp, facts)
            try:
                with plain_errors():
                    ended = self._run(step)
            except _StopRequested:
                ended = self._stopped()
            except UserError as error:
                self._note(ended=str(error))
                raise
            except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
                raise self._host_lost() from error
            self._note(step=self.engine.step, ended=ended)
            self._progress.say(ended)
        steps = sorted(self.history.figures)
        return self.history.figures[steps[-1]] if steps else {}

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Waits for another start of the run, which may still be saving."""
        if not self.engine.is_chief:
            yield
            return
        directory = os.open(self.output_dir, os.O_RDONLY)
        try:
            lock(directory, self.output_dir)
            yield
        finally:
            os.close(directory)

    def _run(self, step: int) -> str:
        """Trains; returns why it ended."""
        s = self.settings
        if s.compile_ahead:
            with self._times.of("compilation"):
                self.engine.compile_ahead(self.batches.shapes or [], self._packed)
        batches = self.batches.dataset(start_step=step * self.update_size.batches)
        iterator = iter(batches if self.engine.xla else data.trim_padding(batches))
        chunk, saved = 1, time.monotonic()
        while True:
            if step >= s.train_steps or (step and step % s.local_eval_frequency == 0):
                self._save()
                saved = time.monotonic()
                with self._times.of("evaluation"):
                    self._evaluate(step)
                self._note(step=step)
                if s.early_stopping.reached(*self.history.of(s.early_stopping.metric)):
                    return self._plateau(step)
            if step >= s.train_steps:
                return f"done: step {step}"
            every = (s.local_eval_frequency, s.log_step_count_steps)
            stop = min(s.train_steps, *((step // n + 1) * n for n in every))
            steps = min(chunk, stop - step)
            seconds = self._train(iterator, step, steps)
            step += steps
            # As many steps as take about a second: seldom enough to cost nothing.
            chunk, save, leave = self._hosts.agree(
                chief=[
                    max(1, min(1000, int(steps / seconds))),
                    0 < s.save_checkpoints_secs < time.monotonic() - saved,
                ],
                any_host=[bool(self._stop.name)],
            )
            if self._can_save() and (save or leave):
                self._save()
                saved = time.monotonic()
                if leave:
                    return self._stopped()
                self._note(step=step)

    def _train(self, iterator, step: int, steps: int) -> float:
        start = time.perf_counter()
        totals = self.engine.train(iterator, steps)
        seconds = time.perf_counter() - start
        # The first call compiles.
        self._times.add("training" if self._trained else "compilation", seconds)
        self._trained = True
        step += steps
        loss = totals.loss / max(totals.tokens, 1.0)
        mean = self._losses.add(step, totals)
        norm = totals.gradient_norm
        if self.model.compute_dtype == "float16":
            norm = 0.0  # infinite in the steps that loss scaling leaves out
        trouble = self._losses.trouble(step, loss, norm)
        if trouble:
            raise UserError(
                f"{trouble}. Lower the learning rate, raise learning_rate_warmup_steps or set "
                "clip_grad_norm, and begin another --output_dir"
                + (f" (--warm_start_from={newest})" if (newest := self.checkpoints.newest) else "")
                + "."
            )
        rate = self.engine.learning_rate
        self._speed.add(steps, totals, seconds)
        self._progress.update(step, loss, rate)
        if mean:
            self.train_log.write(
                step,
                {
                    "loss": mean.loss,
                    "learning_rate": rate,
                    "gradient_norm": totals.gradient_norm,
                    **self._speed.figures(),
                },
            )
        return seconds

    def _evaluate(self, step: int) -> None:
        """Evaluates, unless that was done before the run was stopped at this step."""
        if step in self.history.figures:
            return
        figures = {}
        if self.engine.is_chief:
            with self.engine.evaluation_weights():
                figures = self.evaluation(self._leave_if_asked)
                if self.settings.attention_images:
                    batch = next(iter(self.evaluation.batches))
                    self.eval_log.write_images(step, attention_images(self.model, batch))
        figures = self._hosts.figures(figures)
        self.history.add(step, figures)
        best = self.history.best(self.settings.best_metric)
        words = f"dev loss {figures['loss']:.4f}  accuracy {figures['accuracy']:.4f}"
        words += in_words(figures)
        self._progress.say(
            f"step {step}: {words}" + ("  (the best so far)" if best == step else "")
        )
        if self.engine.is_chief:
            if best == step:
                self.checkpoints.name_best(step)
                self.checkpoints.remove_old()
            self.eval_log.write(step, figures)
            self.train_log.flush()
            self.eval_log.flush()

    def _leave_if_asked(self) -> None:
        if self._stop.name and self.engine.hosts == 1:
            raise _StopRequested

    def _stopped(self) -> str:
        step = self.engine.step
        return f"stopped by {self._stop.name or 'another host'} after step {step}, which is saved"

    def _host_lost(self) -> UserError:
        message = (
            f"another host of this run has ended or cannot be reached: start all {self.engine.hosts} "
            f"again, and they go on from the newest checkpoint in {self.output_dir}"
        )
        self._note(ended=message)
        return UserError(message + ".")

    def _plateau(self, step: int) -> str:
        s = self.settings.early_stopping
        best = self.history.best(self.settings.best_metric) or step
        return (
            f"stopped after step {step}: {s.metric} of dev has not improved by {s.delta} for "
            f"{s.steps} steps; the best checkpoint by {self.settings.best_metric} is "
            f"{self.checkpoints.prefix(best)}"
        )

    def _can_save(self) -> bool:
        """Not where each of several hosts holds gradients of its own until the next update."""
        return self.engine.hosts == 1 or not self.engine.between_updates

    def _save(self) -> None:
        if self.engine.is_chief:
            with self._times.of("saving"):
                self.train_log.flush()  # or points before it could be lost, and not come again
                self.checkpoints.save({LOSSES: self._losses.state()})

    def _note(self, **facts) -> None:
        """Adds facts to this start in `run.json`, and how long it has spent on what."""
        self.record.note(seconds=self._times.rounded(), **facts)

    def _restore(self) -> int:
        """Restores the newest checkpoint, or begins with the weights asked for; returns the step."""
        if self.engine.is_chief:
            self.checkpoints.clear_unfinished()
        extra = self.checkpoints.restore_latest({LOSSES: self._losses.state(), "global_step": 0})
        if extra is not None:
            self.engine.step = int(extra["global_step"])
            self._losses.restore(extra[LOSSES])
        elif self.settings.warm_start_from:
            load_t2t(self.model, self.settings.warm_start_from)
        step = self.engine.step
        if self._hosts.agree(chief=[step], any_host=[])[0] != step:
            raise UserError(
                f"host {self.engine.host} is at step {step} of {self.output_dir}, the first host "
                "is not: all hosts must see the same --output_dir."
            )
        return step

    def _tidy_checkpoints(self) -> None:
        """What was left to do with them when an earlier start was killed; the metric may be new."""
        best = self.history.best(self.settings.best_metric)
        if best is not None and os.path.exists(self.checkpoints.prefix(best) + ".index"):
            self.checkpoints.name_best(best)
        self.checkpoints.remove_old()

    def _beginning(self, step: int) -> str:
        if self.checkpoints.newest:
            return f"going on after step {step} of {self.output_dir}"
        warm = self.settings.warm_start_from
        return f"beginning with the weights of {warm}" if warm else "beginning anew"

    def _begin_record(self, problem, hp: HParams, on_the_fly: bool) -> None:
        s = self.settings.engine
        run = {
            "problem": problem.name,
            "random_seed": s.random_seed,
            "on_the_fly": on_the_fly,
            "precision": self.model.compute_dtype,
            "ema": s.ema,
        }
        engine = self.engine
        if engine.is_chief:
            left_out = left_out_of_t2t(self.output_dir, hp, problem.name, engine.replicas)
            write_settings(self.output_dir, hp, {**self.model.description(), **run})
            if left_out:
                Progress(0, Speed()).say(
                    "warning: what tensor2tensor began here goes on without its "
                    + ", ".join(left_out)
                )
        self.record = RunRecord(
            self.output_dir,
            engine.is_chief,
            replicas=engine.replicas,
            hosts=engine.hosts,
            devices=_device_names(),
            parameters=self.model.count_params(),
            programs=engine.programs(self.batches.shapes),
            train_steps=self.settings.train_steps,
        )
        before = self.record.earlier[-1]["replicas"] if self.record.earlier else engine.replicas
        if before != engine.replicas and engine.is_chief and not self.update_size.tokens:
            Progress(0, Speed()).say(
                f"warning: this run had {before} replicas before and has {engine.replicas} now: "
                "its batches are of another size from here on"
            )

    def _log_to_tensorboard(self) -> None:
        chief = self.engine.is_chief
        self.train_log = EventLog(self.output_dir if chief else None)
        self.eval_log = EventLog(f"{self.output_dir}/eval" if chief else None)


class _StopRequested(Exception):
    """Leaves an evaluation."""


def _require_metrics(problem, settings: TrainSettings) -> None:
    require_metric(settings.best_metric)
    wanted = {settings.best_metric}
    if settings.early_stopping.steps is not None:
        wanted.add(settings.early_stopping.metric)
    packed = getattr(problem, "packed_length", None)
    for name in sorted(wanted & {*QUALITIES}):
        if packed:
            raise UserError(
                f"{problem.name} is packed, so there is no {name}: name loss or accuracy."
            )
        if name != problem.quality_metric:
            raise UserError(
                f"{problem.name} has no {name}: name loss, accuracy or {problem.quality_metric}."
            )


def _require_updates(batches: int, settings: TrainSettings) -> None:
    """Checks that there is an update before each checkpoint that several hosts must write."""
    for name in ("local_eval_frequency", "train_steps"):
        value = getattr(settings, name)
        if value % batches:
            raise UserError(
                f"{name} must be a multiple of optimizer_multistep_accumulate_steps={batches} "
                f"with several hosts, got {value}."
            )


def _batches(
    problem, split: str, data_dir: str, tmp_dir: str | None, hp: HParams, options: data.BatchOptions
) -> data.Batches | TextBatches:
    if tmp_dir is None:
        return data.Batches(problem, split, data_dir, hp, options)
    return TextBatches(problem, split, data_dir, tmp_dir, hp, options)


def _device_names() -> list[str]:
    devices = tf.config.list_physical_devices("GPU") or tf.config.list_physical_devices("CPU")
    return [
        tf.config.experimental.get_device_details(device).get("device_name", device.device_type)
        for device in devices
    ]


def _devices(engine) -> int:
    """How many devices of their own compute: logical ones on a processor share it."""
    return engine.replicas if tf.config.list_physical_devices("GPU") else engine.hosts


def _plural(word: str, number: int, several: str = "") -> str:
    return word if number == 1 else several or word + "s"
