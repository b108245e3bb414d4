"""One training step: forward and backward, one sum over replicas, update, each a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from t2t_keras.checkpoints.names import trainable_names
from t2t_keras.ids import PAD_ID
from t2t_keras.layers import keep_mask_scope
from t2t_keras.losses import padded_cross_entropy
from t2t_keras.open_graph import open_graph
from t2t_keras.optimizers import Adam, AdamW, MultistepAdam, with_weight_decay
from t2t_keras.training.accumulation import Accumulator
from t2t_keras.training.loss_scale import LossScale
from t2t_keras.training.moving_average import MovingAverage

CALL_SITES = 1 << 16
"""More dropout calls than a model makes in one step; keeps their seeds apart."""

_PHILOX = 1  # as TensorFlow's operations call it


class StepSums(NamedTuple):
    """What a step counts, over all replicas: float32 scalars."""

    loss: tf.Tensor  # sum of token losses
    tokens: tf.Tensor  # target tokens
    source_tokens: tf.Tensor
    positions: tf.Tensor  # of both sides, padding included
    gradient_norm: tf.Tensor  # before clipping; of batches that bring no update: -1


class TrainStep:
    """Updates a `Transformer` from one batch at a time.

    The gradient is that of the summed loss divided by the number of target tokens of all
    replicas, so that every token counts alike wherever it stands. To it `weight_decay` is added;
    then it is clipped. Of several batches that make an update, T2T clips each, and adds them then.

    All variables made here and by the optimizer belong under the strategy's scope. A step is called
    as it is or, replica by replica, by `strategy.run`.

    Args:
        model: the `Transformer`.
        optimizer: a Keras optimizer; built here.
        seed: of the dropout masks, which depend on it, the step, the replica and the call site.
        xla: whether forward, backward and update are compiled by XLA.
        learning_rate: of the number of the batch; the optimizer's own if absent.
        accumulate: how many batches make an update, by the mean of their gradients.
        join: by the gradient of their tokens together instead, as if they were one batch.
        ema: decay of a moving average of the weights; 0: none.
        scale_loss: for float16: scales the loss, and leaves out updates that overflow.
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
        self.model = model
        self.optimizer = optimizer
        self.seed = seed
        self.accumulate = accumulate
        self.join = join
        self.loss_multiplier = loss_multiplier
        self._learning_rate = learning_rate
        self.variables = list(model.trainable_variables)
        self.names = trainable_names(model)
        optimizer.build(self.variables)
        self.accumulator: Any = Accumulator(self.variables) if accumulate > 1 else None
        self._clip_batches = accumulate > 1 and not join and model.hp.clip_grad_norm > 0
        self.average = MovingAverage(self.variables, ema) if ema else None
        self.loss_scale = LossScale() if scale_loss else None
        self._forward_backward = open_graph(self._sums, jit_compile=xla)
        self._ready = tf.function(self._prepared, jit_compile=xla, autograph=False)
        self._update = tf.function(self._apply, jit_compile=xla, autograph=False)

    def __call__(self, batch):
        """Trains on {"inputs": [B, S], "targets": [B, T]}, or on such a batch of packed rows.

        Returns:
            Sum of token losses and number of target tokens, float32 scalars.
        """
        sums = self.update(batch)
        return sums.loss, sums.tokens

    def update(self, batch) -> StepSums:
        """Trains on a batch, with the gradients accumulated before."""
        context = tf.distribute.get_replica_context()
        rate = self.learning_rate()  # of this batch: T2T's too, where several make an update
        gradients, sums = self.forward_backward(batch)
        if self.accumulator is None:
            *gradients, sums = context.all_reduce("SUM", [*gradients, sums])
            divisor = self._divisor(sums)
        else:
            share, sums = self._share(gradients, sums)
            total, tokens = self.accumulator.taken(share, sums[1])
            gradients = context.all_reduce("SUM", total)
            divisor = tf.maximum(tokens, 1.0) if self.join else float(self.accumulate)
        norm = self._update(gradients, tf.convert_to_tensor(divisor), rate)
        finite = tf.constant(True)
        if self.loss_scale is not None:
            finite = tf.math.is_finite(norm)
            self.loss_scale.update(finite)
        self.optimizer.iterations.assign_add(tf.cast(finite, self.optimizer.iterations.dtype))
        return StepSums._make([*tf.unstack(sums), norm])

    def add(self, batch) -> StepSums:
        """Keeps the gradients of a batch for the coming update."""
        share, sums = self._share(*self.forward_backward(batch))
        self.accumulator.add(share, sums[1])
        return StepSums._make([*tf.unstack(sums), tf.constant(-1.0)])

    def _share(self, gradients, sums):
        """What this replica adds of a batch to the accumulated gradients; the sums of all replicas."""
        context = tf.distribute.get_replica_context()
        if self._clip_batches:
            *gradients, sums = context.all_reduce("SUM", [*gradients, sums])
            gradients, _ = self._ready(gradients, self._divisor(sums))
            return [g / context.num_replicas_in_sync for g in gradients], sums
        sums = context.all_reduce("SUM", sums)
        divisor = self._scale() if self.join else self._divisor(sums)
        return [gradient / divisor for gradient in gradients], sums

    def _divisor(self, sums):
        """What makes the gradient of the mean loss of that of the scaled sum."""
        return tf.maximum(sums[1], 1.0) * self._scale()

    def forward_backward(self, batch):
        """Gradients of the (scaled) sum of token losses, and the sums of this replica [4]."""
        seeds = mask_seeds(self.seed, self.step())
        return self._forward_backward(dict(batch), seeds, self._scale())

    def step(self):
        """Batches trained on, an int64 scalar (T2T's `global_step`)."""
        updates = _int64(self.optimizer.iterations)
        if self.loss_scale is not None:
            updates = updates + _int64(self.loss_scale.skipped)
        if self.accumulator is None:
            return updates
        return updates * self.accumulate + _int64(self.accumulator.batches)

    def learning_rate(self):
        """Of the coming update, a float32 scalar."""
        if self._learning_rate is None:
            return tf.convert_to_tensor(self.optimizer.learning_rate)
        return tf.convert_to_tensor(self._learning_rate(self.step()))

    def _scale(self):
        return tf.constant(1.0) if self.loss_scale is None else self.loss_scale.scale.value

    def _sums(self, batch, seeds, scale):
        with tf.GradientTape() as tape, keep_mask_scope(philox_keep_mask(seeds)):
            logits = self.model(batch, training=True)
            loss, tokens = padded_cross_entropy(
                logits, batch["targets"], self.model.hp.label_smoothing
            )
            loss = loss * self.loss_multiplier
            scaled = loss if self.loss_scale is None else loss * scale
        gradients = tape.gradient(scaled, [variable.value for variable in self.variables])
        source_tokens = tf.math.count_nonzero(batch["inputs"] != PAD_ID, dtype=tf.int32)
        positions = tf.size(batch["inputs"]) + tf.size(batch["targets"])
        counts = [tf.cast(count, tf.float32) for count in (source_tokens, positions)]
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        for gradient, variable in zip(gradients, self.variables, strict=True):
            gradient.set_shape(variable.shape)  # which a table's gradient does not know
        return gradients, tf.stack([loss, tokens, *counts])

    def _prepared(self, gradients, divisor):
        """The gradients with decay, clipped, and the norm of all together before it is clipped."""
        hp = self.model.hp
        gradients = [gradient / divisor for gradient in gradients]
        gradients = with_weight_decay(gradients, self.variables, self.names, hp.weight_decay)
        norm = tf.linalg.global_norm(gradients)
        if hp.clip_grad_norm:
            gradients, _ = tf.clip_by_global_norm(gradients, hp.clip_grad_norm, norm)
        return gradients, norm

    def _apply(self, gradients, divisor, learning_rate):
        """Updates the weights; returns the norm of all gradients together."""
        if self._clip_batches:
            gradients = [gradient / divisor for gradient in gradients]
            norm = tf.linalg.global_norm(gradients)
        else:
            gradients, norm = self._prepared(gradients, divisor)

        def assign():
            kinds = (Adam, AdamW, MultistepAdam)
            if type(self.optimizer) in kinds and not self.optimizer.amsgrad:
                self._update_by_adam(gradients, learning_rate)
            else:
                for gradient, variable in zip(gradients, self.variables, strict=True):
                    self.optimizer.update_step(gradient, variable, learning_rate)
            if self.average is not None:
                self.average.update()

        if self.loss_scale is None:
            assign()
        else:
            tf.cond(tf.math.is_finite(norm), assign, lambda: None)
        return norm

    def _update_by_adam(self, gradients, learning_rate):
        """Updates the weights in place, by the operation that T2T's Adam is: one for a variable."""
        adam = self.optimizer
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
        for gradient, *variables in zip(gradients, self.variables, *slots, strict=True):
            places = dict(zip(("var", "m", "v"), (v.value.handle for v in variables), strict=True))
            tf.raw_ops.ResourceApplyAdam(grad=gradient, **places, **settings)


def _int64(variable):
    return tf.cast(tf.convert_to_tensor(variable.value), tf.int64)


def mask_seeds(seed: int, step):
    """The seeds [2] int64 of the dropout masks of a step on this replica."""
    replica = tf.convert_to_tensor(tf.distribute.get_replica_context().replica_id_in_sync_group)
    return tf.stack(
        [
            tf.constant(seed, tf.int64) + tf.cast(replica, tf.int64) * (1 << 32),
            tf.cast(step, tf.int64) * CALL_SITES,
        ]
    )


def philox_keep_mask(seeds):
    """Dropout masks from raw Philox bits, the same bits with and without XLA.

    Args:
        seeds: [2] int64; the n-th mask asked for uses [seeds[0], seeds[1] + n].
    """
    return _PhiloxKeepMask(seeds)


class _PhiloxKeepMask:
    def __init__(self, seeds):
        seeds = tf.cast(seeds, tf.uint64)
        self.key = seeds[:1]
        # Its low half counts the numbers of one mask.
        self.counter = tf.stack([tf.constant(0, tf.uint64), seeds[1]])
        self.calls = 0

    def __call__(self, shape, rate):
        # 16 bits decide for an element: half the random numbers, and 0.1 is 0.100006.
        even = [axis for axis, size in enumerate(shape) if isinstance(size, int) and size % 2 == 0]
        halved = [size // 2 if [axis] == even[:1] else size for axis, size in enumerate(shape)]
        words = tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=halved,
            key=self.key,
            counter=self.counter + tf.constant([0, self.calls], tf.uint64),
            alg=_PHILOX,
            dtype=tf.uint32,
        )
        self.calls += 1
        bits = tf.bitcast(words, tf.uint16)  # [..., 2]
        bits = tf.reshape(bits, shape) if even else bits[..., 0]
        return bits >= tf.constant(round(rate * 2**16), tf.uint16)
