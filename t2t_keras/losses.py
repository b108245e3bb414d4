"""Label-smoothed cross-entropy over real tokens (section 5.4 of the paper)."""

from __future__ import annotations

import math

from keras import ops

from t2t_keras.ids import PAD_ID


def padded_cross_entropy(logits, labels, label_smoothing: float = 0.0):
    """Sums the loss over all tokens that are not padding: T2T's `padded_cross_entropy`.

    The right token gets probability 1 - label_smoothing, every other one an equal share of
    label_smoothing; the entropy of that distribution is subtracted, so the best loss is 0. The
    smoothed targets are never made: with low = label_smoothing / (V - 1) and confidence
    c = 1 - label_smoothing, the loss is -(c - low) log p[label] - low * sum(log p) - constant.

    Args:
        logits: [B, T, V], any float dtype; computed in float32.
        labels: [B, T] int; padding weighs nothing.
        label_smoothing: epsilon of the paper, in [0, 1).

    Returns:
        numerator, denominator: sum of token losses and number of tokens, float32 scalars. Sums,
        so that several replicas or batches can be added before dividing.
    """
    logits = ops.cast(logits, "float32")
    cross_entropy = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)  # [B, T]
    if label_smoothing:
        vocab_size = logits.shape[-1]
        confidence = 1.0 - label_smoothing
        low = label_smoothing / (vocab_size - 1)
        best = -(
            confidence * math.log(confidence)
            + (vocab_size - 1) * low * math.log(low + 1e-20)
        )
        normaliser = ops.logsumexp(logits, axis=-1)
        minus_sum_log_p = vocab_size * normaliser - ops.sum(logits, axis=-1)
        cross_entropy = (confidence - low) * cross_entropy + low * minus_sum_log_p - best
    weights = ops.cast(labels != PAD_ID, "float32")
    return ops.sum(cross_entropy * weights), ops.sum(weights)


def token_accuracy(logits, labels):
    """Counts the tokens predicted right: (numerator, denominator), T2T's `accuracy`.

    Args:
        logits: [B, T, V].
        labels: [B, T] int; padding does not count.
    """
    weights = ops.cast(labels != PAD_ID, "float32")
    right = ops.cast(ops.cast(ops.argmax(logits, axis=-1), labels.dtype) == labels, "float32")
    return ops.sum(right * weights), ops.sum(weights)
