"""Readers of sentence pairs: parallel text, SGM, TMX and tables."""

from __future__ import annotations

import codecs
import functools
import io
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from t2t_keras.data.sources.download import megabytes
from t2t_keras.errors import UserError
from t2t_keras.text.lines import LINE_BYTES, decompressed, iterate_lines, line_too_long

Pair = tuple[str, str]

_BLOCK = 1 << 20
_SEGMENT = re.compile("<seg>(.*?)</seg>")
_ENTITIES = [
    (re.compile(pattern), character)
    for pattern, character in (
        ("&amp;", "&"),
        ("& ?amp;", "&"),
        ("& ?apos;", "'"),
        ("& ?quot;", '"'),
        ("& ?lt;", "<"),
        ("& ?gt;", ">"),
    )
]
"""Replaced in this order, so that "&amp;lt;" becomes "<" and "&amp;amp;" becomes "&", as in T2T."""


class TextSize(NamedTuple):
    """The size of a text file, decompressed and without a byte order mark."""

    lines: int
    bytes: int


def text_size(path: str | os.PathLike) -> TextSize:
    """Returns the size of a text file; reads all of it and checks that it is UTF-8.

    A file that has not changed since the last call is not read again.
    """
    path = os.path.abspath(path)
    try:
        status = os.stat(path)
        return _text_size(path, status.st_size, status.st_mtime_ns)
    except (UnicodeDecodeError, OSError, EOFError, zlib.error):
        for _ in iterate_lines(path):  # raises an error with the line number
            pass
        raise


def require_parallel(first: Path, second: Path) -> None:
    """Checks that two text files are not empty and have the same number of lines."""
    counts = []
    for path in (first, second):
        counts.append(text_size(path).lines)
        if not counts[-1]:
            raise UserError(
                f"The source file {path} is empty: place the text there, one sentence per line."
            )
    if counts[0] != counts[1]:
        raise UserError(
            f"{first} has {counts[0]} lines and {second} has {counts[1]}: "
            "line N of one must translate line N of the other, so both need the same number."
        )


def read_pairs(first: Path, second: Path) -> Iterator[Pair]:
    """Yields the lines of two parallel files side by side, stripped as T2T strips them.

    Raises:
        UserError: see `require_parallel`, which is called before the first pair.
    """
    require_parallel(first, second)
    with _open_text(first) as one, _open_text(second) as other:
        yield from zip(map(str.strip, one), map(str.strip, other), strict=True)


def read_sgm(first: Path, second: Path) -> Iterator[Pair]:
    """Yields the segments of two SGM files side by side: `<seg id="1">text</seg>`, one per line.

    Entities such as `&amp;` are not decoded, and a segment that does not end on its line is empty, as in
    T2T.
    """
    counts = [sum(1 for _ in _segments(path)) for path in (first, second)]
    if counts[0] != counts[1] or not counts[0]:
        raise UserError(
            f"{first} has {counts[0]} segments and {second} has {counts[1]}: "
            "segment N of one must translate segment N of the other."
        )
    yield from zip(_segments(first), _segments(second), strict=True)


def read_tmx(path: Path) -> Iterator[Pair | None]:
    """Yields the two segments of each translation unit of a TMX file, in order.

    Each segment is on one line: `<seg>text</seg>`. The five entities of XML are replaced, with or
    without a space after "&" (T2T's `paracrawl_v3_pairs`). A unit that does not have two segments
    yields None.

    Raises:
        UserError: the file cannot be read.
    """
    unit: list[str] = []
    for line in iterate_lines(path):
        if "<seg>" in line:
            unit += map(_unescape, _SEGMENT.findall(line))
        if "</tu>" in line:
            yield (unit[0], unit[1]) if len(unit) == 2 else None
            unit.clear()


def read_tsv(path: Path, source_column: int, target_column: int) -> Iterator[Pair | None]:
    """Yields two columns of a tab-separated table without quotes.

    Yields:
        A stripped pair; None for a line that lacks one of the columns.

    Raises:
        UserError: the file cannot be read.
    """
    needed = max(source_column, target_column)
    for line in iterate_lines(path):
        cells = line.split("\t")
        if needed < len(cells):
            yield cells[source_column].strip(), cells[target_column].strip()
        else:
            yield None


@functools.lru_cache(maxsize=4096)
def _text_size(path: str, stored_bytes: int, changed: int) -> TextSize:
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines = size = unended = 0
    block = b"\n"
    progress = megabytes(f"checking {os.path.basename(path)}", stored_bytes)
    with open(path, "rb") as stored, decompressed(stored, path) as file:
        while more := file.read(_BLOCK):
            block = more
            unended = len(block) - 1 - block.rfind(b"\n") + unended * (b"\n" not in block)
            if unended > LINE_BYTES:
                raise line_too_long(path, lines + 1)
            size -= len(codecs.BOM_UTF8) * (not size and block.startswith(codecs.BOM_UTF8))
            decoder.decode(block)
            lines += block.count(b"\n")
            size += len(block)
            progress.update(stored.tell() / 1e6)
    decoder.decode(b"", final=True)
    return TextSize(lines + (size > 0 and not block.endswith(b"\n")), size)


def _open_text(path: Path):
    content = decompressed(path.open("rb"), str(path))
    return io.TextIOWrapper(content, encoding="utf-8-sig", newline="\n")


def _segments(path: Path) -> Iterator[str]:
    for line in iterate_lines(path):
        line = line.strip()
        if line.startswith("<seg"):
            text = line[line.find(">") + 1 :]
            yield text.removesuffix("</seg>").strip() if text.endswith("</seg>") else ""


def _unescape(text: str) -> str:
    if "&" in text:
        for entity, character in _ENTITIES:
            text = entity.sub(character, text)
    return text.strip()
