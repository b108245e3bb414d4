"""Attention weights as data, figure and page."""

from t2t_keras.inspection.attention import AttentionData, attention_data, attention_weights
from t2t_keras.inspection.attention_figure import attention_figure
from t2t_keras.inspection.attention_page import attention_page, batch_page
from t2t_keras.inspection.tokens import Tokens

__all__ = ["AttentionData", "Tokens", "attention_data", "attention_figure", "attention_page"]
__all__ += ["attention_weights", "batch_page"]
