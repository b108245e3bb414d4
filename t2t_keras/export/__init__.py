"""Export of a trained model to a SavedModel that takes text."""

from t2t_keras.export.saved_model import export_saved_model
from t2t_keras.export.served import (
    SIGNATURES,
    ServedClassifier,
    ServedLanguageModel,
    ServedTransformer,
)

__all__ = ["SIGNATURES", "ServedClassifier", "ServedLanguageModel", "ServedTransformer"]
__all__ += ["export_saved_model"]
