"""Several models that decode as one."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from t2t_keras.errors import UserError


class Ensemble:
    """Models whose probabilities are averaged at every token.

    It stands wherever decoding takes a model; its logits are the logarithms of the mean.

    Args:
        models: `Transformer`s with the same vocabularies; their sizes may differ.

    Raises:
        UserError: there is none, or they differ in the sizes of vocabularies or in how
            `vocab_divisor` rounds that of the target.
    """

    def __init__(self, models: Sequence):
        if not models:
            raise UserError("an ensemble needs one model or more, got none.")
        sizes = [(model.source_vocab_size, model.target_vocab_size) for model in models]
        if len(set(sizes)) > 1:
            written = ", ".join(f"{source} and {target}" for source, target in sizes)
            raise UserError(
                f"models of an ensemble need vocabularies of the same sizes, got {written}."
            )
        logits = [model.softmax.vocab_size for model in models]
        if len(set(logits)) > 1:
            raise UserError(
                "models of an ensemble need as many logits, the target vocabulary rounded up to "
                f"vocab_divisor: got {', '.join(map(str, logits))}; leave out those that differ."
            )
        self.models = list(models)
        self.source_vocab_size, self.target_vocab_size = sizes[0]

    def __call__(self, inputs, training=False):
        """Log-probabilities [B, T, V] of {"inputs": [B, S], "targets": [B, T]}."""
        return _mean_log_p([model(inputs, training=training) for model in self.models])

    def encode_source(self, source):
        """One of `Transformer.encode_source` for each model."""
        return [model.encode_source(source) for model in self.models]

    def empty_caches(self, batch):
        """One of `Transformer.empty_caches` for each model."""
        return [model.empty_caches(batch) for model in self.models]

    def step_kernels(self):
        """One of `Transformer.step_kernels` for each model."""
        return [model.step_kernels() for model in self.models]

    @property
    def keys_need_positions(self):
        """Whether those of one of the models do."""
        return any(model.keys_need_positions for model in self.models)

    def decode_step(self, last_ids, position, caches, source, visible=None, kernels=None):
        """See `Transformer.decode_step`: log-probabilities [B, K, V], and the grown caches."""
        steps = [
            model.decode_step(last_ids, position, own_caches, own_source, visible, own_kernels)
            for model, own_caches, own_source, own_kernels in zip(
                self.models,
                caches,
                source,
                kernels or [None] * len(self.models),
                strict=True,
            )
        ]
        return _mean_log_p([logits for logits, _ in steps]), [grown for _, grown in steps]


def _mean_log_p(all_logits):
    log_p = tf.stack([tf.nn.log_softmax(logits) for logits in all_logits])
    return tf.reduce_logsumexp(log_p, 0) - tf.math.log(float(len(all_logits)))
