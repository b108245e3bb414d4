"""The built-in problems: importing this package registers them."""

from t2t_keras.problems import (
    language_models,
    numbers,
    parsing,
    small_corpora,
    translate_files,
    wmt,
)

__all__ = ["language_models", "numbers", "parsing", "small_corpora", "translate_files", "wmt"]
