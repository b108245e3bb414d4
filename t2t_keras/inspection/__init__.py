"""Inspection of attention weights and beam search steps."""

from t2t_keras.inspection.attention import AttentionData, attention_data, attention_weights
from t2t_keras.inspection.attention_figure import attention_figure
from t2t_keras.inspection.attention_page import attention_page, batch_page
from t2t_keras.inspection.search import Candidate, Finished, SearchTrace, trace_beam_search
from t2t_keras.inspection.tokens import Tokens

__all__ = [
    "AttentionData",
    "Candidate",
    "Finished",
    "SearchTrace",
    "Tokens",
    "attention_data",
    "attention_figure",
    "attention_page",
    "attention_weights",
    "batch_page",
    "trace_beam_search",
]
