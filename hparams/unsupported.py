"""The Transformer sets of T2T that are not here, and why: asking for one gives the reason."""

from t2t_keras.registry import register_unsupported_hparams

_NAMES_BY_REASON = {
    "it is a language model, and only encoder-decoder models are supported": (
        "transformer_lm_tpu_0",
        "transformer_lm_tpu_1",
        "transformer_wikitext103_l4k_v0",
    ),
    "it pre-trains or fine-tunes one language model on several problems": (
        "transformer_tall",
        "transformer_tall_big",
        "transformer_tall_finetune_textclass",
        "transformer_tall_finetune_tied",
        "transformer_tall_finetune_uniencdec",
        "transformer_tall_pretrain_lm",
        "transformer_tall_pretrain_lm_tpu",
        "transformer_tall_pretrain_lm_tpu_adafactor",
        "transformer_tall_pretrain_lm_tpu_adafactor_large",
        "transformer_tall_train_tied",
        "transformer_tall_train_uniencdec",
    ),
    "it needs a recurrent memory": (
        "transformer_cifar10_memory_v0",
        "transformer_imagenet64_memory_v0",
        "transformer_wikitext103_l16k_memory_v0",
        "transformer_wikitext103_l4k_memory_v0",
    ),
    "it needs a mixture of experts or vector quantisation": (
        "transformer_ada_lmpackedbase",
        "transformer_ada_lmpackedbase_dialog",
        "transformer_ada_lmpackedbase_relative",
        "transformer_base_vq1_16_nb1_packed_dan_b01_scales",
        "transformer_base_vq1_16_nb1_packed_nda_b01_scales",
        "transformer_base_vq1_16_nb1_packed_nda_b01_scales_dialog",
        "transformer_base_vq_ada_32ex_packed",
        "transformer_topk_16_packed",
    ),
    "it recognises speech, and only text is supported": (
        "transformer_common_voice",
        "transformer_common_voice_tpu",
        "transformer_librispeech",
        "transformer_librispeech_tpu",
        "transformer_librispeech_tpu_v1",
        "transformer_librispeech_tpu_v2",
        "transformer_librispeech_v1",
        "transformer_librispeech_v2",
        "transformer_librispeech_with_area_attention",
    ),
    "it is for time series, and only text is supported": (
        "transformer_timeseries",
        "transformer_timeseries_tpu",
    ),
    "it is a decoder alone, with the source prepended to the target": (
        "transformer_prepend",
        "transformer_prepend_v1",
        "transformer_prepend_v2",
    ),
    "it has parameter attention instead of a feed-forward layer": (
        "transformer_parameter_attention_a",
        "transformer_parameter_attention_b",
    ),
    "it has convolutions instead of a feed-forward layer": ("transformer_tpu_with_conv",),
    "it learns from given attention weights": ("transformer_supervised_attention",),
    "its weights are bfloat16, and only float32 weights are supported": ("transformer_tpu_1b",),
    "it is a range for T2T's parameter search, not a set": (
        "transformer_base_range",
        "transformer_tiny_tpu_range",
        "transformer_tpu_range",
    ),
}

register_unsupported_hparams(
    {name: reason for reason, names in _NAMES_BY_REASON.items() for name in names}
)
