"""The built-in problems: importing this package registers them."""

from t2t_keras.problems import (
    classification,
    language_models,
    numbers,
    parsing,
    small_corpora,
    summarization,
    translate_files,
    wmt,
)

__all__ = [
    "classification",
    "language_models",
    "numbers",
    "parsing",
    "small_corpora",
    "summarization",
    "translate_files",
    "wmt",
]
