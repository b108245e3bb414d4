"""Text encoders with tensor2tensor's vocabularies and ids; reading text files line by line."""

from t2t_keras.text.encoders import (
    ByteTextEncoder,
    ClassLabelEncoder,
    SubwordTextEncoder,
    TokenTextEncoder,
)
from t2t_keras.text.lines import iterate_lines, read_lines
from t2t_keras.text.sentencepiece import SentencePieceEncoder

__all__ = ["ByteTextEncoder", "ClassLabelEncoder", "SentencePieceEncoder", "SubwordTextEncoder"]
__all__ += ["TokenTextEncoder", "iterate_lines", "read_lines"]
