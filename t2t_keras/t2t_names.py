"""Names of tensor2tensor's that are not here: problems and hparams sets, each with the reason, and hooks
and modules that a user's own code names, each with what to write instead."""

from __future__ import annotations

import ast
import functools
import importlib
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

HOOKS = {
    "set loss_multiplier and space_ids on the class": ("hparams", "get_hparams"),
    "change texts in generate_samples, ids in generate_encoded_samples": (
        "preprocess_example",
        "preprocess",
        "maybe_reverse_and_copy",
        "maybe_reverse_features",
        "maybe_copy_features",
    ),
    "every example is ids of inputs and of targets": (
        "example_reading_spec",
        "decode_example",
        "has_inputs",
        "feature_info",
    ),
    "define quality, which scores texts": (
        "eval_metrics",
        "eval_metric_fns",
        "all_metrics_fns",
        "eval_hooks",
        "decode_hooks",
    ),
    "batches are of batch_size tokens and max_length at most, both settings": (
        "batch_size_means_tokens",
        "max_length",
        "tpu_batch_size_per_shard",
    ),
    "any number of processes encode what generate_samples yields": (
        "multiprocess_generate",
        "num_generate_tasks",
        "prepare_to_generate",
    ),
    "dataset_filename and dataset_splits name the files": (
        "filepattern",
        "training_filepaths",
        "dev_filepaths",
        "test_filepaths",
        "data_filepaths",
    ),
    "t2t_keras.data.dataset makes the batches": (
        "dataset",
        "input_fn",
        "make_estimator_input_fn",
        "skip_random_fraction_when_training",
    ),
    "t2t-keras-export makes what is served": ("serving_input_fn", "export_assets"),
    "training is of one problem": ("num_training_examples", "task_id", "set_task_id"),
}
"""By what to do instead: what T2T's `Problem` has, and nothing here calls."""

COUNTERPARTS = {
    "": "it has no counterpart, see docs/from-tensor2tensor.md",
    "data_generators.generator_utils": "name archives and files in source_data_files of a "
    "TranslateProblem, or yield text in generate_samples",
    "data_generators.problem": "t2t_keras.data",
    "data_generators.text_encoder": "t2t_keras.text",
    "data_generators.text_encoder.EOS_ID": "t2t_keras.ids.EOS_ID",
    "data_generators.text_encoder.PAD_ID": "t2t_keras.ids.PAD_ID",
    "data_generators.text_problems": "t2t_keras.data",
    "data_generators.text_problems.text2text_txt_iterator": "name the files in source_data_files of a "
    "TranslateProblem",
    "data_generators.text_problems.txt_line_iterator": "t2t_keras.text.iterate_lines",
    "data_generators.translate": "t2t_keras.data",
    **{
        f"data_generators.translate_{pair}": f"t2t_keras.problems.translate_{pair}"
        for pair in (
            *("encs", "ende", "enes", "enet", "enfr", "enid"),
            *("enmk", "enro", "entn", "envi", "enzh"),
        )
    },
    "layers.common_hparams": 'leave it out, and begin with registry.hparams("transformer_base_v1")',
    "layers.modalities": "leave it out, both sides are text",
    "models": "leave it out",
    "models.transformer": 'leave it out, and write registry.hparams("transformer_base") for '
    "transformer.transformer_base()",
    "utils.metrics": "leave it out, and define quality in the problem",
    "utils.registry": "t2t_keras.registry",
    "utils.t2t_model": "train a model of your own in Python, see docs/extending.md",
}
"""By what follows "tensor2tensor.": the module or the name to import, or what to do."""


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


# A user's own code


def uncalled_hooks(problem: type) -> str:
    """The hooks of T2T's that a user's problem defines in vain, each with what to do; "" if none."""
    found = []
    for instead, names in HOOKS.items():
        theirs = [name for name in names if _is_of_a_user(problem, name)]
        found += [f"{', '.join(theirs)} ({instead})"] if theirs else []
    return ", ".join(found)


def _is_of_a_user(problem: type, name: str) -> bool:
    owners = (owner.__module__ for owner in problem.__mro__ if name in vars(owner))
    return not next(owners, "t2t_keras.").startswith("t2t_keras.")


def imports_instead(source: str) -> list[tuple[int, str, str]]:
    """The names of tensor2tensor's in Python code, each with its first line and what to do instead.

    They are what it imports, and what it reads from an imported module whose counterpart lacks it:
    `text_problems.Text2ClassProblem`.
    """
    nodes = sorted(ast.walk(ast.parse(source)), key=lambda node: getattr(node, "lineno", 0))
    imported: dict[str, str] = {}
    found: dict[str, tuple[int, str, str]] = {}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                name = start + alias.name
                if name.split(".")[0] == "tensor2tensor":
                    bound = alias.asname or name.split(".")[-1]
                    imported[bound] = name
                    found.setdefault(name, (node.lineno, name, _instead(name, bound)))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = imported.get(node.value.id)
            if module and not _goes_with(module, node.attr):
                name = f"{module}.{node.attr}"
                found.setdefault(name, (node.lineno, name, _instead(name, node.attr)))
    return list(found.values())


def _instead(name: str, bound: str) -> str:
    """What to write for a name of T2T's that the code calls `bound`."""
    place, rest = _counterpart(name)
    if not place.startswith("t2t_keras."):
        return place
    if rest and not hasattr(importlib.import_module(place), rest):
        return f"{COUNTERPARTS['']} ({place} has no {rest})"
    module, _, last = ".".join(filter(None, [place, rest])).rpartition(".")
    return f"from {module} import {last}" + f" as {bound}" * (last != bound)


def _goes_with(module: str, name: str) -> bool:
    """Whether what is said of a module of T2T's holds for a name that is read from it."""
    place, rest = _counterpart(module)
    if not place.startswith("t2t_keras.") or rest:
        return True
    return _instead(f"{module}.{name}", name) == f"from {place} import {name}"


def _counterpart(name: str) -> tuple[str, str]:
    """What stands for the longest known beginning of a name of T2T's, and the rest of the name."""
    known, rest = name.split(".")[1:], list[str]()
    while ".".join(known) not in COUNTERPARTS:
        rest.insert(0, known.pop())
    return COUNTERPARTS[".".join(known)], ".".join(rest)
