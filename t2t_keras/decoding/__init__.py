"""From a model and source ids to target ids, and from text to text."""

from t2t_keras.decoding.beam import beam_search
from t2t_keras.decoding.ensemble import Ensemble
from t2t_keras.decoding.scoring import PairScorer, score
from t2t_keras.decoding.search import greedy, sample
from t2t_keras.decoding.settings import DecodeSettings
from t2t_keras.decoding.translator import Translation, Translator

__all__ = [
    "DecodeSettings",
    "Ensemble",
    "PairScorer",
    "Translation",
    "Translator",
    "beam_search",
    "greedy",
    "sample",
    "score",
]
