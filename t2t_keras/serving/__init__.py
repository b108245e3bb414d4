"""Translating with an exported model: one that is served, one in this process, one of CTranslate2."""

from t2t_keras.serving.client import Answer, TextClient, connect
from t2t_keras.serving.ctranslate2 import CTranslate2Translator
from t2t_keras.serving.saved_model import SavedModel

__all__ = ["Answer", "CTranslate2Translator", "SavedModel", "TextClient", "connect"]
