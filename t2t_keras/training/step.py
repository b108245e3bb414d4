"""One training step: compiled forward and backward, one sum over replicas, compiled update."""

from __future__ import annotations

import keras
import tensorflow as tf

from t2t_keras.layers import keep_mask_scope
from t2t_keras.losses import padded_cross_entropy
from t2t_keras.training.batch_function import batch_function

CALL_SITES = 1 << 16
"""More dropout calls than a model makes in one step; keeps their seeds apart."""


class TrainStep:
    """Updates a `Transformer` from one batch at a time.

    The gradient is that of the summed loss divided by the number of target tokens of all
    replicas, so that every token counts alike wherever it stands.

    Args:
        model: the `Transformer`.
        optimizer: a Keras optimizer; built here.
        seed: of the dropout masks, which depend on it, the step, the replica and the call site.
        xla: whether forward and backward are compiled by XLA.
    """

    def __init__(self, model, optimizer: keras.optimizers.Optimizer, *, seed: int, xla: bool):
        self.model = model
        self.optimizer = optimizer
        self.seed = seed
        optimizer.build(model.trainable_variables)
        seeds = tf.TensorSpec([2], tf.int64)
        self._forward_backward = batch_function(self._sums, seeds, jit_compile=xla)
        self._update = tf.function(self._apply, jit_compile=True)

    def __call__(self, batch):
        """Trains on {"inputs": [B, S], "targets": [B, T]}, or on such a batch of packed rows.

        Returns:
            Sum of token losses and number of target tokens, float32 scalars.
        """
        context = tf.distribute.get_replica_context()
        replica = tf.convert_to_tensor(context.replica_id_in_sync_group)
        seeds = tf.stack(
            [
                tf.constant(self.seed, tf.int64) + tf.cast(replica, tf.int64) * (1 << 32),
                tf.cast(self.optimizer.iterations, tf.int64) * CALL_SITES,
            ]
        )
        gradients, loss, tokens = self._forward_backward(batch, seeds)
        *gradients, loss, tokens = context.all_reduce("SUM", [*gradients, loss, tokens])
        self._update(gradients, tokens)
        return loss, tokens

    def _sums(self, batch, seeds):
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape, keep_mask_scope(philox_keep_mask(seeds)):
            logits = self.model(batch, training=True)
            loss, tokens = padded_cross_entropy(
                logits, batch["targets"], self.model.hp.label_smoothing
            )
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        return [tf.convert_to_tensor(gradient) for gradient in gradients], loss, tokens

    def _apply(self, gradients, tokens):
        gradients = [gradient / tf.maximum(tokens, 1.0) for gradient in gradients]
        if self.model.hp.clip_grad_norm:
            gradients, _ = tf.clip_by_global_norm(gradients, self.model.hp.clip_grad_norm)
        self.optimizer.apply(gradients, self.model.trainable_variables)


def philox_keep_mask(seeds):
    """Dropout masks from raw Philox bits, the same bits with and without XLA.

    Args:
        seeds: [2] int64; the n-th mask asked for uses [seeds[0], seeds[1] + n].
    """
    calls = 0

    def keep_mask(shape, rate):
        nonlocal calls
        seed = seeds + tf.constant([0, calls], tf.int64)
        calls += 1
        bits = tf.random.stateless_uniform(
            shape, seed, minval=None, maxval=None, dtype=tf.uint32, alg="philox"
        )
        return bits >= tf.constant(int(rate * 2**32), tf.uint32)

    return keep_mask
