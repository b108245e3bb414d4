"""Keras layers of the Transformer; they import only Keras."""

from t2t_keras.layers.attention import KeyValueCache, MultiHeadAttention
from t2t_keras.layers.masks import (
    AttentionMask,
    causal_bias,
    mask_bias,
    proximity_bias,
    segment_bias,
)
from t2t_keras.layers.stack import (
    DecoderCache,
    Stack,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
    TransformerLayer,
)
from t2t_keras.layers.sublayers import (
    BLOCK,
    Dropout,
    FeedForward,
    PositionEncoding,
    PrePostProcess,
    SharedEmbedding,
    keep_mask_scope,
    timing_signal,
)

__all__ = ["BLOCK", "AttentionMask", "DecoderCache", "Dropout", "FeedForward", "KeyValueCache"]
__all__ += ["MultiHeadAttention", "PositionEncoding", "PrePostProcess", "SharedEmbedding", "Stack"]
__all__ += ["TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder"]
__all__ += ["TransformerEncoderLayer", "TransformerLayer", "causal_bias", "keep_mask_scope"]
__all__ += ["mask_bias", "proximity_bias", "segment_bias", "timing_signal"]
