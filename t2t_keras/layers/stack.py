"""The settings of an encoder or decoder layer, the parts built from them, and a stack of layers."""

import dataclasses
import functools
import inspect
import random
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from t2t_keras.errors import UserError
from t2t_keras.layers.attention import KeyValueCache, MultiHeadAttention
from t2t_keras.layers.masks import AttentionMask, distances
from t2t_keras.layers.sublayers import FeedForward, PrePostProcess, SettingsLayer, rematerialised
from t2t_keras.shape import grown, shape_of


class TransformerLayer(SettingsLayer):
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
        prepostprocess_dropout_broadcast_dims: axes of [B, T, D] that share the dropout of "d".
        attention_dropout_broadcast_dims: axes of [B, H, T, S]; not for relative positions, as in T2T.
        relu_dropout_broadcast_dims: axes of [B, T, F].
        max_relative_position: if positive, that of `MultiHeadAttention` in self-attention.
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
        # Without autocast because of the bias, as in MultiHeadAttention.
        super().__init__(locals(), autocast=False, **kwargs)

    has_memory = False
    """True if the layer attends to a memory."""

    sublayers: tuple[str, ...]
    """The names of the sub-layers, in order."""

    def attention(self, name: str) -> MultiHeadAttention:
        """Makes the attention of the sub-layer `name`, "self_attention" or "encdec_attention"."""
        own: dict[str, Any] = {"dropout_broadcast_dims": self.attention_dropout_broadcast_dims}
        if name == "self_attention" and self.max_relative_position:
            own = {"max_relative_position": self.max_relative_position}
        return MultiHeadAttention(
            num_heads=self.num_heads,
            key_channels=self.key_channels,
            value_channels=self.value_channels,
            dropout=self.attention_dropout,
            kernel_initializer=self.kernel_initializer,
            dtype=self.dtype_policy,
            name=name,
            **own,
        )

    def feed_forward(self, name: str) -> FeedForward:
        """Makes the feed-forward network."""
        return FeedForward(
            filter_size=self.filter_size,
            dropout=self.relu_dropout,
            dropout_broadcast_dims=self.relu_dropout_broadcast_dims,
            kernel_initializer=self.kernel_initializer,
            dtype=self.dtype_policy,
            name=name,
        )

    def process(self, name: str, sequence: str) -> PrePostProcess:
        """Makes the pre- or post-processing of a sub-layer."""
        return PrePostProcess(
            sequence=sequence,
            dropout=self.prepostprocess_dropout,
            dropout_broadcast_dims=self.prepostprocess_dropout_broadcast_dims,
            norm_epsilon=self.norm_epsilon,
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, x_shape, *memory_shape):
        self.has_memory = any(memory_shape)
        self.sublayers = ("self_attention", *["encdec_attention"] * self.has_memory, "ffn")
        self.self_attention = self.attention("self_attention")
        if self.has_memory:
            self.encdec_attention = self.attention("encdec_attention")
        self.ffn = self.feed_forward("ffn")
        sides = {"preprocess": self.preprocess_sequence, "postprocess": self.postprocess_sequence}
        for sublayer in self.sublayers:
            for side, sequence in sides.items():
                process = self.process(f"{sublayer}_{side}", sequence)
                process.build(x_shape)
                setattr(self, process.name, process)
        self.self_attention.build(x_shape)
        if self.has_memory:
            self.encdec_attention.build(x_shape, *memory_shape)
        self.ffn.build(x_shape)

    @classmethod
    def from_config(cls, config):
        # In files of 0.1.0, a neighborhood of 0 is attention to all positions.
        kept = {name: v for name, v in config.items() if (name, v) != ("neighborhood", 0)}
        return super().from_config(kept)


class Stack(TransformerLayer):
    """`num_layers` layers of `layer_class`, then a final pre-processing (T2T's final norm).

    The layers are the attributes `layer_0`, `layer_1`, ... and the list `layers`. They share
    their attention biases, but for those of a class that overrides `logit_bias`.

    Args:
        num_layers: N.
        proximity_bias: True adds -log(1 + distance) to the logits of self-attention, as in T2T.
        remat: True recomputes the activations inside each layer in the backward pass instead of
            keeping them (gradient checkpointing); no effect if attention weights are returned. TensorFlow
            never frees the training graph of such a model.
        kwargs: those of `TransformerLayer`.
    """

    layer_class: type[TransformerLayer]

    def __init__(
        self, *, num_layers: int, proximity_bias: bool = False, remat: bool = False, **kwargs
    ):
        super().__init__(**kwargs)
        if num_layers < 0:
            raise ValueError(f"num_layers must be 0 or more, got {num_layers}.")
        self.num_layers, self.proximity_bias = num_layers, proximity_bias
        self.remat, self.mask_seed = remat, None
        if remat:  # Python's state seeds it without a draw: initial weights are as without remat
            kind = type(self).__name__  # other masks in the decoder than in the encoder
            seed = random.Random(repr((kind, random.getstate()))).randrange(2**31)
            self.mask_seed = keras.random.SeedGenerator(seed, name="keep_mask")

    def build(self, x_shape, *memory_shape):
        for i in range(self.num_layers):
            settings = vars(self.settings)
            layer = self.layer_class(**settings, dtype=self.dtype_policy, name=f"layer_{i}")
            layer.build(x_shape, *memory_shape)
            setattr(self, layer.name, layer)
        self.last_preprocess = self.process("last_preprocess", self.preprocess_sequence)
        self.last_preprocess.build(x_shape)
        attentions = [layer.self_attention for layer in self.layers]
        attentions += [layer.encdec_attention for layer in self.layers if layer.has_memory]
        # True if attention depends on the distance between query and key, besides the mask.
        self.needs_positions = self.proximity_bias or any(
            each.needs_positions or each.max_relative_position > 0 for each in attentions
        )

    def run_layers(
        self, x, memory=None, *, training, return_attention_weights, caches=None, **masks
    ):
        """Calls every layer and the final pre-processing: [B, T, D], and the weights of each layer.

        Without `caches`, one for each layer, the layers are called without: subclasses may take none.
        """
        all_weights, shared = [], dict(masks)
        for i in range(self.num_layers):
            layer, own = getattr(self, f"layer_{i}"), dict(masks)
            attentions: dict[str, tuple] = {"attention_mask": (layer.self_attention, x)}
            if memory is not None and layer.has_memory:
                attentions["memory_attention_mask"] = (layer.encdec_attention, x, memory)
            for name, (attention, *tensors) in attentions.items():
                # The bias that one layer computes serves all that do not override it.
                if type(attention).logit_bias is MultiHeadAttention.logit_bias:
                    own[name] = shared[name] = attention.prepare(shared[name], *tensors)
            call: Callable[..., Any] = functools.partial(
                layer,
                training=training,
                return_attention_weights=return_attention_weights,
                **({} if caches is None else {"cache": caches[i]}),
                **own,
            )
            remat = self.remat and training and not return_attention_weights
            before = remat and len(layer.losses)
            if remat:
                call = rematerialised(call, self.mask_seed, layer)
            x = call(x) if memory is None else call(x, memory)
            if remat and len(layer.losses) > before:
                raise UserError("add_loss has no gradient with remat: set remat to False.")
            if return_attention_weights:
                x, *weights = x
                if any(each is None for each in weights[: 1 + layer.has_memory]):
                    raise UserError("attend returned None: return the weights, too, [B, H, T, S].")
                all_weights.append(weights)
        return self.last_preprocess(x, training=training), all_weights

    @property
    def layers(self) -> list:
        return [getattr(self, f"layer_{i}") for i in range(self.num_layers)]

    def get_config(self):
        own = {name: getattr(self, name) for name in ("num_layers", "proximity_bias", "remat")}
        return {**super().get_config(), **own}


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

    def call(
        self,
        x,
        attention_mask=None,
        mask=None,
        training=False,
        return_attention_weights=False,
        x_mask=None,  # Keras's mask of x, where another argument is a tensor, too
    ):
        attention_mask = AttentionMask.of(attention_mask, x, x, x_mask if mask is None else mask)
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


@keras.saving.register_keras_serializable("t2t_keras")
class TransformerEncoder(Stack):
    """`num_layers` encoder layers and a final pre-processing: T2T's `transformer_encoder`.

    Its input is embedded tokens with positions added.

    Args:
        remove_padding: True zeroes the feed-forward output at a mask's padding (`use_pad_remover`).
        kwargs: those of `Stack` and `TransformerLayer`.

    Call arguments:
        x: [B, S, D].
        attention_mask: boolean or an `AttentionMask`, see `MultiHeadAttention`. (`proximity` is the stack's.)
        mask: boolean [B, S], True where there is a token. Keras fills in the mask that x carries.
        causal: True hides later positions, unless an `AttentionMask` is given.
        return_attention_weights: also return the weights of every layer.

    Returns:
        [B, S, D], or a pair of that and a list of N tensors [B, H, S, S].
    """

    layer_class = TransformerEncoderLayer

    def __init__(self, *, remove_padding: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.remove_padding = remove_padding

    def call(
        self,
        x,
        attention_mask=None,
        mask=None,
        causal=False,
        training=False,
        return_attention_weights=False,
        x_mask=None,  # Keras's mask of x, where another argument is a tensor, too
    ):
        mask = x_mask if mask is None else mask
        own_mask = AttentionMask.of(attention_mask, x, x, mask, causal=causal, nonpadding=mask)
        kept = own_mask.nonpadding if self.remove_padding else None
        own_mask = dataclasses.replace(own_mask, proximity=self.proximity_bias, nonpadding=kept)
        how = {"training": training, "return_attention_weights": return_attention_weights}
        x, weights = self.run_layers(x, attention_mask=own_mask, **how)
        return (x, [own for (own,) in weights]) if return_attention_weights else x

    def get_config(self):
        return {**super().get_config(), "remove_padding": self.remove_padding}


# The decoder: self-attention, encoder-decoder attention, feed-forward (section 3.1)


@dataclasses.dataclass(eq=False)
class DecoderCache:
    """What a step of decoding needs besides the tokens chosen last, and what it leaves to the next one.

    The axis T of a call with a cache holds K hypotheses of the same position: queries to the memory of
    their sentence and to the earlier positions of all of them. `bias` says which belong to whom.

    Attributes:
        kept: {"k", "v"} of [B, H, S, C] per layer, the earlier positions: S = t * K. A call adds its own.
        memory: from `TransformerDecoder.memory_caches`; or a None per layer, which a call fills in; or None.
        memory_bias: [B, 1, 1, S], of the memory.
        bias: self-attention bias, broadcastable to [B, H, K, S + K].
        distance: [K, S + K] int, the position of each key minus that of each query; by default the
            last query is at the last key.
        joint_kernels: `MultiHeadAttention.joint_kernel` of every layer's self-attention.
        append: puts new keys after those kept; see `KeyValueCache`.
        prefix: {"k", "v"} of [B, H, P, C] per layer, shared by all hypotheses, before `kept`; bias and
            distance then have P more keys.
        model: what the decoder does not look at: for the `Transformer` that made the cache.
    """

    kept: Sequence[dict]
    _: dataclasses.KW_ONLY
    memory: Any = None
    memory_bias: Any = None
    bias: Any = None
    distance: Any = None
    joint_kernels: Sequence | None = None
    append: Callable = grown
    prefix: Sequence[dict] | None = None
    model: Any = None

    def require(self, layer: keras.layers.Layer) -> None:
        """Raises UserError if the `call` of a layer, which a subclass may override, takes no cache."""
        parameters = inspect.signature(layer.call).parameters.values()
        if not any(p.name == "cache" or p.kind is p.VAR_KEYWORD for p in parameters):
            raise UserError(
                f"{type(layer).__name__}.call takes no cache, so searches cannot call it: add the "
                "argument cache=None and pass it on to super().call."
            )


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
        cache: a pair of `KeyValueCache`s, the earlier positions and the memory (None without one).
        return_attention_weights: also return the weights of both.
        mask, x_mask: boolean [B, T], True where there is a token. Keras fills in the mask that x carries.

    Returns:
        [B, T, D], or a triple of that, [B, H, T, T] and [B, H, T, S] (None without a memory).

    Raises:
        ValueError: the layer was built with a memory and is called without one, or the reverse.
    """

    def build(self, x_shape, memory_shape=None):
        super().build(x_shape, memory_shape)

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
        mask=None,
        x_mask=None,
    ):
        if (memory is not None) != self.has_memory:
            built, called = ("with", "without") if self.has_memory else ("without", "with")
            raise ValueError(f"{self.name} was built {built} memory but called {called} it.")
        own_cache, memory_cache = cache or (None, None)
        if cache is None:
            mask = x_mask if mask is None else mask
            attention_mask = AttentionMask.of(attention_mask, x, x, mask, causal=causal)
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
                attention_mask=AttentionMask.of(memory_attention_mask, x, memory, memory_mask),
                cache=memory_cache,
                training=training,
                return_attention_weights=True,
            )
            x = self.encdec_attention_postprocess(y, x, training=training)

        y = self.ffn(self.ffn_preprocess(x, training=training), training=training)
        x = self.ffn_postprocess(y, x, training=training)
        return (x, weights, memory_weights) if return_attention_weights else x


@keras.saving.register_keras_serializable("t2t_keras")
class TransformerDecoder(Stack):
    """`num_layers` decoder layers and a final pre-processing: T2T's `transformer_decoder`.

    Its input is embedded targets, already shifted right, with positions added.

    Args: see `Stack` and `TransformerLayer`.

    Call arguments:
        x, memory: [B, T, D] and [B, S, D]; see `TransformerDecoderLayer`, also for all masks and `causal`.
            (`proximity` of an `AttentionMask` is the stack's.)
        cache: a `DecoderCache` for a step of decoding: x is [B, K, D], and the cache alone hides keys.
        return_attention_weights: also return the weights of every layer.

    Returns:
        [B, T, D], or a triple of that, N tensors [B, H, T, T] and N (no memory: none) of [B, H, T, S].
    """

    layer_class = TransformerDecoderLayer

    def build(self, x_shape, memory_shape=None):
        super().build(x_shape, memory_shape)

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
        mask=None,
        x_mask=None,
    ):
        caches: list | None = None
        if cache is None:
            mask = x_mask if mask is None else mask
            own_mask = AttentionMask.of(attention_mask, x, x, mask, causal=causal)
        else:
            distance = cache.distance
            if distance is None and self.num_layers and self.needs_positions:
                queries = shape_of(x)[1]
                distance = distances(queries, shape_of(cache.kept[0]["k"])[2] + queries)
            own_mask = AttentionMask(bias=cache.bias, distance=distance)
            of_memory = None
            if memory is not None and distance is not None:
                # The first key, if any, is at 0, as the memory's is: its distance gives the query's place.
                place = ops.sum(distance[:, :1], 1, keepdims=True)
                of_memory = place + ops.arange(shape_of(memory)[1], dtype="int32")
            memory_attention_mask = AttentionMask(bias=cache.memory_bias, distance=of_memory)
            for layer in self.layers:
                cache.require(layer)
            none = [None] * self.num_layers
            parts = (cache.kept, cache.prefix or none, cache.joint_kernels or none)
            own = [
                KeyValueCache(kept, append=cache.append, prefix=prefix, joint_kernel=kernel)
                for kept, prefix, kernel in zip(*parts, strict=True)
            ]
            other = [KeyValueCache(kept, of_memory=True) for kept in cache.memory or ()] or none
            caches = list(zip(own, other, strict=True))
        if memory is not None:
            memory_attention_mask = AttentionMask.of(memory_attention_mask, x, memory, memory_mask)
        x, weights = self.run_layers(
            x,
            memory,
            caches=caches,
            attention_mask=dataclasses.replace(own_mask, proximity=self.proximity_bias),
            memory_attention_mask=memory_attention_mask,
            training=training,
            return_attention_weights=return_attention_weights,
        )
        if caches is not None:
            cache.kept = [own.kept for own, _ in caches]
            if cache.memory is not None:
                cache.memory = [other.kept for _, other in caches]
        if not return_attention_weights:
            return x
        return x, [own for own, _ in weights], [other for _, other in weights if memory is not None]

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
        batch = shape_of(memory)[0]
        kept = [layer.self_attention.empty_cache(batch) for layer in self.layers]
        cache = DecoderCache(kept, memory=[None] * len(attentions))
        self(memory[:, :0], memory, cache=cache)
        return cache.memory
