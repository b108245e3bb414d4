"""The network's settings: checks across several of them, and the keyword arguments of its layers."""

from typing import Any

import keras

from t2t_keras.errors import UserError, require_kind
from t2t_keras.settings import SETTINGS, HParams

INFERENCE_SETTINGS = (
    *("attention_key_channels", "attention_value_channels", "filter_size", "hidden_size"),
    *("layer_postprocess_sequence", "layer_preprocess_sequence", "max_relative_position"),
    *("multiply_embedding_mode", "norm_epsilon", "num_decoder_layers", "num_encoder_layers"),
    *("num_heads", "num_hidden_layers", "pos", "prepend_mode", "proximity_bias"),
    *("self_attention_type", "shared_embedding", "shared_embedding_and_softmax_weights"),
    *("unidirectional_encoder", "use_pad_remover", "use_target_space_embedding", "vocab_divisor"),
)
"""The settings that affect the logits of a trained network; all others matter in training only."""


def check_settings(hp: HParams) -> None:
    """Raises UserError if the network does not support a value or a combination of values of `hp`."""
    require_kind("hp", hp, HParams, "settings, as from registry.hparams")
    hp.check("network")  # settings from a record have not been checked yet
    relative = hp.self_attention_type == "dot_product_relative"
    for name, needed in (("max_length", hp.pos == "emb"), ("max_relative_position", relative)):
        if needed and getattr(hp, name) < 1:
            raise UserError(f"hparam {name} must be 1 or more, got {getattr(hp, name)}.")
    keys = hp.attention_key_channels or hp.hidden_size
    values = hp.attention_value_channels or hp.hidden_size
    for name, number in (("key", keys), ("value", values)):
        if number < 1 or number % hp.num_heads:
            raise UserError(
                f"hparam attention_{name}_channels (hidden_size if 0) must be a multiple of "
                f"num_heads={hp.num_heads}, got {number}."
            )
    if relative and keys != values:
        raise UserError(
            "self_attention_type=dot_product_relative needs attention_key_channels and "
            f"attention_value_channels (hidden_size if 0) to be equal, got {keys} and {values}."
        )


def for_inference(hp: HParams) -> HParams:
    """Resets the initializer, which only training reads, to its default if the network has no such one."""
    usual = SETTINGS["initializer"]
    return hp if usual.allowed.takes(hp.initializer) else hp.replace(initializer=usual.default)


def stack_keywords(hp: HParams) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the keyword arguments of `layers.TransformerEncoder` and `layers.TransformerDecoder`."""
    relative = hp.self_attention_type == "dot_product_relative"
    decoder: dict[str, Any] = {
        "num_layers": hp.num_decoder_layers or hp.num_hidden_layers,
        "num_heads": hp.num_heads,
        "filter_size": hp.filter_size,
        "key_channels": hp.attention_key_channels,
        "value_channels": hp.attention_value_channels,
        "preprocess_sequence": hp.layer_preprocess_sequence,
        "postprocess_sequence": hp.layer_postprocess_sequence,
        "prepostprocess_dropout": hp.layer_prepostprocess_dropout,
        "attention_dropout": hp.attention_dropout,
        "relu_dropout": hp.relu_dropout,
        "max_relative_position": hp.max_relative_position if relative else 0,
        "proximity_bias": hp.proximity_bias,
        "norm_epsilon": hp.norm_epsilon,
        "kernel_initializer": kernel_initializer(hp),
    }
    dims = ("layer_prepostprocess_dropout_broadcast_dims", "attention_dropout_broadcast_dims")
    for name in (*dims, "relu_dropout_broadcast_dims"):  # T2T's "0,1" -> [0, 1]
        axes = [int(axis) for axis in getattr(hp, name).split(",") if axis.strip()]
        decoder[name.removeprefix("layer_")] = axes
    layers = hp.num_encoder_layers or hp.num_hidden_layers
    encoder = decoder | {"num_layers": layers, "remove_padding": hp.use_pad_remover}
    if hp.use_pad_remover:
        # T2T drops out [1, tokens, F] here: its pad remover has reshaped [B, S, F].
        same = {0: (), 1: (0, 1), 2: (2,)}
        shared = decoder["relu_dropout_broadcast_dims"]
        encoder["relu_dropout_broadcast_dims"] = sorted({a for s in shared for a in same[s % 3]})
    return encoder, decoder


def kernel_initializer(hp: HParams) -> keras.initializers.Initializer:
    """Returns the initializer of all matrices except embeddings: T2T's `get_variable_initializer`."""
    gain = hp.initializer_gain
    if hp.initializer == "orthogonal":
        return keras.initializers.Orthogonal(gain=gain)
    if hp.initializer == "uniform":
        return keras.initializers.RandomUniform(-0.1 * gain, 0.1 * gain)
    distribution = "uniform" if hp.initializer == "uniform_unit_scaling" else "truncated_normal"
    return keras.initializers.VarianceScaling(gain, mode="fan_avg", distribution=distribution)
