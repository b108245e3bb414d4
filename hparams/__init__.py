"""Hparams sets: functions that return a complete `HParams`, registered by name.

T2T's sets have T2T's names and values. You can derive your own from any of them:
`@register_hparams def mine(): return transformer_base().replace(hidden_size=256)`.
"""

from t2t_keras.hparams import ours, paper, transformer

__all__ = ["ours", "paper", "transformer"]
