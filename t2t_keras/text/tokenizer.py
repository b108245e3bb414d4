"""tensor2tensor's reversible tokenizer: words, and the text between them unless it is a single space."""

import glob
import itertools
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

# Categories L* and N* of Unicode 14.0, as in Python 3.11. (tensor2tensor's tokens depend on Python's version.)
_LISTED = Path(__file__).with_name("word_characters.txt").read_text("ascii").split()
_BOUNDS = [run.split("-") for run in _LISTED]
ALPHANUMERIC_RANGES = tuple((int(bound[0], 16), int(bound[-1], 16)) for bound in _BOUNDS)
"""First and last code point of each run of alphanumeric characters, in ascending order."""


def _tokens(last: int) -> re.Pattern[str]:
    ranges = [(first, end) for first, end in ALPHANUMERIC_RANGES if first <= last]
    word = "".join(f"\\U{first:08x}-\\U{end:08x}" for first, end in ranges)
    # A word, or a run of other characters; not a single space before a word, except at the text's start.
    return re.compile(rf"[{word}]+|(?! [{word}])[^{word}]+|\A ")


# `re` is several times as fast with a character class within the Basic Multilingual Plane.
_BMP_TOKENS = _tokens(last=0xFFFF)
_TOKENS = _tokens(last=sys.maxunicode)
_WORD = re.compile(_TOKENS.pattern.partition("+")[0])  # an alphanumeric character
_BEYOND_BMP = re.compile("[\U00010000-\U0010ffff]")


def encode(text: str) -> list[str]:
    """Splits `text` at each boundary between alphanumeric and other characters.

    A single space between two words is not a token: `decode` restores it.

    >>> encode("Hello, big world!")
    ['Hello', ', ', 'big', 'world', '!']
    """
    in_bmp = text.isascii() or not _BEYOND_BMP.search(text)
    return (_BMP_TOKENS if in_bmp else _TOKENS).findall(text)


def count(lines: Iterable[str]) -> Counter[str]:
    """Counts the tokens of lines, each tokenized separately."""
    return Counter(itertools.chain.from_iterable(map(encode, lines)))


def decode(tokens: Sequence[str]) -> str:
    """Joins non-empty tokens, with a space between adjacent words."""
    pieces, after_word = [], False
    for token in tokens:
        is_word = bool(_WORD.match(token))
        pieces.append(f" {token}" if is_word and after_word else token)
        after_word = is_word
    return "".join(pieces)


def corpus_token_counts(
    text_filepattern: str, corpus_max_lines: int, split_on_newlines: bool = True
) -> Counter[str]:
    """Counts the tokens of text files, of at most so many lines in all (0: of all lines)."""
    return count(_texts(text_filepattern, corpus_max_lines, split_on_newlines))


def vocab_token_counts(text_filepattern: str, max_lines: int) -> dict[str, int]:
    """Returns the counts in files of lines TOKEN,COUNT, without lines that have no comma."""
    rows = (line.rpartition(",") for line in _texts(text_filepattern, max_lines, by_line=True))
    return {token: int(number) for token, comma, number in rows if comma}


def _texts(pattern: str, most: int, by_line: bool) -> Iterator[str]:
    """Yields the stripped lines of files or their whole texts; of at most `most` lines in all."""
    left = iter(range(most or sys.maxsize))
    returns = "\r" if most or by_line else ""  # TensorFlow's files drop them from lines
    for path in sorted(glob.glob(pattern)):
        with open(path, encoding="utf-8", newline="\n") as file:
            lines = (line.replace(returns, "") for line, _ in zip(file, left, strict=False))
            yield from map(str.strip, lines) if by_line else ["".join(lines)]


# Escapes make a token consist of characters of the vocabulary: a backslash becomes `\\`, an underscore `\u`,
# and a newline or a character outside of the alphabet its code point: `\10;`. A bare `_` ends the token.
ESCAPE_CHARACTERS = frozenset("\\_u;0123456789")
"""Characters in the alphabet of every vocabulary, so that any text can be escaped."""

UNDEFINED = "〓"  # U+3013, the result of unescaping a code point that does not exist

_ESCAPE = re.compile(r"\\u|\\\\|\\([0-9]+);")


def escape(token: str, alphabet: frozenset[str]) -> str:
    """Returns `token` escaped for `alphabet`, with a final `_`."""
    spelled = token.replace("\\", "\\\\").replace("_", "\\u")
    if not alphabet.issuperset(spelled) or "\n" in spelled:
        spelled = "".join(c if c in alphabet and c != "\n" else f"\\{ord(c)};" for c in spelled)
    return spelled + "_"


def unescape(spelled: str) -> str:
    """Reverses `escape`, for a token without its final `_`. Keeps malformed escapes unchanged."""
    return _ESCAPE.sub(_character, spelled) if "\\" in spelled else spelled


def _character(match: re.Match[str]) -> str:
    code_point = match.group(1)
    if code_point is None:
        return "_" if match.group() == "\\u" else "\\"
    try:
        return chr(int(code_point))
    except (ValueError, OverflowError):
        return UNDEFINED
