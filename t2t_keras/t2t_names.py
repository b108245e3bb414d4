"""What tensor2tensor has and we have not, by name, each with the reason: problems, sets, models, flags, decode hparams.

Nobody need take off his command line what says no more than what is done anyway: of flags and decode
hparams, the value that does is known as well.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import NamedTuple

from t2t_keras.errors import UserError

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

_MODELS = {
    "it is the model transformer, scoring: call t2t-keras-decode with --score_file": (
        "transformer_scorer",
    ),
    "only encoder-decoder models are supported": ("transformer_encoder", "transformer_regressor"),
    "it is a language model, and only encoder-decoder models are supported": (
        *("attention_lm", "attention_lm_moe", "super_lm"),
    ),
    "it needs a recurrent memory": ("transformer_memory",),
    "it is the Universal Transformer": (r"universal_transformer(_encoder)?",),
    "it is the Evolved Transformer": ("evolved_transformer",),
    "it is of Mesh TensorFlow": (r"mtf_.+",),
    "it is a relative of the Transformer that is not here": (
        *("transformer_ae", "transformer_aux", "transformer_block_parallel", "transformer_moe"),
        *("transformer_nat", "transformer_revnet", "transformer_seq2edits", "transformer_symshard"),
        *("transformer_vae_flow_prior", "similarity_transformer"),
    ),
    "it is of images or video, and only text is supported": (
        r"(autoencoder|img2img_transformer|next_frame|vqa)(_.+)?",
        r"imagetransformer(2d|_moe)?",
        *("cycle_gan", "glow", "resnet", "revnet", "shake_shake", "sliced_gan", "xception"),
        *("transformer_sketch", "basic_fc_relu"),
    ),
    "it is of reinforcement learning": (r".+_policy(_new)?",),
    "distillation is not supported": ("distillation",),
    "it is another network than the Transformer": (
        r"lstm_.+",
        r"(diagonal_)?neural_gpu|neural_(assistant|deque_model|queue_model|stack_model)",
        *("aligned", "byte_net", "gene_expression_conv", "nas_seq2_seq", "shuffle_network"),
        *("residual_shuffle_exchange", "slice_net", "text_cnn"),
    ),
}


class Known(NamedTuple):
    """A flag or decode hparam of T2T's that is not ours.

    Attributes:
        values: as they are written, those that ask for nothing but what is done anyway.
        instead: what to do instead of giving it another.
    """

    values: tuple[str, ...]
    instead: str

    @property
    def is_switch(self) -> bool:
        """Whether it is true or false."""
        return {"true", "false"} & {*self.values} != set()

    def is_done_anyway(self, written: str) -> bool:
        """Whether a value says what is done anyway."""
        return any(_same(written, value) for value in self.values)


_FLAGS: dict[str, dict[str, str | tuple[str, ...]]] = {
    "the command makes no model: leave it out": {"model": "transformer"},
    "names all models, sets and problems": {"registry_help": ("true", "false")},
    "training and evaluation take turns: leave it out, or call t2t-keras-eval or t2t-keras-decode": {
        "schedule": ("continuous_train_and_eval", "train_and_evaluate"),
    },
    "--local_eval_frequency alone says when checkpoints and evaluations are: leave it out": {
        "eval_throttle_seconds": (),
        "iterations_per_loop": "100",
    },
    "all devices in sight are used: leave it out, choose them with CUDA_VISIBLE_DEVICES, or give "
    "t2t-keras-train --distribute": {
        "worker_gpu": "1",
        "gpu_order": "",
        "optionally_use_dist_strat": "false",
    },
    "hosts are named in TF_CONFIG, see --distribute of t2t-keras-train": {
        "worker_replicas": "1",
        "worker_id": "0",
        "worker_job": "/job:localhost",
        "ps_replicas": "0",
        "ps_gpu": "0",
        "ps_job": "/job:ps",
        "sync": ("true", "false"),  # nothing is asynchronous
        "master": "",
        "std_server_protocol": "grpc",
    },
    "give t2t-keras-train --precision": {"gpu_automatic_mixed_precision": "false"},
    # T2T no longer reads xla_compile.
    "give t2t-keras-train --xla": {"xla_compile": "false", "xla_jit_level": ()},
    "TensorFlow's environment variables say so": {
        "worker_gpu_memory_fraction": "0.95",
        "inter_op_parallelism_threads": "0",
        "intra_op_parallelism_threads": "0",
        "log_device_placement": "false",
    },
    "it is a flag of t2t-keras-eval": {"eval_use_test_set": "false", "eval_timeout_mins": ()},
    # T2T does not read it.
    "BLEU is always of real decoding: leave it out": {"eval_run_autoregressive": ("true", "false")},
    "call t2t-keras-decode": {"decode_from_file": "", "decode_to_file": "", "score_file": ""},
    "call t2t-keras-bleu": {"decode_reference": ""},
    "call t2t-keras-export": {
        "export_saved_model": "false",
        "export_saved_model_api_version": "1",
        "use_guarantee_const_getter": "false",
    },
    "TPUs are not supported": {
        "use_tpu": "false",
        "use_tpu_estimator": "false",
        "tpu_num_shards": "8",
        "tpu_job_name": "",
        "tpu_infeed_sleep_secs": "",
        "cloud_tpu_name": "",
        "cloud_mlengine": "false",
        "cloud_mlengine_master_type": "",
        "cloud_mlengine_model_name": "",
        "cloud_mlengine_model_version": "",
        "job-dir": "",
    },
    "searching for hyperparameters is not supported": {
        "hparams_range": "",
        "autotune_objective": "",
        "autotune_maximize": "true",
        "autotune_max_trials": "10",
        "autotune_parallel_trials": "1",
    },
    "call t2t-keras-avg with --num_last_checkpoints": {"n": ()},
    "nothing waits for checkpoints but t2t-keras-eval with --eval_timeout_mins": {
        "wait_minutes": "0"
    },
    "give t2t-keras-avg --prefix, and t2t-keras-eval --output_dir": {"model_dir": ()},
    "call t2t-keras-eval, whose BLEU is of every checkpoint": {
        "translations_dir": (),
        "event_dir": (),
        "tag_suffix": "",
        "report_zero": "false",
        "decoder_command": "t2t-decoder {params}",
    },
    "give --translation and --reference to t2t-keras-bleu, which takes no source": {"source": ()},
    "give --decode_hparams": {"beam_size": "4", "alpha": "0.6"},
    "reinforcement learning is not supported": {
        "env_problem_max_env_steps": "0",
        "env_problem_batch_size": "0",
    },
    "leave it out": {
        "profile": "false",
        "tfdbg": "false",
        "dbgprofile": "false",
        "parsing_path": "",
        "timit_paths": "",
        "locally_shard_to_cpu": "false",
        "enable_graph_rewriter": "false",
        "exclude_problems": "",
        "only_list": "false",
        "num_shards": "0",
        "max_cases": "0",
        "task_id": "-1",
        "task_id_start": "-1",
        "task_id_end": "-1",
        "keep_timestamp": "false",
        "decode_in_memory": "false",
        "decode_shards": "1",
        "disable_grappler_optimizations": "false",
        "export_as_tfhub": "false",
        "as_text": "false",
    },
}

_DECODE_HPARAMS: dict[str, dict[str, str | tuple[str, ...]]] = {
    "an output ends where its sentence does; min_length makes it longer": {
        "force_decode_length": "false",
        "min_length_ratio": "0.0",
        "skip_eos_postprocess": "false",
    },
    "the score of an end of sentence is the model's": {"eos_penalty": "0.0"},
    "outputs grow by one token at a time": {
        "block_size": "0",
        "guess_and_check_epsilon": "-1",
        "guess_and_check_top_k": "0",
        "insertion_parallel": "false",
    },
    "a step of a search works on the last position alone": {
        "use_last_position_only": ("true", "false"),
    },
    "a sentence is a line": {"delimiter": r"\n"},
    "outputs are text, in a file of a line for each input": {
        "decode_in_memory": "false",
        "export_extra_infer_outputs": "",
        "identity_output": "false",
        "log_results": "false",
        "log_targets": "false",
    },
    "the flag --decode_to_file names it": {"decode_to_file": ""},
    "t2t-keras-bleu compares with a reference": {"decode_reference": ""},
    "every line of --decode_from_file is decoded, once": {
        "num_decodes": "1",
        "num_samples": "-1",
        "shard_google_format": "false",
        "shard_id": "0",
        "shards": "1",
        "shards_start_offset": "0",
    },
    "t2t-keras-eval waits for checkpoints and writes for TensorBoard": {
        "decode_timeout_mins": "240",
        "summaries_log_dir": "decode",
    },
    "a checkpoint is of one problem": {"multiproblem_task_id": "-1"},
    "images and videos are not decoded": {
        "border_percent": "2",
        "display_decoded_images": "false",
        "frames_per_second": "10",
        "max_display_decodes": "5",
        "max_display_outputs": "10",
        "save_images": "false",
        "vgg_ckpt_path": "",
    },
    "MLPerf's log is not written": {
        "mlperf_decode_step": "0.0",
        "mlperf_success": "false",
        "mlperf_threshold": "25.0",
    },
}


def _known(table: Mapping[str, Mapping[str, str | tuple[str, ...]]]) -> dict[str, Known]:
    return {
        name: Known((values,) if isinstance(values, str) else values, instead)
        for instead, names in table.items()
        for name, values in names.items()
    }


FLAGS = _known(_FLAGS)
"""Flags of T2T's commands that ours do not have, by name."""

DECODE_HPARAMS = _known(_DECODE_HPARAMS)
"""T2T's decode hparams that are not ours, by name; `use_last_position_only` is of its first releases."""


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


@functools.cache
def unsupported_model(name: str) -> str:
    """The reason why a model of T2T is not here; "" of any other name."""
    return _reason(_MODELS, name)


def require_done_anyway(name: str, written: str) -> None:
    """Refuses a decode hparam that T2T has and we have not, unless its value is what is done anyway."""
    if not DECODE_HPARAMS[name].is_done_anyway(written):
        raise UserError(
            f"decode hparam {name} of tensor2tensor has no effect here "
            f"({DECODE_HPARAMS[name].instead}): leave it out."
        )


def exact_problems() -> list[str]:
    """Names of T2T's unsupported translation problems, for the nearest match of a misspelt one."""
    return _exact(_PROBLEMS)


def exact_sets() -> list[str]:
    """Names of T2T's unsupported Transformer sets, for the nearest match of a misspelt one."""
    return _exact(_SETS)


def _exact(names: dict[str, tuple[str, ...]]) -> list[str]:
    return [name for patterns in names.values() for name in patterns if name.isidentifier()]


def _same(written: str, value: str) -> bool:
    if written.lower() == value.lower():
        return True
    try:
        return float(written) == float(value)
    except ValueError:
        return False
