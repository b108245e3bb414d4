"""Label-smoothed cross-entropy over real tokens (section 5.4 of the paper), also for Keras's `fit`."""

import contextlib
import contextvars
import functools
import math
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any

import keras
from keras import ops

from t2t_keras import shape
from t2t_keras.errors import UserError
from t2t_keras.ids import PAD_ID
from t2t_keras.layers.sublayers import NamedArguments
from t2t_keras.settings import HParams

__all__ = ["TokenFit", "class_accuracy", "class_cross_entropy", "padded_cross_entropy"]
__all__ += ["token_accuracy"]


def padded_cross_entropy(logits, labels, label_smoothing: float = 0.0):
    """Sums the loss over all tokens that are not padding: T2T's `padded_cross_entropy`.

    The correct token gets probability 1 - label_smoothing, every other token an equal share of
    label_smoothing; the entropy of that distribution is subtracted, so the best loss is 0.

    Args:
        logits: [B, T, V], any float dtype; computed in float32.
        labels: [B, T] int; padding has weight 0.
        label_smoothing: epsilon of the paper, in [0, 1).

    Returns:
        numerator, denominator: sum of token losses and number of tokens, float32 scalars. Sums,
        so that several replicas or batches can be added before dividing.
    """
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must be in [0, 1), got {label_smoothing}.")
    labels = ops.convert_to_tensor(labels)
    wanted, got = tuple(logits.shape[:-1]), tuple(labels.shape)
    if any(n != m and None not in (n, m) for n, m in zip_longest(wanted, got, fillvalue=0)):
        raise ValueError(f"labels must be {wanted}, as the logits, got shape {got}.")
    weights = ops.cast(labels != PAD_ID, "float32")
    losses = _token_losses(label_smoothing)(ops.cast(logits, "float32"), labels)
    return ops.sum(losses * weights), ops.sum(weights)


BLOCK_POSITIONS = 512
"""Positions of which `joined_cross_entropy` has logits at the same time, about."""


def joined_cross_entropy(x, table, labels, label_smoothing: float = 0.0, count_right=False):
    """Sums the `padded_cross_entropy` of the logits x @ tableᵀ, without a tensor [B, T, V].

    A block of positions at a time has logits, which give its losses and its part of the gradients.

    Args:
        x: [B, T, D], what the softmax multiplies.
        table: [V, D] float32; the products are in the dtype of x.
        labels: [B, T] int; padding has weight 0.
        label_smoothing: as for `padded_cross_entropy`.
        count_right: True counts correctly predicted tokens, too; else their number is 0.

    Returns:
        loss, right, tokens: sums, float32 scalars.
    """
    x = ops.reshape(x, (-1, x.shape[-1]))
    labels = ops.cast(ops.reshape(labels, (-1,)), "int32")
    tokens = ops.sum(ops.cast(labels != PAD_ID, "float32"))
    table = ops.convert_to_tensor(table)
    loss, right = ops.unstack(_joined(label_smoothing, bool(count_right))(x, table, labels), 2)
    if label_smoothing:
        loss = loss - tokens * _entropy(label_smoothing, table.shape[0])
    return loss, right, tokens


@functools.cache
def _joined(label_smoothing: float, count_right: bool):
    """Returns the function from x [N, D], table [V, D] and labels [N] to the sums of losses and right ones, [2].

    With low = label_smoothing / (V - 1) and logits z, a loss is -log p[label] + low (V z[label] - sum z), and its
    gradient p - onehot(label) + low (V onehot(label) - 1). Only the first terms pass over all logits: sum z
    is x times the sum of the table's rows, and what -low adds to the table's gradient is the same in all rows.
    """

    @shape.custom_gradient
    def joined(x, table, labels):
        vocab_size, depth = table.shape
        low = label_smoothing / (vocab_size - 1)
        # A batch of one matrix, here and in x: oneDNN multiplies transposed ones faster so.
        rows = ops.expand_dims(ops.cast(table, x.dtype), 0)
        sum_of_rows, number = shape.row_sum(table), shape.shape_of(x)[0]
        blocks = number // (BLOCK_POSITIONS + 1) + 1
        size = (number + blocks - 1) // blocks
        missing = blocks * size - number
        x = ops.reshape(ops.pad(x, [[0, missing], [0, 0]]), (blocks, 1, size, depth))
        labels = ops.reshape(ops.pad(labels, [[0, missing]]), (blocks, size))
        weights = ops.cast(labels != PAD_ID, "float32")
        weighted = x * ops.cast(weights, x.dtype)[:, None, :, None]
        places = ops.arange(blocks, dtype="int32")[:, None, None, None]

        def add(i, loss, right, dx, dtable):
            label, weight = labels[i], weights[i]
            logits = ops.cast(shape.matmul(x[i], rows, transpose=True)[0], "float32")  # [n, V]
            losses, gradient = shape.cross_entropy(logits, label, low * vocab_size)
            of_label = vocab_size * ops.take(table, label, axis=0) - sum_of_rows  # [n, D]
            losses = losses + low * ops.sum(ops.cast(x[i], "float32") * of_label, axis=-1)
            loss = loss + ops.sum(losses * weight)
            if count_right:
                is_right = ops.cast(ops.argmax(logits, axis=-1), label.dtype) == label
                right = right + ops.sum(ops.cast(is_right, "float32") * weight)
            gradient = ops.cast(gradient, rows.dtype)
            of_x = ops.matmul(gradient, rows[0]) - ops.cast(low * sum_of_rows, rows.dtype)
            of_x = of_x * ops.cast(weight, rows.dtype)[:, None]
            of_table = shape.matmul_over_rows(gradient, weighted[i, 0])
            dx = ops.where(places == i, of_x, dx)
            return i + 1, loss, right, dx, dtable + ops.cast(of_table, "float32")

        zero, sum_of_x = ops.zeros((), "float32"), shape.row_sum(ops.cast(weighted, "float32"))
        dtable = ops.broadcast_to(-low * sum_of_x, table.shape)
        first = (0, zero, zero, ops.zeros_like(x), dtable)
        _, loss, right, dx, dtable = shape.while_loop(lambda i, *_: i < blocks, add, first)
        dx = ops.reshape(dx, (-1, depth))[:number]

        def backward(dy):
            return dx * ops.cast(dy[0], dx.dtype), dtable * dy[0], None

        return ops.stack([loss, right]), backward

    return joined


def _entropy(label_smoothing: float, vocab_size: int) -> float:
    """Returns the entropy of the smoothed labels, which the loss is at best."""
    confidence, low = 1.0 - label_smoothing, label_smoothing / (vocab_size - 1)
    return -confidence * math.log(confidence) - (vocab_size - 1) * low * math.log(low + 1e-20)


def class_cross_entropy(logits, labels, label_smoothing: float = 0.0):
    """Returns the sum of the same loss for logits [B, C] and labels [B, 1] or [B], and B, float32 scalars.

    0 is a label too: T2T's `weights_all`.
    """
    labels = _class_numbers(labels)
    rows = ops.cast(ops.expand_dims(logits, 1), "float32")  # [B, 1, C]
    losses = _token_losses(label_smoothing)(rows, labels)
    return ops.sum(losses), ops.sum(ops.ones_like(losses))


def _class_numbers(labels):
    labels = ops.convert_to_tensor(labels)
    if len(labels.shape) == 1:
        labels = labels[:, None]
    if len(labels.shape) != 2 or labels.shape[1] not in (1, None):
        raise UserError(
            f"labels of a classifier are class numbers, [B] or [B, 1], got shape {tuple(labels.shape)}: "
            "give the number of the class instead of a row for each (one-hot)."
        )
    return ops.cast(labels, "int32")


@functools.cache
def _token_losses(label_smoothing: float):
    """Returns the function from logits [B, T, V] and labels [B, T] to losses [B, T].

    Losses and gradients are those of `_joined`, less the entropy. Neither needs the smoothed targets
    [B, T, V], and only the gradient is kept for the backward pass.
    """

    @shape.custom_gradient
    def token_losses(logits, labels):
        vocab_size = logits.shape[-1]
        low = label_smoothing / (vocab_size - 1)
        rows = ops.reshape(logits, (-1, vocab_size))
        label = ops.cast(ops.reshape(labels, (-1,)), "int32")
        losses, gradient = shape.cross_entropy(rows, label, low * vocab_size)
        if label_smoothing:
            of_label = ops.take_along_axis(rows, label[:, None], axis=-1)[:, 0]
            losses = losses + low * (vocab_size * of_label - ops.sum(rows, axis=-1))
            losses = losses - _entropy(label_smoothing, vocab_size)
            gradient = gradient - low

        def backward(dy):
            return ops.reshape(gradient * ops.reshape(dy, (-1, 1)), shape.shape_of(logits)), None

        return ops.reshape(losses, shape.shape_of(labels)), backward

    return token_losses


def token_accuracy(logits, labels):
    """Returns the number of correctly predicted tokens and of all tokens: T2T's `accuracy`.

    Logits are [B, T, V], labels [B, T] int; padding does not count.
    """
    weights = ops.cast(labels != PAD_ID, "float32")
    right = ops.cast(ops.argmax(logits, axis=-1) == ops.cast(labels, "int32"), "float32")
    return ops.sum(right * weights), ops.sum(weights)


def class_accuracy(logits, labels):
    """Returns how many labels [B, 1] or [B] the logits [B, C] predict correctly, and B."""
    labels = _class_numbers(labels)
    right = ops.cast(ops.argmax(logits, axis=-1) == labels[:, 0], "float32")
    return ops.sum(right), ops.sum(ops.ones_like(right))


# The same loss for Keras's own `compile` and `fit`

_NO_WEIGHTS = (
    "the Transformer's own loss weighs all tokens equally: give no sample_weight or class_weight, or "
    "compile with another loss."
)

_ends_before_softmax = contextvars.ContextVar[Any]("ends before softmax", default=None)
"""The model whose calls end before the softmax."""


class TokenFit(NamedArguments, keras.Model):
    """A Keras model that trains on T2T's loss if it is compiled without one.

    `fit` and `evaluate` then take batches {"inputs": [B, S], "targets": [B, T]}, packed ones too, as
    `t2t_keras.data.dataset` gives them. The loss is the sum of the token losses divided by the number of
    target tokens, with `hp.label_smoothing` in `fit` and without it in `evaluate`. Both report means over all
    tokens of an epoch: "loss", with what layers add; "accuracy"; "perplexity", without. `compile(metrics=...)` adds
    others, which Keras computes over all positions, padding too; "accuracy" stays ours.
    A model that is compiled with a loss behaves like any other Keras model.

    Attributes:
        sum_over_replicas: sums a scalar over all replicas; None if there is only one.
            `training.prepare_fit` sets it.
    """

    hp: HParams
    softmax: Any
    sum_over_replicas: Callable[[Any], Any] | None = None

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self._token_means = _TokenMeans()

    def compile(self, optimizer="rmsprop", loss=None, loss_weights=None, metrics=None, **kwargs):
        if loss is None and metrics:
            ours = [metric.name for metric in self._token_means.metrics]
            metrics = [each for each in keras.tree.flatten(metrics) if each not in ours]
            for each in metrics:
                if isinstance(each, keras.metrics.Metric) and each.name in ours:
                    raise UserError(f"the Transformer has its own {each.name!r}: rename yours.")
        self.loss = None  # Keras keeps that of an earlier `compile`
        for graphs in ("_open_graphs", "_searches", "_kept_kernels"):
            self.__dict__.pop(graphs, None)  # like Keras's own, for layers that were changed
        super().compile(optimizer, loss, loss_weights, metrics, **kwargs)

    def compile_from_config(self, config):  # Keras's leaves out a `compile` of a subclass
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    @functools.wraps(keras.Model.fit)
    def fit(self, x=None, y=None, *args, **kwargs):
        self._require_no_weights(y, kwargs)
        return super().fit(x, y, *args, **kwargs)

    @functools.wraps(keras.Model.evaluate)
    def evaluate(self, x=None, y=None, *args, **kwargs):
        self._require_no_weights(y, kwargs)
        return super().evaluate(x, y, *args, **kwargs)

    def _require_no_weights(self, y, kwargs):
        weighs = any(kwargs.get(name) is not None for name in ("sample_weight", "class_weight"))
        if weighs and y is None and self._has_own_loss:  # Keras would drop them
            raise UserError(_NO_WEIGHTS)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if not self._has_own_loss:
            if y is None and self.loss is not None:
                raise UserError("compile(loss=...) needs y: call fit(batch, y), or leave it out.")
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        if sample_weight is not None:
            raise UserError(_NO_WEIGHTS)
        if training:
            self._check_optimizer()
        targets = self.labels(x if y is None else {**x, "targets": y}, training)
        smoothing = self.hp.label_smoothing if training else 0.0
        if self.leaves_out_logits:
            loss, right, tokens = self._joined_sums(y_pred, targets, count_right=True)
        else:
            loss, tokens = self.loss_sums(y_pred, targets, smoothing)
            right, _ = self.right_sums(y_pred, targets)
        whole = self._with_added(loss, tokens)
        self._token_means.update((whole, right, loss), tokens)
        total = self.sum_over_replicas(tokens) if self.sum_over_replicas else tokens
        return whole / ops.maximum(total, 1.0)

    def train_step(self, *arguments):
        # Metrics of the user's need logits.
        joins = self._has_own_loss and self.joins_loss and len(super().metrics) == 1
        with self._without_logits(joins):
            return super().train_step(*arguments)

    def training_sums(self, batch):
        """Returns the summed loss of a batch in training, and its number of tokens."""
        with self._without_logits(self.joins_loss):
            y = self(batch, training=True)
        labels = self.labels(batch, training=True)
        if self.joins_loss:
            loss, _, tokens = self._joined_sums(y, labels)
        else:
            loss, tokens = self.loss_sums(y, labels, self.hp.label_smoothing)
        return self._with_added(loss, tokens), tokens

    def _with_added(self, loss, tokens):
        """Adds what layers give to `add_loss`, and weights' regularizers, for each token."""
        return sum((tokens * ops.cast(each, "float32") for each in self.losses), loss)

    @property
    def joins_loss(self) -> bool:
        """True if training may use `joined_cross_entropy`: nobody else changes logits or the loss."""
        return False

    @property
    def leaves_out_logits(self) -> bool:
        """True while a call returns what the softmax would multiply, for `joined_cross_entropy`."""
        return _ends_before_softmax.get() is self

    @contextlib.contextmanager
    def _without_logits(self, leave_out: bool) -> Iterator[None]:
        token = _ends_before_softmax.set(self if leave_out else None)
        try:
            yield
        finally:
            _ends_before_softmax.reset(token)

    def _joined_sums(self, x, labels, count_right=False):
        return joined_cross_entropy(
            x, self.softmax.table, labels, self.hp.label_smoothing, count_right
        )

    def labels(self, batch, training=False):
        """Returns the ids [B, T] that the logits of a call are compared with."""
        return batch["targets"]

    def loss_sums(self, logits, targets, label_smoothing: float = 0.0):
        """Returns the summed loss of all tokens, and the number of tokens."""
        return padded_cross_entropy(logits, targets, label_smoothing)

    def right_sums(self, logits, targets):
        """Returns the number of correctly predicted tokens, and the number of tokens."""
        return token_accuracy(logits, targets)

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
            if len(y_pred.shape) == 3:
                # With `prepend_mode`, in training, the logits of inputs come first.
                y_pred = y_pred[:, -shape.shape_of(y)[1] :]
        return super().compute_metrics(x, y, y_pred, sample_weight)

    @property
    def _has_own_loss(self):
        return self.compiled and self.loss is None

    def _check_optimizer(self):
        """Raises UserError if `fit` would skip a part of our step; keeps Keras from summing over one replica."""
        clip, decay = self.hp.clip_grad_norm, self.hp.weight_decay
        on_tensorflow = keras.backend.backend() == "tensorflow"
        replicas = self.distribute_strategy.num_replicas_in_sync if on_tensorflow else 1
        # mixed_float16 wraps the user's optimizer in one that scales the loss.
        optimizer: Any = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        clips = (clip, optimizer.global_clipnorm, optimizer.clipnorm, optimizer.clipvalue)
        if any(clips) and replicas > 1:
            raise UserError(
                "fit clips the gradient of each replica, not their sum: leave clipping out (hparam "
                "clip_grad_norm=0), or train with t2t-keras-train."
            )
        if clip and optimizer.global_clipnorm != clip:
            raise UserError(
                f"hparam clip_grad_norm is {clip}, but fit leaves clipping to the optimizer: create the "
                f"optimizer with global_clipnorm={clip}."
            )
        if decay:
            raise UserError(
                f"fit has no weight decay, and hparam weight_decay is {decay}: set it to 0 or "
                "train with t2t-keras-train."
            )
        if replicas == 1 and on_tensorflow:
            # A private name of Keras's: TensorFlow never frees the graph of a sum over replicas, even of one.
            optimizer._all_reduce_sum_gradients = list
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

    def update(self, sums, tokens):
        for metric, total in zip(self.metrics, sums, strict=True):
            metric.update_state(total / ops.maximum(tokens, 1.0), sample_weight=tokens)


class _Perplexity(keras.metrics.Mean):
    """The exponential of a mean."""

    def result(self):
        return ops.exp(super().result())
