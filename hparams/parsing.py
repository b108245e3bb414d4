"""Sets for constituency parsing, section 6.3 of the paper."""

from t2t_keras.hparams.transformer import (
    transformer_base,
    transformer_base_single_gpu,
    transformer_big,
)
from t2t_keras.registry import register_hparams
from t2t_keras.settings import HParams


@register_hparams
def transformer_parsing_base() -> HParams:
    """T2T's set for the Penn Treebank: six layers, where the paper has four.

    Its `learning_rate` has no effect: the schedule does not contain "legacy".
    """
    return transformer_base().replace(
        attention_dropout=0.2,
        layer_prepostprocess_dropout=0.2,
        max_length=512,
        learning_rate_warmup_steps=16000,
        hidden_size=1024,
        learning_rate=0.05,
        shared_embedding_and_softmax_weights=False,
    )


@register_hparams
def transformer_parsing_big() -> HParams:
    """T2T's set for semi-supervised parsing. Source and target share their embedding."""
    return transformer_big().replace(
        max_length=512,
        learning_rate_warmup_steps=4000,
        layer_prepostprocess_dropout=0.1,
        learning_rate=0.05,
    )


@register_hparams
def transformer_parsing_ice() -> HParams:
    """T2T's set for Icelandic."""
    return transformer_base_single_gpu().replace(
        batch_size=4096, shared_embedding_and_softmax_weights=False
    )


@register_hparams
def transformer_parsing_gum() -> HParams:
    """A set for 10,000 trees: four layers, as in the paper for the Penn Treebank, of width 192.

    Relative positions beside the sinusoids, and much dropout, as there are few trees. The learning
    rate falls to 0 at the last of `train_steps`.
    """
    return transformer_base().replace(
        num_hidden_layers=4,
        hidden_size=192,
        filter_size=768,
        num_heads=6,
        self_attention_type="dot_product_relative",
        max_relative_position=16,
        learning_rate_schedule="constant*linear_warmup*single_cycle_cos_decay*rsqrt_hidden_size",
        learning_rate_constant=0.03,
        learning_rate_warmup_steps=500,
        batch_size=2048,
        batch_shuffle_size=128,
        max_length=256,
        length_bucket_step=1.2,
        layer_prepostprocess_dropout=0.3,
        attention_dropout=0.1,
        relu_dropout=0.1,
        shared_embedding_and_softmax_weights=False,
    )
