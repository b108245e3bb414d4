"""T2T's `transformer_encoder`: an encoder that classifies texts."""

from typing import Any

import keras
from keras import ops

from t2t_keras import losses
from t2t_keras.errors import UserError
from t2t_keras.ids import PAD_ID
from t2t_keras.network_settings import kernel_initializer
from t2t_keras.precision import dense, policy_of_part
from t2t_keras.settings import HParams
from t2t_keras.transformer import Transformer

__all__ = ["TransformerClassifier"]


@keras.saving.register_keras_serializable("t2t_keras")
class TransformerClassifier(Transformer):
    """T2T's `transformer_encoder`: source ids in, one logit per class out.

    The encoder's output is averaged and goes through a dense layer (T2T's `class_label_top`). As in T2T the
    average includes padding, so it depends on how far the batch is padded, unless `pool_padding` is False.

    Args:
        num_classes: C, number of classes before rounding up to `vocab_divisor`.
        hp, source_vocab_size, target_space_id, remat, dtype: see `Transformer`.

    Call arguments:
        inputs: {"inputs": [B, S] int32}; 0 is padding.
        pool_padding: False averages over tokens only.
        return_attention_weights: also return {"encoder": [B, H, S, S] per layer}.

    Returns:
        Logits [B, C] float32.
    """

    classifies = True
    source_vocab_size: int

    def __init__(self, hp: HParams, *, source_vocab_size: int, num_classes: int, **kwargs: Any):
        if num_classes < 2:
            raise UserError(f"num_classes must be 2 or more, got {num_classes}.")
        if hp.prepend_mode != "none":
            raise UserError(
                "a classifier has no target sequence to prepend inputs to: set prepend_mode=none, "
                f"got {hp.prepend_mode}."
            )
        super().__init__(
            hp, source_vocab_size=source_vocab_size, target_vocab_size=num_classes, **kwargs
        )

    @classmethod
    def of_sizes(cls, hp: HParams, source_size: int | None, target_size: int, **kwargs: Any):
        """Returns the model for an input vocabulary size and a number of classes."""
        size: Any = source_size
        return cls(hp, source_vocab_size=size, num_classes=target_size, **kwargs)

    def _make_parts(self):
        super()._make_parts()
        self.class_layer = keras.layers.Dense(
            self.num_logits,  # rounded up, as T2T's
            kernel_initializer=kernel_initializer(self.hp),
            dtype=policy_of_part(self, "class_layer"),
            name="class_layer",
        )

    def build(self, input_shape=None):
        super().build(input_shape)
        self.class_layer.build((None, self.hp.hidden_size))

    @property
    def features(self) -> tuple[str, ...]:
        return ("inputs",)

    def call(self, inputs, training=False, return_attention_weights=False, pool_padding=True):
        self.require_features(inputs)
        ids = inputs["inputs"]
        x = self.encode(ids, training=training, return_attention_weights=return_attention_weights)
        x, weights = x if return_attention_weights else (x, [])
        counted = ops.ones_like(ids) if pool_padding else ids != PAD_ID
        counted = ops.cast(counted, x.dtype)  # [B, S]
        number = ops.maximum(ops.sum(counted, 1, keepdims=True), 1)
        x = ops.einsum("bsd,bs->bd", x, counted / number)  # the mean: [B, S, D] -> [B, D]
        logits = ops.cast(dense(self.class_layer, x), "float32")
        return (logits, {"encoder": weights}) if return_attention_weights else logits

    def loss_sums(self, logits, targets, label_smoothing: float = 0.0):
        """Returns the summed loss of labels [B, 1], and B: T2T's `weights_all`."""
        return losses.class_cross_entropy(logits, targets, label_smoothing)

    def right_sums(self, logits, targets):
        """Returns the number of correct classes, and B."""
        return losses.class_accuracy(logits, targets)

    def get_config(self):
        config = super().get_config()
        config["num_classes"] = config.pop("target_vocab_size")
        return config
