"""A whole run: data, steps, evaluation, checkpoints, and resuming."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from t2t_keras import data, registry
from t2t_keras.checkpoints import read_settings, resolve, write_settings
from t2t_keras.checkpoints.run_directory import describe, left_out_of_t2t, require_same_settings
from t2t_keras.checkpoints.t2t import checkpoints_in, step_in_name
from t2t_keras.data.on_the_fly import TextBatches, stored_encoders
from t2t_keras.data.reading import plain_errors
from t2t_keras.decoding import DecodeSettings
from t2t_keras.errors import UserError
from t2t_keras.files import changes, locked_directory, write_text, writing
from t2t_keras.progress import StopRequests
from t2t_keras.settings import HParams
from t2t_keras.text.encoders import vocabulary_digest
from t2t_keras.training import evaluation
from t2t_keras.training.engine import (
    Engine,
    EngineSettings,
    Hosts,
    device_names,
    distribution,
    fit_to_update,
)
from t2t_keras.training.reporting import EventLog, LossRecord, RunRecord, TrainingProgress, versions
from t2t_keras.training.run_checkpoint import PREFIX, RunCheckpoints
from t2t_keras.training.train_step import StepSums
from t2t_keras.training.warm_start import warm_start

LOSSES = "run/losses"
"""Name of the `LossRecord` state in a checkpoint."""


@dataclasses.dataclass(frozen=True)
class TrainSettings:
    """Settings of a run besides its hyperparameters, named like T2T's flags."""

    model: str = "transformer"
    """Registered name of the model (T2T's `--model`)."""
    train_steps: int = 250000
    """Total steps of the run, including those before a restart."""
    local_eval_frequency: int = 1000
    """Steps between evaluations; each one also writes a checkpoint."""
    eval_steps: int = 100
    """Batches per evaluation; 0 takes all."""
    log_step_count_steps: int = 100
    """Steps between points of the TensorBoard curves."""
    save_checkpoints_secs: float = 0
    """Seconds after which to write another checkpoint between evaluations; 0: never."""
    keep_checkpoint_max: int = 20
    """Number of newest checkpoints to keep; 0 keeps all. The best one is always kept."""
    keep_checkpoint_every_n_hours: float = 0
    """Keep one checkpoint per this many hours permanently; 0: none."""
    best_metric: str = "loss"
    """Dev metric that selects the best checkpoint; see `EarlyStopping`."""
    early_stopping: evaluation.EarlyStopping = dataclasses.field(
        default_factory=evaluation.EarlyStopping
    )
    """The rule by which evaluations end the run early."""
    warm_start_from: str | None = None
    """A checkpoint, ours or T2T's, with the initial weights of a new run."""
    warm_start_vocab: str | None = None
    """Directory of that checkpoint's vocabulary; None: the directory recorded beside it."""
    compile_ahead: bool = False
    """Compile for all shapes before the first step."""
    attention_page: Callable[..., str] | None = None
    """Makes the page `eval/attention-STEP.html` from the model, the encoders, a dev batch and a title,
    such as `inspection.batch_page`; None: no pages."""
    engine: EngineSettings = dataclasses.field(default_factory=EngineSettings)
    """Devices, precision, seed etc."""
    decode: DecodeSettings = dataclasses.field(default_factory=DecodeSettings)
    """Decode settings for evaluation."""


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """As `plain_errors`; the loss of another host becomes a `UserError`, too."""
    try:
        with plain_errors():
            yield
    except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
        raise UserError(
            "another host of this run has ended or cannot be reached: start all hosts again to resume "
            "from the newest checkpoint."
        ) from error
    except tf.errors.InvalidArgumentError as error:
        if "Shape mismatch in the collective" not in error.message:
            raise
        raise UserError("hosts need equal --hparams and vocabularies: theirs differ.") from error


@dataclasses.dataclass(eq=False)
class Trainer:
    """Trains a model for a problem, with files in a directory of its own.

    With several hosts, each runs one; the first writes and evaluates, and all see its directory.

    Args:
        problem: a `Problem` whose data has been generated.
        hp: the hyperparameters.
        data_dir: directory of the data.
        output_dir: directory of the run; an existing run is resumed.
        settings: see `TrainSettings`.
        tmp_dir: directory of source files; if given, they are read on the fly instead of shards.

    Raises:
        UserError: by `prepare` and `run`: the data is missing or damaged, the directory holds another
            run, or a setting is not supported.
    """

    problem: Any
    hp: HParams
    data_dir: str
    output_dir: str
    settings: TrainSettings = TrainSettings()
    tmp_dir: str | None = None

    def __post_init__(self):
        self.data_dir = os.path.abspath(self.data_dir)
        self._stop = StopRequests()
        self._seconds: dict[str, float] = collections.defaultdict(float)  # by phase
        self._prepared = False

    @_plain_errors()
    def prepare(self) -> Trainer:
        """Opens the data, makes the model, checks the run's settings; `run` calls it if needed."""
        problem, hp, s, data_dir = self.problem, self.hp, self.settings, self.data_dir
        evaluation.require_metrics(problem, s.best_metric, s.early_stopping)
        if min(s.local_eval_frequency, s.log_step_count_steps) < 1:
            raise UserError("local_eval_frequency and log_step_count_steps must be 1 or more.")
        model_class = registry.model(s.model)
        registry.require_fit(problem, model_class)
        begun = os.path.isdir(self.output_dir) and checkpoints_in(self.output_dir, PREFIX)
        warm = None if begun else s.warm_start_from
        if warm:
            resolve(warm)
        if self.tmp_dir is not None:
            stored_encoders(problem, data_dir, self.tmp_dir)
        of_problem = problem.get_hparams(hp, data_dir)
        distributed = distribution(s.engine.distribute)
        options = data.BatchOptions(s.engine.random_seed, *distributed[1:])
        self.batches, self.update_size = fit_to_update(
            lambda hp: self._batches("train", hp, options), hp, distributed.replicas
        )
        self.engine = engine = Engine(
            hp,
            source_vocab_size=of_problem.vocab_size.get("inputs"),
            target_vocab_size=of_problem.vocab_size["targets"],
            target_space_id=of_problem.target_space_id,
            model_class=model_class,
            settings=s.engine,
            train_steps=s.train_steps,
            batches_per_step=self.update_size.batches,
            loss_multiplier=of_problem.loss_multiplier,
        )
        self.model = model = engine.model
        for name in ("local_eval_frequency", "train_steps"):
            value, batches = getattr(s, name), engine.steps_per_update
            if engine.hosts > 1 and value % batches:  # each checkpoint must come after an update
                raise UserError(
                    f"{name} must be a multiple of optimizer_multistep_accumulate_steps={batches} "
                    f"with several hosts, got {value}."
                )
        self._run_settings = {  # those besides the hyperparameters that affect the result
            **describe(model),
            "problem": problem.name,
            "vocabulary": {side: vocabulary_digest(e) for side, e in of_problem.vocabulary.items()},
            "shards": self.batches.shards,
            "random_seed": s.engine.random_seed,
            "on_the_fly": self.tmp_dir is not None,
            "precision": model.compute_dtype,
            "ema": s.engine.ema,
            "freeze": s.engine.freeze,
        }
        self._require_same_settings()
        dev = self._batches("dev", hp, data.BatchOptions(options.seed))
        self._dev = {"dev_text" if self.tmp_dir else "dev_shards": dev.shards}
        self.evaluation = evaluation.Evaluation(
            model, dev.dataset(), of_problem.vocabulary, s.decode, s.eval_steps, problem
        )
        self.checkpoints = RunCheckpoints(
            self.output_dir, engine, s.keep_checkpoint_max, s.keep_checkpoint_every_n_hours
        )
        self._hosts = Hosts(engine)
        uniform = math.log(model.target_vocab_size) * of_problem.loss_multiplier
        self._losses = LossRecord(s.log_step_count_steps, uniform)
        batches_per_epoch = getattr(self.batches, "batches_per_epoch", None)
        steps_per_epoch = batches_per_epoch and batches_per_epoch / self.update_size.batches
        self._progress = TrainingProgress(s.train_steps, steps_per_epoch, quiet=not engine.is_chief)
        self._warm_started = ""
        if warm:  # before anything is recorded, so that a misfit begins no run
            encoders, vocab_dir = of_problem.vocabulary, s.warm_start_vocab
            self._warm_started = warm_start(model, warm, encoders, problem, vocab_dir)
        self._prepared = True
        return self

    def _batches(
        self, split: str, hp: HParams, options: data.BatchOptions
    ) -> data.Batches | TextBatches:
        if self.tmp_dir is not None:
            return TextBatches(self.problem, split, self.data_dir, self.tmp_dir, hp, options)
        if hp.subword_sampling and split == "train":
            raise UserError(
                f"subword_sampling={hp.subword_sampling} needs --on_the_fly: shards hold one "
                "segmentation of each text."
            )
        return data.Batches(self.problem, split, self.data_dir, hp, options)

    def description(self) -> list[str]:
        """Returns the first lines that a run prints: batches, programs, devices and versions."""
        engine = self.engine
        hosts = f" on {engine.hosts} hosts" if engine.hosts > 1 else ""
        replicas = f"{engine.replicas} {'replica' if engine.replicas == 1 else 'replicas'}{hosts}"
        number, tokens = self.update_size
        update = f"{number} {'batch' if number == 1 else 'batches'} per update, "
        return [
            self.batches.description(),
            *([f"{update}about {tokens:,.0f} target tokens"] if tokens else []),
            engine.programs(self.batches.shapes),
            f"{replicas}, {', '.join(device_names())}; {self.model.compute_dtype}",
            ", ".join(f"{name} {version}" for name, version in versions().items()),
        ]

    def run(self) -> dict[str, float]:
        """Trains from the newest checkpoint to `train_steps`, or until it is stopped.

        SIGTERM, SIGINT, SIGHUP and early stopping end it like reaching `train_steps`: with a
        checkpoint and a line with the reason.

        Returns:
            The metrics of the last evaluation; empty if there was none.

        Raises:
            UserError: another process has meanwhile started a different run here, the loss is not a
                number or diverges, data is damaged, or a file cannot be written.
        """
        if not self._prepared:
            self.prepare()
        with self._locked(), _plain_errors(), self._stop:
            self._begin_record()
            with self._timed("restoring"):
                step = self._restore()
            self.record.note(from_step=step, ended="")
            try:
                chief = self.engine.is_chief
                evaluated = max(self.history.metrics, default=0)
                self.train_log = EventLog(self.output_dir if chief else None, step)
                self.eval_log = EventLog(f"{self.output_dir}/eval" if chief else None, evaluated)
                if chief:
                    self.train_log.write_run(step, self.hp, read_settings(self.output_dir)[1])
                with _plain_errors():
                    ended = self._run(step)
            except _StopRequested:
                ended = self._stopped()
            except UserError as error:
                with contextlib.suppress(UserError):  # a full disk must not hide the error itself
                    self._note(ended=str(error))
                raise
            self._note(step=self.engine.step, ended=ended)
            self._progress.say(ended)
        steps = sorted(self.history.metrics)
        return self.history.metrics[steps[-1]] if steps else {}

    def _run(self, step: int) -> str:
        """Trains; returns why it ended."""
        s = self.settings
        if s.compile_ahead:
            packed = bool(self.problem.packed_length)
            with self._timed("compilation"):
                self.engine.compile_ahead(self.batches.shapes or [], packed)
        batches = self.batches.dataset(start_step=step * self.update_size.batches)
        iterator = iter(batches if self.engine.xla else data.trim_padding(batches))
        chunk, saved, phase = 1, time.monotonic(), "compilation"  # the first call compiles
        while True:
            if step >= s.train_steps or (step and step % s.local_eval_frequency == 0):
                self._save()
                saved = time.monotonic()
                with self._timed("evaluation"):
                    self._evaluate(step)
                self._note(step=step)
                rule = s.early_stopping
                if rule.reached(*self.history.of(rule.metric)):
                    return (
                        f"stopped after step {step}: {rule.metric} of dev has not improved by "
                        f"{rule.delta} for {rule.steps} steps; the best checkpoint by {s.best_metric} "
                        f"is {self.checkpoints.prefix(self._best() or step)}"
                    )
            if step >= s.train_steps:
                return f"done: step {step}"
            every = (s.local_eval_frequency, s.log_step_count_steps)
            stop = min(s.train_steps, *((step // n + 1) * n for n in every))
            steps = min(chunk, stop - step)
            start = time.perf_counter()
            try:
                sums = self.engine.train(iterator, steps)
            except (tf.errors.UnknownError, tf.errors.InvalidArgumentError):  # a damaged record
                with contextlib.suppress(UserError):  # a full disk must not hide it
                    if self.engine.hosts == 1:
                        self._save()
                raise
            seconds = time.perf_counter() - start
            self._seconds[phase] += seconds
            phase = "training"
            step += steps
            self._report(step, sums, seconds)
            # About a second: Python and the exchange with hosts cost nothing, and a signal waits little.
            chunk = max(1, min(1000, int(steps / seconds)))
            is_due = 0 < s.save_checkpoints_secs < time.monotonic() - saved
            asked = bool(self._stop.name)
            chunk, save, stop_now = self._hosts.agree(chief=[chunk, is_due], any_host=[asked])
            # Between updates, each of several hosts has its own accumulated gradients.
            can_save = self.engine.hosts == 1 or not self.engine.between_updates
            if can_save and (save or stop_now):
                self._save()
                saved = time.monotonic()
                if stop_now:
                    return self._stopped()
                self._note(step=step)

    def _report(self, step: int, sums: StepSums, seconds: float) -> None:
        """Reports on the steps before `step`; raises a `UserError` if the loss is not a number or diverges."""
        mean = self._losses.add(step, sums)
        # With float16, the norm is infinite in the steps that loss scaling skips.
        norm = 0.0 if self.model.compute_dtype == "float16" else sums.gradient_norm
        if reason := self._losses.divergence(step, sums.loss / max(sums.tokens, 1.0), norm):
            raise self._diverged(reason)
        if self.engine.overflows:
            raise self._diverged("gradients overflow in float16, nothing is learned: use bfloat16")
        rate = self.engine.last_learning_rate
        self._progress.update(step, sums, seconds, rate)
        if mean is not None:
            values = {"loss": mean, "learning_rate": rate}
            if not sums.gradient_norm < 0:  # there was an update since the start
                values["gradient_norm"] = sums.gradient_norm
            self.train_log.write(step, values | self._progress.speed)

    def _diverged(self, reason: str) -> UserError:
        """Returns the error for a run that learns nothing more; it names the newest sound checkpoint."""
        steps, losses = self.history.of("loss")
        sound = [s for s, loss in zip(steps, losses, strict=True) if math.isfinite(loss)]
        newest = self.checkpoints.prefix(sound[-1]) if sound else ""
        return UserError(
            f"{reason}. Lower the learning rate, raise learning_rate_warmup_steps or set "
            "clip_grad_norm, and start again in another --output_dir"
            + (f" (--warm_start_from={newest})." if os.path.exists(f"{newest}.index") else ".")
        )

    def _evaluate(self, step: int) -> None:
        """Evaluates, unless this step was evaluated before the run was interrupted."""
        if step in self.history.metrics:
            return
        metrics = {}
        if self.engine.is_chief:
            with self.engine.evaluation_weights():
                metrics = self.evaluation(self._leave_if_asked)
                if self.settings.attention_page:
                    # of the first dev sentence; the command has checked for pairs of texts
                    batch = next(iter(self.evaluation.batches))
                    title = f"{self.problem.name}, step {step}"
                    encoders = self.evaluation.translator.encoders
                    page = self.settings.attention_page(self.model, encoders, batch, title)
                    os.makedirs(f"{self.output_dir}/eval", exist_ok=True)
                    write_text(f"{self.output_dir}/eval/attention-{step}.html", page)
        metrics = self._hosts.metrics(metrics)
        if self.engine.is_chief:  # before the record: what is recorded is not evaluated again
            self.eval_log.write(step, metrics)
            self.train_log.flush()
            self.eval_log.flush()
        self.history.add(step, metrics)
        best = self._best() == step
        words = f"dev loss {metrics['loss']:.4f}  accuracy {metrics['accuracy']:.4f}"
        words += evaluation.format_metrics(metrics) + ("  (the best so far)" if best else "")
        self._progress.say(f"step {step}: {words}")
        if self.engine.is_chief and best:
            self.checkpoints.name_best(step)
            self.checkpoints.remove_old()
        if not math.isfinite(metrics["loss"]):
            raise self._diverged(f"the loss of dev is {metrics['loss']} after step {step}")

    def _best(self) -> int | None:
        """Returns the best step that still has a checkpoint: `best_metric` may have changed."""
        saved = set(map(step_in_name, checkpoints_in(self.output_dir, PREFIX)))
        return self.history.best(self.settings.best_metric, saved)

    def _leave_if_asked(self) -> None:
        if self._stop.name and self.engine.hosts == 1:
            raise _StopRequested

    def _stopped(self) -> str:
        return f"stopped by {self._stop.name or 'another host'} after step {self.engine.step}, which is saved"

    # The directory of the run

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Locks the run's directory; waits for another process, which may still be saving."""
        if not self.engine.is_chief:
            yield
            return
        with writing(self.output_dir):
            os.makedirs(self.output_dir, exist_ok=True)
        # A process with other settings may train for days: report that at once instead of waiting.
        with locked_directory(self.output_dir, self._require_same_settings):
            yield

    def _require_same_settings(self) -> None:
        if self.engine.is_chief:
            require_same_settings(self.output_dir, self.hp, self._run_settings)

    def _begin_record(self) -> None:
        """Writes the settings of a new run, and adds this start to `run.json`."""
        engine = self.engine
        if engine.is_chief:
            left_out = left_out_of_t2t(self.output_dir, self.hp, self.problem.name, engine.replicas)
            write_settings(self.output_dir, self.hp, self._run_settings)
            if left_out:
                what = "the run that tensor2tensor started here is resumed without its"
                self._progress.warn(f"{what} {', '.join(left_out)}")
        s, schedule = self.settings, self.hp.learning_rate_schedule
        stops = [s.train_steps, s.local_eval_frequency, s.log_step_count_steps]
        if self._hosts.agree(chief=stops, any_host=[]) != stops:
            what = "train_steps, local_eval_frequency and log_step_count_steps"
            raise UserError(f"{what} must be the same on all hosts, got {stops} on one of them.")
        # From here on the directory exists, with the settings of the first host.
        if not engine.is_chief:
            if read_settings(self.output_dir)[0] is None:
                raise UserError(
                    f"host {engine.host + 1} does not find what the first host wrote into "
                    f"{self.output_dir}: all hosts must see the same --output_dir."
                )
            require_same_settings(self.output_dir, self.hp, self._run_settings)
        figures: dict[str, Any] = {**self._dev, "best_metric": s.best_metric}
        figures |= {"eval_steps": s.eval_steps, **s.decode.deciding()}
        if "linear_decay" in schedule or "single_cycle_cos_decay" in schedule:
            figures["train_steps"] = s.train_steps
        self.record = RunRecord(
            self.output_dir,
            engine.is_chief,
            replicas=engine.replicas,
            hosts=engine.hosts,
            data_dir=self.data_dir,
            devices=device_names(),
            parameters=self.model.count_params(),
            programs=engine.programs(self.batches.shapes),
            train_steps=s.train_steps,
            figures=figures,
        )
        self.checkpoints.run_started = self.record.first_started
        last = self.record.earlier[-1] if self.record.earlier else {}
        before = last.get("replicas", engine.replicas)
        if before != engine.replicas and not self.update_size.tokens:
            self._progress.warn(
                f"replicas of this run were {before} and are now {engine.replicas}: its batch size "
                "changes from here on"
            )
        old = last.get("figures", {})
        now = {name: value for name, value in figures.items() if name in old}
        if differences := changes({name: old[name] for name in now}, now):
            self._progress.warn(
                f"{', '.join(differences)}: from here on, figures or best checkpoints of this run are not "
                "comparable with the earlier ones"
            )

    def _note(self, **facts) -> None:
        """Adds facts and the times of phases to this start in `run.json`."""
        seconds = {phase: round(value, 3) for phase, value in self._seconds.items()}
        self.record.note(seconds=seconds, **facts)

    @contextlib.contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        """Adds the time inside the context to a phase, also after an exception."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[phase] += time.perf_counter() - start

    def _restore(self) -> int:
        """Restores the newest checkpoint, if there is one; returns the step.

        It also finishes the work of a start that was killed; `best_metric` may have changed since.
        """
        if self.engine.is_chief:
            self.checkpoints.clear_unfinished()
        extra = self.checkpoints.restore_latest({LOSSES: self._losses.state(), "global_step": 0})
        if extra is not None:
            self.engine.step = int(extra["global_step"])
            self._losses.restore(extra[LOSSES])
        elif self._warm_started:
            self._progress.say(self._warm_started)
        step = self.engine.step
        if self._hosts.agree(chief=[step], any_host=[])[0] != step:
            raise UserError(
                f"host {self.engine.host + 1} is at step {step} of {self.output_dir}, but the first host "
                "is not: all hosts must see the same --output_dir."
            )
        warm = self.settings.warm_start_from
        new = f"starting a new run with the weights of {warm}" if warm else "starting a new run"
        resumed = f"resuming from step {step} of {self.output_dir}"
        resumed += f", not starting from {warm}" if warm else ""
        self._progress.say(resumed if self.checkpoints.newest else new)
        self.history = evaluation.EvaluationHistory(self.output_dir, step, self.engine.is_chief)
        if self.engine.is_chief:
            if (best := self._best()) is not None:
                self.checkpoints.name_best(best)
            self.checkpoints.remove_old()
        return step

    def _save(self) -> None:
        if self.engine.is_chief:
            with self._timed("saving"):
                self.train_log.flush()  # steps before the checkpoint are not repeated
                self.checkpoints.save({LOSSES: self._losses.state()})


class _StopRequested(Exception):
    """Leaves an evaluation."""
