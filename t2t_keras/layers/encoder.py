"""The encoder: a stack of self-attention and feed-forward sub-layers (section 3.1)."""

from __future__ import annotations

import dataclasses

import keras
from keras import ops

from t2t_keras.layers.masks import AttentionMask
from t2t_keras.layers.stack import Stack, TransformerLayer


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
