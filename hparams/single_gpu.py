"""Base and big where the batch is small: one GPU, or gradients summed over several steps."""

from t2t_keras.hparams.transformer_base import transformer_base, transformer_big
from t2t_keras.registry import register_hparams
from t2t_keras.settings import HParams


@register_hparams
def transformer_base_single_gpu() -> HParams:
    return transformer_base().replace(
        batch_size=1024,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay",
        learning_rate_constant=0.1,
        learning_rate_warmup_steps=16000,
    )


@register_hparams
def transformer_big_single_gpu() -> HParams:
    return transformer_big().replace(
        layer_prepostprocess_dropout=0.1, learning_rate_warmup_steps=16000
    )


@register_hparams
def transformer_base_multistep8() -> HParams:
    """Each update uses the mean gradient of eight batches."""
    return transformer_base().replace(
        optimizer="multistep_adam", optimizer_multistep_accumulate_steps=8
    )


@register_hparams
def transformer_cubbitt() -> HParams:
    """The settings of CUBBITT, the English-Czech system of Popel et al. 2020."""
    return transformer_big_single_gpu().replace(
        batch_size=2900,
        max_length=150,
        layer_prepostprocess_dropout=0.0,
        optimizer="Adafactor",
        learning_rate_schedule="rsqrt_decay",
        learning_rate_warmup_steps=8000,
    )


@register_hparams
def transformer_fairseq_fp16_activation_big() -> HParams:
    """The big model in half precision, after Ott et al. 2018."""
    return transformer_big().replace(activation_dtype="float16", batch_size=3584)
