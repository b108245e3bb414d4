"""Vocabulary files: one entry a line, the number of the line is the id."""

from __future__ import annotations

import os
from collections.abc import Sequence

from t2t_keras.errors import UserError
from t2t_keras.text.lines import read_lines

RESERVED_TOKENS = ("<pad>", "<EOS>")
"""The first entries of every vocabulary, at `ids.PAD_ID` and `ids.EOS_ID`."""


def read_subtokens(path: str | os.PathLike[str]) -> list[str]:
    """Reads a subword vocabulary, without the quotes around its entries.

    A blank entry keeps its id and is never used, as in T2T.

    Raises:
        UserError: no readable file, an entry twice, or ids 0 and 1 are not the reserved tokens.
    """
    subtokens = [_unquote(line.rstrip()) for line in read_lines(path)]
    _check(subtokens, path, reserved_endings=("", "_"))
    return subtokens


def read_tokens(path: str | os.PathLike[str]) -> list[str]:
    """Reads a vocabulary of whole tokens; raises as `read_subtokens` does."""
    tokens = [line.strip() for line in read_lines(path)]
    _check(tokens, path, reserved_endings=("",))
    return tokens


def write_lines(path: str | os.PathLike[str], lines: Sequence[str]) -> None:
    """Writes a vocabulary file; raises UserError if that fails."""
    try:
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise UserError(f"Cannot write {os.fspath(path)}: {error.strerror}.") from error


def _unquote(entry: str) -> str:
    quoted = entry[:1] in ("'", '"') and entry.endswith(entry[0])
    return entry[1:-1] if quoted else entry


def _check(
    entries: Sequence[str], path: str | os.PathLike[str], reserved_endings: Sequence[str]
) -> None:
    name = os.fspath(path)
    if not any(entries):
        raise UserError(f"{name} is empty: a vocabulary has one entry a line.")
    for i, reserved in enumerate(RESERVED_TOKENS):
        got = entries[i] if i < len(entries) else ""
        if got not in [reserved + ending for ending in reserved_endings]:
            raise UserError(
                f"{name}, line {i + 1}: got {got!r} where a vocabulary has {reserved}; "
                f"the first two lines are {' and '.join(RESERVED_TOKENS)}."
            )
    first_lines: dict[str, int] = {}
    for number, entry in enumerate(entries, start=1):
        if entry and first_lines.setdefault(entry, number) != number:
            raise UserError(
                f"{name}, line {number}: {entry!r} stands already in line {first_lines[entry]}; "
                "an entry has one id."
            )
