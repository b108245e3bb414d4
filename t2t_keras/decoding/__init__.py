"""From a model and source ids to target ids, and from text to text."""

from t2t_keras.decoding.beam import beam_search
from t2t_keras.decoding.greedy import greedy
from t2t_keras.decoding.settings import DecodeSettings
from t2t_keras.decoding.translator import Translation, Translator

__all__ = ["DecodeSettings", "Translation", "Translator", "beam_search", "greedy"]
