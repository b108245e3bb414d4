"""Reads the lines of UTF-8 text files, plain or gzip, split only at newlines; vocabulary files."""

import codecs
import contextlib
import gzip
import io
import os
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from typing import BinaryIO

from t2t_keras import files
from t2t_keras.errors import UserError, explained, warn
from t2t_keras.ids import RESERVED_TOKENS

LINE_BYTES = 2**26  # the maximal length of a line in a text file
warn_once = cache(warn)  # of a file that is read several times


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    r"""Returns the lines of a text file as `iterate_lines` does, but with each "\r" inside a line."""
    return list(iterate_lines(path, keep_returns=True))


def iterate_lines(path: str | os.PathLike[str], keep_returns: bool = False) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 text file without their ends, one at a time.

    Only "\n" ends a line, and every "\r" is dropped, as by TensorFlow's files, which tensor2tensor reads;
    form feeds, U+2028 and the like stay inside it. A byte order mark at the beginning of the file is
    dropped, too, and a newline at its end does not start another line. `.gz` files are decompressed.
    With `keep_returns`, only one "\r" before the newline is dropped.

    Raises:
        UserError: the file cannot be read or decompressed, or a line is too long or not UTF-8.
    """
    for number, line in enumerate(iterate_raw_lines(path), start=1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = line[error.start]
            raise UserError(
                f"{os.fspath(path)}, line {number}: not UTF-8 (byte 0x{byte:02x} at column "
                f"{error.start + 1}); convert the file to UTF-8."
            ) from error
        yield text if keep_returns else text.replace("\r", "")


def iterate_raw_lines(path: str | os.PathLike[str] | None) -> Iterator[bytes]:
    """Yields the lines of `read_lines` one at a time, as bytes; without a path, of standard input."""
    name = "standard input" if path is None else os.fspath(path)
    with (
        explained(f"Cannot read {name}", OSError),
        explained(f"Cannot read {name!r}", ValueError),  # NUL in its name
        explained(f"{name} is not a whole gzip file", gzip.BadGzipFile, EOFError, zlib.error),
        contextlib.nullcontext(sys.stdin.buffer) if path is None else open(name, "rb") as stored,
    ):
        file = decompressed(stored, name)
        for number, line in enumerate(iter(partial(file.readline, LINE_BYTES + 1), b"")):
            if len(line) > LINE_BYTES:
                raise line_too_long(name, number + 1)
            line = line.removesuffix(b"\n").removesuffix(b"\r")
            yield line if number else line.removeprefix(codecs.BOM_UTF8)


def line_too_long(name: str | os.PathLike[str], number: int) -> UserError:
    """Returns the error for a line longer than `LINE_BYTES`."""
    return UserError(
        f"{os.fspath(name)}, line {number}: longer than {LINE_BYTES:,} bytes; text must have one sentence "
        "per line."
    )


def most_unpacked(stored_bytes: int) -> int:
    """Returns the limit on the size of a decompressed file; text seldom compresses to a tenth."""
    return max(2**28, 64 * stored_bytes)


def too_large(name: str | os.PathLike[str], most: int) -> UserError:
    return UserError(
        f"{os.fspath(name)} unpacks to more than {most:,} bytes, too much for text: unpack it by hand "
        "if that is right."
    )


def decompressed(stored: BinaryIO, name: str) -> BinaryIO:
    """Returns an open file, decompressed if its name ends in `.gz`, up to `most_unpacked` bytes."""
    return io.BufferedReader(_Gunzipped(stored, name), 2**16) if name.endswith(".gz") else stored


class _Gunzipped(io.RawIOBase):
    def __init__(self, stored: BinaryIO, name: str):
        self._stored, self._name = stored, name
        self._file = gzip.GzipFile(fileobj=stored)
        self._most = most_unpacked(os.fstat(stored.fileno()).st_size)
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        count = self._file.readinto(buffer)
        self._read += count
        if self._read > self._most:
            raise too_large(self._name, self._most)
        return count

    def close(self) -> None:
        self._stored.close()
        super().close()


# Vocabulary files: one entry per line; the line number, from 0, is the id.


def read_vocabulary(path: str | os.PathLike[str], of_subwords: bool) -> list[str]:
    """Reads a vocabulary of subwords, without the quotes around them, or of whole tokens.

    A blank entry takes up its id and is never used, as in T2T. Other first tokens get a warning.

    Raises:
        UserError: the file cannot be read, or subwords do not begin with `<pad>`, `<EOS>`.
    """
    written = list(iterate_lines(path, keep_returns=True))
    entries = [line.replace("\r", "") for line in written]
    entries = [line.rstrip() if of_subwords else line.strip() for line in entries]
    if of_subwords:
        entries = [e[1:-1] if e[:1] in ("'", '"') and e.endswith(e[0]) else e for e in entries]
    name = os.fspath(path)
    if not any(entries):
        raise UserError(f"{name} is empty: a vocabulary has one entry per line.")
    for i, (got, reserved) in enumerate(zip([*entries, ""], RESERVED_TOKENS, strict=False)):
        if entries[i:] and got != reserved and not of_subwords:
            warn_once(f"{name}: ids 0 and 1, padding and end of sentence, are {entries[:2]} there")
            return entries
        if got != reserved and not (of_subwords and got == f"{reserved}_"):
            raise UserError(
                f"{name}, line {i + 1}: got {got!r} where a vocabulary has {reserved}; "
                f"the first two lines must be {' and '.join(RESERVED_TOKENS)}."
            )
    # T2T lists a word twice that is also reserved, and subwords that differ only in "\r".
    twice = [entry for entry, number in Counter(filter(None, entries)).items() if number > 1]
    if of_subwords and twice and not any("\r" in line for line in written):
        warn_once(f"{name} has {twice[0]!r} twice: the last id counts, as in T2T")
    return entries


def require_unique(entries: Iterable[str], name: str, place: str = "line") -> None:
    """Raises a `UserError` if an entry that is not blank is listed twice."""
    first: dict[str, int] = {}
    for number, entry in enumerate(entries, start=1):
        if entry and first.setdefault(entry, number) != number:
            before = f"{entry!r} is already on {place} {first[entry]}"
            raise UserError(f"{name}, {place} {number}: {before}; each entry must have one id.")


def write_lines(path: str | os.PathLike[str], lines: Sequence[str]) -> None:
    """Writes a vocabulary file; raises UserError if that fails."""
    try:
        with files.writing(path), open(path, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)
    except UnicodeEncodeError as error:
        raise UserError(f"{path}: UTF-8 cannot encode {error.object!a}: remove it.") from error
