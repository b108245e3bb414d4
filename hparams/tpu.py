"""T2T's sets for TPUs. They run anywhere; what they save is memory."""

from t2t_keras.hparams.clean import transformer_clean_big
from t2t_keras.hparams.small import transformer_small, transformer_tiny
from t2t_keras.hparams.table3 import transformer_big_enfr
from t2t_keras.hparams.transformer_base import transformer_base, transformer_big
from t2t_keras.registry import register_hparams
from t2t_keras.settings import HParams


def for_tpu(hp: HParams) -> HParams:
    """Adafactor, short sentences, an unsharded embedding, and one dropout mask for many positions."""
    return _shared_dropout_masks(hp).replace(
        optimizer="Adafactor",
        learning_rate_schedule="rsqrt_decay",
        learning_rate_warmup_steps=10000,
        batch_size=min(hp.batch_size, 2048),
        max_length=64,
    )


def _shared_dropout_masks(hp: HParams) -> HParams:
    return hp.replace(
        symbol_modality_num_shards=1,
        attention_dropout_broadcast_dims="0,1",
        relu_dropout_broadcast_dims="1",
        layer_prepostprocess_dropout_broadcast_dims="1",
    )


@register_hparams
def transformer_tpu() -> HParams:
    return for_tpu(transformer_base())


@register_hparams
def transformer_packed_tpu() -> HParams:
    """For packed data in T2T; the settings are those of `transformer_tpu`."""
    return transformer_tpu()


@register_hparams
def transformer_tpu_bf16_activation() -> HParams:
    return transformer_tpu().replace(activation_dtype="bfloat16")


@register_hparams
def transformer_big_tpu() -> HParams:
    return for_tpu(transformer_big())


@register_hparams
def transformer_tiny_tpu() -> HParams:
    return for_tpu(transformer_tiny())


@register_hparams
def transformer_small_tpu() -> HParams:
    return for_tpu(transformer_small())


@register_hparams
def transformer_big_enfr_tpu() -> HParams:
    """With half the heads of `transformer_big_enfr`."""
    return for_tpu(transformer_big_enfr()).replace(num_heads=8)


@register_hparams
def transformer_clean_big_tpu() -> HParams:
    return for_tpu(transformer_clean_big())


@register_hparams
def transformer_mlperf_tpu() -> HParams:
    """T2T's entry for MLPerf 0.5; its `mlperf_mode` is T2T's and has no effect here."""
    hp = _shared_dropout_masks(transformer_base()).replace(
        batch_size=2048, hidden_size=1024, filter_size=4096, num_heads=16
    )
    return HParams.from_dict({**hp.to_dict(), "mlperf_mode": True})
