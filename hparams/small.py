"""Small models on T2T's base."""

from t2t_keras.hparams.transformer_base import transformer_base
from t2t_keras.registry import register_hparams
from t2t_keras.settings import HParams


@register_hparams
def transformer_test() -> HParams:
    """For tests of the code: it learns nothing worth having."""
    return transformer_base().replace(
        num_hidden_layers=2, hidden_size=16, filter_size=8, num_heads=2
    )


@register_hparams
def transformer_tiny() -> HParams:
    return transformer_base().replace(
        num_hidden_layers=2, hidden_size=128, filter_size=512, num_heads=4
    )


@register_hparams
def transformer_small() -> HParams:
    return transformer_base().replace(
        num_hidden_layers=2, hidden_size=256, filter_size=1024, num_heads=4
    )
