r"""How a token is spelled with the characters of a vocabulary.

A backslash becomes `\\`, an underscore `\u`, a character without a subtoken (and the newline, always)
its code point as `\10;`. An unescaped `_` then ends the token.
"""

from __future__ import annotations

import re

ESCAPE_CHARACTERS = frozenset("\\_u;0123456789")
"""In every vocabulary's alphabet, so that any text can be spelled."""

UNDEFINED = "〓"
"""U+3013: stands for a code point that does not exist."""

_ESCAPE = re.compile(r"\\u|\\\\|\\([0-9]+);")


def escape(token: str, alphabet: frozenset[str]) -> str:
    """Returns `token` spelled with `alphabet`, with its final `_`."""
    spelled = token.replace("\\", "\\\\").replace("_", "\\u")
    if not alphabet.issuperset(spelled) or "\n" in spelled:
        spelled = "".join(c if c in alphabet and c != "\n" else f"\\{ord(c)};" for c in spelled)
    return spelled + "_"


def unescape(spelled: str) -> str:
    """Undoes `escape`, for a spelling without its final `_`. Malformed escapes stay as they are."""
    return _ESCAPE.sub(_character, spelled) if "\\" in spelled else spelled


def _character(match: re.Match[str]) -> str:
    code_point = match.group(1)
    if code_point is None:
        return "_" if match.group() == "\\u" else "\\"
    try:
        return chr(int(code_point))
    except (ValueError, OverflowError):
        return UNDEFINED
