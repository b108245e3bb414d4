"""From a model and source ids to target ids, and from text to text."""

from t2t_keras.decoding.beam import beam_search
from t2t_keras.decoding.greedy import greedy

__all__ = ["beam_search", "greedy"]
