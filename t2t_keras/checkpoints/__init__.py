"""Checkpoints: tensor2tensor's format, in and out, for its models and for our runs alike."""

from t2t_keras.checkpoints.names import t2t_variables
from t2t_keras.checkpoints.t2t import load_t2t, read, resolve, save_t2t, write

__all__ = ["load_t2t", "read", "resolve", "save_t2t", "t2t_variables", "write"]
