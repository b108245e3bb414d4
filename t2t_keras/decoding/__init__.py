"""Decoding: source ids to target ids, text to text, and scores of given outputs."""

from t2t_keras.decoding.ensemble import Ensemble
from t2t_keras.decoding.logits import SearchStep
from t2t_keras.decoding.scoring import PairScorer, score
from t2t_keras.decoding.search import beam_search, greedy, sample
from t2t_keras.decoding.settings import DecodeSettings
from t2t_keras.decoding.translator import Classifier, Translation, Translator

__all__ = [
    "Classifier",
    "DecodeSettings",
    "Ensemble",
    "PairScorer",
    "SearchStep",
    "Translation",
    "Translator",
    "beam_search",
    "greedy",
    "sample",
    "score",
]
