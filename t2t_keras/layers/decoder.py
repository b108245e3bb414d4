"""The decoder: self-attention, attention over the encoder's output, feed-forward (section 3.1)."""

from __future__ import annotations

import keras
from keras import ops

from t2t_keras.layers.bias import causal_bias, mask_bias, segment_bias
from t2t_keras.layers.stack import LayerSettings, Stack


@keras.saving.register_keras_serializable("t2t_keras")
class TransformerDecoderLayer(LayerSettings):
    """Self-attention, encoder-decoder attention, feed-forward: one layer of the decoder.

    Settings: see `LayerSettings`.

    Call arguments:
        x: [B, T, D].
        memory: [B, S, D], the encoder's output.
        bias: self-attention bias broadcastable to [B, H, T, T].
        segments: [B, T] int, of packed rows where self-attention is restricted (see
            `RestrictedAttention`).
        memory_mask: boolean [B, S], True where the source has a token.
        memory_bias: bias of the encoder-decoder attention broadcastable to [B, H, T, S].
        return_attention_weights: also return both weights.

    Returns:
        [B, T, D], or a triple of it, [B, H, T, T] ([B, H, T, r] where self-attention is
        restricted) and [B, H, T, S].
    """

    causal_neighborhood = True

    def build(self, x_shape, memory_shape):
        self.self_attention = self.attention("self_attention", relative=True)
        self.encdec_attention = self.attention("encdec_attention")
        self.ffn = self.feed_forward("ffn")
        for sublayer in ("self_attention", "encdec_attention", "ffn"):
            self.add_processes(sublayer, x_shape)
        self.self_attention.build(x_shape)
        self.encdec_attention.build(x_shape, memory_shape)
        self.ffn.build(x_shape)
        self.built = True

    def call(
        self,
        x,
        memory,
        *,
        bias=None,
        segments=None,
        memory_mask=None,
        memory_bias=None,
        training=False,
        return_attention_weights=False,
    ):
        packing = {} if segments is None else {"segments": segments}
        y = self.self_attention_preprocess(x, training=training)
        y, weights = self.self_attention(
            y, bias=bias, training=training, return_attention_weights=True, **packing
        )
        x = self.self_attention_postprocess(y, x, training=training)

        y = self.encdec_attention_preprocess(x, training=training)
        y, memory_weights = self.encdec_attention(
            y,
            memory,
            mask=memory_mask,
            bias=memory_bias,
            training=training,
            return_attention_weights=True,
        )
        x = self.encdec_attention_postprocess(y, x, training=training)

        y = self.ffn(self.ffn_preprocess(x, training=training), training=training)
        x = self.ffn_postprocess(y, x, training=training)
        return (x, weights, memory_weights) if return_attention_weights else x

    def compute_output_shape(self, x_shape, memory_shape):
        return x_shape

    def step(
        self,
        x,
        self_cache,
        memory_cache,
        memory_bias,
        bias=None,
        distance=None,
        joint_kernel=None,
    ):
        """One position of K hypotheses per sentence, with cached keys and values.

        The hypotheses of a sentence are queries side by side on its one memory, and on the
        positions of all of them: which of these a hypothesis sees is for the bias to say.

        Args:
            x: [B, K, D], the position's input for each hypothesis.
            self_cache: {"k", "v"} of [B, H, S, C]: the earlier positions, t times K of them.
            memory_cache: {"k", "v"} of [B, H, S, C].
            memory_bias: [B, 1, 1, S].
            bias: self-attention bias, broadcastable to [B, H, K, S + K].
            distance: see `MultiHeadAttention`; [K, S + K].
            joint_kernel: of the self-attention, see `MultiHeadAttention.projections`.

        Returns:
            [B, K, D], and self_cache grown by K keys and values.
        """
        y = self.self_attention_preprocess(x)
        new = self.self_attention.projections(y, joint_kernel)  # [B, H, K, C]
        queries = new.pop("q")
        self_cache = {name: ops.concatenate([self_cache[name], new[name]], 2) for name in new}
        y = self.self_attention(y, queries=queries, cache=self_cache, bias=bias, distance=distance)
        x = self.self_attention_postprocess(y, x)

        y = self.encdec_attention_preprocess(x)
        y = self.encdec_attention(y, cache=memory_cache, bias=memory_bias)
        x = self.encdec_attention_postprocess(y, x)

        rows = ops.reshape(x, (-1, x.shape[-1]))
        rows = self.ffn_postprocess(self.ffn(self.ffn_preprocess(rows)), rows)
        return ops.reshape(rows, (-1, *x.shape[1:])), self_cache


@keras.saving.register_keras_serializable("t2t_keras")
class TransformerDecoder(Stack):
    """`num_layers` decoder layers and a last pre-processing: T2T's `transformer_decoder`.

    Embedded targets come in already shifted to the right, with their positions added.
    Settings: see `LayerSettings`, and

    Args:
        num_layers: N.
        remat: see `Stack`.

    Call arguments:
        x: [B, T, D].
        memory: [B, S, D], the encoder's output.
        bias: further self-attention bias broadcastable to [B, H, T, T].
        memory_mask: boolean [B, S], True where the source has a token.
        segments: [B, T] int, of rows that hold several packed sequences: the number of the
            sequence at each position, 0 at padding. A position sees those of its own number.
        memory_segments: [B, S] int, the same for the memory; goes with segments and replaces
            memory_mask.
        causal: whether a position is kept from seeing later ones. Always, where self-attention
            is restricted.
        return_attention_weights: also return the weights of every layer.

    Returns:
        [B, T, D], or a triple of it, N tensors [B, H, T, T] ([B, H, T, r] where self-attention
        is restricted) and N tensors [B, H, T, S].
    """

    layer_class = TransformerDecoderLayer

    def build(self, x_shape, memory_shape):
        self.build_layers(x_shape, memory_shape)

    def call(
        self,
        x,
        memory,
        *,
        bias=None,
        memory_mask=None,
        segments=None,
        memory_segments=None,
        causal=True,
        training=False,
        return_attention_weights=False,
    ):
        if (segments is None) != (memory_segments is None):
            raise ValueError("segments and memory_segments must be given together, got one.")
        if self.restricted and not causal:
            raise ValueError("a decoder with a neighborhood must be causal.")
        if self.restricted:
            if bias is None:  # a bias keeps out the mask that x carries, as the causal one does
                bias = ops.zeros((1, 1, 1, ops.shape(x)[1]))
        elif causal:
            future = causal_bias(ops.shape(x)[1])
            bias = future if bias is None else bias + future
        memory_bias, packing = None, {}
        if segments is not None:
            if self.restricted:
                packing = {"segments": segments}
            else:
                apart = segment_bias(segments)
                bias = apart if bias is None else bias + apart
            memory_bias = segment_bias(segments, memory_segments)
        elif memory_mask is not None:
            memory_bias = mask_bias(memory_mask)
        self_weights, memory_weights = [], []
        for layer in self.layers:
            x = self.run_layer(
                layer,
                x,
                memory,
                bias=bias,
                memory_bias=memory_bias,
                training=training,
                return_attention_weights=return_attention_weights,
                **packing,
            )
            if return_attention_weights:
                x, own, other = x
                self_weights.append(own)
                memory_weights.append(other)
        x = self.last_preprocess(x, training=training)
        return (x, self_weights, memory_weights) if return_attention_weights else x

    def compute_output_shape(self, x_shape, memory_shape):
        return x_shape

    def memory_caches(self, memory) -> list[dict]:
        """Keys and values of [B, S, D] for every layer, computed once per sentence."""
        return [layer.encdec_attention.keys_and_values(memory) for layer in self.layers]

    def empty_caches(self, batch) -> list[dict]:
        """Self-attention caches of no positions for B sentences: [B, H, 0, C]."""
        return [layer.self_attention.empty_cache(batch) for layer in self.layers]

    def joint_kernels(self) -> list:
        """The `MultiHeadAttention.joint_kernel` of every layer's self-attention."""
        return [layer.self_attention.joint_kernel() for layer in self.layers]

    def step(
        self,
        x,
        self_caches,
        memory_caches,
        memory_bias,
        bias=None,
        distance=None,
        joint_kernels=None,
    ):
        """One position through all layers; see `TransformerDecoderLayer.step`.

        The caches are lists with one entry a layer; self_caches starts as `empty_caches`, and
        joint_kernels, if given, are those of `joint_kernels`.
        """
        grown = []
        for layer, self_cache, memory_cache, joint_kernel in zip(
            self.layers,
            self_caches,
            memory_caches,
            joint_kernels or [None] * len(self.layers),
            strict=True,
        ):
            x, cache = layer.step(
                x, self_cache, memory_cache, memory_bias, bias, distance, joint_kernel
            )
            grown.append(cache)
        return self.last_preprocess(x), grown
