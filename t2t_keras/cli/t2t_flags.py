"""Flags of tensor2tensor's commands that ours do not have, and what takes their place."""

from __future__ import annotations

from collections.abc import Collection, Sequence

_INSTEAD: dict[str, tuple[str, ...]] = {
    "there is one model, the Transformer: leave it out": ("model",),
    "training and evaluation take turns: leave it out, or call t2t-keras-eval or t2t-keras-decode": (
        "schedule",
        "eval_throttle_seconds",
        "iterations_per_loop",
    ),
    "all devices in sight are used: leave it out, or give t2t-keras-train --distribute": (
        "worker_gpu",
        "gpu_order",
        "optionally_use_dist_strat",
    ),
    "hosts are named in TF_CONFIG, see --distribute of t2t-keras-train": (
        "worker_replicas",
        "worker_id",
        "worker_job",
        "ps_replicas",
        "ps_gpu",
        "ps_job",
        "sync",
        "master",
        "std_server_protocol",
    ),
    "give t2t-keras-train --precision": ("gpu_automatic_mixed_precision",),
    "give t2t-keras-train --xla": ("xla_compile", "xla_jit_level"),
    "TensorFlow's environment variables say so": (
        "worker_gpu_memory_fraction",
        "inter_op_parallelism_threads",
        "intra_op_parallelism_threads",
        "log_device_placement",
    ),
    "it is a flag of t2t-keras-eval": ("eval_use_test_set", "eval_timeout_mins"),
    "BLEU is always of real decoding: leave it out": ("eval_run_autoregressive",),
    "call t2t-keras-decode": ("decode_from_file", "decode_to_file", "score_file"),
    "call t2t-keras-bleu": ("decode_reference",),
    "call t2t-keras-export": (
        "export_saved_model",
        "export_saved_model_api_version",
        "use_guarantee_const_getter",
    ),
    "TPUs are not supported": (
        "use_tpu",
        "use_tpu_estimator",
        "tpu_num_shards",
        "cloud_tpu_name",
        "cloud_mlengine",
        "cloud_mlengine_master_type",
        "cloud_mlengine_model_name",
        "cloud_mlengine_model_version",
        "job-dir",
    ),
    "searching for hyperparameters is not supported": (
        "hparams_range",
        "autotune_objective",
        "autotune_maximize",
        "autotune_max_trials",
        "autotune_parallel_trials",
    ),
    "a misspelt name is answered by the nearest: leave it out": ("registry_help",),
    "call t2t-keras-avg with --num_last_checkpoints": ("n", "wait_minutes"),
    "leave it out": (
        "profile",
        "tfdbg",
        "dbgprofile",
        "parsing_path",
        "timit_paths",
        "locally_shard_to_cpu",
        "enable_graph_rewriter",
        "exclude_problems",
        "only_list",
        "num_shards",
        "max_cases",
        "task_id",
        "task_id_start",
        "task_id_end",
        "keep_timestamp",
        "decode_in_memory",
        "decode_shards",
        "disable_grappler_optimizations",
        "export_as_tfhub",
        "as_text",
    ),
}

INSTEAD = {name: instead for instead, names in _INSTEAD.items() for name in names}
"""What to do without each flag, by its name."""


def explain(argv: Sequence[str], known: Collection[str]) -> str:
    """What to do without those of T2T's flags in a command line that a command does not have.

    Args:
        argv: the command line.
        known: the names of the command's flags.

    Returns:
        One sentence a flag; empty if there is none.
    """
    names = [word.lstrip("-").partition("=")[0] for word in argv[1:] if word.startswith("--")]
    found = dict.fromkeys(name for name in names if name in INSTEAD and name not in known)
    return " ".join(f"--{name} of tensor2tensor is not here: {INSTEAD[name]}." for name in found)
