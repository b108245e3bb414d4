"""Ensembles: several models that decode together."""

from collections.abc import Sequence

import tensorflow as tf

from t2t_keras.errors import UserError
from t2t_keras.model_kinds import Kind
from t2t_keras.shape import grown


class Ensemble:
    """Models whose probabilities are averaged at every token.

    Decoding accepts it in place of a model; its logits are the logarithms of the mean.

    Args:
        models: `Transformer`s with the same vocabularies; their sizes may differ.

    Raises:
        UserError: there are no models, or they differ in kind, in their vocabulary sizes or in how
            `vocab_divisor` rounds the target's.
    """

    def __init__(self, models: Sequence):
        if not models:
            raise UserError("an ensemble needs one model or more, got none.")
        sizes = [(model.source_vocab_size, model.target_vocab_size) for model in models]
        tables = [f"{source} and {target}" for source, target in sizes]
        rounded = "the same number of logits (the target vocabulary rounded up to vocab_divisor)"
        for needed, values in (
            ("vocabularies of the same sizes", tables),
            ("the same kind", [model.kind for model in models]),
            (rounded, [str(model.num_logits) for model in models]),
        ):
            if len(set(values)) > 1:
                raise UserError(
                    f"models of an ensemble need {needed}, got {', '.join(values)}: leave out those "
                    "that differ."
                )
        self.members = list(models)
        self.kind: Kind = models[0].kind
        self.has_memory = all(model.has_memory for model in models)
        self.source_vocab_size, self.target_vocab_size = sizes[0]
        self.num_logits = models[0].num_logits

    @property
    def variables(self) -> list:
        """The variables of all models."""
        return [variable for model in self.members for variable in model.variables]

    def __call__(self, inputs, training=False, **options):
        """Returns log-probabilities [B, T, V] for {"inputs": [B, S], "targets": [B, T]}; or [B, C]."""
        return _mean_log_p([model(inputs, training=training, **options) for model in self.members])

    # The methods of `Transformer`: sums of the common log-probabilities, and a list of what each returns.

    def loss_sums(self, logits, targets, label_smoothing: float = 0.0):
        return self.members[0].loss_sums(logits, targets, label_smoothing)

    def right_sums(self, logits, targets):
        return self.members[0].right_sums(logits, targets)

    def encode_source(self, source):
        return [model.encode_source(source) for model in self.members]

    def empty_caches(self, batch):
        return [model.empty_caches(batch) for model in self.members]

    def step_kernels(self, few_rows: bool = False):
        return [model.step_kernels(few_rows) for model in self.members]

    @property
    def keys_need_positions(self):
        return any(model.keys_need_positions for model in self.members)

    def decode_step(
        self, last_ids, position, caches, source, visible=None, kernels=None, append=grown
    ):
        steps = [
            model.decode_step(last_ids, position, own, own_source, visible, own_kernels, append)
            for model, own, own_source, own_kernels in zip(
                self.members, caches, source, kernels or [None] * len(self.members), strict=True
            )
        ]
        return _mean_log_p([logits for logits, _ in steps]), [caches for _, caches in steps]


def _mean_log_p(all_logits):
    """Returns the logarithm of the mean probability: M logits [..., V] -> [..., V].

    In a step, the models may round V up differently; what they add has no probability.
    """
    number = min(logits.shape[-1] for logits in all_logits)
    log_p = tf.stack([tf.nn.log_softmax(logits)[..., :number] for logits in all_logits])
    return tf.reduce_logsumexp(log_p, 0) - tf.math.log(float(len(all_logits)))
