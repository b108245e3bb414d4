"""Clients of exported models: served models, SavedModels in this process, CTranslate2 models."""

from t2t_keras.serving.client import Answer, SavedModel, TextClient, connect
from t2t_keras.serving.ctranslate2 import CTranslate2Translator

__all__ = ["Answer", "CTranslate2Translator", "SavedModel", "TextClient", "connect"]
