"""Names of tensor2tensor that are not supported here, each with the reason or what to do instead.

Errors about T2T's names in command lines, files and user code come from this table. For flags and
decode hparams it also lists the values that change nothing here, which are accepted.
"""

from __future__ import annotations

import ast
import functools
import importlib
import re
from collections.abc import Iterable
from typing import NamedTuple

from t2t_keras.errors import UserError, nearest

NO_COUNTERPART = "it has no counterpart, see docs/from-tensor2tensor.md"

# Kind -> reason -> names, separated by commas. A name is a regular expression; "sync=true|false" is
# a name with its values that change nothing. Names of modules leave out "tensor2tensor.".
# fmt: off
_ABSENT: dict[str, dict[str, str]] = {
    "problem": {
        "it cleans text by rules for English; generate the problem without 'clean' in its name,"
        " with --clean_max_ratio and its like":
            "translate_en(de|es)_.*clean.*",
        "its vocabulary comes from a language model of Wikipedia in four languages, which "
        "is not supported":
            "translate_en(de|fr|ro)_wmt_multi.+",
        "its blocks of authentic and back-translated text must be read in order, and training "
        "here shuffles all text":
            "translate_encs_cubbitt, translate_enfr_wmt32k_with_backtranslate_(en|fr)",
        "tensor2tensor names no files for it": "translate_ende2018_wmt32k",
        "its text comes with an answer or a score, which language models here do not use":
            "lambada_.+, sva_.+",
        "it learns several problems at once, and a model is trained on one problem":
            """languagemodel_.+(_multi_nli|_squad|_cnndm|_wiki_translate|_sentiment)(_.+)?,
            languagemodel_(lm1b_multi_nli|multi_wiki_translate)(_.+)?""",
        "its text is not downloaded here; put it into targets.train.txt and targets.eval.txt and use "
        "text2self_tmpdir":
            "languagemodel_(de|de_en_fr_ro|en|fr|ro)_wiki.+, enwik8_.+, poetry_lines",
        "its inputs are scrambled targets; write both to files and use text2text_tmpdir":
            "languagemodel_wiki_scramble_.+",
        "it is speech, and only text is supported": "(audio|common_voice|librispeech)(_.+)?",
        "it has images or video, and only text is supported": "(image|img2img|video|ocr)_.+",
        "it classifies pairs of texts or words; to classify single texts, write a Text2ClassProblem":
            """(msr_paraphrase_corpus|question_nli|quora_question_pairs|rte|winograd_nli)(_characters)?,
            (multi_nli|sci_tail|stanford_nli)(_.+)?, conll2002_.+""",
        "its data is not read here; write a TfdsClassProblem on TFDS's glue or yelp_polarity_reviews":
            "cola(_characters)?, sentiment_(sst|yelp)_.+",
        "tensor2tensor generates its sequences; write them to two files and use text2text_tmpdir":
            """algorithmic_.+, (copy|reverse)_sequence(_small)?, flip_bi_gram_sequence,
            text2text_copyable_tokens, tiny_algo""",
        "its text is not downloaded here; put it into two files and use text2text_tmpdir":
            """(dialog|paraphrase_generation|style_transfer|wiki_revision)(_.+)?,
            (squad|wikisum|seq2edits)(_.+)?, summarize_(?!cnn_dailymail32k$).+, github_function_docstring,
            programming_desc2code_.+, program_search_algolisp""",
        "it has numbers, and only text is supported": "(genomics|timeseries)_.+",
        "it has no vocabulary in tensor2tensor either; wsj_parsing parses the Penn Treebank":
            "parsing_english_ptb8k",
    },
    "hparams set": {
        "it pre-trains or fine-tunes one language model on several problems":
            "transformer_tall(_.+)?",
        "it needs a recurrent memory":
            "transformer_(cifar10|imagenet64|wikitext103_l16k|wikitext103_l4k)_memory_v0",
        "it needs a mixture of experts or vector quantisation":
            "transformer_ada_lmpackedbase(_.+)?, transformer_base_vq.+, transformer_topk_16_packed",
        "it recognises speech, and only text is supported":
            "transformer_(common_voice|librispeech)(_.+)?",
        "it is for time series, and only text is supported":
            "transformer_timeseries(_tpu)?",
        "it has parameter attention instead of a feed-forward layer":
            "transformer_parameter_attention_[ab]",
        "it has convolutions instead of a feed-forward layer": "transformer_tpu_with_conv",
        "it learns from given attention weights": "transformer_supervised_attention",
        "its weights are bfloat16, and only float32 weights are supported": "transformer_tpu_1b",
        "it is a range for T2T's parameter search, not a set":
            "transformer_(base|tiny_tpu|tpu)_range",
        "it is for the Universal Transformer": "(adaptive_)?universal_transformer_.+",
        "it is for the Evolved Transformer": "evolved_transformer_.+",
        "it is for Mesh TensorFlow": "mt[fr]_.+",
        "it is for a model of images or video":
            r"""(image_?transformer|img2img|next_frame|vqa|resnet|revnet|shake_?shake|xception|autoencoder)[\w]*,
            (frame_glow|glow|cycle_gan|sliced_gan|distill_resnet|transformer_sketch|denoise|mqp)[\w]*,
            basic_(1|fc.*|moe_range)|basic1|my_very.*""",
        "it is for reinforcement learning":
            r"(rlm[bf]|ppo|dqn|planner|basic_policy|discrete_random)[\w]*",
        "it is for T2T's older language models; transformer_lm_tpu_0 is a set for a language model":
            r"(attention_lm|super_lm|lmx|xmoe2?|wiki_2x2)[\w]*",
        "it is for a network other than the Transformer":
            r"""(aligned|bytenet|gene_expression|lstm|nas_seq2seq|neural_|residual_shuffle|shuffle_network)[\w]*,
            (slicenet|similarity|text_cnn|neural_assistant|iwslt|wmt|afx)[\w]*""",
        "it is for a variant of the Transformer that is not supported":
            r"""transformer_(ae|aux|moe|nat|revnet|symshard|vae|seq2edits|memory)_.+,
            transformer_(base|big|tiny)_bs\d+, transformer_teeny""",
    },
    "model": {
        "it scores with the model transformer: call t2t-keras-decode with --score_file":
            "transformer_scorer",
        "its target is a number, and only text and classes are supported": "transformer_regressor",
        "use the model transformer, which is a language model if the problem has no inputs":
            "attention_lm",
        "it needs a mixture of experts": "attention_lm_moe, super_lm",
        "it needs a recurrent memory": "transformer_memory",
        "it is the Universal Transformer": "universal_transformer(_encoder)?",
        "it is the Evolved Transformer": "evolved_transformer",
        "it is for Mesh TensorFlow": "mtf_.+",
        "it is a variant of the Transformer that is not supported":
            """transformer_ae, transformer_aux, transformer_block_parallel, transformer_moe,
            transformer_nat, transformer_revnet, transformer_seq2edits, transformer_symshard,
            transformer_vae_flow_prior, similarity_transformer""",
        "it takes images or video, and only text is supported":
            """(autoencoder|img2img_transformer|next_frame|vqa)(_.+)?, imagetransformer(2d|_moe)?,
            cycle_gan, glow, resnet, revnet, shake_shake, sliced_gan, xception,
            transformer_sketch, basic_fc_relu""",
        "it is for reinforcement learning": ".+_policy(_new)?",
        "distillation is not supported": "distillation",
        "it is a network other than the Transformer":
            """lstm_.+,
            (diagonal_)?neural_gpu|neural_(assistant|deque_model|queue_model|stack_model),
            aligned, byte_net, gene_expression_conv, nas_seq2_seq, shuffle_network,
            residual_shuffle_exchange, slice_net, text_cnn""",
    },
    "optimizer": {
        "it finds its own learning rate and momentum, and none of T2T's Transformer sets uses it":
            "yellow_fin",
        "none of T2T's Transformer sets uses it": "adagrad, ftrl, rms_prop",
    },
    "flag": {
        "the command builds no model: leave it out": "model=transformer",
        "names all models, sets and problems": "registry_help=true|false",
        "training and evaluation alternate: leave it out, or call t2t-keras-eval or t2t-keras-"
        "decode": "schedule=continuous_train_and_eval|train_and_evaluate",
        "only --local_eval_frequency sets when to save and evaluate: leave it out":
            "eval_throttle_seconds, iterations_per_loop=100",
        "all visible devices are used: leave it out, choose them with CUDA_VISIBLE_DEVICES, or "
        "give t2t-keras-train --distribute":
            "worker_gpu=1, gpu_order=, optionally_use_dist_strat=false",
        "hosts are named in TF_CONFIG, see --distribute of t2t-keras-train":
            """worker_replicas=1, worker_id=0, worker_job=/job:localhost, ps_replicas=0, ps_gpu=0,
            ps_job=/job:ps, sync=true|false, master=, std_server_protocol=grpc""",
        "give t2t-keras-train --precision": "gpu_automatic_mixed_precision=false",
        "give t2t-keras-train --xla": "xla_compile=false, xla_jit_level",
        "set TensorFlow's environment variables":
            """worker_gpu_memory_fraction=0.95, inter_op_parallelism_threads=0,
            intra_op_parallelism_threads=0, log_device_placement=false""",
        "it is a flag of t2t-keras-eval": "eval_use_test_set=false, eval_timeout_mins",
        "BLEU always comes from real decoding: leave it out": "eval_run_autoregressive=true|false",
        "call t2t-keras-decode": "decode_from_file=, decode_to_file=, score_file=",
        "call t2t-keras-bleu": "decode_reference=",
        "call t2t-keras-export":
            """export_saved_model=false, export_saved_model_api_version=1,
            use_guarantee_const_getter=false""",
        "TPUs are not supported":
            """use_tpu=false, use_tpu_estimator=false, tpu_num_shards=8, tpu_job_name=,
            tpu_infeed_sleep_secs=, cloud_tpu_name=, cloud_mlengine=false,
            cloud_mlengine_master_type=, cloud_mlengine_model_name=,
            cloud_mlengine_model_version=, job-dir=""",
        "searching for hyperparameters is not supported":
            """hparams_range=, autotune_objective=, autotune_maximize=true, autotune_max_trials=10,
            autotune_parallel_trials=1""",
        "call t2t-keras-avg with --num_last_checkpoints": "n",
        "only t2t-keras-eval waits for checkpoints, with --eval_timeout_mins": "wait_minutes=0",
        "give t2t-keras-avg --prefix, and t2t-keras-eval --output_dir": "model_dir",
        "call t2t-keras-bleu, or t2t-keras-eval, which scores every checkpoint":
            """translations_dir, event_dir, tag_suffix=, report_zero=false,
            decoder_command=t2t-decoder {params}""",
        "give --translation and --reference to t2t-keras-bleu, which takes no source": "source",
        "give --decode_hparams": "beam_size=4, alpha=0.6",
        "reinforcement learning is not supported":
            "env_problem_max_env_steps=0, env_problem_batch_size=0",
        "leave it out":
            """profile=false, tfdbg=false, dbgprofile=false, parsing_path=, timit_paths=,
            locally_shard_to_cpu=false, enable_graph_rewriter=false, exclude_problems=,
            only_list=false, num_shards=0, max_cases=0, task_id=-1, task_id_start=-1,
            task_id_end=-1, keep_timestamp=false, decode_in_memory=false, decode_shards=1,
            disable_grappler_optimizations=false, export_as_tfhub=false, as_text=false""",
    },
    "decode hparam": {
        "outputs end at the end of sentence; min_length makes them longer":
            "force_decode_length=false, min_length_ratio=0.0, skip_eos_postprocess=false",
        "the end of sentence has the model's own score": "eos_penalty=0.0",
        "outputs grow by one token at a time":
            """block_size=0, guess_and_check_epsilon=-1, guess_and_check_top_k=0,
            insertion_parallel=false""",
        "each step computes the last position only": "use_last_position_only=true|false",
        "each line is a sentence": r"delimiter=\n",
        "the output is a text file with a line for each input":
            """decode_in_memory=false, export_extra_infer_outputs=, identity_output=false,
            log_results=false, log_targets=false""",
        "the flag --decode_to_file names it": "decode_to_file=",
        "t2t-keras-bleu compares with a reference": "decode_reference=",
        "every line of --decode_from_file is decoded, once":
            """num_decodes=1, num_samples=-1, shard_google_format=false, shard_id=0, shards=1,
            shards_start_offset=0""",
        "t2t-keras-eval waits for checkpoints and writes for TensorBoard":
            "decode_timeout_mins=240, summaries_log_dir=decode",
        "each checkpoint has one problem": "multiproblem_task_id=-1",
        "images and videos are not decoded":
            """border_percent=2, display_decoded_images=false, frames_per_second=10,
            max_display_decodes=5, max_display_outputs=10, save_images=false, vgg_ckpt_path=""",
        "MLPerf's log is not written":
            "mlperf_decode_step=0.0, mlperf_success=false, mlperf_threshold=25.0",
    },
    "hook": {
        "set loss_multiplier and space_ids on the class": "hparams, get_hparams",
        "change texts in generate_samples, ids in generate_encoded_samples":
            """preprocess_example, preprocess, maybe_reverse_and_copy, maybe_reverse_features,
            maybe_copy_features""",
        "every example has the ids of inputs and targets":
            "example_reading_spec, decode_example, feature_info",
        "define quality, which scores texts":
            "eval_metrics, eval_metric_fns, all_metrics_fns, eval_hooks, decode_hooks",
        "the setting batch_size counts tokens":
            "batch_size_means_tokens, tpu_batch_size_per_shard",
        "any number of processes encode what generate_samples yields":
            "multiprocess_generate, num_generate_tasks, prepare_to_generate",
        "dataset_filename and dataset_splits name the files":
            "filepattern, training_filepaths, dev_filepaths, test_filepaths, data_filepaths",
        "t2t_keras.data.dataset makes the batches":
            "dataset, input_fn, make_estimator_input_fn, skip_random_fraction_when_training",
        "t2t-keras-export makes what is served": "serving_input_fn, export_assets",
        "a model is trained on one problem": "num_training_examples, task_id, set_task_id",
    },
    "module": {
        "name archives and files in source_data_files of a TranslateProblem, or yield text in "
        "generate_samples": "data_generators.generator_utils",
        "t2t_keras.data":
            "data_generators.problem, data_generators.text_problems, data_generators.translate",
        "t2t_keras.text": "data_generators.text_encoder",
        "t2t_keras.ids.EOS_ID": "data_generators.text_encoder.EOS_ID",
        "t2t_keras.ids.PAD_ID": "data_generators.text_encoder.PAD_ID",
        "name the files in source_data_files of a TranslateProblem":
            "data_generators.text_problems.text2text_txt_iterator",
        "t2t_keras.text.iterate_lines": "data_generators.text_problems.txt_line_iterator",
        "t2t_keras.problems.wmt": "data_generators.translate_en(?:cs|de|es|et|fr|ro|zh)",
        "t2t_keras.problems.small_corpora": "data_generators.translate_en(?:id|mk|tn|vi)",
        'leave it out, and start with registry.hparams("transformer_base_v1")':
            "layers.common_hparams",
        "leave it out, both sides are text": "layers.modalities",
        "leave it out": "models",
        'leave it out, and write registry.hparams("transformer_base") for '
        "transformer.transformer_base()": "models.transformer",
        "leave it out, and define quality in the problem": "utils.metrics",
        "t2t_keras.registry": "utils.registry",
        "register a subclass of t2t_keras.Transformer, see docs/extending.md": "utils.t2t_model",
    },
}
# fmt: on


class Absent(NamedTuple):
    """A T2T name that is not supported: the reason, and values that are accepted anyway."""

    reason: str  # why it is not supported, or what to do instead
    harmless: tuple[str, ...] = ()  # values of a flag or decode hparam that change nothing here

    @property
    def is_switch(self) -> bool:
        """True for a flag that is true or false."""
        return {"true", "false"} & {*self.harmless} != set()

    def is_harmless(self, written: str) -> bool:
        """Returns True for a value that changes nothing here."""
        return any(_same(written, value) for value in self.harmless)


@functools.cache
def _items(kind: str) -> tuple[tuple[str, Absent], ...]:
    """Returns the pattern and `Absent` of each name of a kind."""
    items = []
    for reason, listed in _ABSENT[kind].items():
        for item in listed.split(","):
            name, equals, values = item.strip().partition("=")
            items.append((name, Absent(reason, tuple(values.split("|")) if equals else ())))
    return tuple(items)


@functools.cache
def absent(kind: str, name: str) -> Absent | None:
    """Returns the entry of an unsupported T2T name; None for any other name.

    Args:
        kind: "problem", "hparams set", "model", "optimizer", "flag", "decode hparam", "hook" (of a
            `Problem`) or "module".
        name: the name; of a problem without `_rev` and `_copy`, of an optimizer in snake case.
    """
    for pattern, known in _items(kind):
        if re.fullmatch(pattern, name):
            return known
    return None


def why_absent(kind: str, name: str) -> str:
    """Returns the reason why a T2T name is not supported; "" for any other name."""
    known = absent(kind, name)
    return known.reason if known else ""


def names(kind: str) -> list[str]:
    """Returns the unsupported names of a kind that are plain names, not patterns."""
    return [name for name, _ in _items(kind) if re.fullmatch(r"[\w.-]+", name)]


def unknown(kind: str, name: str, ours: Iterable[str], note: str) -> UserError:
    """Returns the error for an unknown name: T2T's reason, or the nearest name and a note."""
    if reason := why_absent(kind, name):
        return UserError(f"{kind} {name!r} of tensor2tensor is not supported: {reason}")
    return UserError(f"unknown {kind} {name!r}.{nearest(name, [*ours, *names(kind)])} {note}")


def require_harmless(name: str, written: str) -> None:
    """Refuses a decode hparam that only T2T has, unless its value changes nothing here."""
    known = absent("decode hparam", name)
    if known and not known.is_harmless(written):
        raise UserError(
            f"decode hparam {name} of tensor2tensor has no effect here ({known.reason}): leave it out."
        )


def _same(written: str, value: str) -> bool:
    if written.lower() == value.lower():
        return True
    try:
        return float(written) == float(value)
    except ValueError:
        return False


def snake_case(name: str) -> str:
    """Returns T2T's name for a class or function: `Translate4Ende32k` -> `translate4_ende32k`."""
    before_words = re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub("([a-z0-9])([A-Z])", r"\1_\2", before_words).lower()


# A user's own code for tensor2tensor


def uncalled_hooks(problem: type) -> str:
    """Returns T2T's hooks that a user's problem defines but nothing calls, with what to do instead."""
    found: dict[str, list[str]] = {}
    for name in names("hook"):
        owners = (owner.__module__ for owner in problem.__mro__ if name in vars(owner))
        if not next(owners, "t2t_keras.").startswith("t2t_keras."):
            found.setdefault(why_absent("hook", name), []).append(name)
    return ", ".join(f"{', '.join(theirs)} ({instead})" for instead, theirs in found.items())


def imports_instead(source: str) -> list[tuple[int, str, str]]:
    """Returns T2T's names in Python code: first line, name and what to write instead.

    These are the imports, and attributes of an imported module that are not in its counterpart, such
    as `text_problems.Text2ClassProblem`.
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
            if module and not _has_counterpart(module, node.attr):
                name = f"{module}.{node.attr}"
                found.setdefault(name, (node.lineno, name, _instead(name, node.attr)))
    return list(found.values())


def _instead(name: str, bound: str) -> str:
    """Returns what to write for a T2T name that the code binds to `bound`."""
    place, rest = _counterpart(name)
    if not place.startswith("t2t_keras."):
        return place
    if rest and not hasattr(importlib.import_module(place), rest):
        return f"{NO_COUNTERPART} ({place} has no {rest})"
    module, _, last = ".".join(filter(None, [place, rest])).rpartition(".")
    return f"from {module} import {last}" + f" as {bound}" * (last != bound)


def _has_counterpart(module: str, name: str) -> bool:
    """Returns True if what replaces a T2T module also has this name."""
    place, rest = _counterpart(module)
    if not place.startswith("t2t_keras.") or rest:
        return True
    return _instead(f"{module}.{name}", name) == f"from {place} import {name}"


def _counterpart(name: str) -> tuple[str, str]:
    """Returns the entry for the longest known prefix of a module's name, and the rest of the name."""
    known, rest = name.split(".")[1:], list[str]()
    while known and not (place := why_absent("module", ".".join(known))):
        rest.insert(0, known.pop())
    return (place, ".".join(rest)) if known else (NO_COUNTERPART, ".".join(rest))
