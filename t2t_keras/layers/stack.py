"""The settings of an encoder or decoder layer, the parts built from them, and a stack of layers."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_keras.errors import UserError
from t2t_keras.layers.attention import KeyValueCache, MultiHeadAttention
from t2t_keras.layers.masks import AttentionMask, distances
from t2t_keras.layers.sublayers import FeedForward, PrePostProcess, rematerialised
from t2t_keras.precision import dtype_config
from t2t_keras.shape import grown, shape_of


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

    has_memory = False
    """True if the layer attends to a memory."""

    @property
    def sublayers(self) -> tuple[str, ...]:
        """The names of the sub-layers, in order."""
        return ("self_attention", *["encdec_attention"] * self.has_memory, "ffn")

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


# The encoder: a stack of self-attention and feed-forward sub-layers (section 3.1)


@keras.saving.register_keras_serializable("t2t_keras")
class TransformerEncoderLayer(TransformerLayer):
    """One encoder layer: self-attention and feed-forward, each with pre- and post-processing.

    Args: see `TransformerLayer`.

    Call arguments:
        x: [B, S, D].
        attention_mask: boolean or an `AttentionMask`, see `MultiHeadAttention`.
        mask: boolean [B, S], True where there is a token. Keras fills in the mask that x carries.
        return_attention_weights: also return the weights.

    Returns:
        [B, S, D], or a pair of that and [B, H, S, S].
    """

    def build(self, x_shape):
        self.self_attention = self.attention("self_attention", relative=True)
        self.ffn = self.feed_forward("ffn")
        for sublayer in ("self_attention", "ffn"):
            self.add_processes(sublayer, x_shape)
        self.self_attention.build(x_shape)
        self.ffn.build(x_shape)
        self.built = True

    def call(
        self,
        x,
        attention_mask=None,
        mask=None,
        training=False,
        return_attention_weights=False,
    ):
        attention_mask = AttentionMask.of(attention_mask, x, x, mask)
        y = self.self_attention_preprocess(x, training=training)
        y, weights = self.self_attention(
            y, attention_mask=attention_mask, training=training, return_attention_weights=True
        )
        x = self.self_attention_postprocess(y, x, training=training)

        y = self.ffn(self.ffn_preprocess(x, training=training), training=training)
        if attention_mask.nonpadding is not None:
            y = y * ops.expand_dims(ops.cast(attention_mask.nonpadding, y.dtype), -1)
        x = self.ffn_postprocess(y, x, training=training)
        return (x, weights) if return_attention_weights else x

    def compute_output_shape(self, x_shape):
        return x_shape


@keras.saving.register_keras_serializable("t2t_keras")
class TransformerEncoder(Stack):
    """`num_layers` encoder layers and a final pre-processing: T2T's `transformer_encoder`.

    Its input is embedded tokens with positions added.

    Args:
        remove_padding: True zeroes the feed-forward output at padding (T2T's `use_pad_remover`);
            needs a mask.
        kwargs: those of `Stack` and `TransformerLayer`.

    Call arguments:
        x: [B, S, D].
        attention_mask: boolean or an `AttentionMask`, see `MultiHeadAttention`. (`proximity` is the stack's.)
        mask: boolean [B, S], True where there is a token. Keras fills in the mask that x carries.
        causal: True if a position sees only itself and earlier positions; an `AttentionMask` says this
            itself.
        return_attention_weights: also return the weights of every layer.

    Returns:
        [B, S, D], or a pair of that and a list of N tensors [B, H, S, S].
    """

    layer_class = TransformerEncoderLayer

    def __init__(self, *, remove_padding: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.remove_padding = remove_padding

    def build(self, x_shape):
        self.build_layers(x_shape)

    def call(
        self,
        x,
        attention_mask=None,
        mask=None,
        causal=False,
        training=False,
        return_attention_weights=False,
    ):
        own_mask = AttentionMask.of(attention_mask, x, x, mask, causal=causal, nonpadding=mask)
        own_mask = dataclasses.replace(
            own_mask,
            proximity=self.proximity_bias,
            nonpadding=own_mask.nonpadding if self.remove_padding else None,
        )
        own_mask = self.prepared("self_attention", own_mask, x)
        all_weights = []
        for layer in self.layers:
            x = self.run_layer(
                layer,
                x,
                attention_mask=own_mask,
                training=training,
                return_attention_weights=return_attention_weights,
            )
            if return_attention_weights:
                x, weights = x
                all_weights.append(weights)
        x = self.last_preprocess(x, training=training)
        return (x, all_weights) if return_attention_weights else x

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {**super().get_config(), "remove_padding": self.remove_padding}


# The decoder: self-attention, encoder-decoder attention, feed-forward (section 3.1)


class LayerCache(NamedTuple):
    """The caches of one decoder layer."""

    self_attention: KeyValueCache
    encdec_attention: KeyValueCache | None  # None without a memory


class DecoderCache:
    """What a step of decoding needs besides the tokens chosen last, and what it leaves to the next one.

    The axis T of a call with a cache holds K hypotheses of the same position: queries to the memory of
    their sentence and to the earlier positions of all of them. `bias` says which belong to whom.

    Args:
        kept: {"k", "v"} of [B, H, S, C] per layer, the earlier positions: S = t * K.
        memory: from `TransformerDecoder.memory_caches`; None without a memory; a list of None for the call
            that computes them.
        memory_bias: [B, 1, 1, S], of the memory.
        bias: self-attention bias, broadcastable to [B, H, K, S + K].
        distance: [K, S + K] int, the position of each key minus that of each query; by default the
            last query is at the last key.
        joint_kernels: from `TransformerDecoder.joint_kernels`.
        append: puts new keys after those kept; see `KeyValueCache`.
        prefix: {"k", "v"} of [B, H, P, C] per layer, shared by all hypotheses, before `kept`; bias and
            distance then have P more keys.
        model: what the decoder does not look at: for the `Transformer` that made the cache.
    """

    def __init__(
        self,
        kept: Sequence[dict],
        *,
        memory: Sequence[dict | None] | None = None,
        memory_bias=None,
        bias=None,
        distance=None,
        joint_kernels: Sequence | None = None,
        append=grown,
        prefix: Sequence[dict] | None = None,
        model: Any = None,
    ):
        none = [None] * len(kept)
        self.layers = [
            LayerCache(
                KeyValueCache(own, append=append, prefix=before, joint_kernel=kernel),
                None if memory is None else KeyValueCache(other, of_memory=True),
            )
            for own, other, before, kernel in zip(
                kept, memory or none, prefix or none, joint_kernels or none, strict=True
            )
        ]
        self.memory_bias = memory_bias
        self.bias = bias
        self.distance = distance
        self.model = model

    def require(self, layer: keras.layers.Layer) -> None:
        """Raises UserError if the `call` of a layer, which a subclass may override, takes no cache."""
        parameters = inspect.signature(layer.call).parameters.values()
        if not any(p.name == "cache" or p.kind is p.VAR_KEYWORD for p in parameters):
            raise UserError(
                f"{type(layer).__name__}.call takes no cache, so searches cannot call it: add the "
                "argument cache=None and pass it on to super().call."
            )

    @property
    def kept(self) -> list[dict]:
        """The keys and values of each layer's self-attention, with those of the last call."""
        return [layer.self_attention.kept for layer in self.layers]

    @property
    def memory(self) -> list[dict]:
        """The keys and values of the memory in each layer; empty without a memory."""
        return [layer.encdec_attention.kept for layer in self.layers if layer.encdec_attention]


@keras.saving.register_keras_serializable("t2t_keras")
class TransformerDecoderLayer(TransformerLayer):
    """One decoder layer: self-attention, encoder-decoder attention, feed-forward.

    Built without a memory, as in a language model, it has no encoder-decoder attention.

    Args: see `TransformerLayer`.

    Call arguments:
        x: [B, T, D].
        memory: [B, S, D], the encoder's output; None if the layer was built without one.
        attention_mask: of self-attention: boolean or an `AttentionMask`, see `MultiHeadAttention`.
        memory_mask: boolean [B, S], True where the source has a token. Keras fills in the mask that the
            memory carries.
        memory_attention_mask: of encoder-decoder attention, as `attention_mask`.
        causal: True hides later positions, unless an `AttentionMask` or a cache is given.
        cache: a `LayerCache` with the earlier positions, and keys and values of the memory; see
            `DecoderCache`.
        return_attention_weights: also return the weights of both.

    Returns:
        [B, T, D], or a triple of that, [B, H, T, T] and [B, H, T, S] (None without a memory).

    Raises:
        ValueError: the layer was built with a memory and is called without one, or the reverse.
    """

    def build(self, x_shape, memory_shape=None):
        self.self_attention = self.attention("self_attention", relative=True)
        self.has_memory = memory_shape is not None
        if self.has_memory:
            self.encdec_attention = self.attention("encdec_attention")
        self.ffn = self.feed_forward("ffn")
        for sublayer in self.sublayers:
            self.add_processes(sublayer, x_shape)
        self.self_attention.build(x_shape)
        if memory_shape is not None:
            self.encdec_attention.build(x_shape, memory_shape)
        self.ffn.build(x_shape)
        self.built = True

    def call(
        self,
        x,
        memory=None,
        attention_mask=None,
        cache=None,
        memory_mask=None,
        memory_attention_mask=None,
        causal=True,
        training=False,
        return_attention_weights=False,
    ):
        if (memory is not None) != self.has_memory:
            built, called = ("with a", "none") if self.has_memory else ("without", "one")
            raise ValueError(f"{self.name} was built {built} memory, and is called with {called}.")
        own_cache, memory_cache = cache or (None, None)
        if cache is None:
            attention_mask = AttentionMask.of(attention_mask, x, x, causal=causal)
        y = self.self_attention_preprocess(x, training=training)
        y, weights = self.self_attention(
            y,
            attention_mask=attention_mask,
            cache=own_cache,
            training=training,
            return_attention_weights=True,
        )
        x = self.self_attention_postprocess(y, x, training=training)

        memory_weights = None
        if memory is not None:
            y = self.encdec_attention_preprocess(x, training=training)
            y, memory_weights = self.encdec_attention(
                y,
                memory,
                attention_mask=memory_attention_mask,
                cache=memory_cache,
                memory_mask=memory_mask,
                training=training,
                return_attention_weights=True,
            )
            x = self.encdec_attention_postprocess(y, x, training=training)

        y = self.ffn(self.ffn_preprocess(x, training=training), training=training)
        x = self.ffn_postprocess(y, x, training=training)
        return (x, weights, memory_weights) if return_attention_weights else x

    def compute_output_shape(self, x_shape, memory_shape=None):
        return x_shape


@keras.saving.register_keras_serializable("t2t_keras")
class TransformerDecoder(Stack):
    """`num_layers` decoder layers and a final pre-processing: T2T's `transformer_decoder`.

    Its input is embedded targets, already shifted right, with positions added.

    Args: see `Stack` and `TransformerLayer`.

    Call arguments:
        x: [B, T, D].
        memory: [B, S, D], the encoder's output; None if the decoder was built without one.
        attention_mask: of self-attention: boolean or an `AttentionMask`, see `MultiHeadAttention`.
            (`proximity` is the stack's.)
        memory_mask: boolean [B, S], True where the source has a token. Keras fills in the mask that the
            memory carries.
        memory_attention_mask: of encoder-decoder attention, as `attention_mask`.
        causal: True hides later positions, unless an `AttentionMask` or a cache is given.
        cache: a `DecoderCache` for a step of decoding: x is [B, K, D], and only the cache says what the
            hypotheses see.
        return_attention_weights: also return the weights of every layer.

    Returns:
        [B, T, D], or a triple of that, N tensors [B, H, T, T] and N tensors [B, H, T, S] (none
        without a memory).
    """

    layer_class = TransformerDecoderLayer

    def build(self, x_shape, memory_shape=None):
        self.build_layers(x_shape, memory_shape)

    def call(
        self,
        x,
        memory=None,
        attention_mask=None,
        cache=None,
        memory_mask=None,
        memory_attention_mask=None,
        causal=True,
        training=False,
        return_attention_weights=False,
    ):
        if cache is not None:
            own_mask = AttentionMask(bias=cache.bias, distance=self._distance(x, cache))
            memory_attention_mask = AttentionMask(bias=cache.memory_bias)
        else:
            own_mask = AttentionMask.of(attention_mask, x, x, causal=causal)
        own_mask = dataclasses.replace(own_mask, proximity=self.proximity_bias)
        own_mask = self.prepared("self_attention", own_mask, x)
        if memory is not None:
            memory_mask = AttentionMask.of(memory_attention_mask, x, memory, memory_mask)
            memory_mask = self.prepared("encdec_attention", memory_mask, x, memory)
        # Without a cache, a subclass may have a `call` that takes none.
        caches = [{}] * len(self.layers) if cache is None else [{"cache": c} for c in cache.layers]
        self_weights, memory_weights = [], []
        for layer, own_cache in zip(self.layers, caches, strict=True):
            if cache is not None:
                cache.require(layer)
            x = self.run_layer(
                layer,
                *([x] if memory is None else [x, memory]),
                attention_mask=own_mask,
                memory_attention_mask=memory_mask,
                training=training,
                return_attention_weights=return_attention_weights,
                **own_cache,
            )
            if return_attention_weights:
                x, own, other = x
                self_weights.append(own)
                memory_weights += [] if memory is None else [other]
        x = self.last_preprocess(x, training=training)
        return (x, self_weights, memory_weights) if return_attention_weights else x

    def _distance(self, x, cache: DecoderCache):
        """Returns the distances of a step for all layers, or None if no layer counts positions."""
        if cache.distance is not None or not self.layers or not self.needs_positions:
            return cache.distance
        hypotheses = x.shape[1]
        return distances(hypotheses, shape_of(cache.kept[0]["k"])[2] + hypotheses)

    def compute_output_shape(self, x_shape, memory_shape=None):
        return x_shape

    def memory_caches(self, memory) -> list[dict]:
        """Returns every layer's keys and values of [B, S, D], computed once for all steps.

        A subclass whose `call` changes what its layers attend to is called for this, without queries.
        """
        attentions = [layer.encdec_attention for layer in self.layers]
        plain = type(self).call is TransformerDecoder.call and all(
            type(layer).call is TransformerDecoderLayer.call
            and type(attention).call is MultiHeadAttention.call
            for layer, attention in zip(self.layers, attentions, strict=True)
        )
        if plain:
            return [attention.keys_and_values(memory) for attention in attentions]
        cache = DecoderCache(
            self.empty_caches(shape_of(memory)[0]), memory=[None] * len(attentions)
        )
        self(memory[:, :0], memory, cache=cache)
        return cache.memory

    def empty_caches(self, batch) -> list[dict]:
        """Returns the self-attention caches of B sentences before the first step: [B, H, 0, C]."""
        return [layer.self_attention.empty_cache(batch) for layer in self.layers]

    def joint_kernels(self) -> list:
        """Returns the `MultiHeadAttention.joint_kernel` of every layer's self-attention."""
        return [layer.self_attention.joint_kernel() for layer in self.layers]
