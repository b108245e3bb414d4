"""Hparams sets: short functions that each return a whole `HParams`, registered by their name.

T2T's sets have T2T's names and values. Derive your own from any of them:
`@register_hparams def mine(): return transformer_base().replace(hidden_size=256)`.
"""

from t2t_keras.hparams import (
    clean,
    multi30k,
    numbers,
    paper,
    parsing,
    relative,
    single_gpu,
    small,
    table3,
    tpu,
    transformer_base,
)

__all__ = [
    "clean",
    "multi30k",
    "numbers",
    "paper",
    "parsing",
    "relative",
    "single_gpu",
    "small",
    "table3",
    "tpu",
    "transformer_base",
]
