"""Text files as lines: UTF-8, split at newlines only, plain or gzip."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator

from t2t_keras.errors import UserError


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """Returns the lines of a text file; see `iterate_lines`."""
    return list(iterate_lines(path))


def iterate_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 text file without their ends, one at a time.

    Only "\n" ends a line, as in tensor2tensor; form feeds, U+2028 and the like stay inside it. One
    "\r" before the end is dropped. A newline at the end of the file opens no further line.

    Args:
        path: the file, decompressed while reading if the name ends in `.gz`.

    Raises:
        UserError: the file cannot be read or decompressed, or a line (which is named) is not UTF-8.
    """
    name = os.fspath(path)
    for number, line in enumerate(iterate_raw_lines(path), start=1):
        yield _decode(line, name, number)


def iterate_raw_lines(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Yields the lines that `iterate_lines` yields as the bytes that they are."""
    name = os.fspath(path)
    try:
        with gzip.open(name, "rb") if name.endswith(".gz") else open(name, "rb") as file:
            for line in file:
                yield without_end(line)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{name} is not a whole gzip file: {error}.") from error
    except OSError as error:
        raise UserError(f"Cannot read {name}: {error.strerror or error}.") from error


def without_end(line: bytes) -> bytes:
    r"""A line without its "\n" or "\r\n"."""
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _decode(line: bytes, name: str, number: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = line[error.start]
        raise UserError(
            f"{name}, line {number}: not UTF-8 (byte 0x{byte:02x} at column {error.start + 1}); "
            "convert the file to UTF-8."
        ) from error
