"""How likely a model finds given outputs."""

from __future__ import annotations

import tensorflow as tf

from t2t_keras.decoding.state import as_ids
from t2t_keras.ids import PAD_ID
from t2t_keras.open_graph import open_graph_of_model


def score(model, inputs, targets):
    """The log-probability of each target under a model.

    Args:
        model: a `Transformer` or an `Ensemble`.
        inputs: [B, S] source ids with their end of sentence, padded with 0.
        targets: [B, T] target ids with their end of sentence, padded with 0.

    Returns:
        [B] float32, sums over the target's tokens, its end of sentence included.
    """
    return _score(model, as_ids(inputs), as_ids(targets))


@open_graph_of_model
def _score(model, inputs, targets):
    logits = model({"inputs": inputs, "targets": targets}, training=False)
    log_p = tf.gather(logits, targets, batch_dims=2) - tf.reduce_logsumexp(logits, -1)
    return tf.reduce_sum(tf.where(targets == PAD_ID, 0.0, log_p), -1)
