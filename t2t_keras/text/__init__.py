"""Text to ids and back, as tensor2tensor does it."""

from t2t_keras.text.lines import iterate_lines, read_lines
from t2t_keras.text.simple_encoders import ByteTextEncoder, TokenTextEncoder
from t2t_keras.text.subword import SubwordTextEncoder

__all__ = [
    "ByteTextEncoder",
    "SubwordTextEncoder",
    "TokenTextEncoder",
    "iterate_lines",
    "read_lines",
]
