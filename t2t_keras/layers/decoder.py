"""The decoder: self-attention, encoder-decoder attention, feed-forward (section 3.1)."""

from __future__ import annotations

import keras

from t2t_keras.layers.masks import AttentionMask, distances
from t2t_keras.layers.stack import Stack, TransformerLayer
from t2t_keras.shape import appended, shape_of


@keras.saving.register_keras_serializable("t2t_keras")
class TransformerDecoderLayer(TransformerLayer):
    """One decoder layer: self-attention, encoder-decoder attention, feed-forward.

    Built without a memory, as in a language model, it has no encoder-decoder attention.

    Args: see `TransformerLayer`.

    Call arguments:
        x: [B, T, D].
        memory: [B, S, D], the encoder's output; None without an encoder.
        bias: self-attention bias broadcastable to [B, H, T, T].
        segments: [B, T] int, for packed rows (see `MultiHeadAttention`).
        attention_mask: an `AttentionMask` for self-attention; unless it is empty, it replaces bias
            and segments.
        memory_mask: boolean [B, S], True where the source has a token.
        memory_bias: bias of the encoder-decoder attention broadcastable to [B, H, T, S].
        memory_attention_mask: an `AttentionMask` for encoder-decoder attention; unless it is empty,
            it replaces memory_mask and memory_bias.
        return_attention_weights: also return the weights of both.

    Returns:
        [B, T, D], or a triple of that, [B, H, T, T] and [B, H, T, S] (None without a memory).
    """

    def build(self, x_shape, memory_shape=None):
        self.self_attention = self.attention("self_attention", relative=True)
        if memory_shape is not None:
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
        *,
        bias=None,
        segments=None,
        attention_mask=None,
        memory_mask=None,
        memory_bias=None,
        memory_attention_mask=None,
        training=False,
        return_attention_weights=False,
    ):
        y = self.self_attention_preprocess(x, training=training)
        y, weights = self.self_attention(
            y,
            bias=bias,
            segments=segments,
            attention_mask=attention_mask,
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
                mask=memory_mask,
                bias=memory_bias,
                attention_mask=memory_attention_mask,
                training=training,
                return_attention_weights=True,
            )
            x = self.encdec_attention_postprocess(y, x, training=training)

        y = self.ffn(self.ffn_preprocess(x, training=training), training=training)
        x = self.ffn_postprocess(y, x, training=training)
        return (x, weights, memory_weights) if return_attention_weights else x

    def compute_output_shape(self, x_shape, memory_shape=None):
        return x_shape

    def step(
        self,
        x,
        self_cache,
        memory_cache,
        attention_mask,
        memory_bias,
        joint_kernel=None,
        place=None,
        prefix=None,
    ):
        """Decodes one position of K hypotheses per sentence, with cached keys and values.

        The K hypotheses are queries to the memory of their sentence and to the earlier positions of
        all hypotheses; the mask says which of those positions belong to each hypothesis.

        Args:
            x: [B, K, D], the input of each hypothesis at this position.
            self_cache: {"k", "v"} of [B, H, S, C]: the earlier positions, S = t * K.
            memory_cache: {"k", "v"} of [B, H, S, C]; None without a memory.
            attention_mask: an `AttentionMask` of [K, S + K]; with a prefix, [K, P + S + K].
            memory_bias: [B, 1, 1, S].
            joint_kernel: for self-attention, see `MultiHeadAttention.projections`.
            place: scalar int32, where in self_cache to write the K keys and values; None appends
                them.
            prefix: {"k", "v"} of [B, H, P, C], before self_cache, shared by all hypotheses.

        Returns:
            [B, K, D], and self_cache including the K keys and values.
        """
        y = self.self_attention_preprocess(x)
        new = self.self_attention.projections(y, joint_kernel)  # {"q", "k", "v"} of [B, H, K, C]
        queries = new.pop("q")
        # [B, H, S, C] -> [B, H, S + K, C]
        self_cache = {name: appended(self_cache[name], new[name], place) for name in new}
        keys = self_cache
        if prefix is not None:
            keys = {name: appended(prefix[name], self_cache[name]) for name in self_cache}
        y = self.self_attention(y, queries=queries, cache=keys, attention_mask=attention_mask)
        x = self.self_attention_postprocess(y, x)

        if memory_cache is not None:
            y = self.encdec_attention_preprocess(x)
            y = self.encdec_attention(y, cache=memory_cache, bias=memory_bias)
            x = self.encdec_attention_postprocess(y, x)

        return self.ffn_postprocess(self.ffn(self.ffn_preprocess(x)), x), self_cache


@keras.saving.register_keras_serializable("t2t_keras")
class TransformerDecoder(Stack):
    """`num_layers` decoder layers and a final pre-processing: T2T's `transformer_decoder`.

    Its input is embedded targets, already shifted right, with positions added.

    Args: see `Stack` and `TransformerLayer`.

    Call arguments:
        x: [B, T, D].
        memory: [B, S, D], the encoder's output; None if the decoder was built without one.
        bias: additional self-attention bias broadcastable to [B, H, T, T].
        memory_mask: boolean [B, S], True where the source has a token.
        segments: [B, T] int, for rows that hold several packed sequences: the number of the
            sequence at each position, 0 at padding. A position sees the positions of its own number.
        memory_segments: [B, S] int, the same for the memory; required with segments, replaces
            memory_mask.
        causal: True hides later positions.
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
        *,
        bias=None,
        memory_mask=None,
        segments=None,
        memory_segments=None,
        causal=True,
        training=False,
        return_attention_weights=False,
    ):
        if memory is not None and (segments is None) != (memory_segments is None):
            raise ValueError("segments and memory_segments must be given together, got one.")
        own_mask = AttentionMask(
            segments=segments, causal=causal, proximity=self.proximity_bias, bias=bias
        )
        own_mask = self.prepared("self_attention", own_mask, x)
        if memory is not None:
            memory_mask = AttentionMask(
                keys=memory_mask, segments=segments, key_segments=memory_segments
            )
            memory_mask = self.prepared("encdec_attention", memory_mask, x, memory)
        self_weights, memory_weights = [], []
        for layer in self.layers:
            x = self.run_layer(
                layer,
                *([x] if memory is None else [x, memory]),
                attention_mask=own_mask,
                memory_attention_mask=memory_mask,
                training=training,
                return_attention_weights=return_attention_weights,
            )
            if return_attention_weights:
                x, own, other = x
                self_weights.append(own)
                memory_weights += [] if memory is None else [other]
        x = self.last_preprocess(x, training=training)
        return (x, self_weights, memory_weights) if return_attention_weights else x

    def compute_output_shape(self, x_shape, memory_shape=None):
        return x_shape

    def memory_caches(self, memory) -> list[dict]:
        """Returns every layer's keys and values of [B, S, D], computed once for all steps."""
        return [layer.encdec_attention.keys_and_values(memory) for layer in self.layers]

    def empty_caches(self, batch) -> list[dict]:
        """Returns the self-attention caches of B sentences before the first step: [B, H, 0, C]."""
        return [layer.self_attention.empty_cache(batch) for layer in self.layers]

    def joint_kernels(self) -> list:
        """Returns the `MultiHeadAttention.joint_kernel` of every layer's self-attention."""
        return [layer.self_attention.joint_kernel() for layer in self.layers]

    def step(
        self,
        x,
        self_caches,
        memory_caches=None,
        memory_bias=None,
        bias=None,
        distance=None,
        joint_kernels=None,
        place=None,
        prefix_caches=None,
    ):
        """Decodes one position through all layers; see `TransformerDecoderLayer.step`.

        Args:
            x: [B, K, D].
            self_caches: from `empty_caches` or the previous step, one per layer.
            memory_caches: from the method `memory_caches`; None without a memory.
            memory_bias: [B, 1, 1, S].
            bias: self-attention bias, broadcastable to [B, H, K, S + K].
            distance: [K, S + K] int, the position of each key minus that of each query; by default
                the last query is at the last key.
            joint_kernels: from the method `joint_kernels`.
            place: scalar int32, where this step writes in caches of a fixed size; None appends to
                them. If self-attention counts positions, it requires a distance.
            prefix_caches: {"k", "v"} of [B, H, P, C] per layer, before self_caches; bias and distance
                then have P more keys.

        Returns:
            [B, K, D], and the caches including this step.
        """
        if distance is None and self.layers and self.needs_positions:
            hypotheses = x.shape[1]
            distance = distances(hypotheses, shape_of(self_caches[0]["k"])[2] + hypotheses)
        mask = AttentionMask(proximity=self.proximity_bias, distance=distance, bias=bias)
        mask = self.prepared("self_attention", mask, x)
        grown = []
        none = [None] * len(self.layers)
        for layer, self_cache, memory_cache, joint_kernel, prefix in zip(
            self.layers,
            self_caches,
            memory_caches or none,
            joint_kernels or none,
            prefix_caches or none,
            strict=True,
        ):
            x, cache = layer.step(
                x, self_cache, memory_cache, mask, memory_bias, joint_kernel, place, prefix
            )
            grown.append(cache)
        return self.last_preprocess(x), grown
