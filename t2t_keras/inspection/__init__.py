"""Looking inside: what a trained model attends to and how it searches, and how runs went."""

from t2t_keras.inspection.attention import AttentionData, attention_data, attention_weights
from t2t_keras.inspection.attention_figure import attention_figure
from t2t_keras.inspection.attention_page import attention_page

__all__ = [
    "AttentionData",
    "attention_data",
    "attention_figure",
    "attention_page",
    "attention_weights",
]
