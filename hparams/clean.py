"""Nothing that regularises, for data without noise; sentences may be as long as a batch."""

from t2t_keras.hparams.transformer_base import transformer_base_v2
from t2t_keras.registry import register_hparams
from t2t_keras.settings import HParams


@register_hparams
def transformer_clean() -> HParams:
    return transformer_base_v2().replace(
        label_smoothing=0.0,
        layer_prepostprocess_dropout=0.0,
        attention_dropout=0.0,
        relu_dropout=0.0,
        max_length=0,
    )


@register_hparams
def transformer_clean_big() -> HParams:
    return transformer_clean().replace(hidden_size=1024, filter_size=4096)
