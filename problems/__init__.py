"""The problems that come with the library; importing this registers them."""

from t2t_keras.problems import (
    text2text_tmpdir,
    translate_ende_numbers,
    translate_files,
    translate_multi30k,
    translate_wmt14,
)

__all__ = [
    "text2text_tmpdir",
    "translate_ende_numbers",
    "translate_files",
    "translate_multi30k",
    "translate_wmt14",
]
