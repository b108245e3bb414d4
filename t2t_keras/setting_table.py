"""Every setting of tensor2tensor's Transformer sets: its name, default, type, and whether it acts.

The defaults are T2T's `transformer_base_v1`, the base model of "Attention Is All You Need". `OURS`
are the settings that they do not have.
Settings that this project does not act on keep their names and values, so that a set reads as in
T2T and its files can be compared; each states why, and nobody can change it unnoticed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Scalar = bool | int | float | str


class Setting(NamedTuple):
    """One declared setting.

    Attributes:
        default: its value unless a set says otherwise; a tuple for a list.
        kind: `bool`, `int`, `float` or `str`: the type of the value, or of a list's elements.
        optional: whether None is a value.
        inert: why it has no effect here; empty if it has one.
    """

    default: Any
    kind: type[Scalar]
    optional: bool = False
    inert: str = ""

    @property
    def is_list(self) -> bool:
        return isinstance(self.default, tuple)

    @property
    def description(self) -> str:
        """The expected type in words, for messages."""
        name = {bool: "true or false", int: "an int", float: "a number", str: "a string"}
        text = f"a list of {self.kind.__name__}" if self.is_list else name[self.kind]
        return f"{text} or none" if self.optional else text


_OPTIONAL_KINDS: dict[str, type[Scalar]] = {"pos": str, "learning_rate_minimum": float}
_EMPTY_LISTS: dict[str, type[Scalar]] = {
    "learning_rate_boundaries": float,
    "learning_rate_multiples": float,
}

_BATCHES = {
    "batch_size": 4096,  # tokens of the longer side, padding included, per replica
    "batch_shuffle_size": 512,
    "min_length": 0,
    "max_length": 256,  # 0: batch_size
    "min_length_bucket": 8,
    "length_bucket_step": 1.1,
    "eval_drop_long_sequences": False,
    "max_input_seq_length": 0,  # 0: not truncated
    "max_target_seq_length": 0,
}

OURS = {
    # Of the target, without padding, on all replicas; a step is then an update, and its batches are
    # as many and as large (up to batch_size) as it takes. 0: a step is one batch, as in T2T.
    "tokens_per_update": 0,
    # How many positions each one sees, itself included, where self_attention_type is "restricted".
    "restricted_neighborhood": 0,
    # Whether batches are as large as T2T's, which rounds them down, and of its buckets.
    "t2t_batches": False,
    # Read by learning_rate_decay_scheme "piecewise"; T2T reads them too, of sets that add them.
    "learning_rate_boundaries": [],
    "learning_rate_multiples": [],
}
"""What the sets of T2T's Transformer do not have."""

_NETWORK = {
    "num_hidden_layers": 6,
    "num_encoder_layers": 0,  # 0: num_hidden_layers
    "num_decoder_layers": 0,
    "hidden_size": 512,
    "filter_size": 2048,
    "num_heads": 8,
    "attention_key_channels": 0,  # of all heads together; 0: hidden_size
    "attention_value_channels": 0,
    "ffn_layer": "dense_relu_dense",
    "layer_preprocess_sequence": "none",
    "layer_postprocess_sequence": "dan",
    "norm_type": "layer",
    "norm_epsilon": 1e-6,
    "pos": "timing",
    "self_attention_type": "dot_product",
    "max_relative_position": 0,
    "proximity_bias": False,
    "unidirectional_encoder": False,
    "use_target_space_embedding": True,
    "use_pad_remover": True,
    "activation_dtype": "float32",
    "initializer": "uniform_unit_scaling",
    "initializer_gain": 1.0,
}

_EMBEDDING = {
    "shared_embedding": False,
    "shared_embedding_and_softmax_weights": True,
    "symbol_modality_num_shards": 16,
    "multiply_embedding_mode": "sqrt_depth",
    "vocab_divisor": 1,
}

_REGULARISATION = {
    "attention_dropout": 0.0,
    "attention_dropout_broadcast_dims": "",
    "relu_dropout": 0.0,
    "relu_dropout_broadcast_dims": "",
    "layer_prepostprocess_dropout": 0.1,
    "layer_prepostprocess_dropout_broadcast_dims": "",
    "symbol_dropout": 0.0,
    "label_smoothing": 0.1,
    "weight_decay": 0.0,
}

_OPTIMIZER = {
    "optimizer": "adam",
    "optimizer_adam_beta1": 0.9,
    "optimizer_adam_beta2": 0.98,
    "optimizer_adam_epsilon": 1e-9,
    "optimizer_adafactor_beta1": 0.0,
    "optimizer_adafactor_beta2": 0.999,
    "optimizer_adafactor_clipping_threshold": 1.0,
    "optimizer_adafactor_decay_type": "pow",
    "optimizer_adafactor_factored": True,
    "optimizer_adafactor_memory_exponent": 0.8,
    "optimizer_adafactor_multiply_by_parameter_scale": True,
    "optimizer_momentum_momentum": 0.9,
    "optimizer_momentum_nesterov": False,
    "optimizer_multistep_accumulate_steps": 0,
    "clip_grad_norm": 0.0,  # 0: not clipped
}

_LEARNING_RATE = {
    "learning_rate_schedule": "legacy",
    "learning_rate": 0.1,  # read by the schedule "legacy" alone
    "learning_rate_constant": 1.0,
    "learning_rate_warmup_steps": 4000,
    "learning_rate_decay_scheme": "noam",
    "learning_rate_decay_steps": 5000,
    "learning_rate_decay_rate": 1.0,
    "learning_rate_decay_staircase": False,
    "learning_rate_cosine_cycle_steps": 250000,
}

_INERT: dict[str, dict[str, Any]] = {
    "area attention is not supported": {
        "area_key_mode": "none",
        "area_value_mode": "none",
        "max_area_height": 1,
        "max_area_width": 1,
        "memory_height": 1,
        "num_area_layers": 0,
    },
    "hard and noisy attention are not supported": {
        "gumbel_noise_weight": 0.0,
        "hard_attention_k": 0,
    },
    "only T2T's dot_product_relative_v2 reads it, which is not supported": {
        "add_relative_to_values": False,
        "heads_share_relative_embedding": False,
    },
    "queries, keys and values are matrices": {"attention_variables_3d": False},
    "the decoder always attends to what came before": {"causal_decoder_self_attention": True},
    "attention over parameters is not supported": {
        "parameter_attention_key_channels": 0,
        "parameter_attention_value_channels": 0,
    },
    "mixture of experts is not supported": {
        "moe_hidden_sizes": "2048",
        "moe_k": 2,
        "moe_loss_coef": 0.001,
        "moe_num_experts": 16,
        "moe_overhead_eval": 2.0,
        "moe_overhead_train": 1.0,
    },
    "convolutions are not supported": {
        "compress_steps": 0,
        "conv_first_kernel": 3,
        "kernel_height": 3,
        "kernel_width": 1,
    },
    "the Transformer does not read it: see layer_prepostprocess_dropout": {"dropout": 0.2},
    "factored logits are not supported": {"factored_logits": False},
    "position features are not supported": {"position_features": ""},
    "video is not supported": {"video_num_input_frames": 1, "video_num_target_frames": 1},
    "multi-problem training is not supported": {
        "multiproblem_fixed_train_length": -1,
        "multiproblem_label_weight": 0.5,
        "multiproblem_max_input_length": -1,
        "multiproblem_max_target_length": -1,
        "multiproblem_mixing_schedule": "constant",
        "multiproblem_per_task_threshold": "",
        "multiproblem_reweight_label_loss": False,
        "multiproblem_schedule_max_examples": 1e7,
        "multiproblem_schedule_threshold": 0.5,
        "multiproblem_target_eval_only": False,
        "multiproblem_vocab_size": -1,
        "nbr_decoder_problems": 1,
        "overload_eval_metric_name": "",
    },
    "scheduled sampling is not supported": {
        "scheduled_sampling_gold_mixin_prob": 0.5,
        "scheduled_sampling_method": "parallel",
        "scheduled_sampling_num_passes": 1,
        "scheduled_sampling_prob": 0.0,
        "scheduled_sampling_warmup_schedule": "exp",
        "scheduled_sampling_warmup_steps": 50000,
    },
    "it is one of --decode_hparams": {
        "sampling_keep_top_k": -1,
        "sampling_method": "argmax",
        "sampling_temp": 1.0,
    },
    "targets are not split into chunks": {
        "split_targets_chunk_length": 0,
        "split_targets_max_chunks": 100,
        "split_targets_strided_training": False,
        "split_to_length": 0,
    },
    "sources are not prepended to targets": {"prepend_mode": "none"},
    "the problem decides how its data is packed and batched": {
        "pack_dataset": False,
        "pad_batch": False,
        "use_fixed_batch_size": False,
    },
    "evaluation scores the reference and decodes apart": {
        "eval_run_autoregressive": False,
        "force_full_predict": False,
    },
    "a checkpoint to start from is named by a flag": {
        "pretrained_model_dir": "",
        "warm_start_from_second": "",
    },
    "weights are float32: see activation_dtype": {
        "gpu_automatic_mixed_precision": False,
        "weight_dtype": "float32",
    },
    "the scaling of the loss cannot be configured": {
        "mixed_precision_optimizer_init_loss_scale": 32768,
        "mixed_precision_optimizer_loss_scaler": "exponential",
    },
    "noise on gradients and weights is not supported": {
        "grad_noise_scale": 0.0,
        "weight_noise": 0.0,
    },
    "every variable has a gradient": {"optimizer_zero_grads": False},
    "tensor2tensor itself no longer reads it": {"learning_rate_minimum": None},
    "it steered TensorFlow 1": {
        "daisy_chain_variables": True,
        "mlperf_mode": False,
        "no_data_parallelism": False,
        "summarize_grads": False,
        "summarize_vars": False,
        "tpu_enable_host_call": False,
        "use_custom_ops": True,
    },
}

OTHER_NETWORK = (
    "causal_decoder_self_attention",
    "hard_attention_k",
    "num_area_layers",
    "position_features",
    "prepend_mode",
)
"""Settings without effect here: T2T's network computes something else unless they have their defaults."""

OTHER_TRAINING = (
    "gpu_automatic_mixed_precision",
    "grad_noise_scale",
    "pack_dataset",
    "scheduled_sampling_prob",
    "split_targets_chunk_length",
    "split_to_length",
    "use_fixed_batch_size",
    "weight_dtype",
    "weight_noise",
)
"""Settings without effect here: T2T trains the same network otherwise unless they have their defaults."""


def declare(name: str, default: Any, inert: str = "") -> Setting:
    """Returns the setting `name` typed by its default: a bool, int, float, str or a list of one."""
    if name in _OPTIONAL_KINDS:
        return Setting(default, _OPTIONAL_KINDS[name], optional=True, inert=inert)
    if name in _EMPTY_LISTS:
        return Setting(tuple(default), _EMPTY_LISTS[name], inert=inert)
    if isinstance(default, list | tuple):
        return Setting(tuple(default), type(default[0]) if default else str, inert=inert)
    return Setting(default, type(default), inert=inert)


def _table() -> dict[str, Setting]:
    acting = (_BATCHES, OURS, _NETWORK, _EMBEDDING, _REGULARISATION, _OPTIMIZER, _LEARNING_RATE)
    table = {name: declare(name, value) for group in acting for name, value in group.items()}
    for reason, group in _INERT.items():
        table.update({name: declare(name, value, reason) for name, value in group.items()})
    return dict(sorted(table.items()))


SETTINGS: dict[str, Setting] = _table()
"""The settings by name, in alphabetical order."""
