"""Downloads and unpacks source files; each is complete under its name, or absent."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import functools
import glob
import gzip
import hashlib
import io
import itertools
import lzma
import os
import re
import sys
import tarfile
import time
import urllib.request
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

from t2t_keras.errors import UserError
from t2t_keras.files import atomic_write, writing
from t2t_keras.progress import CountProgress
from t2t_keras.text.lines import (
    LINE_BYTES,
    decompressed,
    iterate_lines,
    line_too_long,
    most_unpacked,
)

_TIMEOUT_SECONDS = 60
_WAITS = (1, 2, 4, 8)
"""Seconds before each further attempt; starts over whenever more data has arrived."""
_BUSY = (408, 425, 429, 500, 502, 503, 504)
"""Errors of a server that another attempt may not meet."""
_BLOCK = 1 << 18


def fetch(url: str, path: str | os.PathLike) -> Path:
    """Downloads `url` to `path` unless that exists; returns `path`.

    Verifies the size that the server announces, and what `KNOWN_FILES` says.

    Raises:
        UserError: the file cannot be downloaded or written.
    """
    path = Path(path)
    if path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part, _new_file(part) as file:
            _receive(url, file, path)
    except (OSError, HTTPException, ValueError) as error:
        raise UserError(
            f"{url} could not be downloaded ({error}): place it by hand as {path}, then run again."
        ) from error
    return path


def _receive(url: str, file: BinaryIO, path: Path) -> None:
    """Writes what is at `url`; opens a broken connection again and asks for the rest."""
    digest, version, furthest, waits = hashlib.sha256(), "", 0, iter(_WAITS)
    while True:
        have = file.tell()
        # The server sends everything if it has another version of the file by now.
        rest = {"Range": f"bytes={have}-", "If-Range": version} if have and version else {}
        try:
            request = urllib.request.Request(url, headers=rest)
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
                if response.status != 206:
                    have = file.seek(0)
                    file.truncate()
                    digest = hashlib.sha256()
                etag = response.headers.get("ETag", "")  # weak ones do not guarantee equal bytes
                dated = response.headers.get("Last-Modified", "")
                version = etag if etag.startswith('"') else dated
                length = response.headers.get("Content-Length")
                total = None if length is None else have + int(length)
                progress = megabytes(path.name, total, have)
                while block := response.read(_BLOCK):
                    with writing(path):
                        file.write(block)
                    digest.update(block)
                    progress.update(file.tell() / 1e6)
            if total in (None, file.tell()):
                break
            raise ConnectionError(f"the connection broke after {file.tell()} bytes of {total}")
        except (OSError, HTTPException) as error:
            if file.tell() > furthest:
                furthest, waits = file.tell(), iter(_WAITS)
            is_busy = getattr(error, "code", None) in _BUSY
            wait = next(waits, None) if is_busy or furthest else None
            if wait is None:
                raise
            print(f"{path.name}: {error}; trying again", file=sys.stderr, flush=True)
            time.sleep(wait)
    found, known = (file.tell(), digest.hexdigest()), KNOWN_FILES.get(url)
    if known not in (None, found):
        raise ValueError(
            "size and SHA-256 are {} and {}, expected {} and {}".format(*found, *known)
        )


def _new_file(path: Path) -> BinaryIO:
    """Opens a temporary file; does not follow a link that another user may have put there."""
    path.unlink(missing_ok=True)
    return path.open("xb")


def megabytes(name: str, total: int | None, done: int = 0) -> CountProgress:
    """Returns the progress of a file of `total` bytes, of which `done` were already present."""
    return CountProgress(name, "MB", total and total / 1e6, done / 1e6)


# Unpacking


def unpack(archive: Path, directory: Path, is_wanted: Callable[[str], bool]) -> None:
    """Unpacks the wanted files of an archive; does nothing if it is not an archive.

    A tar archive is read to its end before any file gets its final name, so that no file comes from
    a damaged or truncated archive. Existing files are left alone. Members outside of `directory`,
    and those that are not plain files, are skipped.

    Args:
        archive: a zip archive, or a tar archive, uncompressed or compressed with gzip, bzip2 or xz.
        directory: where to write the files, under their names in the archive.
        is_wanted: called with the name of a member, such as "training/europarl-v7.de-en.de".

    Raises:
        UserError: the archive is damaged or too large, or a file cannot be written.
    """
    taken = set()
    with contextlib.ExitStack() as parts:
        for written, content in _members(archive):
            name = _safe_name(written)
            if name is None or name in taken or not is_wanted(name):
                continue
            taken.add(name)
            path = directory / name
            parts.enter_context(writing(path))
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                with _new_file(parts.enter_context(atomic_write(path))) as file:
                    file.writelines(content)


def _safe_name(name: str) -> str | None:
    """Returns a member's name without "./"; None if it does not name a file in the directory."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.name or "\0" in name:
        return None
    return str(path)


def _members(archive: Path) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yields the name of each plain file, and its content, which must be read before the next."""
    with _explained(archive), archive.open("rb") as stored:
        most = most_unpacked(archive.stat().st_size)
        start = stored.read(8)
        stored.seek(0)
        if start.startswith(b"PK\3\4"):
            with zipfile.ZipFile(stored) as files:
                members = [member for member in files.infolist() if not member.is_dir()]
                if sum(member.file_size for member in members) > most:  # `zipfile` yields no more
                    raise _too_large(archive, most)
                for member in members:
                    yield member.filename, _content(archive, partial(files.open, member))
            return
        tape: Any = _Tape(archive, stored, start, most)
        try:
            tar = tarfile.open(fileobj=tape, mode="r|", tarinfo=_Header)
        except tarfile.TarError:
            return
        for entry in tar:
            if entry.isfile() and not entry.issparse():  # a sparse file may have any size
                yield entry.name, _content(archive, partial(tar.extractfile, entry))
        while tape.read(_BLOCK):  # a compressed file ends with its checksum
            pass


def _content(archive: Path, opened: Callable[[], Any]) -> Iterator[bytes]:
    with _explained(archive), opened() as file:
        while block := file.read(_BLOCK):
            yield block


class _Tape:
    """Decompresses a tar archive, up to a number of bytes; shows progress."""

    def __init__(self, archive: Path, stored: BinaryIO, start: bytes, most: int):
        kinds = (kind for magic, kind in _DECOMPRESSORS.items() if start.startswith(magic))
        self._archive, self._stored, self._most, self._count = archive, stored, most, 0
        self._file = next(kinds, lambda plain: plain)(stored)
        self._progress = megabytes(f"unpacking {archive.name}", archive.stat().st_size)

    def read(self, size: int) -> bytes:
        block = self._file.read(size)
        self._count += len(block)
        if self._count > self._most:
            raise _too_large(self._archive, self._most)
        self._progress.update(self._stored.tell() / 1e6)
        return block


_DECOMPRESSORS: dict[bytes, Callable] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}


class _Header(tarfile.TarInfo):
    """A tar header with a size limit: Python reads long names and attributes into memory."""

    @classmethod
    def frombuf(cls, buf, encoding, errors):
        """Returns a header that is not too large."""
        header = super().frombuf(buf, encoding, errors)
        if not header.isreg() and header.size > _BLOCK:
            raise ValueError(f"a header of {header.size:,} bytes")
        return header


def _too_large(archive: Path, most: int) -> UserError:
    return UserError(
        f"{archive} unpacks to more than {most:,} bytes, too much for text: unpack it by hand if "
        "that is right."
    )


@contextlib.contextmanager
def _explained(archive: Path) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # a dozen types, from `tarfile`, `zipfile` and the decompressors
        raise UserError(
            f"{archive} cannot be read to its end ({str(error) or type(error).__name__}): if it is "
            "damaged or cut off, delete it and run again."
        ) from error


KNOWN_FILES: dict[str, tuple[int, str]] = {
    "http://data.statmt.org/wmt18/translation-task/rapid2016.tgz": (
        161050516,
        "41557dd5d8f0ed3a6d98bce3b798b1a9d3b68361eb99d902329ddbb943a6b55a",
    ),
    "http://data.statmt.org/wmt18/translation-task/training-parallel-ep-v8.tgz": (
        246201434,
        "953eaf7f24dcfc87eff6845d13ec6ca8acbee0ccf7edf4063b8b94e943933a96",
    ),
    "http://data.statmt.org/wmt18/translation-task/training-parallel-nc-v13.tgz": (
        113157482,
        "17992b7e919cfb754c60f4e754148bc23b80706ad0ed7b34150831a554b40c91",
    ),
    "http://www.statmt.org/wmt10/training-giga-fren.tar": (
        2595102720,
        "3ff8319f6919393520559bfbc7ad6a747ec81b3abc7be9993b338d4b017b4d9a",
    ),
    "http://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz": (
        918311367,
        "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    ),
    "http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz": (
        657632379,
        "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    ),
    "http://www.statmt.org/wmt13/training-parallel-un.tgz": (
        2365634246,
        "29141b5c1eba149a94f7a59d3b1a834b2e47fe0f8758d68dcd77a3d3f497ee47",
    ),
    "http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz": (
        80418416,
        "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
    ),
    "https://s3.amazonaws.com/web-language-models/paracrawl/release1/"
    "paracrawl-release1.en-et.zipporah0-dedup-clean.tgz": (
        78283314,
        "1c3065a8e04a5a6d09d5d5c72ece8aeabcc418eb48cf85038bba6cdef638dc7d",
    ),
}
"""Size in bytes and SHA-256, by URL, of archives that several problems fetch (values from TFDS)."""


# Fetches, unpacks and reads source files, which problems name as in T2T: `[url, files]`


PathLike = str | os.PathLike
Pair = tuple[str, str]


class LocalSource(NamedTuple):
    """A source whose files are present."""

    kind: str  # "text", "sgm", "tsv" or "tmx"
    paths: list[Path]  # two for "text" and "sgm", one for "tmx", any number for "tsv"
    columns: tuple[int, int] = (0, 1)  # for "tsv": the columns of inputs and targets

    def pairs(self) -> Iterator[Pair | None]:
        """Yields stripped pairs; None for a malformed one."""
        if self.kind == "text":
            return read_pairs(*self.paths)
        if self.kind == "sgm":
            return read_sgm(*self.paths)
        if self.kind == "tmx":
            return read_tmx(*self.paths)
        return itertools.chain.from_iterable(read_tsv(path, *self.columns) for path in self.paths)


def local_sources(tmp_dir: PathLike, sources: Sequence) -> list[LocalSource]:
    """Returns all sources with their files; fetches and unpacks absent files.

    Each archive is fetched and read at most once; an archive already in `tmp_dir` is used.

    Raises:
        UserError: a source is malformed, or a file is absent and cannot be fetched.
    """
    parsed = [_parse(source) for source in sources]
    for url in dict.fromkeys(source.url for source in parsed):
        _obtain(Path(tmp_dir), url, [source for source in parsed if source.url == url])
    return [source.find(Path(tmp_dir)) for source in parsed]


def source_files(tmp_dir: PathLike, source: Sequence) -> tuple[Path, Path]:
    """Returns the paths of the two files of a source; fetches absent files.

    Raises:
        UserError: a file is absent and cannot be fetched, or the source does not have two files.
    """
    first, second = local_sources(tmp_dir, [source])[0].paths
    return first, second


def read_sources(tmp_dir: PathLike, sources: Sequence, dropped: Counter[str]) -> Iterator[Pair]:
    """Yields the pairs of all sources in order.

    Args:
        tmp_dir: the directory of the files.
        sources: sources in the form that this module's docstring describes.
        dropped: counts the pairs that are dropped while reading: "empty" (a side is empty) and
            "malformed" (table rows and translation units that are not pairs).

    Raises:
        UserError: see `local_sources` and the readers. That text files are parallel is checked before
            the first pair is yielded.
    """
    found = local_sources(tmp_dir, sources)
    for source in found:
        if source.kind == "text":
            require_parallel(*source.paths)
    for source in found:
        for pair in source.pairs():
            if pair is None:
                dropped["malformed"] += 1
            elif pair[0] and pair[1]:
                yield pair
            else:
                dropped["empty"] += 1


class _Source(NamedTuple):
    """A parsed source."""

    kind: str
    url: str | tuple[str, ...]
    names: tuple[str, ...]
    columns: tuple[int, int] = (0, 1)

    def find(self, tmp_dir: Path) -> LocalSource:
        if self.kind == "tsv":
            paths = _matches(tmp_dir, *self.names)
        else:
            paths = [_present(tmp_dir / name) for name in self.names]
        return LocalSource(self.kind, paths, self.columns)

    def is_wanted(self, name: str) -> bool:
        """Returns True if an archive member is one of the source's files."""
        if self.kind != "tsv":
            return name in self.names
        path, pattern = PurePosixPath(name), PurePosixPath(*self.names)
        return len(path.parts) == len(pattern.parts) and path.match(str(pattern))


def _parse(source: Sequence) -> _Source:
    match source:
        case [url, ["tsv", int() as first, int() as second, str() as pattern]]:
            return _Source("tsv", url, (pattern,), (first, second))
        case [url, ["tmx", str() as name]]:
            return _Source("tmx", url, (name,))
        case [[*urls], [str() as first, str() as second]]:
            return _Source("text", tuple(urls), (first, second))
        case [url, [str() as first, str() as second]]:
            is_sgm = all(name.removesuffix(".gz").endswith("sgm") for name in (first, second))
            return _Source("sgm" if is_sgm else "text", url, (first, second))
    raise UserError(
        f"{source!r} is not a source: give [url, (source file, target file)], [url, ('tsv', source "
        "column, target column, pattern)] or [url, ('tmx', file)]."
    )


def _obtain(tmp_dir: Path, url: str | tuple[str, ...], sources: list[_Source]) -> None:
    """Fetches and unpacks the absent files of sources, all from `url`."""
    if isinstance(url, tuple):
        for source in sources:
            for address, name in zip(url, source.names, strict=True):
                if not _present(tmp_dir / name).is_file():
                    fetch(address, tmp_dir / name)
        return
    archive = _archive(tmp_dir, url)
    lacking = [source for source in sources if _lacks_files(source, tmp_dir, archive)]
    if not lacking:
        return
    if "://" in url:
        fetch(url, archive)
    elif not archive.is_file():
        holder = (
            f", and so is {archive}, which would hold it: place one of them"
            if url
            else ": place it"
        )
        raise UserError(
            f"The source file {_first_absent(lacking[0], tmp_dir)} is absent{holder} there, "
            "or see --tmp_dir."
        )
    unpack(archive, tmp_dir, lambda name: any(source.is_wanted(name) for source in lacking))
    _read_through.update((_state(archive), source.names) for source in lacking)
    for source in lacking:
        if absent := _first_absent(source, tmp_dir):
            raise UserError(
                f"{archive} does not hold {absent.relative_to(tmp_dir)}: place the right archive "
                f"there (it comes from {url}), or the file itself as {absent}."
            )


def _archive(tmp_dir: Path, url: str) -> Path:
    """Returns an archive's path: the last part of its URL, with its query (as in T2T) if that file exists."""
    name = os.path.basename(url)
    with_query = tmp_dir / name
    return with_query if with_query.is_file() else tmp_dir / name.split("?")[0]


_read_through: set[tuple] = set()
"""Archives and patterns whose matches have been unpacked; they need not be read again."""


def _state(archive: Path) -> tuple:
    status = archive.stat()
    return str(archive), status.st_size, status.st_mtime_ns


def _lacks_files(source: _Source, tmp_dir: Path, archive: Path) -> bool:
    """Returns True if files are, or may be, absent: only the archive shows which files match a pattern."""
    if _first_absent(source, tmp_dir):
        return True
    if source.kind != "tsv" or not archive.is_file():
        return False
    return (_state(archive), source.names) not in _read_through


def _first_absent(source: _Source, tmp_dir: Path) -> Path | None:
    if source.kind == "tsv":
        return None if _matches(tmp_dir, *source.names) else tmp_dir / source.names[0]
    absent = (tmp_dir / name for name in source.names if not _present(tmp_dir / name).is_file())
    return next(absent, None)


def _matches(tmp_dir: Path, pattern: str) -> list[Path]:
    paths = map(Path, glob.glob(os.path.join(glob.escape(os.fspath(tmp_dir)), pattern)))
    return sorted(path for path in paths if path.is_file() and path.suffix != ".incomplete")


def _present(path: Path) -> Path:
    """Returns `path` or, if only that exists, `path` without `.gz`."""
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    return plain if plain.is_file() and not path.is_file() else path


# Reading pairs: parallel text, SGM, TMX and tables


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
            lines += block.count(b"\n")
            unended = len(block) - 1 - block.rfind(b"\n") + unended * (b"\n" not in block)
            if unended > LINE_BYTES:
                raise line_too_long(path, lines + 1)
            size -= len(codecs.BOM_UTF8) * (not size and block.startswith(codecs.BOM_UTF8))
            decoder.decode(block)
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
