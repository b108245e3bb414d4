"""One change at a time, as in the paper's table 3, but on T2T's base model.

T2T's base differs from the paper's, so these sets do not reproduce the table's figures.
"""

from typing import Any

from t2t_keras.hparams.transformer_base import transformer_base
from t2t_keras.registry import register_hparams
from t2t_keras.settings import HParams

_ROWS: dict[str, dict[str, Any]] = {
    # (A) heads
    "transformer_h1": {"num_heads": 1},
    "transformer_h4": {"num_heads": 4},
    "transformer_h16": {"num_heads": 16},
    "transformer_h32": {"num_heads": 32},
    # (B) depth of the keys, of all heads together
    "transformer_k128": {"attention_key_channels": 128},
    "transformer_k256": {"attention_key_channels": 256},
    # (C) size; ten layers are not in the paper
    "transformer_l2": {"num_hidden_layers": 2},
    "transformer_l4": {"num_hidden_layers": 4},
    "transformer_l8": {"num_hidden_layers": 8},
    "transformer_l10": {"num_hidden_layers": 10},
    "transformer_hs256": {"hidden_size": 256},
    "transformer_hs1024": {"hidden_size": 1024},
    "transformer_ff1024": {"filter_size": 1024},
    "transformer_ff4096": {"filter_size": 4096},
    # (D) dropout after each sublayer, and label smoothing
    "transformer_dr0": {"layer_prepostprocess_dropout": 0.0},
    "transformer_dr2": {"layer_prepostprocess_dropout": 0.2},
    "transformer_ls0": {"label_smoothing": 0.0},
    "transformer_ls2": {"label_smoothing": 0.2},
}


def _register_row(name: str, change: dict[str, Any]) -> None:
    @register_hparams(name)
    def row() -> HParams:
        return transformer_base().replace(**change)


for _name, _change in _ROWS.items():
    _register_row(_name, _change)


# The table's last row: the big model, here with a batch as large as the base model's.


@register_hparams
def transformer_big_dr1() -> HParams:
    return transformer_base().replace(hidden_size=1024, filter_size=4096, num_heads=16)


@register_hparams
def transformer_big_dr2() -> HParams:
    return transformer_big_dr1().replace(layer_prepostprocess_dropout=0.2)


@register_hparams
def transformer_big_enfr() -> HParams:
    """English-French: a wider feed-forward layer, and a vocabulary of each language."""
    return transformer_big_dr1().replace(
        filter_size=8192, shared_embedding_and_softmax_weights=False
    )
