"""`translate_ende_numbers`: exact rules and clean data, learned in minutes."""

from t2t_keras.hparams.small import transformer_tiny
from t2t_keras.registry import register_hparams
from t2t_keras.settings import HParams


@register_hparams
def transformer_numbers() -> HParams:
    """The tiny network with little dropout; what `make demo` trains."""
    return transformer_tiny().replace(
        attention_dropout=0.0,
        relu_dropout=0.0,
        layer_prepostprocess_dropout=0.05,
        learning_rate_constant=0.7,
        learning_rate_warmup_steps=400,
        batch_size=2048,
        batch_shuffle_size=128,
        max_length=32,
        length_bucket_step=1.4,
    )
