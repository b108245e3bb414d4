"""The table of settings: default, allowed values, readers and description of each.

The names, types and defaults are those of tensor2tensor's `transformer_base_v1`, nearly the base model
of "Attention Is All You Need"; `OURS` names the few that T2T's sets do not have. Settings without
effect here keep T2T's name and value, so that a set reads as in T2T, and state why they cannot be changed.

All checks of single values come from this table, and `docs/settings.md` is generated from it
(`python docs/generate_settings.py`). To allow a new value, add it here and where it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from t2t_keras import t2t_names
from t2t_keras.allowed_values import (
    INT64,
    Allowed,
    Setting,
    above,
    at_least,
    declare,
    nearest_of,
    one_of,
)

_FRACTION = Allowed(lambda value: 0 <= value < 1, "from 0 to below 1")
_COUNT = at_least(0)
_STEPS = at_least(0, INT64)


def _letters(letters: str) -> Allowed:
    """T2T's sequences of operations around a sublayer."""

    def takes(value: str) -> bool:
        return value == "none" or (set(value) <= set(letters) and value.count("n") <= 1)

    return Allowed(takes, f"none, or letters of {', '.join(letters)} with at most one n", True)


def _axes(rank: int) -> Allowed:
    """T2T's `broadcast_dims`: axes of the tensor that is dropped out."""

    def takes(value: str) -> bool:
        try:
            return all(-rank <= int(axis) < rank for axis in value.split(",") if axis)
        except ValueError:  # not a number
            return False

    return Allowed(takes, f"axes from 0 to {rank - 1}, separated by commas", True)


def _optimizer(*names: str) -> Allowed:
    def hint(value: str) -> str:
        reason = t2t_names.why_absent("optimizer", t2t_names.snake_case(value))
        return f" ({reason})" if reason else nearest_of(value, names)

    return Allowed(
        lambda value: t2t_names.snake_case(value) in names, f"one of {', '.join(names)}", True, hint
    )


def _factors(*names: str) -> Allowed:
    """T2T's `learning_rate_schedule`: factors joined by *."""

    def unknown(value: str) -> list[str]:
        factors = [factor.strip() for factor in value.split("*")]
        return [factor for factor in factors if factor and factor not in names]

    return Allowed(
        lambda value: not unknown(value),
        f"factors joined by *, of {', '.join(names)}",
        True,
        lambda value: "".join(nearest_of(factor, names) for factor in unknown(value)[:1]),
    )


_NETWORK = {
    "num_hidden_layers": declare(6, _COUNT, "layers of the encoder and of the decoder"),
    "num_encoder_layers": declare(0, _COUNT, "layers of the encoder; 0: `num_hidden_layers`"),
    "num_decoder_layers": declare(0, _COUNT, "layers of the decoder; 0: `num_hidden_layers`"),
    "hidden_size": declare(512, at_least(1), "width of embeddings and layers", "training"),
    "filter_size": declare(2048, at_least(1), "width inside the feed-forward layer"),
    "num_heads": declare(8, at_least(1), "attention heads; the channels must be a multiple"),
    "attention_key_channels": declare(
        0, _COUNT, "width of queries and keys, all heads together; 0: `hidden_size`"
    ),
    "attention_value_channels": declare(
        0, _COUNT, "width of values, all heads together; 0: `hidden_size`"
    ),
    "ffn_layer": declare(
        "dense_relu_dense",
        one_of("dense_relu_dense", "conv_hidden_relu"),
        "the feed-forward layer; both names mean the same",
    ),
    "layer_preprocess_sequence": declare(
        "none", _letters("nd"), "before each sublayer: n normalises, d drops out"
    ),
    "layer_postprocess_sequence": declare(
        "dan", _letters("nda"), "after each sublayer; a adds the sublayer's input"
    ),
    "norm_type": declare("layer", one_of("layer"), "kind of normalisation"),
    "norm_epsilon": declare(1e-6, at_least(0), "added to the variance in layer normalisation"),
    "pos": declare(
        "timing",
        one_of("timing", "timing_paper", "emb", None),
        "positions: T2T's sinusoids, the paper's, a learned table, or none",
        optional=True,
    ),
    "self_attention_type": declare(
        "dot_product",
        one_of("dot_product", "dot_product_relative"),
        "plain, or with relative positions (Shaw et al. 2018)",
    ),
    "max_relative_position": declare(0, _COUNT, "where `dot_product_relative` clips distances"),
    "proximity_bias": declare(False, text="attention favours nearby positions"),
    "unidirectional_encoder": declare(False, text="the encoder sees no later positions"),
    "use_target_space_embedding": declare(True, text="add the target space's embedding to sources"),
    "use_pad_remover": declare(
        True,
        text="the encoder's feed-forward output is 0 at padding; `relu_dropout_broadcast_dims` of the "
        "encoder are axes of [1, tokens, F]",
    ),
    "prepend_mode": declare(
        "none",
        one_of("none", "prepend_inputs_masked_attention", "prepend_inputs_full_attention"),
        "inputs, a 0 and targets form one sequence for a decoder without encoder; an input sees the "
        "inputs before it, or all inputs",
        "data",
    ),
    "activation_dtype": declare(
        "float32", one_of("float32", "bfloat16", "float16"), "precision of activations", "training"
    ),
    "initializer": declare(
        "uniform_unit_scaling",
        one_of("uniform_unit_scaling", "normal_unit_scaling", "orthogonal", "uniform"),
        "initial values of all matrices except embeddings",
    ),
    "initializer_gain": declare(1.0, above(0), "scale of the initializer"),
    "shared_embedding": declare(False, text="source and target share an embedding table"),
    "shared_embedding_and_softmax_weights": declare(
        True, text="source, target and softmax share an embedding table"
    ),
    "symbol_modality_num_shards": declare(
        16, at_least(1), "variables per embedding table in checkpoints", "training"
    ),
    "multiply_embedding_mode": declare(
        "sqrt_depth", one_of("sqrt_depth", "none"), "multiply embeddings by sqrt(`hidden_size`)"
    ),
    "vocab_divisor": declare(1, at_least(1), "tables are padded to a multiple of this many rows"),
    "attention_dropout": declare(0.0, _FRACTION, "dropout of attention weights"),
    "attention_dropout_broadcast_dims": declare("", _axes(4), "axes that share its mask"),
    "relu_dropout": declare(0.0, _FRACTION, "dropout inside the feed-forward layer"),
    "relu_dropout_broadcast_dims": declare("", _axes(3), "axes that share its mask"),
    "layer_prepostprocess_dropout": declare(
        0.1, _FRACTION, "dropout of embeddings, and the d around sublayers"
    ),
    "layer_prepostprocess_dropout_broadcast_dims": declare(
        "", _axes(3), "axes that share its mask"
    ),
    "symbol_dropout": declare(0.0, one_of(0.0), "dropout of whole tokens; not supported"),
}

_DATA = {
    "batch_size": declare(
        4096,
        at_least(1),
        "tokens per batch and device, with padding, on the longer side",
        "training",
    ),
    "batch_shuffle_size": declare(
        512,
        text="batches in the shuffle buffer of `--on_the_fly`; 0 or less: batches are not shuffled",
    ),
    "min_length": declare(0, text="shortest example, in evaluation too: tokens on the longer side"),
    "max_length": declare(
        256,
        _COUNT,
        "longest training example; 0: `batch_size`. Also rows of the position table (`pos=emb`)",
        "network",
    ),
    "min_length_bucket": declare(8, at_least(1), "longest example of the first bucket"),
    "length_bucket_step": declare(
        1.1, above(1), "ratio between the lengths of neighbouring buckets"
    ),
    "eval_drop_long_sequences": declare(False, text="apply `max_length` in evaluation too"),
    "max_input_seq_length": declare(
        0, text="sources are cut to this many tokens; 0 or less: no limit"
    ),
    "max_target_seq_length": declare(
        0, text="targets are cut to this many tokens; 0 or less: no limit"
    ),
    "subword_sampling": declare(
        0.0,
        _FRACTION,
        "random SentencePiece pieces with `--on_the_fly`: BPE drops this fraction of its merges, "
        "unigram samples by probabilities to this power; 0: no sampling",
    ),
    "t2t_batches": declare(
        False, text="use T2T's buckets and its batch sizes, which are rounded down"
    ),
}

_TRAINING = {
    "label_smoothing": declare(0.1, _FRACTION, "probability of the other tokens in training"),
    "weight_decay": declare(
        0.0, at_least(0), "weight of the L2 loss; with `adam_w`, decay per update"
    ),
    "clip_grad_norm": declare(0.0, at_least(0), "largest norm of the gradients; 0: no limit"),
    "tokens_per_update": declare(
        0, _COUNT, "target tokens per update, summed over batches; 0: one batch per update"
    ),
}

_OPTIMIZERS = {
    "optimizer": declare(
        "adam",
        _optimizer(
            *("adam", "true_adam", "multistep_adam", "adam_w", "adafactor", "momentum", "sgd")
        ),
        "how weights are updated",
    ),
    "optimizer_adam_beta1": declare(0.9, _FRACTION, "decay of the mean gradient"),
    "optimizer_adam_beta2": declare(0.98, _FRACTION, "decay of the mean squared gradient"),
    "optimizer_adam_epsilon": declare(1e-9, above(0), "added to the root of that mean square"),
    "optimizer_adafactor_beta1": declare(0.0, _FRACTION, "decay of the mean update; 0: none"),
    "optimizer_adafactor_beta2": declare(
        0.999, _FRACTION, "decay of the mean squared gradient in `adam`"
    ),
    "optimizer_adafactor_clipping_threshold": declare(
        1.0, above(0), "largest root mean square of an update"
    ),
    "optimizer_adafactor_decay_type": declare(
        "pow", one_of("pow", "adam"), "how the decay of the mean squared gradient grows"
    ),
    "optimizer_adafactor_factored": declare(True, text="store means of rows and columns only"),
    "optimizer_adafactor_memory_exponent": declare(
        0.8, at_least(0), "with `pow` the decay is 1 - step^-exponent"
    ),
    "optimizer_adafactor_multiply_by_parameter_scale": declare(
        True, text="multiply updates by the size of the weights"
    ),
    "optimizer_momentum_momentum": declare(0.9, _FRACTION, "decay of the sum of gradients"),
    "optimizer_momentum_nesterov": declare(False, text="Nesterov momentum"),
    "optimizer_multistep_accumulate_steps": declare(
        0, _COUNT, "batches per update of `multistep_adam`"
    ),
}

_LEARNING_RATE = {
    "learning_rate_schedule": declare(
        "legacy",
        _factors(
            *("constant", "linear_warmup", "linear_decay", "rsqrt_decay", "rsqrt_normalized_decay"),
            *("rsqrt_hidden_size", "exp_decay", "cosdecay", "single_cycle_cos_decay"),
            *("multi_cycle_cos_decay", "legacy"),
        ),
        "factors whose product is the learning rate",
    ),
    "learning_rate": declare(0.1, at_least(0), "factor of `legacy`; other factors ignore it"),
    "learning_rate_constant": declare(1.0, at_least(0), "value of the factor `constant`"),
    "learning_rate_warmup_steps": declare(4000, _STEPS, "steps of warm-up"),
    "learning_rate_decay_scheme": declare(
        "noam",
        one_of("none", "noam", "exp", "piecewise", "cosine", "cyclelinear10x", "sqrt", ""),
        "scheme of `legacy`; empty: `none`",
    ),
    "learning_rate_decay_steps": declare(5000, _STEPS, "length of a decay in steps"),
    "learning_rate_decay_rate": declare(
        1.0, at_least(0), "factor of `exp_decay` and `exp` over `learning_rate_decay_steps`"
    ),
    "learning_rate_decay_staircase": declare(
        False, text="decay once every `learning_rate_decay_steps`, not at each step"
    ),
    "learning_rate_cosine_cycle_steps": declare(
        250000, _STEPS, "steps from the maximum of `cosine` to its minimum"
    ),
    "learning_rate_boundaries": declare([], text="steps at which `piecewise` changes", kind=float),
    "learning_rate_multiples": declare(
        [], at_least(0), "factor of `piecewise` after each boundary", kind=float
    ),
}

GROUPS: dict[str, tuple[str, dict[str, Setting]]] = {
    "The network": ("network", _NETWORK),
    "Data and batches": ("data", _DATA),
    "Loss and updates": ("training", _TRAINING),
    "Optimizers": ("training", _OPTIMIZERS),
    "Learning rate": ("training", _LEARNING_RATE),
}
"""The settings that have an effect: title -> reader of the group, and its settings."""

OURS = (
    "learning_rate_boundaries",  # T2T reads these two from sets that add them
    "learning_rate_multiples",
    "subword_sampling",
    "t2t_batches",
    "tokens_per_update",
)
"""Settings that T2T's Transformer sets do not have."""

FORMER = {"restricted_neighborhood": 0}
"""Settings of 0.1.0 that are no more, with the only value in its files that means nothing."""

# Reason -> the settings and their defaults.
# fmt: off
_INERT: dict[str, dict[str, Any]] = {
    "area attention is not supported": {
        "area_key_mode": "none", "area_value_mode": "none", "max_area_height": 1,
        "max_area_width": 1, "memory_height": 1, "num_area_layers": 0,
    },
    "hard and noisy attention are not supported": {
        "gumbel_noise_weight": 0.0, "hard_attention_k": 0,
    },
    "only T2T's dot_product_relative_v2 reads it, which is not supported": {
        "add_relative_to_values": False, "heads_share_relative_embedding": False,
    },
    "the weights of queries, keys and values are matrices": {"attention_variables_3d": False},
    "the decoder never sees later positions": {"causal_decoder_self_attention": True},
    "attention over parameters is not supported": {
        "parameter_attention_key_channels": 0, "parameter_attention_value_channels": 0,
    },
    "mixture of experts is not supported": {
        "moe_hidden_sizes": "2048", "moe_k": 2, "moe_loss_coef": 0.001, "moe_num_experts": 16,
        "moe_overhead_eval": 2.0, "moe_overhead_train": 1.0,
    },
    "convolutions are not supported": {
        "compress_steps": 0, "conv_first_kernel": 3, "kernel_height": 3, "kernel_width": 1,
    },
    "the Transformer does not read it: see layer_prepostprocess_dropout": {"dropout": 0.2},
    "factored logits are not supported": {"factored_logits": False},
    "position features are not supported": {"position_features": ""},
    "video is not supported": {"video_num_input_frames": 1, "video_num_target_frames": 1},
    "multi-problem training is not supported": {
        "multiproblem_fixed_train_length": -1, "multiproblem_label_weight": 0.5,
        "multiproblem_max_input_length": -1, "multiproblem_max_target_length": -1,
        "multiproblem_mixing_schedule": "constant", "multiproblem_per_task_threshold": "",
        "multiproblem_reweight_label_loss": False, "multiproblem_schedule_max_examples": 1e7,
        "multiproblem_schedule_threshold": 0.5, "multiproblem_target_eval_only": False,
        "multiproblem_vocab_size": -1, "nbr_decoder_problems": 1, "overload_eval_metric_name": "",
    },
    "scheduled sampling is not supported": {
        "scheduled_sampling_gold_mixin_prob": 0.5, "scheduled_sampling_method": "parallel",
        "scheduled_sampling_num_passes": 1, "scheduled_sampling_prob": 0.0,
        "scheduled_sampling_warmup_schedule": "exp", "scheduled_sampling_warmup_steps": 50000,
    },
    "give it in --decode_hparams": {
        "sampling_keep_top_k": -1, "sampling_method": "argmax", "sampling_temp": 1.0,
    },
    "targets are not split into chunks": {
        "split_targets_chunk_length": 0, "split_targets_max_chunks": 100,
        "split_targets_strided_training": False, "split_to_length": 0,
    },
    "the problem decides how its data is packed and batched": {
        "pack_dataset": False, "pad_batch": False, "use_fixed_batch_size": False,
    },
    "evaluation scores the reference, and decodes separately": {
        "eval_run_autoregressive": False, "force_full_predict": False,
    },
    "the flag --warm_start_from names a checkpoint to start from": {
        "pretrained_model_dir": "", "warm_start_from_second": "",
    },
    "weights are float32: see activation_dtype": {
        "gpu_automatic_mixed_precision": False, "weight_dtype": "float32",
    },
    "the scaling of the loss cannot be configured": {
        "mixed_precision_optimizer_init_loss_scale": 32768,
        "mixed_precision_optimizer_loss_scaler": "exponential",
    },
    "noise on gradients and weights is not supported": {
        "grad_noise_scale": 0.0, "weight_noise": 0.0,
    },
    "every variable has a gradient": {"optimizer_zero_grads": False},
    "tensor2tensor itself no longer reads it": {"learning_rate_minimum": None},
    "it controlled TensorFlow 1": {
        "daisy_chain_variables": True, "mlperf_mode": False, "no_data_parallelism": False,
        "summarize_grads": False, "summarize_vars": False, "tpu_enable_host_call": False,
        "use_custom_ops": True,
    },
}

OTHER_NETWORK = (
    "attention_variables_3d", "causal_decoder_self_attention", "gumbel_noise_weight",
    "hard_attention_k", "num_area_layers", "position_features",
)
"""Inert settings whose other values give a different network in T2T."""

OTHER_TRAINING = (
    "gpu_automatic_mixed_precision", "grad_noise_scale", "pack_dataset", "scheduled_sampling_prob",
    "split_targets_chunk_length", "split_to_length", "use_fixed_batch_size", "weight_dtype",
    "weight_noise",
)
"""Inert settings whose other values make T2T train the same network differently."""
# fmt: on


def _table() -> dict[str, Setting]:
    table = {
        name: setting._replace(readers=(reader, *setting.readers))
        for reader, group in GROUPS.values()
        for name, setting in group.items()
    }
    for reason, defaults in _INERT.items():
        for name, default in defaults.items():
            kind = float if default is None else type(default)
            readers = ("network",) if name in OTHER_NETWORK else ()
            table[name] = Setting(
                default, kind, one_of(default), "", readers, default is None, inert=reason
            )
    return dict(sorted(table.items()))


SETTINGS: Mapping[str, Setting] = _table()
"""The settings by name, in alphabetical order."""
