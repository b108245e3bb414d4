"""Decoding: source ids to target ids, text to text, and scoring of given outputs.

On JAX and PyTorch, `beam_search` and `greedy` come from `static_search`; what else decodes needs TensorFlow.
"""

from __future__ import annotations

import keras

from t2t_keras.decode_settings import DecodeSettings
from t2t_keras.decoding.logits import SearchStep

if keras.backend.backend() == "tensorflow":
    from t2t_keras.decoding.ensemble import Ensemble
    from t2t_keras.decoding.scoring import PairScorer, score
    from t2t_keras.decoding.search import beam_search, greedy, sample
    from t2t_keras.decoding.translator import Classifier, Translation, Translator
else:
    from t2t_keras.decoding.static_search import beam_search, greedy  # type: ignore[assignment]

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
