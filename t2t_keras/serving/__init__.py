"""Clients of exported models: served ones, SavedModels in this process, models of CTranslate2."""

from t2t_keras.serving.client import Answer, TextClient
from t2t_keras.serving.ctranslate2 import CTranslate2Translator
from t2t_keras.serving.models import SavedModel, connect

__all__ = ["Answer", "CTranslate2Translator", "SavedModel", "TextClient", "connect"]
