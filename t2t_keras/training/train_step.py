"""One training step: forward and backward pass, sum over replicas, weight update; its masks and state."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.checkpoints.names import trainable_names
from t2t_keras.errors import UserError
from t2t_keras.ids import PAD_ID
from t2t_keras.layers.sublayers import keep_mask_scope, seed_states
from t2t_keras.open_graph import open_graph
from t2t_keras.optimizers import Adam, AdamW, MultistepAdam, with_weight_decay

CALL_SITES = 1 << 16
"""Upper bound of dropout calls in one step, which keeps the seeds of two steps apart."""


class StepSums(NamedTuple):
    """Sums over all replicas: float32 scalars of a step, or floats of several steps."""

    loss: Any  # sum of token losses
    tokens: Any  # target tokens
    source_tokens: Any
    positions: Any  # of both sides, including padding
    gradient_norm: Any  # before clipping, unless per batch; -1: no update; of several, the last


class TrainStep:
    """Updates a `Transformer` from one batch at a time.

    The gradient is that of the summed loss divided by the number of target tokens of all replicas, so
    that all tokens have the same weight. `weight_decay` is added to it, then it is clipped. If several
    batches make an update, T2T clips the gradient of each batch before adding them.

    Create the step and its optimizer in the strategy's scope. Call `update` directly or, on each
    replica, with `strategy.run`.

    Args:
        model: the `Transformer`.
        optimizer: a Keras optimizer without clipping, decay or average of its own; built here.
        seed: seed of the dropout masks, which also depend on the step, the replica and the call site.
        xla: True compiles forward pass, backward pass and update with XLA.
        learning_rate: function of the number of the batch; by default the optimizer's.
        accumulate: batches per update, whose gradients are averaged.
        join: True takes the gradient over all their tokens instead, as if they were one batch.
        ema: decay of a moving average of the weights; 0 for none.
        scale_loss: True scales the loss and skips updates that overflow, for float16.
        loss_multiplier: factor on the loss, in its sum and its gradient (T2T's).
    """

    def __init__(
        self,
        model,
        optimizer: keras.optimizers.Optimizer,
        *,
        seed: int,
        xla: bool,
        learning_rate: Callable[[Any], Any] | None = None,
        accumulate: int = 1,
        join: bool = False,
        ema: float = 0.0,
        scale_loss: bool = False,
        loss_multiplier: float = 1.0,
    ):
        self.model, self.optimizer, self.seed = model, optimizer, seed
        self.accumulate, self.join, self.loss_multiplier = accumulate, join, loss_multiplier
        self._learning_rate = learning_rate
        self.variables = list(model.trainable_variables)
        self.names = trainable_names(model)
        own = "clipnorm clipvalue global_clipnorm weight_decay use_ema gradient_accumulation_steps"
        left_out = [name for name in own.split() if getattr(optimizer, name)]
        if type(optimizer) in (keras.optimizers.Nadam, keras.optimizers.LossScaleOptimizer):
            left_out = [f"parts of {type(optimizer).__name__}"]
        if left_out:
            raise UserError(
                f"TrainStep only calls update_step, which leaves out {', '.join(left_out)}: use "
                "hparams clip_grad_norm and weight_decay, or TrainStep's accumulate, ema and scale_loss."
            )
        optimizer.build(self.variables)
        self.accumulator: Any = Accumulator(self.variables) if accumulate > 1 else None
        self._clip_batches = accumulate > 1 and not join and model.hp.clip_grad_norm > 0
        self.average = MovingAverage(self.variables, ema) if ema else None
        self.loss_scale = LossScale() if scale_loss else None
        self._forward_backward = open_graph(self._gradients_and_sums, jit_compile=xla)
        self._compiled_prepare = tf.function(self._prepare, jit_compile=xla, autograph=False)
        self._compiled_apply = tf.function(self._apply, jit_compile=xla, autograph=False)

    def update(self, batch, last: bool = True) -> StepSums:
        """Updates the weights with the gradients of a batch and those accumulated before.

        Args:
            batch: {"inputs": [B, S], "targets": [B, T]}, also with packed rows.
            last: False accumulates the gradients of the batch for a later update instead.
        """
        gradients, sums = self.forward_backward(batch)
        if self.accumulator is None or self._clip_batches:
            *gradients, sums = sum_of_replicas([*gradients, sums])
        else:  # the update sums the gradients
            sums = sum_of_replicas(sums)
        divisor = tf.constant(1.0) if self.join else tf.maximum(sums[1], 1.0)
        if self.loss_scale is not None:
            divisor = divisor * self.loss_scale.scale.value
        if self.accumulator is not None:
            if self._clip_batches:
                gradients, _ = self._compiled_prepare(gradients, divisor)
                # Each replica has the whole gradient here, and the update will sum over replicas.
                divisor = tf.distribute.get_replica_context().num_replicas_in_sync
            gradients = [gradient / divisor for gradient in gradients]
            if not last:
                self.accumulator.add(gradients, sums[1])
                return StepSums._make([*tf.unstack(sums), tf.constant(-1.0)])
        rate = self.learning_rate()  # as in T2T, that of the last batch of an update
        if self.accumulator is not None:
            total, tokens = self.accumulator.taken(gradients, sums[1])
            gradients = sum_of_replicas(total)
            divisor = tf.maximum(tokens, 1.0) if self.join else tf.constant(float(self.accumulate))
        norm = self._compiled_apply(gradients, divisor, rate)
        finite = tf.constant(True)
        if self.loss_scale is not None:
            finite = tf.math.is_finite(norm)
            self.loss_scale.update(finite)
        self.optimizer.iterations.assign_add(tf.cast(finite, self.optimizer.iterations.dtype))
        return StepSums._make([*tf.unstack(sums), norm])

    def forward_backward(self, batch):
        """Returns the gradients of the (scaled) sum of token losses, and this replica's sums [4]."""
        return self._forward_backward(dict(batch), mask_seeds(self.seed, self.step()))

    def step(self):
        """Returns the number of batches trained on, an int64 scalar; several may make one step of `Engine`."""
        # Derived from variables that checkpoints hold anyway, so that no counter can disagree.
        step = tf.cast(self.optimizer.iterations, tf.int64)
        if self.loss_scale is not None:
            step += tf.cast(self.loss_scale.skipped, tf.int64)
        if self.accumulator is not None:
            step = step * self.accumulate + tf.cast(self.accumulator.batches, tf.int64)
        return step

    def learning_rate(self, earlier: int = 0):
        """Returns the learning rate of the next batch's update, or so many batches earlier: float32."""
        if self._learning_rate is None:
            return tf.convert_to_tensor(self.optimizer.learning_rate)
        return tf.convert_to_tensor(self._learning_rate(self.step() - earlier))

    def _gradients_and_sums(self, batch, seeds):
        for i, state in enumerate(seed_states(self.model)):
            state.assign(tf.cast(tf.random.experimental.stateless_fold_in(seeds, i), "uint32"))
        with tf.GradientTape() as tape, keep_mask_scope(PhiloxKeepMask(seeds)):
            loss, tokens = self.model.training_sums(batch)
            if len(self.model.trainable_variables) != len(self.variables):
                late = "weights were frozen or built by a layer's first call, too late for this training"
                raise UserError(f"{late}: freeze, or build in `build`, before the step is made.")
            scaled = loss = loss * self.loss_multiplier
            if self.loss_scale is not None:
                scaled = loss * self.loss_scale.scale.value
        # The gradient of an embedding table is IndexedSlices of unknown shape.
        values = [variable.value for variable in self.variables]
        gradients = tape.gradient(scaled, values, unconnected_gradients="zero")  # of unused parts
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        for gradient, variable in zip(gradients, self.variables, strict=True):
            gradient.set_shape(variable.shape)
        source = batch.get("inputs", tf.zeros([0, 0], tf.int32))
        source_tokens = tf.math.count_nonzero(source != PAD_ID, dtype=tf.int32)
        positions = tf.size(source) + tf.size(batch["targets"])
        counts = [tf.cast(count, tf.float32) for count in (source_tokens, positions)]
        return gradients, tf.stack([loss, tokens, *counts])

    def _prepare(self, gradients, divisor):
        """Adds weight decay and clips; returns the gradients and their global norm before clipping."""
        hp = self.model.hp
        gradients = [gradient / divisor for gradient in gradients]
        gradients = with_weight_decay(gradients, self.variables, self.names, hp.weight_decay)
        norm = tf.linalg.global_norm(gradients)
        if hp.clip_grad_norm:
            gradients, _ = tf.clip_by_global_norm(gradients, hp.clip_grad_norm, norm)
        return gradients, norm

    def _apply(self, gradients, divisor, learning_rate):
        """Updates the weights; returns the gradients' global norm before clipping, if not clipped per batch."""
        if self._clip_batches:  # decay and clipping were applied per batch
            gradients = [gradient / divisor for gradient in gradients]
            norm = tf.linalg.global_norm(gradients)
        else:
            gradients, norm = self._prepare(gradients, divisor)
        if self.loss_scale is None:
            self._assign(gradients, learning_rate)
        else:  # after a float16 overflow the update is skipped and the loss scale halved
            assign = functools.partial(self._assign, gradients, learning_rate)
            tf.cond(tf.math.is_finite(norm), assign, lambda: None)
        return norm

    def _assign(self, gradients, learning_rate):
        adam: Any = self.optimizer
        if type(adam) in (Adam, AdamW, MultistepAdam) and not adam.amsgrad:
            # TensorFlow's fused Adam (as T2T): one operation for each variable
            if isinstance(adam, AdamW):
                for variable in self.variables:
                    variable.assign_sub(variable * adam.decay)
            update = tf.cast(adam.iterations.value + 1, tf.float32)
            settings = {
                "beta1_power": adam.beta_1**update,
                "beta2_power": adam.beta_2**update,
                "lr": learning_rate,
                "beta1": tf.constant(adam.beta_1),
                "beta2": tf.constant(adam.beta_2),
                "epsilon": tf.constant(adam.epsilon),
            }
            slots = adam.t2t_slots().values()
            for gradient, *places in zip(gradients, self.variables, *slots, strict=True):
                var, m, v = (variable.value.handle for variable in places)
                tf.raw_ops.ResourceApplyAdam(var=var, m=m, v=v, grad=gradient, **settings)
        else:
            for gradient, variable in zip(gradients, self.variables, strict=True):
                self.optimizer.update_step(gradient, variable, learning_rate)
        for variable in self.variables:
            if variable.constraint is not None:
                variable.assign(variable.constraint(variable))
        if self.average is not None:
            self.average.update()


def sum_of_replicas(values):
    """Returns the sums over all replicas of (nested) tensors.

    One replica makes no sum: TensorFlow never frees the graph that has one.
    """
    context = tf.distribute.get_replica_context()
    return values if context.num_replicas_in_sync == 1 else context.all_reduce("SUM", values)


def mask_seeds(seed: int, step):
    """Returns the seeds [2] int64 for the dropout masks of a step on this replica."""
    replica = tf.convert_to_tensor(tf.distribute.get_replica_context().replica_id_in_sync_group)
    of_replica = tf.constant(seed, tf.int64) + tf.cast(replica, tf.int64) * (1 << 32)
    return tf.stack([of_replica, tf.cast(step, tf.int64) * CALL_SITES])


class PhiloxKeepMask:
    """A `KeepMask` that uses raw bits of Philox (`alg` 1), which are the same with and without XLA.

    Of seeds [2] int64, the n-th mask uses [seeds[0], seeds[1] + n].
    """

    def __init__(self, seeds):
        seeds = tf.cast(seeds, tf.uint64)
        self.key = seeds[:1]
        # The operation increments the low half for the numbers of one mask.
        self.counter = tf.stack([tf.constant(0, tf.uint64), seeds[1]])
        self.calls = 0
        self.rounding = tf.cast(self._words([], CALL_SITES - 1), tf.float32) * 2.0**-32  # 0 to 1

    def _words(self, shape, call):
        counter = self.counter + tf.constant([0, call], tf.uint64)
        return tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=shape, key=self.key, counter=counter, alg=1, dtype=tf.uint32
        )

    def __call__(self, shape, rate):
        # 8 bits per element quarter the random numbers to draw; how many of their 256 values are zeroed is
        # rounded at random once a step, so that every element's probability is `rate` (255/256 at most).
        number = math.prod(shape)
        bits = tf.bitcast(self._words([(number + 3) // 4], self.calls), tf.uint8)  # [words, 4]
        self.calls += 1
        bits = tf.reshape(tf.reshape(bits, [-1])[:number], shape)
        return bits >= tf.saturate_cast(tf.floor(256 * rate + self.rounding), tf.uint8)


# Training state that some settings add; create it in the strategy's scope


def _kept(name: str, value: Any = 0.0, dtype: str = "float32") -> keras.Variable:
    return keras.Variable(value, dtype=dtype, trainable=False, name=name)


class Accumulator:
    """Sums of the gradients of several batches (T2T's MultistepAdam).

    Each replica sums its own, so that replicas exchange gradients only once per update.
    """

    def __init__(self, variables):
        self.tokens = _kept("tokens")
        self.batches = _kept("batches", 0, "int32")
        self.sums = [_kept("gradients", tf.zeros(variable.shape)) for variable in variables]

    def add(self, gradients, tokens) -> None:
        """Adds this replica's gradients of a batch, and the batch's tokens on all replicas."""
        for total, gradient in zip(self.sums, gradients, strict=True):
            total.assign(total + gradient)
        self.tokens.assign(self.tokens + tokens)
        self.batches.assign(self.batches + 1)

    def taken(self, gradients, tokens) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Returns the sums and the tokens including the last batch, and resets both."""
        tokens = self.tokens + tokens
        taken = []
        for total, gradient in zip(self.sums, gradients, strict=True):
            taken.append(total + gradient)
            total.assign(tf.zeros_like(gradient))
        self.tokens.assign(tf.zeros_like(self.tokens.value))
        self.batches.assign(tf.zeros_like(self.batches.value))
        return taken, tokens

    def state(self, names, strategy: tf.distribute.Strategy) -> dict[str, SumOfReplicas]:
        """Returns the sums over the replicas of this host, by name."""
        named = zip(names, self.sums, strict=True)
        return {f"{name}/gradients": SumOfReplicas(total, strategy) for name, total in named}


@dataclasses.dataclass
class SumOfReplicas:
    """The sum of a variable's values on the replicas of this host, for checkpoints.

    Assigning sets the first replica of all hosts to the sum and the others to zero. With several
    replicas, terms are therefore added in a different order after a restart.
    """

    variable: keras.Variable
    strategy: tf.distribute.Strategy

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.variable.shape)

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        parts = self.strategy.experimental_local_results(self.variable.value)
        total = np.asarray(parts[0]).copy()
        for part in parts[1:]:
            total += np.asarray(part)
        return total if dtype is None else total.astype(dtype)

    def assign(self, value) -> None:
        """Sets the sum; call it on every host."""
        value = tf.convert_to_tensor(value, tf.float32)

        def put():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            is_first = tf.equal(tf.convert_to_tensor(replica), 0)
            self.variable.assign(tf.where(is_first, value, tf.zeros_like(value)))

        self.strategy.run(put)


FIRST_LOSS_SCALE = 32768.0
"""The scale of the first update (T2T's `mixed_precision_optimizer_init_loss_scale`)."""

LOSS_SCALE_DOUBLED_AFTER = 2000
"""Number of updates without overflow after which the scale is doubled, as in T2T."""


class LossScale:
    """Factor on the loss, which prevents float16 gradients from underflowing.

    It is halved after an overflow and doubled after many updates without one. All replicas have the
    same scale, since they see the same gradients.
    """

    def __init__(self):
        self.scale = _kept("loss_scale", FIRST_LOSS_SCALE)
        self.good = _kept("loss_scale_good_updates", 0, "int32")
        self.skipped = _kept("loss_scale_skipped_updates", 0, "int32")

    def update(self, finite) -> None:
        """Adapts the scale: `finite` is True if all gradients of an update were finite."""
        good = tf.where(finite, self.good + 1, 0)
        doubled = good == LOSS_SCALE_DOUBLED_AFTER
        factor = tf.where(finite, tf.where(doubled, 2.0, 1.0), 0.5)
        self.scale.assign(tf.maximum(self.scale * factor, 1.0))
        self.good.assign(tf.where(doubled, tf.zeros_like(good), good))
        self.skipped.assign(self.skipped + tf.where(finite, 0, 1))

    def is_exhausted(self) -> bool:
        """Returns True if the last update overflowed with the smallest scale: the next ones will, too."""
        return float(np.asarray(self.scale)) <= 1.0 and not int(np.asarray(self.good))

    def state(self) -> dict[str, keras.Variable]:
        return {variable.name: variable for variable in (self.scale, self.good, self.skipped)}


class MovingAverage:
    """Exponential moving average of the weights; after the first update it is a copy of them.

    average = decay * average + (1 - decay) * weight, after every update.
    """

    def __init__(self, variables, decay: float):
        self.variables = list(variables)
        self.decay = decay
        self.updates = _kept("ema_updates", 0, "int64")
        self.averages = [_kept("average", tf.zeros(each.shape)) for each in self.variables]

    def update(self) -> None:
        decay = tf.where(self.updates > 0, self.decay, 0.0)
        for average, variable in zip(self.averages, self.variables, strict=True):
            average.assign(average + (1.0 - decay) * (variable - average))
        self.updates.assign(self.updates + 1)

    def state(self, names) -> dict[str, keras.Variable]:
        named = zip(names, self.averages, strict=True)
        return {"ema_updates": self.updates, **{f"{name}/ema": each for name, each in named}}

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Context in which the model has the averages; has no effect before the first update."""
        if not int(np.asarray(self.updates)):
            yield
            return
        weights = [tf.identity(variable.value) for variable in self.variables]
        for variable, average in zip(self.variables, self.averages, strict=True):
            variable.assign(tf.identity(average.value))
        try:
            yield
        finally:
            for variable, weight in zip(self.variables, weights, strict=True):
                variable.assign(weight)
