"""The settings of an encoder or decoder layer, the parts built from them, and a stack of layers."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import keras

from t2t_keras.layers.attention import MultiHeadAttention
from t2t_keras.layers.dropout import rematerialised
from t2t_keras.layers.masks import AttentionMask
from t2t_keras.layers.sublayers import FeedForward, PrePostProcess
from t2t_keras.precision import dtype_config


class TransformerLayer(keras.layers.Layer):
    """Base of `TransformerEncoderLayer` and `TransformerDecoderLayer`, and of stacks of these.

    To change a part, subclass and override `attention`, `feed_forward` or `process`.

    Args:
        num_heads: H.
        filter_size: F, the inner depth of the feed-forward network.
        key_channels: depth of queries and keys over all heads; 0 means D.
        value_channels: depth of values over all heads; 0 means D.
        preprocess_sequence: letters applied before each sub-layer (see `PrePostProcess`).
        postprocess_sequence: letters applied after each sub-layer.
        prepostprocess_dropout: rate of the letter "d".
        attention_dropout: rate on the attention weights.
        relu_dropout: rate inside the feed-forward network.
        prepostprocess_dropout_broadcast_dims: axes of [B, T, D] along which the dropout of the letter
            "d" is shared.
        attention_dropout_broadcast_dims: axes of [B, H, T, S]; ignored by attention with relative
            positions, as in T2T.
        relu_dropout_broadcast_dims: axes of [B, T, F].
        max_relative_position: if positive, self-attention has relative positions (see
            `MultiHeadAttention`).
        norm_epsilon: added to the variance in layer normalisation.
        kernel_initializer: initializer of all matrices.
    """

    def __init__(
        self,
        *,
        num_heads: int,
        filter_size: int,
        key_channels: int = 0,
        value_channels: int = 0,
        preprocess_sequence: str = "n",
        postprocess_sequence: str = "da",
        prepostprocess_dropout: float = 0.0,
        attention_dropout: float = 0.0,
        relu_dropout: float = 0.0,
        prepostprocess_dropout_broadcast_dims: Sequence[int] = (),
        attention_dropout_broadcast_dims: Sequence[int] = (),
        relu_dropout_broadcast_dims: Sequence[int] = (),
        max_relative_position: int = 0,
        norm_epsilon: float = 1e-6,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # for the bias, as in MultiHeadAttention
        initializer = keras.initializers.get(kernel_initializer)
        self.config = types.SimpleNamespace(  # as `get_config` returns it
            num_heads=num_heads,
            filter_size=filter_size,
            key_channels=key_channels,
            value_channels=value_channels,
            preprocess_sequence=preprocess_sequence,
            postprocess_sequence=postprocess_sequence,
            prepostprocess_dropout=prepostprocess_dropout,
            attention_dropout=attention_dropout,
            relu_dropout=relu_dropout,
            prepostprocess_dropout_broadcast_dims=list(prepostprocess_dropout_broadcast_dims),
            attention_dropout_broadcast_dims=list(attention_dropout_broadcast_dims),
            relu_dropout_broadcast_dims=list(relu_dropout_broadcast_dims),
            max_relative_position=max_relative_position,
            norm_epsilon=norm_epsilon,
            kernel_initializer=keras.initializers.serialize(initializer),
        )
        self.supports_masking = True

    def attention(self, name: str, relative: bool = False) -> MultiHeadAttention:
        """Makes the attention of a sub-layer; `relative` is True for self-attention."""
        c = self.config
        own: dict[str, Any] = {"dropout_broadcast_dims": c.attention_dropout_broadcast_dims}
        if relative and c.max_relative_position:
            own = {"max_relative_position": c.max_relative_position}
        return MultiHeadAttention(
            num_heads=c.num_heads,
            key_channels=c.key_channels,
            value_channels=c.value_channels,
            dropout=c.attention_dropout,
            kernel_initializer=c.kernel_initializer,
            dtype=self.dtype_policy,
            name=name,
            **own,
        )

    def feed_forward(self, name: str) -> FeedForward:
        """Makes the feed-forward network."""
        return FeedForward(
            filter_size=self.config.filter_size,
            dropout=self.config.relu_dropout,
            dropout_broadcast_dims=self.config.relu_dropout_broadcast_dims,
            kernel_initializer=self.config.kernel_initializer,
            dtype=self.dtype_policy,
            name=name,
        )

    def process(self, name: str, sequence: str) -> PrePostProcess:
        """Makes the pre- or post-processing of a sub-layer."""
        return PrePostProcess(
            sequence=sequence,
            dropout=self.config.prepostprocess_dropout,
            dropout_broadcast_dims=self.config.prepostprocess_dropout_broadcast_dims,
            norm_epsilon=self.config.norm_epsilon,
            dtype=self.dtype_policy,
            name=name,
        )

    def add_processes(self, sublayer: str, x_shape):
        """Builds and sets `<sublayer>_preprocess` and `<sublayer>_postprocess`."""
        for side in ("preprocess", "postprocess"):
            process = self.process(f"{sublayer}_{side}", getattr(self.config, f"{side}_sequence"))
            process.build(x_shape)
            setattr(self, process.name, process)

    def compute_output_spec(self, *args, **kwargs):
        # By tracing: the number of outputs depends on `return_attention_weights`.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self):
        return {**super().get_config(), **vars(self.config), "dtype": dtype_config(self)}

    @classmethod
    def from_config(cls, config):
        # In files of 0.1.0, a neighborhood of 0 is attention to all positions.
        kept = {name: v for name, v in config.items() if (name, v) != ("neighborhood", 0)}
        return super().from_config(kept)


class Stack(TransformerLayer):
    """`num_layers` layers of `layer_class`, then a final pre-processing (T2T's final norm).

    The layers are the attributes `layer_0`, `layer_1`, ... and the list `layers`. They share their
    attention biases, which the first layer computes.

    Args:
        num_layers: N.
        proximity_bias: True adds -log(1 + distance) to the logits of self-attention (T2T's
            `proximity_bias`).
        remat: True recomputes the activations inside each layer in the backward pass instead of
            keeping them (gradient checkpointing). Needs a `keep_mask_scope`; no effect if attention
            weights are returned.
        kwargs: those of `TransformerLayer`.
    """

    layer_class: type[TransformerLayer]

    def __init__(
        self, *, num_layers: int, proximity_bias: bool = False, remat: bool = False, **kwargs
    ):
        super().__init__(**kwargs)
        if num_layers < 0:
            raise ValueError(f"num_layers must be 0 or more, got {num_layers}.")
        self.num_layers = num_layers
        self.proximity_bias = proximity_bias
        self.remat = remat

    def build_layers(self, x_shape, *other_shapes):
        settings = vars(self.config)
        for i in range(self.num_layers):
            layer = self.layer_class(**settings, dtype=self.dtype_policy, name=f"layer_{i}")
            layer.build(x_shape, *other_shapes)
            setattr(self, layer.name, layer)
        self.last_preprocess = self.process("last_preprocess", self.config.preprocess_sequence)
        self.last_preprocess.build(x_shape)
        self.built = True

    def prepared(self, sublayer: str, mask: AttentionMask, query, keys=None) -> AttentionMask:
        """Returns the mask prepared by the attention `sublayer` of the first layer, if there is one."""
        if not self.layers:
            return mask
        return getattr(self.layers[0], sublayer).prepare(mask, query, keys)

    @property
    def needs_positions(self) -> bool:
        """True if self-attention depends on the distance between query and key, besides the mask."""
        return self.proximity_bias or any(
            layer.self_attention.needs_positions for layer in self.layers
        )

    def run_layer(self, layer, *tensors, training, return_attention_weights, **others):
        """Calls a layer; `tensors` are its inputs that have a gradient."""

        def call(*tensors):
            return layer(
                *tensors,
                training=training,
                return_attention_weights=return_attention_weights,
                **others,
            )

        if self.remat and training and not return_attention_weights:
            call = rematerialised(call)
        return call(*tensors)

    @property
    def layers(self) -> list:
        return [getattr(self, f"layer_{i}") for i in range(self.num_layers)]

    def get_config(self):
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "proximity_bias": self.proximity_bias,
            "remat": self.remat,
        }
