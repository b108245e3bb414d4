"""T2T's sets: base, big and small, relative positions, one GPU, clean data, TPUs, language models, parsing."""

from collections.abc import Callable
from typing import Any

from t2t_keras.registry import derive_hparams, register_hparams
from t2t_keras.settings import HParams

# Base in its three versions, and big


@register_hparams
def transformer_base_v1() -> HParams:
    """The base model of "Attention Is All You Need" (sections 3 and 5).

    Its settings are the defaults of `t2t_keras.settings`.
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
    """Version 2 with a learning rate of named factors and a larger beta2."""
    return transformer_base_v2().replace(
        optimizer_adam_beta2=0.997,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size",
        learning_rate_constant=2.0,
    )


@register_hparams
def transformer_base() -> HParams:
    """T2T's base model; the paper's is `transformer_base_v1`."""
    return transformer_base_v3()


_BIG = {"hidden_size": 1024, "filter_size": 4096, "num_heads": 16}


@register_hparams
def transformer_big() -> HParams:
    """The size of the paper's big model, on T2T's base."""
    return transformer_base().replace(**_BIG, batch_size=2048, layer_prepostprocess_dropout=0.3)


# The rows of the paper's table 3 on T2T's base, which differs from the paper's: so do the results
_TABLE_3: dict[str, dict[str, Any]] = {
    # (A) heads
    "h1": {"num_heads": 1},
    "h4": {"num_heads": 4},
    "h16": {"num_heads": 16},
    "h32": {"num_heads": 32},
    # (B) depth of the keys over all heads
    "k128": {"attention_key_channels": 128},
    "k256": {"attention_key_channels": 256},
    # (C) size; ten layers are not in the paper
    "l2": {"num_hidden_layers": 2},
    "l4": {"num_hidden_layers": 4},
    "l8": {"num_hidden_layers": 8},
    "l10": {"num_hidden_layers": 10},
    "hs256": {"hidden_size": 256},
    "hs1024": {"hidden_size": 1024},
    "ff1024": {"filter_size": 1024},
    "ff4096": {"filter_size": 4096},
    # (D) dropout after each sublayer, and label smoothing
    "dr0": {"layer_prepostprocess_dropout": 0.0},
    "dr2": {"layer_prepostprocess_dropout": 0.2},
    "ls0": {"label_smoothing": 0.0},
    "ls2": {"label_smoothing": 0.2},
}
for _name, _change in _TABLE_3.items():
    derive_hparams(f"transformer_{_name}", transformer_base, **_change)


# The table's last row, the big model, with the batch size of base
transformer_big_dr1 = derive_hparams("transformer_big_dr1", transformer_base, **_BIG)
transformer_big_dr2 = derive_hparams(
    "transformer_big_dr2", transformer_big_dr1, layer_prepostprocess_dropout=0.2
)


@register_hparams
def transformer_big_enfr() -> HParams:
    """English-French: a wider feed-forward layer, and separate embeddings and softmax."""
    return transformer_big_dr1().replace(
        filter_size=8192, shared_embedding_and_softmax_weights=False
    )


# Small models


@register_hparams
def transformer_test() -> HParams:
    """A network for tests, too small to learn anything."""
    return transformer_base().replace(
        num_hidden_layers=2, hidden_size=16, filter_size=8, num_heads=2
    )


_LAYERS = {"num_hidden_layers": 2, "num_heads": 4}
transformer_tiny = derive_hparams(
    "transformer_tiny", transformer_base, hidden_size=128, filter_size=512, **_LAYERS
)
transformer_small = derive_hparams(
    "transformer_small", transformer_base, hidden_size=256, filter_size=1024, **_LAYERS
)

# Relative positions up to 20 apart instead of absolute ones (Shaw et al. 2018)
_RELATIVE: dict[str, Any] = {
    "pos": None,
    "self_attention_type": "dot_product_relative",
    "max_relative_position": 20,
}
transformer_relative = derive_hparams("transformer_relative", transformer_base, **_RELATIVE)
transformer_relative_tiny = derive_hparams(
    "transformer_relative_tiny", transformer_tiny, **_RELATIVE
)
transformer_relative_big = derive_hparams("transformer_relative_big", transformer_big, **_RELATIVE)

# Small batches: one GPU, or gradients summed over several steps


@register_hparams
def transformer_base_single_gpu() -> HParams:
    return transformer_base().replace(
        batch_size=1024,
        learning_rate_schedule="constant*linear_warmup*rsqrt_decay",
        learning_rate_constant=0.1,
        learning_rate_warmup_steps=16000,
    )


transformer_big_single_gpu = derive_hparams(
    "transformer_big_single_gpu",
    transformer_big,
    layer_prepostprocess_dropout=0.1,
    learning_rate_warmup_steps=16000,
)


@register_hparams
def transformer_base_multistep8() -> HParams:
    """Base with the mean gradient of eight batches per update."""
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


transformer_clean_big = derive_hparams(
    "transformer_clean_big", transformer_clean, hidden_size=1024, filter_size=4096
)

# Inputs and targets in one sequence, for a decoder without encoder
_PREPEND = {"prepend_mode": "prepend_inputs_masked_attention", "max_length": 0}
transformer_prepend_v1 = derive_hparams("transformer_prepend_v1", transformer_base_v1, **_PREPEND)
transformer_prepend_v2 = derive_hparams("transformer_prepend_v2", transformer_base_v2, **_PREPEND)
transformer_prepend = derive_hparams("transformer_prepend", transformer_prepend_v2)

# T2T's sets for TPUs, which run anywhere and save memory
_SHARED_DROPOUT_MASKS: dict[str, Any] = {
    "attention_dropout_broadcast_dims": "0,1",
    "relu_dropout_broadcast_dims": "1",
    "layer_prepostprocess_dropout_broadcast_dims": "1",
}


def for_tpu(hp: HParams) -> HParams:
    """Returns `hp` with Adafactor, short sentences, unsharded tables and shared dropout masks."""
    return hp.replace(
        **_SHARED_DROPOUT_MASKS,
        symbol_modality_num_shards=1,
        optimizer="Adafactor",
        learning_rate_schedule="rsqrt_decay",
        learning_rate_warmup_steps=10000,
        batch_size=min(hp.batch_size, 2048),
        max_length=64,
    )


def _register_tpu(name: str, base: Callable[[], HParams], **changes: Any) -> Callable[[], HParams]:
    return register_hparams(name)(lambda: for_tpu(base()).replace(**changes))


transformer_tpu = _register_tpu("transformer_tpu", transformer_base)
transformer_big_tpu = _register_tpu("transformer_big_tpu", transformer_big)
transformer_tiny_tpu = _register_tpu("transformer_tiny_tpu", transformer_tiny)
transformer_small_tpu = _register_tpu("transformer_small_tpu", transformer_small)
transformer_clean_big_tpu = _register_tpu("transformer_clean_big_tpu", transformer_clean_big)
transformer_tpu_bf16_activation = _register_tpu(
    "transformer_tpu_bf16_activation", transformer_base, activation_dtype="bfloat16"
)


@register_hparams
def transformer_packed_tpu() -> HParams:
    """`transformer_tpu` under T2T's name for packed data."""
    return transformer_tpu()


@register_hparams
def transformer_big_enfr_tpu() -> HParams:
    """`transformer_big_enfr` with half the heads."""
    return for_tpu(transformer_big_enfr()).replace(num_heads=8)


@register_hparams
def transformer_mlperf_tpu() -> HParams:
    """T2T's entry for MLPerf 0.5; `mlperf_mode` has no effect here."""
    changes = {"batch_size": 2048, "symbol_modality_num_shards": 1, **_SHARED_DROPOUT_MASKS, **_BIG}
    hp = transformer_base().replace(**changes)
    return HParams.from_dict({**hp.to_dict(), "mlperf_mode": True})


# Language models


@register_hparams
def transformer_lm_tpu_0() -> HParams:
    """6 wide layers, only residual dropout as regularisation, for the billion-word benchmark."""
    return for_tpu(transformer_clean_big()).replace(
        num_heads=4,
        batch_size=4096,
        shared_embedding_and_softmax_weights=False,
        layer_prepostprocess_dropout=0.1,
    )


@register_hparams
def transformer_lm_tpu_1() -> HParams:
    """`transformer_lm_tpu_0` with twice the width."""
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


# Constituency parsing, section 6.3 of the paper


@register_hparams
def transformer_parsing_base() -> HParams:
    """T2T's set for the Penn Treebank, with six layers; the paper has four.

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
    """T2T's set for semi-supervised parsing, with a shared embedding of source and target."""
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
    """A set for 10,000 trees: four layers, as the paper has for the Penn Treebank, of width 192.

    It has relative positions besides the sinusoids, and much dropout because there are few trees. The
    learning rate falls to 0 at the last of `train_steps`.
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
        length_bucket_step=1.2,
        layer_prepostprocess_dropout=0.3,
        shared_embedding_and_softmax_weights=False,
    )
