"""What encoder and decoder share: the settings of a layer, and a stack of layers."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from t2t_keras.layers.attention import MultiHeadAttention
from t2t_keras.layers.dropout import rematerialised
from t2t_keras.layers.feed_forward import FeedForward
from t2t_keras.layers.pre_post_process import PrePostProcess
from t2t_keras.layers.restricted_attention import RestrictedAttention


class LayerSettings(keras.layers.Layer):
    """Base of `TransformerEncoderLayer` and `TransformerDecoderLayer`.

    Args:
        num_heads: H.
        filter_size: F, the inner depth of the feed-forward network.
        key_channels: depth of queries and keys over all heads; 0 means D.
        value_channels: depth of values over all heads; 0 means D.
        preprocess_sequence: letters applied before each sub-layer (see `PrePostProcess`).
        postprocess_sequence: letters applied after it.
        prepostprocess_dropout: rate of the letter "d".
        attention_dropout: rate on attention weights.
        relu_dropout: rate inside the feed-forward network.
        prepostprocess_dropout_broadcast_dims, attention_dropout_broadcast_dims,
            relu_dropout_broadcast_dims: axes along which each dropout is shared; never that of
            attention with relative positions, as in T2T.
        max_relative_position: if positive, self-attention uses relative positions.
        neighborhood: if positive, self-attention is restricted to so many positions (see
            `RestrictedAttention`).
        norm_epsilon: of the layer normalisation.
        kernel_initializer: of every matrix.

    To change a part, subclass and override `attention`, `feed_forward` or `process`.
    """

    causal_neighborhood = False
    """Whether a restricted neighbourhood is what came before."""

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
        neighborhood: int = 0,
        norm_epsilon: float = 1e-6,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # for the bias, as in MultiHeadAttention
        self.settings = {
            "num_heads": num_heads,
            "filter_size": filter_size,
            "key_channels": key_channels,
            "value_channels": value_channels,
            "preprocess_sequence": preprocess_sequence,
            "postprocess_sequence": postprocess_sequence,
            "prepostprocess_dropout": prepostprocess_dropout,
            "attention_dropout": attention_dropout,
            "relu_dropout": relu_dropout,
            "prepostprocess_dropout_broadcast_dims": list(prepostprocess_dropout_broadcast_dims),
            "attention_dropout_broadcast_dims": list(attention_dropout_broadcast_dims),
            "relu_dropout_broadcast_dims": list(relu_dropout_broadcast_dims),
            "max_relative_position": max_relative_position,
            "neighborhood": neighborhood,
            "norm_epsilon": norm_epsilon,
            "kernel_initializer": keras.initializers.serialize(
                keras.initializers.get(kernel_initializer)
            ),
        }
        self.supports_masking = True

    def attention(self, name: str, relative: bool = False) -> MultiHeadAttention:
        """Makes the attention of a sub-layer; `relative` where it is self-attention."""
        s = self.settings
        distances = s["max_relative_position"] if relative else 0
        settings = {
            "num_heads": s["num_heads"],
            "key_channels": s["key_channels"],
            "value_channels": s["value_channels"],
            "dropout": s["attention_dropout"],
            "dropout_broadcast_dims": () if distances else s["attention_dropout_broadcast_dims"],
            "max_relative_position": distances,
            "kernel_initializer": s["kernel_initializer"],
            "dtype": self.dtype_policy,
            "name": name,
        }
        if relative and self.restricted:
            return RestrictedAttention(
                neighborhood=s["neighborhood"], causal=self.causal_neighborhood, **settings
            )
        return MultiHeadAttention(**settings)

    @property
    def restricted(self) -> bool:
        """Whether self-attention is restricted to a neighbourhood."""
        return self.settings["neighborhood"] > 0

    def feed_forward(self, name: str) -> FeedForward:
        """Makes the feed-forward network."""
        s = self.settings
        return FeedForward(
            filter_size=s["filter_size"],
            dropout=s["relu_dropout"],
            dropout_broadcast_dims=s["relu_dropout_broadcast_dims"],
            kernel_initializer=s["kernel_initializer"],
            dtype=self.dtype_policy,
            name=name,
        )

    def process(self, name: str, sequence: str) -> PrePostProcess:
        """Makes what stands before or after a sub-layer."""
        s = self.settings
        return PrePostProcess(
            sequence=sequence,
            dropout=s["prepostprocess_dropout"],
            dropout_broadcast_dims=s["prepostprocess_dropout_broadcast_dims"],
            norm_epsilon=s["norm_epsilon"],
            dtype=self.dtype_policy,
            name=name,
        )

    def add_processes(self, sublayer: str, x_shape):
        """Sets `<sublayer>_preprocess` and `<sublayer>_postprocess`, built."""
        for side in ("preprocess", "postprocess"):
            process = self.process(f"{sublayer}_{side}", self.settings[f"{side}_sequence"])
            process.build(x_shape)
            setattr(self, process.name, process)

    def compute_output_spec(self, *args, **kwargs):
        # Traced, since what comes out depends on `return_attention_weights`.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self):
        return {**super().get_config(), **self.settings}


class Stack(LayerSettings):
    """`num_layers` layers of `layer_class`, then a last pre-processing (T2T's final norm).

    The layers are attributes `layer_0`, `layer_1`, ... and, in order, `layers`. With `remat`, in
    training, what is inside a layer is not kept for the backward pass but computed again
    (under a `keep_mask_scope`, and where no attention weights are asked for).
    """

    layer_class: type[LayerSettings]

    def __init__(self, *, num_layers: int, remat: bool = False, **settings):
        super().__init__(**settings)
        self.remat = remat
        if num_layers < 0:
            raise ValueError(f"num_layers must be 0 or more, got {num_layers}.")
        self.num_layers = num_layers

    def build_layers(self, x_shape, *other_shapes):
        for i in range(self.num_layers):
            layer = self.layer_class(**self.settings, dtype=self.dtype_policy, name=f"layer_{i}")
            layer.build(x_shape, *other_shapes)
            setattr(self, layer.name, layer)
        self.last_preprocess = self.process("last_preprocess", self.settings["preprocess_sequence"])
        self.last_preprocess.build(x_shape)
        self.built = True

    def run_layer(self, layer, *tensors, training, return_attention_weights, **others):
        """Calls a layer, whose inputs that have a gradient are `tensors`."""

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
        return {**super().get_config(), "num_layers": self.num_layers, "remat": self.remat}
