"""Translating with an exported model: one that is served, one in this process, one of CTranslate2."""

from t2t_keras.serving.ctranslate2_translator import CTranslate2Translator
from t2t_keras.serving.saved_model import SavedModel
from t2t_keras.serving.text_client import Answer, TextClient, connect

__all__ = ["Answer", "CTranslate2Translator", "SavedModel", "TextClient", "connect"]
