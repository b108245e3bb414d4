"""Hparams sets: functions that return a complete `HParams`, registered by name.

T2T's sets have T2T's names and values. You can derive your own from any of them:
`@register_hparams def mine(): return transformer_base().replace(hidden_size=256)`.
"""

import sys

from t2t_keras.hparams import ours, paper, transformer

__all__ = ["ours", "paper", "transformer"]

# Module names of version 0.1.0, kept for one release.
_FORMER = {
    transformer: (
        *("clean", "parsing", "relative", "single_gpu", "small", "table3", "tpu"),
        "transformer_base",
    ),
    ours: ("multi30k", "numbers"),
}
for _module, _names in _FORMER.items():
    sys.modules.update({f"{__name__}.{name}": _module for name in _names})
