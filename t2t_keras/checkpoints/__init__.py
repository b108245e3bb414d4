"""Checkpoints in tensor2tensor's format, read and written for its models and for our runs."""

from t2t_keras.checkpoints.average import average, last_checkpoints
from t2t_keras.checkpoints.names import t2t_variables
from t2t_keras.checkpoints.run_directory import load_model, read_settings, write_settings
from t2t_keras.checkpoints.t2t import is_whole, load_t2t, read, resolve, save_t2t

__all__ = ["average", "is_whole", "last_checkpoints", "load_model", "load_t2t", "read"]
__all__ += ["read_settings", "resolve", "save_t2t", "t2t_variables", "write_settings"]
