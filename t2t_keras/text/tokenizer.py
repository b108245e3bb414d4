"""tensor2tensor's reversible tokenizer: words, what stands between them, and no lone spaces."""

from __future__ import annotations

import functools
import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence

from t2t_keras.text.alphanumeric import ALPHANUMERIC_RANGES

_LAST_OF_BMP = 0xFFFF


def _tokens(last: int) -> re.Pattern[str]:
    ranges = [(first, end) for first, end in ALPHANUMERIC_RANGES if first <= last]
    word = "".join(f"\\U{first:08x}-\\U{end:08x}" for first, end in ranges)
    # A word; other characters, but no lone space before a word; unless it begins the text.
    return re.compile(rf"[{word}]+|(?! [{word}])[^{word}]+|\A ")


# Python's re is several times as fast with a class within the Basic Multilingual Plane.
_BMP_TOKENS = _tokens(last=_LAST_OF_BMP)
_TOKENS = _tokens(last=sys.maxunicode)
_BEYOND_BMP = re.compile("[\U00010000-\U0010ffff]")


@functools.cache
def _is_word(character: str) -> bool:
    code_point = ord(character)
    return any(first <= code_point <= end for first, end in ALPHANUMERIC_RANGES)


def encode(text: str) -> list[str]:
    """Splits `text` wherever alphanumeric and other characters meet.

    A token of exactly one space between two words is left out: `decode` puts it back.

    >>> encode("Hello, big world!")
    ['Hello', ', ', 'big', 'world', '!']
    """
    in_bmp = text.isascii() or not _BEYOND_BMP.search(text)
    return (_BMP_TOKENS if in_bmp else _TOKENS).findall(text)


def count(lines: Iterable[str]) -> Counter[str]:
    """Counts the tokens of lines, each encoded by itself."""
    return Counter(itertools.chain.from_iterable(map(encode, lines)))


def decode(tokens: Sequence[str]) -> str:
    """Joins non-empty tokens, with a space wherever two words would touch."""
    pieces = []
    after_word = False
    for token in tokens:
        is_word = _is_word(token[0])
        if is_word and after_word:
            pieces.append(" ")
        pieces.append(token)
        after_word = is_word
    return "".join(pieces)
