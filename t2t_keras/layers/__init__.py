"""Keras layers of the Transformer; they import only Keras."""

from t2t_keras.layers.attention import KeyValueCache, MultiHeadAttention
from t2t_keras.layers.decoder import DecoderCache, TransformerDecoder, TransformerDecoderLayer
from t2t_keras.layers.dropout import Dropout, keep_mask_scope
from t2t_keras.layers.embedding import BLOCK, SharedEmbedding
from t2t_keras.layers.encoder import TransformerEncoder, TransformerEncoderLayer
from t2t_keras.layers.masks import (
    AttentionMask,
    causal_bias,
    mask_bias,
    proximity_bias,
    segment_bias,
)
from t2t_keras.layers.position import PositionEncoding, timing_signal
from t2t_keras.layers.stack import Stack, TransformerLayer
from t2t_keras.layers.sublayers import FeedForward, PrePostProcess

__all__ = [
    "BLOCK",
    "AttentionMask",
    "DecoderCache",
    "Dropout",
    "FeedForward",
    "KeyValueCache",
    "MultiHeadAttention",
    "PositionEncoding",
    "PrePostProcess",
    "SharedEmbedding",
    "Stack",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "TransformerLayer",
    "causal_bias",
    "keep_mask_scope",
    "mask_bias",
    "proximity_bias",
    "segment_bias",
    "timing_signal",
]
