"""Positions relative to each other, up to 20 apart, instead of absolute (Shaw et al. 2018)."""

from t2t_keras.hparams.small import transformer_tiny
from t2t_keras.hparams.transformer_base import transformer_base, transformer_big
from t2t_keras.registry import register_hparams
from t2t_keras.settings import HParams


def _relative(hp: HParams) -> HParams:
    return hp.replace(
        pos=None, self_attention_type="dot_product_relative", max_relative_position=20
    )


@register_hparams
def transformer_relative() -> HParams:
    return _relative(transformer_base())


@register_hparams
def transformer_relative_tiny() -> HParams:
    return _relative(transformer_tiny())


@register_hparams
def transformer_relative_big() -> HParams:
    return _relative(transformer_big())
