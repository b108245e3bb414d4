"""Figures that judge output: BLEU of translations."""

from t2t_keras.metrics.bleu import Bleu, bleu

__all__ = ["Bleu", "bleu"]
