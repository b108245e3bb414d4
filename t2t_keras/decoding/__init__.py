"""Decoding: source ids to target ids, text to text, and scoring of given outputs.

On JAX and PyTorch, there are `search`, `beam_search`, `greedy` and `sample`; what else decodes needs TensorFlow.
"""

import keras

from t2t_keras.decode_settings import DecodeSettings
from t2t_keras.decoding.beam import SearchResult
from t2t_keras.decoding.logits import SearchStep
from t2t_keras.decoding.searches import beam_search, greedy, sample, search
from t2t_keras.errors import UserError

__all__ = ["DecodeSettings", "SearchResult", "SearchStep"]
__all__ += ["beam_search", "greedy", "sample", "search"]

if keras.backend.backend() == "tensorflow":
    from t2t_keras.decoding.ensemble import Ensemble
    from t2t_keras.decoding.translator import (
        Classifier,
        Line,
        PairScorer,
        Translation,
        Translator,
        score,
    )

    __all__ += ["Classifier", "Ensemble", "Line", "PairScorer", "Translation"]
    __all__ += ["Translator", "score"]
else:

    def __getattr__(name: str):  # `t2t_keras.load` asks for these, too
        if name in ("Classifier", "Ensemble", "PairScorer", "Translator", "score"):
            got = f"got KERAS_BACKEND={keras.backend.backend()}"
            raise UserError(f"translators, scores and t2t_keras.load need TensorFlow, {got}.")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
