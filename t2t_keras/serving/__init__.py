"""Clients of exported models: served models, SavedModels in this process, CTranslate2 models."""

from t2t_keras.serving.client import Answer, TextClient
from t2t_keras.serving.ctranslate2 import CTranslate2Translator
from t2t_keras.serving.models import SavedModel, connect

__all__ = ["Answer", "CTranslate2Translator", "SavedModel", "TextClient", "connect"]
