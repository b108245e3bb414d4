"""tensor2tensor's reversible tokenizer: words, what stands between them, and no lone spaces."""

from __future__ import annotations

import re
from collections.abc import Sequence

from t2t_keras.text.alphanumeric import ALPHANUMERIC_RANGES

_WORD = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ALPHANUMERIC_RANGES)
_RUN = re.compile(f"[{_WORD}]+|[^{_WORD}]+")
_STARTS_WORD = re.compile(f"[{_WORD}]")


def encode(text: str) -> list[str]:
    """Splits `text` wherever alphanumeric and other characters meet.

    A token of exactly one space between two words is left out: `decode` puts it back.

    >>> encode("Hello, big world!")
    ['Hello', ', ', 'big', 'world', '!']
    """
    runs = _RUN.findall(text)
    return runs[:1] + [run for run in runs[1:-1] if run != " "] + runs[1:][-1:]


def decode(tokens: Sequence[str]) -> str:
    """Joins non-empty tokens, with a space wherever two words would touch."""
    pieces = []
    after_word = False
    for token in tokens:
        is_word = _STARTS_WORD.match(token) is not None
        if is_word and after_word:
            pieces.append(" ")
        pieces.append(token)
        after_word = is_word
    return "".join(pieces)
