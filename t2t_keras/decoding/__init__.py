"""Decoding: source ids to target ids, text to text, and scoring of given outputs.

On JAX and PyTorch, `beam_search` and `greedy` come from `static_search`; the rest needs TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_FROM = {
    "Classifier": "translator",
    "DecodeSettings": "settings",
    "Ensemble": "ensemble",
    "PairScorer": "scoring",
    "SearchStep": "logits",
    "Translation": "translator",
    "Translator": "translator",
    "beam_search": "search",
    "greedy": "search",
    "sample": "search",
    "score": "scoring",
}


def __getattr__(name: str):
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _FROM[name]
    if name in ("beam_search", "greedy"):
        import keras

        module = "search" if keras.backend.backend() == "tensorflow" else "static_search"
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_FROM])
