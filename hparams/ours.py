"""Sets of our own, for corpora that can be trained on a laptop."""

from t2t_keras.hparams.transformer import transformer_base, transformer_tiny
from t2t_keras.registry import register_hparams
from t2t_keras.settings import HParams


@register_hparams
def transformer_multi30k() -> HParams:
    """4 layers of width 128, dropout 0.3: trains in an hour on two cores (see `docs/results.md`).

    Multi30k has 29,000 short sentences, hence a small network with much dropout.
    """
    return transformer_base().replace(
        num_hidden_layers=4,
        hidden_size=128,
        filter_size=256,
        num_heads=4,
        layer_prepostprocess_dropout=0.3,
        learning_rate_warmup_steps=2000,
        batch_shuffle_size=128,
        max_length=100,
        length_bucket_step=1.25,
    )


@register_hparams
def transformer_numbers() -> HParams:
    """The tiny network with little dropout, for `make demo`: exact rules, learned in minutes."""
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
