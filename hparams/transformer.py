"""T2T's sets for translation: base, big and small, relative positions, one GPU, clean data, TPUs."""

from __future__ import annotations

from typing import Any

from t2t_keras.registry import register_hparams
from t2t_keras.settings import HParams

# Base in its three versions, and big


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
    """Version 2 with a learning rate of named factors, and a slower beta2."""
    return transformer_base_v2().replace(
        optimizer_adam_beta2=0.997,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size",
        learning_rate_constant=2.0,
    )


@register_hparams
def transformer_base() -> HParams:
    """T2T's base model; the paper's is `transformer_base_v1`."""
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


# The rows of the paper's table 3 on T2T's base, which is not the paper's: the figures differ


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


# The table's last row, big, with the batch size of base


@register_hparams
def transformer_big_dr1() -> HParams:
    return transformer_base().replace(hidden_size=1024, filter_size=4096, num_heads=16)


@register_hparams
def transformer_big_dr2() -> HParams:
    return transformer_big_dr1().replace(layer_prepostprocess_dropout=0.2)


@register_hparams
def transformer_big_enfr() -> HParams:
    """English-French: a wider feed-forward layer, and a vocabulary for each language."""
    return transformer_big_dr1().replace(
        filter_size=8192, shared_embedding_and_softmax_weights=False
    )


# Small models


@register_hparams
def transformer_test() -> HParams:
    """A network for tests, too small to learn."""
    return transformer_base().replace(
        num_hidden_layers=2, hidden_size=16, filter_size=8, num_heads=2
    )


@register_hparams
def transformer_tiny() -> HParams:
    return transformer_base().replace(
        num_hidden_layers=2, hidden_size=128, filter_size=512, num_heads=4
    )


@register_hparams
def transformer_small() -> HParams:
    return transformer_base().replace(
        num_hidden_layers=2, hidden_size=256, filter_size=1024, num_heads=4
    )


# Relative positions up to 20 apart instead of absolute ones (Shaw et al. 2018)


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


# Small batches: one GPU, or gradients summed over several steps


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


# No regularisation, for clean data; sentences may be as long as a batch


@register_hparams
def transformer_clean() -> HParams:
    return transformer_base_v2().replace(
        label_smoothing=0.0,
        layer_prepostprocess_dropout=0.0,
        attention_dropout=0.0,
        relu_dropout=0.0,
        max_length=0,
    )


@register_hparams
def transformer_clean_big() -> HParams:
    return transformer_clean().replace(hidden_size=1024, filter_size=4096)


# Inputs and targets in one sequence, of a decoder alone


@register_hparams
def transformer_prepend_v2() -> HParams:
    return transformer_base_v2().replace(
        prepend_mode="prepend_inputs_masked_attention", max_length=0
    )


@register_hparams
def transformer_prepend_v1() -> HParams:
    return transformer_base_v1().replace(
        prepend_mode="prepend_inputs_masked_attention", max_length=0
    )


@register_hparams
def transformer_prepend() -> HParams:
    return transformer_prepend_v2()


# T2T's sets for TPUs: they run anywhere and save memory


def for_tpu(hp: HParams) -> HParams:
    """Returns `hp` with Adafactor, short sentences, unsharded tables and shared dropout masks."""
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
    """`transformer_tpu` under T2T's name for packed data."""
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
    """`transformer_big_enfr` with half the heads."""
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


# Language models


@register_hparams
def transformer_lm_tpu_0() -> HParams:
    """6 wide layers and no regularisation but dropout between layers, for the billion-word benchmark."""
    return for_tpu(transformer_clean_big()).replace(
        num_heads=4,
        learning_rate_constant=1.0,
        batch_size=4096,
        shared_embedding_and_softmax_weights=False,
        layer_prepostprocess_dropout=0.1,
    )


@register_hparams
def transformer_lm_tpu_1() -> HParams:
    """The same of twice the width."""
    return transformer_lm_tpu_0().replace(hidden_size=2048, filter_size=8192)


@register_hparams
def transformer_wikitext103_l4k_v0() -> HParams:
    """8 wide layers for examples of 4,096 words."""
    return for_tpu(transformer_big()).replace(
        num_hidden_layers=8,
        num_heads=4,
        batch_size=4096,
        max_length=4096,
        label_smoothing=0.0,
        layer_prepostprocess_dropout=0.2,
        shared_embedding_and_softmax_weights=False,
    )
