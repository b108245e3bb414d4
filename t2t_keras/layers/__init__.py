"""Keras layers of the Transformer; they import Keras alone."""

from t2t_keras.layers.attention import MultiHeadAttention
from t2t_keras.layers.bias import causal_bias, mask_bias, proximity_bias, segment_bias
from t2t_keras.layers.decoder import TransformerDecoder, TransformerDecoderLayer
from t2t_keras.layers.dropout import Dropout, keep_mask_scope
from t2t_keras.layers.embedding import SharedEmbedding
from t2t_keras.layers.encoder import TransformerEncoder, TransformerEncoderLayer
from t2t_keras.layers.feed_forward import FeedForward
from t2t_keras.layers.position import PositionEncoding, timing_signal
from t2t_keras.layers.pre_post_process import PrePostProcess
from t2t_keras.layers.restricted_attention import RestrictedAttention

__all__ = [
    "Dropout",
    "FeedForward",
    "MultiHeadAttention",
    "PositionEncoding",
    "PrePostProcess",
    "RestrictedAttention",
    "SharedEmbedding",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "causal_bias",
    "keep_mask_scope",
    "mask_bias",
    "proximity_bias",
    "segment_bias",
    "timing_signal",
]
