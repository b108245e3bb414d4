"""The settings of an encoder or decoder layer, the parts built from them, and a stack of layers."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec

import keras

from t2t_keras.layers.attention import SELF_ATTENTION, MultiHeadAttention
from t2t_keras.layers.dropout import rematerialised
from t2t_keras.layers.masks import AttentionMask
from t2t_keras.layers.sublayers import FeedForward, PrePostProcess
from t2t_keras.precision import dtype_config

P = ParamSpec("P")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """Keyword arguments of `TransformerEncoderLayer` and `TransformerDecoderLayer`."""

    num_heads: int
    """H."""
    filter_size: int
    """F, the inner depth of the feed-forward network."""
    key_channels: int = 0
    """Depth of queries and keys over all heads; 0 means D."""
    value_channels: int = 0
    """Depth of values over all heads; 0 means D."""
    preprocess_sequence: str = "n"
    """Letters applied before each sub-layer (see `PrePostProcess`)."""
    postprocess_sequence: str = "da"
    """Letters applied after each sub-layer."""
    prepostprocess_dropout: float = 0.0
    """Rate of the letter "d"."""
    attention_dropout: float = 0.0
    """Rate on the attention weights."""
    relu_dropout: float = 0.0
    """Rate inside the feed-forward network."""
    prepostprocess_dropout_broadcast_dims: Sequence[int] = ()
    """Axes of [B, T, D] along which the dropout of the letter "d" is shared."""
    attention_dropout_broadcast_dims: Sequence[int] = ()
    """Axes of [B, H, T, S]; ignored by attention with relative positions, as in T2T."""
    relu_dropout_broadcast_dims: Sequence[int] = ()
    """Axes of [B, T, F]."""
    self_attention_type: str = "dot_product"
    """The class of self-attention, by its name in `attention.SELF_ATTENTION`."""
    max_relative_position: int = 0
    """If positive, self-attention has relative positions (see `MultiHeadAttention`)."""
    neighborhood: int = 0
    """If positive, self-attention sees only this many positions (see `RestrictedAttention`)."""
    norm_epsilon: float = 1e-6
    """Added to the variance in layer normalisation."""
    kernel_initializer: Any = "glorot_uniform"
    """Initializer of all matrices."""
    name: str | None = None  # these three as in every Keras layer
    dtype: Any = None
    trainable: bool = True

    def __post_init__(self):
        needs = {"dot_product_relative": "max_relative_position", "restricted": "neighborhood"}
        if self.self_attention_type not in SELF_ATTENTION:
            raise ValueError(
                f"self_attention_type must be one of {', '.join(SELF_ATTENTION)}, got "
                f"{self.self_attention_type!r}."
            )
        for kind, name in needs.items():
            if self.self_attention_type == kind and getattr(self, name) < 1:
                raise ValueError(f"self_attention_type {kind!r} needs a {name} of 1 or more.")
        initializer = keras.initializers.get(self.kernel_initializer)
        values = {"kernel_initializer": keras.initializers.serialize(initializer)}
        for field in dataclasses.fields(self):  # lists, as in JSON
            if field.name.endswith("_dims"):
                values[field.name] = list(getattr(self, field.name))
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def keywords(self, config_class: type[LayerConfig]) -> dict[str, Any]:
        """Returns the settings that `config_class` has, without those of every Keras layer."""
        fields = {field.name for field in dataclasses.fields(config_class)}
        names = fields - {"name", "dtype", "trainable"}
        return {name: getattr(self, name) for name in sorted(names)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class StackConfig(LayerConfig):
    """Keyword arguments of `TransformerDecoder`: those of its layers, and its own."""

    num_layers: int
    """N."""
    proximity_bias: bool = False
    """True adds -log(1 + distance) to the logits of self-attention (T2T's `proximity_bias`)."""
    remat: bool = False
    """True recomputes the activations inside each layer in the backward pass instead of keeping them
    (gradient checkpointing). Needs a `keep_mask_scope`; no effect if attention weights are returned."""

    def __post_init__(self):
        super().__post_init__()
        if self.num_layers < 0:
            raise ValueError(f"num_layers must be 0 or more, got {self.num_layers}.")


def keywords_of(
    config_class: Callable[P, LayerConfig],
) -> Callable[[Callable[[Any, Any], None]], Callable[Concatenate[Any, P], None]]:
    """Decorator: `__init__(self, config)` takes the fields of `config_class` as keyword arguments.

    Type checkers, completion and errors see them as if they were written out in the class.
    """
    make: Any = config_class
    signature = inspect.signature(config_class)

    def decorate(init):
        @functools.wraps(init)
        def with_keywords(self, **keywords):
            try:
                config = make(**keywords)
            except TypeError as error:
                message = str(error).partition("()")[2] or f": {error}"
                raise TypeError(f"{type(self).__name__}(){message}") from None
            init(self, config)

        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = [own, *signature.parameters.values()]
        with_keywords.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=parameters, return_annotation=None
        )
        return with_keywords

    return decorate


class TransformerLayer(keras.layers.Layer):
    """Base of `TransformerEncoderLayer` and `TransformerDecoderLayer`, and of stacks of these.

    To change a part, subclass and override `attention`, `feed_forward` or `process`.
    """

    causal = False
    """True if restricted self-attention sees no later positions."""

    @keywords_of(LayerConfig)
    def __init__(self, config: LayerConfig):
        self._configure(config)

    def _configure(self, config: LayerConfig) -> None:
        super().__init__(
            name=config.name,
            dtype=config.dtype,
            trainable=config.trainable,
            autocast=False,  # for the bias, as in MultiHeadAttention
        )
        self.config = config
        self.supports_masking = True

    def attention(self, name: str, relative: bool = False) -> MultiHeadAttention:
        """Makes the attention of a sub-layer; `relative` is True for self-attention."""
        c = self.config
        kind: Any = MultiHeadAttention
        own: dict[str, Any] = {"dropout_broadcast_dims": c.attention_dropout_broadcast_dims}
        if relative:
            kind = SELF_ATTENTION["restricted" if c.neighborhood else c.self_attention_type]
            if c.max_relative_position:
                own = {"max_relative_position": c.max_relative_position}
            if c.neighborhood:
                own |= {"neighborhood": c.neighborhood, "causal": self.causal}
        return kind(
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
        settings = self.config.keywords(type(self.config))
        return {**super().get_config(), **settings, "dtype": dtype_config(self)}


class Stack(TransformerLayer):
    """`num_layers` layers of `layer_class`, then a final pre-processing (T2T's final norm).

    The layers are the attributes `layer_0`, `layer_1`, ... and the list `layers`. They share their
    attention biases, which the first layer computes.
    """

    config: StackConfig
    layer_class: type[TransformerLayer]

    def build_layers(self, x_shape, *other_shapes):
        settings = self.config.keywords(LayerConfig)
        for i in range(self.config.num_layers):
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
        return self.config.proximity_bias or any(
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

        if self.config.remat and training and not return_attention_weights:
            call = rematerialised(call)
        return call(*tensors)

    @property
    def layers(self) -> list:
        return [getattr(self, f"layer_{i}") for i in range(self.config.num_layers)]
