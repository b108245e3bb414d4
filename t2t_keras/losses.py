"""Label-smoothed cross-entropy over real tokens (section 5.4 of the paper)."""

from __future__ import annotations

import math

from keras import ops

from t2t_keras.ids import PAD_ID

__all__ = ["class_accuracy", "class_cross_entropy", "padded_cross_entropy", "token_accuracy"]


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
    weights = ops.cast(labels != PAD_ID, "float32")
    losses = _token_losses(label_smoothing)(ops.cast(logits, "float32"), labels)
    return ops.sum(losses * weights), ops.sum(weights)


def class_cross_entropy(logits, labels, label_smoothing: float = 0.0):
    """Sums the same loss over one label per row; 0 is a label too: T2T's `weights_all`.

    Args:
        logits: [B, C].
        labels: [B, 1] int.
        label_smoothing: see `padded_cross_entropy`.

    Returns:
        numerator, denominator: the sum and B, float32 scalars.
    """
    labels = ops.convert_to_tensor(labels)
    rows = ops.cast(ops.expand_dims(logits, 1), "float32")  # [B, 1, C]
    losses = _token_losses(label_smoothing)(rows, labels)
    return ops.sum(losses), ops.sum(ops.ones_like(losses))


def _token_losses(label_smoothing: float):
    """Returns the function from logits [B, T, V] and labels [B, T] to losses [B, T].

    With low = label_smoothing / (V - 1) and confidence c = 1 - label_smoothing, the loss is
    -(c - low) log p[label] - low * sum(log p) - constant, and its gradient
    p - low - (c - low) * onehot(label). Neither needs the smoothed targets [B, T, V], and only p is
    kept for the backward pass.
    """

    @ops.custom_gradient
    def token_losses(logits, labels):
        vocab_size = logits.shape[-1]
        confidence = 1.0 - label_smoothing
        low = label_smoothing / (vocab_size - 1)
        p = ops.softmax(logits, axis=-1)
        # log sum exp = max logit - log of its p, which is at least 1/V: no overflow, no log of 0.
        normaliser = ops.max(logits, axis=-1) - ops.log(ops.max(p, axis=-1))
        label = ops.expand_dims(labels, -1)
        log_p_label = ops.squeeze(ops.take_along_axis(logits, label, axis=-1), -1) - normaliser
        losses = -(confidence - low) * log_p_label
        if label_smoothing:
            sum_log_p = ops.sum(logits, axis=-1) - vocab_size * normaliser
            entropy = confidence * math.log(confidence)
            entropy += (vocab_size - 1) * low * math.log(low + 1e-20)
            losses = losses - low * sum_log_p + entropy

        def backward(*args, upstream=None):  # on PyTorch, Keras passes the gradient by name
            scale = ops.expand_dims(args[-1] if upstream is None else upstream, -1)  # [B, T, 1]
            right = (ops.take_along_axis(p, label, axis=-1) - confidence) * scale
            rows = ops.reshape((p - low) * scale, (-1, vocab_size))  # [B*T, V]
            columns = ops.cast(ops.reshape(label, (-1,)), "int32")
            at = ops.stack([ops.arange(ops.shape(rows)[0]), columns], axis=-1)
            gradient = ops.scatter_update(rows, at, ops.reshape(right, (-1,)))
            return ops.reshape(gradient, ops.shape(p)), None

        return losses, backward

    return token_losses


def token_accuracy(logits, labels):
    """Returns the number of correctly predicted tokens and of all tokens: T2T's `accuracy`.

    Args:
        logits: [B, T, V].
        labels: [B, T] int; padding does not count.
    """
    weights = ops.cast(labels != PAD_ID, "float32")
    right = ops.cast(ops.cast(ops.argmax(logits, axis=-1), labels.dtype) == labels, "float32")
    return ops.sum(right * weights), ops.sum(weights)


def class_accuracy(logits, labels):
    """Returns how many labels [B, 1] the logits [B, C] predict correctly, and B."""
    labels = ops.convert_to_tensor(labels)
    right = ops.cast(ops.argmax(logits, axis=-1), labels.dtype) == labels[:, 0]
    right = ops.cast(right, "float32")
    return ops.sum(right), ops.sum(ops.ones_like(right))
