"""The decoder: self-attention, encoder-decoder attention, feed-forward (section 3.1)."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras

from t2t_keras.errors import UserError
from t2t_keras.layers.attention import KeyValueCache, MultiHeadAttention
from t2t_keras.layers.masks import AttentionMask, distances
from t2t_keras.layers.stack import Stack, TransformerLayer
from t2t_keras.shape import grown, shape_of


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
        for sublayer in ("self_attention", "encdec_attention", "ffn"):
            if hasattr(self, sublayer):
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
