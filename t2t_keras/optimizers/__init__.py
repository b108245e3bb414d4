"""tensor2tensor's optimizers as Keras optimizers; they import only Keras."""

from t2t_keras.optimizers.adafactor import Adafactor
from t2t_keras.optimizers.adam import Adam, AdamW, MultistepAdam
from t2t_keras.optimizers.creation import create
from t2t_keras.optimizers.momentum import SGD, Momentum
from t2t_keras.optimizers.slots import is_decayed, with_weight_decay

__all__ = [
    "SGD",
    "Adafactor",
    "Adam",
    "AdamW",
    "Momentum",
    "MultistepAdam",
    "create",
    "is_decayed",
    "with_weight_decay",
]
