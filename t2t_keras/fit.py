"""Keras's `compile` and `fit` on T2T's loss: the base class of `Transformer`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from t2t_keras import (
    losses,
    optimizers,  # noqa: F401 - registered for `keras.models.load_model` of a compiled model
    schedules,  # noqa: F401 - likewise
)
from t2t_keras.errors import UserError
from t2t_keras.layers.dropout import KeepMask, keep_mask_scope
from t2t_keras.settings import HParams


class TokenFit(keras.Model):
    """A Keras model that trains on T2T's loss if it is compiled without one.

    `fit` and `evaluate` then take batches {"inputs": [B, S], "targets": [B, T]}, packed ones too,
    as `t2t_keras.data.dataset` gives them. The loss is the sum of the token losses divided by the
    number of target tokens, with `hp.label_smoothing` in `fit` and without it in `evaluate`. Both
    report means over all tokens of an epoch: "loss", "accuracy", and "perplexity", exp of "loss".
    `compile(metrics=...)` adds others, which Keras computes over all positions, padding too.
    A model that is compiled with a loss behaves like any other Keras model.

    Attributes:
        dropout_masks: makes the `KeepMask` of one step; None leaves dropout to Keras.
        sum_over_replicas: sums a scalar over all replicas; None if there is only one.
            `training.prepare_fit` sets both.
    """

    hp: HParams
    dropout_masks: Callable[[], KeepMask] | None = None
    sum_over_replicas: Callable[[Any], Any] | None = None

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self._token_means = _TokenMeans()

    def __call__(self, *args, **kwargs):
        masks = self.dropout_masks
        with keep_mask_scope(masks()) if masks else contextlib.nullcontext():
            return super().__call__(*args, **kwargs)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if not self._has_own_loss:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        if sample_weight is not None:
            raise UserError(
                "the Transformer's own loss weighs all tokens equally: give no sample_weight, or "
                "compile with another loss."
            )
        if training:
            self._check_optimizer()
        targets = self.labels(x if y is None else {**x, "targets": y}, training)
        smoothing = self.hp.label_smoothing if training else 0.0
        loss, tokens = self.loss_sums(y_pred, targets, smoothing)
        self._token_means.update(loss, self.right_sums(y_pred, targets)[0], tokens)
        if self.sum_over_replicas:
            tokens = self.sum_over_replicas(tokens)
        return loss / ops.maximum(tokens, 1.0)

    def labels(self, batch, training=False):
        """Returns the ids [B, T] that the logits of a call are compared with."""
        return batch["targets"]

    def loss_sums(self, logits, targets, label_smoothing: float = 0.0):
        """Returns the summed loss of all tokens, and the number of tokens."""
        return losses.padded_cross_entropy(logits, targets, label_smoothing)

    def right_sums(self, logits, targets):
        """Returns the number of correctly predicted tokens, and the number of tokens."""
        return losses.token_accuracy(logits, targets)

    @property
    def metrics(self):
        metrics = super().metrics
        if not self._has_own_loss:
            return metrics
        loss, *others = self._token_means.metrics
        # Ours replaces Keras's "loss", the mean over batches.
        return [loss, *(metric for metric in metrics if metric.name != loss.name), *others]

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        if self._has_own_loss and y is None:
            y = self.labels(x)
        return super().compute_metrics(x, y, y_pred, sample_weight)

    @property
    def _has_own_loss(self):
        return self.compiled and self.loss is None

    def _check_optimizer(self):
        """Raises UserError if `fit` would skip something that our own training step does."""
        clip, decay = self.hp.clip_grad_norm, self.hp.weight_decay
        strategy = getattr(self, "distribute_strategy", None)
        replicas = strategy.num_replicas_in_sync if strategy else 1
        # mixed_float16 wraps the user's optimizer in one that scales the loss.
        optimizer: Any = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        if clip and optimizer.global_clipnorm != clip:
            raise UserError(
                f"fit clips gradients in the optimizer, and hparam clip_grad_norm is {clip}: "
                f"create it with global_clipnorm={clip}."
            )
        if clip and replicas > 1:
            raise UserError(
                "fit clips the gradient of each replica, not their sum: set clip_grad_norm=0 or "
                "train with t2t-keras-train."
            )
        if decay:
            raise UserError(
                f"fit has no weight decay, and hparam weight_decay is {decay}: set it to 0 or "
                "train with t2t-keras-train."
            )
        if replicas > 1 and not self.sum_over_replicas:
            raise UserError(
                f"fit on {replicas} replicas would weigh their tokens unequally: call "
                "t2t_keras.training.prepare_fit(model) first."
            )


class _TokenMeans:
    """Means over tokens. Not a Keras object: Keras would store that with the weights."""

    def __init__(self):
        self.metrics = [
            keras.metrics.Mean(name="loss"),
            keras.metrics.Mean(name="accuracy"),
            _Perplexity(name="perplexity"),
        ]

    def update(self, loss, right, tokens):
        for metric, total in zip(self.metrics, (loss, right, loss), strict=True):
            metric.update_state(total / ops.maximum(tokens, 1.0), sample_weight=tokens)


class _Perplexity(keras.metrics.Mean):
    """The exponential of a mean."""

    def result(self):
        return ops.exp(super().result())
