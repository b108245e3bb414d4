"""The three versions of T2T's base model, and its big one."""

from t2t_keras.registry import register_hparams
from t2t_keras.settings import HParams


@register_hparams
def transformer_base_v1() -> HParams:
    """The base model of "Attention Is All You Need", section 3 and 5.

    Six layers, d_model 512, d_ff 2048, eight heads, normalisation after each sublayer, residual
    dropout 0.1, label smoothing 0.1, Adam (0.9, 0.98), 4000 steps of warm-up. These are the
    defaults of `t2t_keras.setting_table`.
    """
    return HParams()


@register_hparams
def transformer_base_v2() -> HParams:
    """Normalisation before each sublayer, dropout within attention and feed-forward too."""
    return transformer_base_v1().replace(
        layer_preprocess_sequence="n",
        layer_postprocess_sequence="da",
        attention_dropout=0.1,
        relu_dropout=0.1,
        learning_rate=0.2,
        learning_rate_warmup_steps=8000,
    )


@register_hparams
def transformer_base_v3() -> HParams:
    """Version 2 with its learning rate as a product of named factors, and a slower beta2."""
    return transformer_base_v2().replace(
        optimizer_adam_beta2=0.997,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size",
        learning_rate_constant=2.0,
    )


@register_hparams
def transformer_base() -> HParams:
    """T2T's base model. It is not the paper's: that is `transformer_base_v1`."""
    return transformer_base_v3()


@register_hparams
def transformer_big() -> HParams:
    """The size of the paper's big model, on T2T's base."""
    return transformer_base().replace(
        batch_size=2048,
        hidden_size=1024,
        filter_size=4096,
        num_heads=16,
        layer_prepostprocess_dropout=0.3,
    )
