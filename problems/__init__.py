"""The built-in problems: importing this package registers them."""

import sys

from t2t_keras.problems import (
    language_models,
    numbers,
    parsing,
    small_corpora,
    translate_files,
    wmt,
)

__all__ = [
    "language_models",
    "numbers",
    "parsing",
    "small_corpora",
    "translate_files",
    "wmt",
]

# Modules of version 0.1.0 that were merged into these; their names will be removed in the next release.
_FORMER = {
    wmt: (
        "translate_wmt14",
        *(f"translate_en{x}" for x in ("cs", "de", "es", "et", "fr", "ro", "zh")),
    ),
    small_corpora: ("translate_multi30k", *(f"translate_en{x}" for x in ("id", "mk", "tn", "vi"))),
    parsing: ("parsing_gum", "parsing_icelandic", "parsing_wsj"),
    translate_files: ("text2text_tmpdir",),
    numbers: ("translate_ende_numbers",),
}
for _module, _names in _FORMER.items():
    sys.modules.update({f"{__name__}.{name}": _module for name in _names})
