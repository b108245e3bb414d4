"""Model, optimizer and compiled step on one or more devices, and the number of batches per step."""

import contextlib
import dataclasses
import functools
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from t2t_keras import optimizers
from t2t_keras.checkpoints.names import t2t_variables
from t2t_keras.data import Batches
from t2t_keras.data.on_the_fly import TextBatches
from t2t_keras.errors import UserError, explained, require_one_of
from t2t_keras.model_kinds import CLASSIFICATION
from t2t_keras.precision import PRECISIONS
from t2t_keras.progress import Progress, UnhandledSignals
from t2t_keras.schedules import learning_rate_schedule
from t2t_keras.settings import HParams
from t2t_keras.training.evaluation import METRICS
from t2t_keras.training.train_step import StepSums, TrainStep
from t2t_keras.transformer import PACKING, Transformer


class Distribution(NamedTuple):
    """A strategy, and which of its hosts this program is."""

    strategy: tf.distribute.Strategy
    replicas: int  # on all hosts; each computes its rows of every batch
    hosts: int  # programs that train together
    host: int  # which of them this one is, from 0


def distribution(kind: str = "auto") -> Distribution:
    """Creates the strategy of a kind.

    "mirrored" uses all devices of this host: its GPUs or, without any, its CPUs (several if
    TensorFlow is configured so). "multi_worker" uses those of all hosts that the environment
    variable TF_CONFIG lists; TensorFlow must not have been used before. "auto" is "multi_worker" if
    TF_CONFIG is set, else "mirrored" if there are several devices, else "none".
    """
    require_one_of("distribute", kind, ("auto", "none", "mirrored", "multi_worker"))
    if kind == "auto" and os.environ.get("TF_CONFIG"):
        kind = "multi_worker"
    if kind == "multi_worker":
        return _multi_worker()
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if kind == "none" or (kind == "auto" and len(devices) == 1):
        return Distribution(tf.distribute.get_strategy(), 1, 1, 0)
    return Distribution(_mirrored(tuple(device.name for device in devices)), len(devices), 1, 0)


# Two strategies in one process would use the same message numbers.
_mirrored = functools.cache(tf.distribute.MirroredStrategy)


@functools.cache
def _multi_worker() -> Distribution:
    config = os.environ.get("TF_CONFIG", "")
    try:
        read = json.loads(config)
        cluster, task = read["cluster"], read["task"]  # a chief is the first host
        hosts = [(k, i) for k in ("chief", "worker") for i in range(len(cluster.get(k, ())))]
        host = hosts.index((task["type"], int(task["index"])))
        if not {*cluster} <= {"chief", "worker"}:  # TensorFlow would wait for a "ps"
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(
            "distribute=multi_worker needs the environment variable TF_CONFIG on every host, like "
            '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, '
            '"task": {"type": "worker", "index": 0}}; '
            f"got {config or 'nothing'}."
        ) from None
    kinds = (RuntimeError, TypeError, ValueError, tf.errors.OpError)
    Progress().say(f"host {host + 1} of {len(hosts)}: waiting for the hosts of TF_CONFIG")
    with explained("the hosts of TF_CONFIG cannot train together", *kinds), UnhandledSignals():
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    return Distribution(strategy, strategy.num_replicas_in_sync, len(hosts), host)


def device_names() -> list[str]:
    """Returns the names of the devices of this host: its GPUs or, without any, its processor."""
    devices = tf.config.list_physical_devices("GPU") or tf.config.list_physical_devices("CPU")
    return [
        tf.config.experimental.get_device_details(device).get("device_name", device.device_type)
        for device in devices
    ]


class Hosts:
    """Exchanges a few numbers between the hosts of a run; every host must make the same calls."""

    def __init__(self, engine):
        self._engine = engine
        self._sum_of_hosts = tf.function(self._exchange)

    def agree(self, chief: Sequence[float], any_host: Sequence[float]) -> list[int]:
        """Returns `chief` of the first host, then for each of `any_host` 1 if it is set on any host."""
        sums = self._sum([*(chief if self._engine.is_chief else [0.0] * len(chief)), *any_host])
        return [int(x) for x in sums[: len(chief)]] + [int(x > 0) for x in sums[len(chief) :]]

    def metrics(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Returns the first host's evaluation metrics on every host."""
        # Only the chief evaluates; the other hosts have none, and it alone has the problem's own.
        there = self._sum([name in metrics for name in METRICS])
        values = self._sum([metrics.get(name, 0.0) for name in METRICS])
        if self._engine.is_chief:
            return dict(metrics)
        return {name: value for name, value, has in zip(METRICS, values, there, strict=True) if has}

    def _sum(self, values: Sequence[float]) -> list[float]:
        ours = [float(value) for value in values]
        if self._engine.hosts == 1:
            return ours
        return [float(x) for x in self._sum_of_hosts(tf.constant(ours, tf.float64))]

    def _exchange(self, values: tf.Tensor) -> tf.Tensor:
        strategy = self._engine.strategy

        def first_replica_of_each_host(values):
            context = tf.distribute.get_replica_context()
            first = context.replica_id_in_sync_group % self._engine.local_replicas == 0
            return context.all_reduce("SUM", tf.where(first, values, tf.zeros_like(values)))

        summed = strategy.run(first_replica_of_each_host, args=(values,))
        return strategy.experimental_local_results(summed)[0]


@dataclasses.dataclass(frozen=True)
class EngineSettings:
    """Settings of training that do not depend on the data."""

    random_seed: int = 0
    """Seed of the initial weights and of dropout."""
    xla: bool | None = None
    """True compiles the step with XLA; None does if there is a GPU."""
    precision: str | None = None
    """Precision of activations and matrix products; weights, softmax, normalisation and loss are always
    float32. None: `hp.activation_dtype`."""
    distribute: str = "auto"
    """See `distribution`."""
    remat: bool = False
    """True for gradient checkpointing, which recomputes each layer's activations in the backward pass."""
    ema: float = 0.0
    """Decay of a moving average of the weights; 0: none."""
    freeze: str = ""
    """Regular expression; weights whose T2T name contains a match are not trained."""


class Engine:
    """Trains a `Transformer`.

    A step is a batch, as in T2T: with `optimizer_multistep_accumulate_steps` = n the weights change
    at every n-th step. With `batches_per_step` a step is one update from that many batches.

    To resume where another engine stopped, set the model's variables, the optimizer's slots,
    `state()` and then `step`, which also sets the optimizer's counter.

    Args:
        hp, source_vocab_size, target_vocab_size, target_space_id: see `Transformer`.
        model_class: `Transformer` or a subclass.
        settings: see `EngineSettings`. With several hosts, TensorFlow must not have been used before.
        train_steps: length of the run, for schedules that decay towards its end.
        batches_per_step: number of batches whose gradients are summed, instead of one batch that is
            too large for a device.
        loss_multiplier: factor on the loss that is minimised and reported (T2T's setting of a problem).

    Attributes:
        model, optimizer: created here, with random weights from the seed.
        strategy, replicas, hosts, host: see `Distribution`; the strategy's scope has all variables.
        is_chief: True on the host that writes the files of the run, the first one.

    Raises:
        UserError: a setting is not supported.
    """

    def __init__(
        self,
        hp: HParams,
        *,
        source_vocab_size: int | None,
        target_vocab_size: int,
        target_space_id: int = 0,
        model_class: type[Transformer] = Transformer,
        settings: EngineSettings = EngineSettings(),
        train_steps: int | None = None,
        batches_per_step: int = 1,
        loss_multiplier: float = 1.0,
    ):
        precision = settings.precision or hp.activation_dtype
        require_one_of("precision", precision, [p for p in PRECISIONS if p != "int8"])
        if not 0 <= settings.ema < 1:
            raise UserError(f"ema must be 0 (none) or more and less than 1, got {settings.ema}.")
        if not 0 <= settings.random_seed < 2**32:
            raise UserError(f"random_seed must be from 0 to 2**32 - 1, got {settings.random_seed}.")
        self.settings, self.batches_per_step = settings, batches_per_step
        self.strategy, self.replicas, self.hosts, self.host = distribution(settings.distribute)
        self.is_chief = self.host == 0
        self.local_replicas = self.replicas // self.hosts
        has_gpu = bool(tf.config.list_physical_devices("GPU"))
        self.xla = has_gpu if settings.xla is None else settings.xla
        keras.utils.set_random_seed(settings.random_seed)
        with self.strategy.scope():
            self.model = model_class.of_sizes(
                hp,
                source_vocab_size,
                target_vocab_size,
                target_space_id=target_space_id,
                remat=settings.remat,
                dtype="float32" if precision == "float32" else f"mixed_{precision}",
            )
            if settings.freeze:
                freeze(self.model, settings.freeze)
            schedule = learning_rate_schedule(hp, train_steps)
            self.optimizer = optimizers.create(hp, train_steps, schedule)
            self._train_step = TrainStep(
                self.model,
                self.optimizer,
                seed=settings.random_seed,
                xla=self.xla,
                learning_rate=lambda batch: schedule(batch // batches_per_step),  # counts steps
                # As in T2T, only one optimizer reads the setting.
                accumulate=batches_per_step * getattr(self.optimizer, "accumulate_steps", 1),
                join=batches_per_step > 1,
                ema=settings.ema,
                scale_loss=precision == "float16",
                loss_multiplier=loss_multiplier,
            )
        self._last_norm = -1.0  # no update yet
        with tf.device("CPU:0"):
            self._last_shape = tf.Variable(tf.zeros([2, 2], tf.int32), trainable=False)
        self._run_steps = tf.function(self._steps)
        self._run_ahead = tf.function(self._ahead, autograph=False)

    @property
    def step(self) -> int:
        """Number of steps done (T2T's `global_step`)."""
        return int(self._train_step.step()) // self.batches_per_step

    @step.setter
    def step(self, step: int) -> None:
        updates, batches = divmod(step * self.batches_per_step, self._train_step.accumulate)
        if self._train_step.loss_scale is not None:
            updates -= int(np.asarray(self._train_step.loss_scale.skipped))
        self.optimizer.iterations.assign(updates)
        if self._train_step.accumulator is not None:
            self._train_step.accumulator.batches.assign(batches)

    @property
    def steps_per_update(self) -> int:
        return self._train_step.accumulate // self.batches_per_step

    @property
    def between_updates(self) -> bool:
        """True if gradients have been accumulated that no update has used yet."""
        accumulator = self._train_step.accumulator
        return accumulator is not None and int(np.asarray(accumulator.batches)) > 0

    @property
    def overflows(self) -> bool:
        """True if gradients in float16 overflow whatever the scale of the loss."""
        scale = self._train_step.loss_scale
        return scale is not None and scale.is_exhausted()

    @property
    def last_learning_rate(self) -> float:
        """The learning rate of the step done last."""
        return float(self._train_step.learning_rate(1))

    def train(self, iterator, steps: int) -> StepSums:
        """Trains on the next batches; returns the sums of the steps as floats, and the last gradient's norm.

        Args:
            iterator: iterator of a `tf.data.Dataset` with this host's rows of all batches. If one
                does not fit into memory, that is a `UserError`.
            steps: number of steps, of `batches_per_step` batches each.
        """
        try:
            *sums, norm = self._run_steps(iterator, tf.constant(steps * self.batches_per_step))
        except tf.errors.ResourceExhaustedError as error:
            raise self._out_of_memory() from error
        if norm >= 0 or np.isnan(norm):
            self._last_norm = float(norm)
        return StepSums._make([*map(float, sums), self._last_norm])

    def state(self) -> dict[str, Any]:
        """Returns extra training state by name: loss scale, moving average, accumulated gradients.

        Between two updates it lacks the gradients of the other hosts: several hosts that accumulate
        gradients must save after an update (`between_updates`).

        Returns:
            Variables with `shape`, `assign` and conversion to numpy. Their shapes never change.
        """
        parts: dict[str, Any] = {}
        if self._train_step.loss_scale is not None:
            parts |= self._train_step.loss_scale.state()
        if self._train_step.average is not None:
            parts |= self._train_step.average.state(self._train_step.names)
        if self.steps_per_update > 1:
            parts |= self._train_step.accumulator.state(self._train_step.names, self.strategy)
        return parts

    def evaluation_weights(self) -> contextlib.AbstractContextManager[None]:
        """Context in which the model has the moving average of its weights, if there is one."""
        average = self._train_step.average
        return contextlib.nullcontext() if average is None else average.in_place()

    def programs(self, shapes: Sequence[tuple[int, int]] | None = None) -> str:
        """Describes what is compiled for batches of these (rows, length): "42 programs ..., XLA on".

        XLA compiles a batch shape again for every device.
        """
        if not self.xla:
            return "1 graph for all batch shapes, XLA off"
        if shapes is None:
            return "1 program per batch shape and device, XLA on"
        programs = len(shapes) * self.local_replicas
        return f"{programs} programs (one per batch shape and device), XLA on"

    def compile_ahead(self, shapes: Sequence[tuple[int, int]], packed: bool = False) -> None:
        """Compiles for every shape by a forward and backward pass, without changing anything.

        Shapes are (rows, length) of the batches of all replicas, which may hold packed rows. If one
        does not fit into memory, that is a `UserError`.
        """
        is_classifier = self.model.kind == CLASSIFICATION
        sides = ("inputs", "targets") if is_classifier else self.model.features
        packing = [name for name in PACKING if name.partition("_")[0] in sides] if packed else []
        for rows, length in shapes:
            shape = [rows // self.hosts, length]
            ids = tf.ones(shape, tf.int32)
            batch = dict.fromkeys([*sides, *packing], ids)
            if is_classifier:
                batch["targets"] = ids[:, :1]  # classes
            try:
                self._run_ahead(batch)
            except tf.errors.ResourceExhaustedError as error:
                self._last_shape.assign([shape, shape])
                raise self._out_of_memory() from error

    def _ahead(self, batch):
        step = self._train_step.forward_backward
        return self.strategy.run(lambda b: step(self._rows_of_replica(b))[1], args=(batch,))

    def _steps(self, iterator, batches):
        totals, norm = tf.zeros([4], tf.float64), tf.constant(-1.0)
        for _ in tf.range(batches):
            batch = next(iterator)
            source, targets = batch.get("inputs", batch["targets"]), batch["targets"]
            noted = self._last_shape.assign([tf.shape(source), tf.shape(targets)])
            with tf.control_dependencies([noted]):  # before a step that runs out of memory
                batch = tf.nest.map_structure(tf.identity, batch)
            accumulator = self._train_step.accumulator
            if accumulator is None:
                *sums, new_norm = self._on_replicas(batch, True)
            else:
                *sums, new_norm = tf.cond(
                    accumulator.batches.value == self._train_step.accumulate - 1,
                    functools.partial(self._on_replicas, batch, True),
                    functools.partial(self._on_replicas, batch, False),
                )
            totals += tf.cast(tf.stack(sums), tf.float64)
            norm = tf.where(new_norm < 0, norm, new_norm)
        return (*tf.unstack(totals), norm)

    @tf.autograph.experimental.do_not_convert
    def _on_replicas(self, batch, last: bool) -> StepSums:
        """Trains on one batch, the last one of an update or not, on all replicas of this host."""
        sums = self.strategy.run(
            lambda rows: self._train_step.update(self._rows_of_replica(rows), last), args=(batch,)
        )
        return StepSums(*(self.strategy.experimental_local_results(x)[0] for x in sums))

    def _rows_of_replica(self, batch):
        """Returns this replica's share of the rows of its host."""
        count = self.local_replicas
        if count == 1:
            return batch
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        replica = tf.convert_to_tensor(replica) - self.host * count
        rows = tf.shape(batch["targets"])[0] // count
        return {name: ids[replica * rows : (replica + 1) * rows] for name, ids in batch.items()}

    def _out_of_memory(self) -> UserError:
        inputs, targets = self._last_shape.numpy()
        rows = targets[0] // self.local_replicas
        lower = "batch_size"
        if not self.model.hp.tokens_per_update:
            lower += " (and raise optimizer_multistep_accumulate_steps to compensate)"
        return UserError(
            f"a batch of {rows} x {inputs[1]} source and {rows} x {targets[1]} target ids "
            f"does not fit into the memory of a device: lower {lower}, max_length"
            f"{'' if self.settings.remat else ', or train with remat'}."
        )


def freeze(model, pattern: str) -> None:
    """Freezes the weights whose T2T name contains a match of a regular expression."""
    named = t2t_variables(model)
    with explained(f"freeze={pattern!r} is not a regular expression", re.error):
        frozen = [name for name in named if re.search(pattern, name)]
    if len(frozen) in (0, len(named)):
        some = ", ".join(sorted(named)[:: max(1, len(named) // 3)])
        raise UserError(
            f"freeze={pattern!r} matches {'all' if frozen else 'no'} names of weights, "
            f"such as {some}: match only some of them."
        )
    for name in frozen:
        named[name].trainable = False


# Updates with a given number of tokens

SLACK = 0.1
"""Tolerance of `tokens_per_update`; beyond it, batches become smaller than `batch_size`."""

_TEXT_TARGET_SHARE = 0.75
"""Estimated target tokens per batch as a fraction of `batch_size`, for text of unknown lengths."""


class UpdateSize(NamedTuple):
    """Batches and target tokens per step."""

    batches: int
    tokens: float  # mean number of target tokens; 0 without `tokens_per_update`


def fit_to_update(
    batches_for: Callable[[HParams], Batches | TextBatches], hp: HParams, replicas: int
) -> tuple[Batches | TextBatches, UpdateSize]:
    """Returns the training batches, and how many of them make a step.

    Without `hp.tokens_per_update` a step is one batch. With it, a step has as few batches as
    `hp.batch_size` allows; they are smaller than that if the tokens would be off by more than `SLACK`.
    """
    batches = batches_for(hp)
    wanted = hp.tokens_per_update
    if not wanted:
        return batches, UpdateSize(1, 0.0)
    if wanted < replicas:
        raise UserError(
            f"hparam tokens_per_update must be {replicas} or more, one for each replica, or 0 for "
            f"one batch, got {wanted}."
        )
    if hp.optimizer_multistep_accumulate_steps > 1:
        raise UserError(
            "hparams tokens_per_update and optimizer_multistep_accumulate_steps both set the number "
            "of batches per update: leave one of them at 0."
        )

    def tokens(batches: Batches | TextBatches, hp: HParams) -> float:
        estimate = _TEXT_TARGET_SHARE * hp.batch_size * replicas
        return batches.target_tokens_per_batch if isinstance(batches, Batches) else estimate

    needed = wanted / tokens(batches, hp)
    number = max(1, math.ceil(needed / (1 + SLACK)))
    if needed / number < 1 - SLACK:
        hp = hp.replace(batch_size=max(1, round(hp.batch_size * needed / number)))
        batches = batches_for(hp)
    return batches, UpdateSize(number, number * tokens(batches, hp))
