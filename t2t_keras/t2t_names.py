"""Names of tensor2tensor's problems and hparams sets that are not here, each with the reason."""

from __future__ import annotations

import functools
import re

_PROBLEMS = {
    "it cleans text by rules for English; generate the problem without 'clean' in its name, with "
    "--clean_max_ratio and its like": (
        "translate_ende_pc_clean32k",
        "translate_ende_wmt_clean32k",
        "translate_ende_wmt_clean_pc32k",
        "translate_ende_wmt_clean_pc_clean32k",
        "translate_ende_wmt_pc_clean32k",
        "translate_enes_wmt_clean32k",
    ),
    "its vocabulary is that of a language model of Wikipedia in four languages, which is not here": (
        "translate_ende_wmt_multi64k",
        "translate_ende_wmt_multi64k_packed1k",
        "translate_enfr_wmt_multi64k",
        "translate_enfr_wmt_multi64k_packed1k",
        "translate_enro_wmt_multi64k",
        "translate_enro_wmt_multi_small64k",
        "translate_enro_wmt_multi_tiny64k",
        "translate_enro_wmt_multi_tiny64k_packed1k",
    ),
    "its blocks of authentic and back-translated text are to be read in their order, and training "
    "here mixes all text": (
        "translate_encs_cubbitt",
        "translate_enfr_wmt32k_with_backtranslate_en",
        "translate_enfr_wmt32k_with_backtranslate_fr",
    ),
    "tensor2tensor names no files for it": ("translate_ende2018_wmt32k",),
    "it is a language model, or text that goes on": (
        r"(languagemodel|lambada|enwik8)_.+",
        *("poetry_lines", r"sva_.+"),
    ),
    "it is speech, and only text is supported": (r"(audio|common_voice|librispeech)(_.+)?",),
    "it has images or video, and only text is supported": (r"(image|img2img|video|ocr)_.+",),
    "it gives a class to a text, and only text to text is supported": (
        r"(cola|msr_paraphrase_corpus|question_nli|quora_question_pairs|rte|winograd_nli)(_characters)?",
        r"(multi_nli|sci_tail|stanford_nli|sentiment)(_.+)?",
        r"conll2002_.+",
    ),
    "tensor2tensor makes its sequences; make a file a side, and take text2text_tmpdir": (
        r"algorithmic_.+",
        r"(copy|reverse)_sequence(_small)?",
        *("flip_bi_gram_sequence", "text2text_copyable_tokens", "tiny_algo"),
    ),
    "nothing here fetches its text; with a file a side it is text2text_tmpdir": (
        r"(dialog|paraphrase_generation|style_transfer|wiki_revision)(_.+)?",
        r"(squad|summarize|wikisum|seq2edits)(_.+)?",
        *("github_function_docstring", r"programming_desc2code_.+", "program_search_algolisp"),
    ),
    "it is of numbers, and only text is supported": (r"(genomics|timeseries)_.+",),
    "it has no vocabulary in tensor2tensor either; wsj_parsing parses the Penn Treebank": (
        "parsing_english_ptb8k",
    ),
}

_SETS = {
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
    "it is of the Universal Transformer": (r"(adaptive_)?universal_transformer_.+",),
    "it is of the Evolved Transformer": (r"evolved_transformer_.+",),
    "it is of Mesh TensorFlow": (r"mt[fr]_.+",),
    "it is of a model of images or video": (
        r"(image_?transformer|img2img|next_frame|vqa|resnet|revnet|shake_?shake|xception|autoencoder)"
        r"[\w]*",
        r"(frame_glow|glow|cycle_gan|sliced_gan|distill_resnet|transformer_sketch|denoise|mqp)[\w]*",
        r"basic_(1|fc.*|moe_range)|basic1|my_very.*",
    ),
    "it is of reinforcement learning": (
        r"(rlm[bf]|ppo|dqn|planner|basic_policy|discrete_random)[\w]*",
    ),
    "it is of a language model that is not here": (
        r"(attention_lm|super_lm|lmx|xmoe2?|wiki_2x2)[\w]*",
    ),
    "it is of another network than the Transformer": (
        r"(aligned|bytenet|gene_expression|lstm|nas_seq2seq|neural_|residual_shuffle|shuffle_network)"
        r"[\w]*",
        r"(slicenet|similarity|text_cnn|neural_assistant|iwslt|wmt|afx)[\w]*",
    ),
    "it is of a relative of the Transformer that is not here": (
        r"transformer_(ae|aux|moe|nat|revnet|symshard|vae|seq2edits|memory)_.+",
        r"transformer_(base|big|tiny)_bs\d+",
        "transformer_teeny",
    ),
}


@functools.cache
def unsupported_problem(name: str) -> str:
    """The reason why a problem of T2T is not here; "" of any other name (without `_rev`, `_copy`)."""
    return _reason(_PROBLEMS, name)


@functools.cache
def unsupported_set(name: str) -> str:
    """The reason why an hparams set, or a range, of T2T is not here; "" of any other name."""
    return _reason(_SETS, name)


def _reason(names: dict[str, tuple[str, ...]], name: str) -> str:
    for reason, patterns in names.items():
        if any(re.fullmatch(pattern, name) for pattern in patterns):
            return reason
    return ""


def exact_problems() -> list[str]:
    """Names of T2T's unsupported translation problems, for the nearest match of a misspelt one."""
    return _exact(_PROBLEMS)


def exact_sets() -> list[str]:
    """Names of T2T's unsupported Transformer sets, for the nearest match of a misspelt one."""
    return _exact(_SETS)


def _exact(names: dict[str, tuple[str, ...]]) -> list[str]:
    return [name for patterns in names.values() for name in patterns if name.isidentifier()]
