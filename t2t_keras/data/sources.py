"""Source files of a corpus: fetching and unpacking them, and reading sentence pairs.

Problems name a source as in T2T, as one of

    [url, ("a.en", "a.de")]            line N of one file translates line N of the other; `.sgm` too
    [url, ("tsv", 3, 2, "a/*.tsv")]    tables: column of the inputs, column of the targets, glob pattern
    [url, ("tmx", "a.tmx")]            translation units

File names are relative to `tmp_dir` and may end in `.gz`. `url` is that of an archive that contains the
files, or of the only file, or a pair of URLs, one per file. Without "://" it is the name of an archive in
`tmp_dir`; "" means that there is none.
"""

import bz2
import codecs
import contextlib
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
from functools import lru_cache, partial
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple
from urllib.error import HTTPError

from t2t_keras.errors import UserError, explained
from t2t_keras.files import PathLike, atomic_write, writing
from t2t_keras.progress import CountProgress
from t2t_keras.text.lines import (
    LINE_BYTES,
    decompressed,
    iterate_lines,
    line_too_long,
    most_unpacked,
    too_large,
)

Pair = tuple[str, str]

_BLOCK = 1 << 18


class LocalSource(NamedTuple):
    """A source, whose files are in `tmp_dir` or will be."""

    kind: str  # "text", "sgm", "tsv" or "tmx"
    tmp_dir: Path
    names: tuple[str, ...]  # "text": two, or any number; "sgm": two; "tmx": one; "tsv": a pattern
    columns: tuple[int, int] = (0, 1)  # for "tsv": the columns of inputs and targets
    url: str | tuple[str, ...] = ""

    @property
    def paths(self) -> list[Path]:
        """The paths of its files, absent or not; for "tsv" of those that match."""
        if self.kind != "tsv":
            return [_present(self.tmp_dir / name) for name in self.names]
        pattern = os.path.join(glob.escape(os.fspath(self.tmp_dir)), *self.names)
        found = sorted(map(Path, glob.glob(pattern)))
        return [path for path in found if path.is_file() and path.suffix != ".incomplete"]

    def absent(self) -> Path | None:
        """Returns the first of its files that is absent; a pattern stands for its matches."""
        paths = self.paths or [self.tmp_dir / self.names[0]]
        return next((path for path in paths if not path.is_file()), None)

    def is_wanted(self, name: str) -> bool:
        """Returns True if an archive member is one of the source's files."""
        if self.kind != "tsv":
            return name in self.names
        path, pattern = PurePosixPath(name), PurePosixPath(*self.names)
        return len(path.parts) == len(pattern.parts) and path.match(str(pattern))

    def pairs(self) -> Iterator[Pair | None]:
        """Yields stripped pairs, None for a malformed one. Two files that differ in their number of
        lines or segments are a `UserError`."""
        if self.kind == "tsv":
            tables = (_read_tsv(path, *self.columns) for path in self.paths)
            return itertools.chain.from_iterable(tables)
        readers: dict[str, Callable] = {"text": read_pairs, "sgm": _read_sgm, "tmx": _read_tmx}
        return readers[self.kind](*self.paths)


def local_sources(
    tmp_dir: PathLike, sources: Sequence, any_text: bool = False
) -> list[LocalSource]:
    """Returns all sources after fetching and unpacking absent files, each archive at most once.

    With `any_text`, a source may also be `[url, text files]`, of any number and not parallel. A source that
    is malformed, or whose files cannot be fetched or are not parallel, is a `UserError`.
    """
    parsed = [_parse(Path(tmp_dir), source, any_text) for source in sources]
    for url in dict.fromkeys(source.url for source in parsed):
        _obtain(Path(tmp_dir), url, [source for source in parsed if source.url == url])
    for source in parsed:
        if source.kind == "text" and not any_text:
            require_parallel(*source.paths)
    return parsed


def read_sources(tmp_dir: PathLike, sources: Sequence, dropped: Counter[str]) -> Iterator[Pair]:
    """Yields the pairs of all sources in order.

    Those with an "empty" side and "malformed" ones (table rows and translation units that are not
    pairs) are left out and counted in `dropped`.
    """
    found = local_sources(tmp_dir, sources)
    for pair in itertools.chain.from_iterable(source.pairs() for source in found):
        if pair is None:
            dropped["malformed"] += 1
        elif pair[0] and pair[1]:
            yield pair
        else:
            dropped["empty"] += 1


def compile_data(
    tmp_dir: PathLike,
    datasets: Sequence,
    filename: str,
    datatypes_to_clean: Sequence[str] | None = None,
) -> str:
    """Writes the pairs of sources to FILENAME.lang1 and .lang2 in `tmp_dir` unless both exist (T2T's name).

    Returns the path without ending. `datatypes_to_clean` is not supported, a `UserError`.
    """
    if datatypes_to_clean:
        raise UserError(f"T2T's cleaning of {datatypes_to_clean} is not supported: leave it out.")
    prefix = os.path.join(tmp_dir, filename)
    paths = [Path(f"{prefix}.lang1"), Path(f"{prefix}.lang2")]
    if not all(path.exists() for path in paths):
        with contextlib.ExitStack() as stack:
            stack.enter_context(writing(prefix))
            parts = [stack.enter_context(atomic_write(path)) for path in paths]
            files = [stack.enter_context(part.open("w", encoding="utf-8")) for part in parts]
            for pair in read_sources(tmp_dir, datasets, Counter()):
                for text, file in zip(pair, files, strict=True):
                    file.write(f"{text}\n")
    return prefix


# Finding files


def _parse(tmp_dir: Path, source: Sequence, any_text: bool) -> LocalSource:
    match source:
        case [url, ["tsv", int() as first, int() as second, str() as pattern]]:
            return LocalSource("tsv", tmp_dir, (pattern,), (first, second), url)
        case [url, ["tmx", str() as name]]:
            return LocalSource("tmx", tmp_dir, (name,), url=url)
        case [[*urls], [str(), str()] as names]:
            return LocalSource("text", tmp_dir, tuple(names), url=tuple(urls))
        case [url, [str(), str()] as names]:
            is_sgm = all(name.removesuffix(".gz").endswith("sgm") for name in names)
            return LocalSource("sgm" if is_sgm else "text", tmp_dir, tuple(names), url=url)
        case [url, [str(), *_] as names] if any_text:
            return LocalSource("text", tmp_dir, tuple(names), url=url)
    raise UserError(
        f"{source!r} is not a source: give [url, (source file, target file)], [url, ('tsv', source "
        "column, target column, pattern)] or [url, ('tmx', file)]."
    )


def _present(path: Path) -> Path:
    """Returns `path` or, if only that exists, `path` without `.gz`."""
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    return plain if plain.is_file() and not path.is_file() else path


_read_through: set[tuple] = set()
"""Archives (path, size, time of change) and patterns whose matches have been unpacked."""


def _obtain(tmp_dir: Path, url: str | tuple[str, ...], sources: list[LocalSource]) -> None:
    """Fetches and unpacks the absent files of sources, all from `url`."""
    if isinstance(url, tuple):
        for source in sources:
            for address, name in zip(url, source.names, strict=True):
                if not _present(tmp_dir / name).is_file():
                    fetch(address, tmp_dir / name)
        return
    archive = tmp_dir / os.path.basename(url)
    if not archive.is_file():  # only T2T has the query in the name
        archive = tmp_dir / archive.name.split("?")[0]

    def unpacked(source: LocalSource) -> tuple:
        status = archive.stat()
        return str(archive), status.st_size, status.st_mtime_ns, source.names

    lacking = [source for source in sources if source.absent()]
    if archive.is_file():  # which alone shows how many files match a pattern
        tables = [source for source in sources if source.kind == "tsv"]
        lacking += [t for t in tables if t not in lacking and unpacked(t) not in _read_through]
    if not lacking:
        return
    if "://" in url or os.path.isfile(url):
        fetch(url, archive)
    elif not archive.is_file():
        either = f", and so is {archive}, which would hold it: place one of them"
        raise UserError(
            f"The source file {lacking[0].absent()} is absent{either if url else ': place it'} "
            "there, or see --tmp_dir."
        )
    unpack(archive, tmp_dir, lambda name: any(source.is_wanted(name) for source in lacking))
    _read_through.update(map(unpacked, lacking))
    for source in lacking:
        if absent := source.absent():
            raise UserError(
                f"{archive} does not hold {absent.relative_to(tmp_dir)}: place the right archive "
                f"there (it comes from {url}), or the file itself as {absent}."
            )


# Reading pairs: parallel text, SGM, TMX and tables


class TextSize(NamedTuple):
    """The size of a text file, decompressed and without a byte order mark."""

    lines: int
    bytes: int


def text_size(path: PathLike, errors: str = "strict") -> TextSize:
    """Returns the size of a UTF-8 file, which is checked; reads it again only if it has changed."""
    path = os.path.abspath(path)
    if Path(path).is_fifo():
        raise UserError(f"{path} is a pipe, but text is read several times: give a file.")
    try:
        status = os.stat(path)
        return _text_size(path, status.st_size, status.st_mtime_ns, errors)
    except (ValueError, OSError, EOFError, zlib.error):
        for _ in iterate_lines(path):  # raises an error with the line number
            pass
        raise


def require_parallel(first: Path, second: Path, *, errors: str = "strict") -> int:
    """Checks that two text files are not empty and have the same number of lines; returns it."""
    counts = []
    for path in (first, second):
        counts.append(text_size(path, errors).lines)
        if not counts[-1]:
            raise UserError(
                f"The source file {path} is empty: place the text there, one sentence per line."
            )
    if counts[0] != counts[1]:
        raise UserError(
            f"{first} has {counts[0]} lines and {second} has {counts[1]}: "
            "line N of one must translate line N of the other, so both need the same number."
        )
    return counts[0]


def read_pairs(first: Path, second: Path, *, errors: str = "strict") -> Iterator[Pair]:
    r"""Yields the lines of two files side by side, stripped, without "\r"; `errors` is that of `open`."""
    require_parallel(first, second, errors=errors)
    changed = explained(
        f"{first} or {second} has changed meanwhile", ValueError, EOFError, remedy="run again"
    )
    with changed, _open_text(first, errors) as one, _open_text(second, errors) as other:
        for pair in zip(one, other, strict=True):
            yield pair[0].replace("\r", "").strip(), pair[1].replace("\r", "").strip()


@lru_cache(maxsize=4096)
def _text_size(path: str, stored_bytes: int, changed: int, errors: str) -> TextSize:
    decoder = codecs.getincrementaldecoder("utf-8")(errors)
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


def _open_text(path: Path, errors: str) -> io.TextIOWrapper:
    content = decompressed(path.open("rb"), str(path))
    return io.TextIOWrapper(content, encoding="utf-8-sig", errors=errors, newline="\n")


def _read_sgm(first: Path, second: Path) -> Iterator[Pair]:
    """Yields the segments of two SGM files side by side: `<seg id="1">text</seg>`, one per line."""
    counts = [sum(1 for _ in _segments(path)) for path in (first, second)]
    if counts[0] != counts[1] or not counts[0]:
        raise UserError(
            f"{first} has {counts[0]} segments and {second} has {counts[1]}: "
            "segment N of one must translate segment N of the other."
        )
    yield from zip(_segments(first), _segments(second), strict=True)


def _segments(path: Path) -> Iterator[str]:
    """Yields segments as T2T does: entities as they are, empty if it does not end on its line."""
    for line in map(str.strip, iterate_lines(path)):
        if line.startswith("<seg"):
            text = line[line.find(">") + 1 :]
            yield text.removesuffix("</seg>").strip() if text.endswith("</seg>") else ""


def _read_tmx(path: Path) -> Iterator[Pair | None]:
    """Yields the segments of each translation unit of a TMX file; None if there are not two."""
    unit: list[str] = []
    for line in iterate_lines(path):
        if "<seg>" in line:
            # Without what follows the last end, for which each "<seg>" would be searched.
            ended = line[: line.rfind("</seg>") + len("</seg>")]
            unit += map(_unescape, re.findall("<seg>(.*?)</seg>", ended))
        if "</tu>" in line:
            yield (unit[0], unit[1]) if len(unit) == 2 else None
            unit.clear()


def _unescape(text: str) -> str:
    """Replaces XML's entities in T2T's order (`paracrawl_v3_pairs`): "&amp;lt;" becomes "<"."""
    if "&" in text:
        text = text.replace("&amp;", "&")
        for name, character in zip(("amp", "apos", "quot", "lt", "gt"), "&'\"<>", strict=True):
            text = re.sub(f"& ?{name};", character, text)
    return text.strip()


def _read_tsv(path: Path, source_column: int, target_column: int) -> Iterator[Pair | None]:
    """Yields two columns of a tab-separated table without quotes; None if a line lacks one."""
    for line in iterate_lines(path):
        cells = line.split("\t")
        is_whole = max(source_column, target_column) < len(cells)
        yield (cells[source_column].strip(), cells[target_column].strip()) if is_whole else None


# Downloading: a file is complete under its name, or absent

KNOWN_FILES = {
    url: (int(size), sha256)
    for line in Path(__file__).with_name("known_files.tsv").read_text("utf-8").splitlines()
    for url, size, sha256 in [line.split("\t")]
}
"""Size in bytes and SHA-256, by URL, of archives that several problems fetch (values from TFDS)."""
_TIMEOUT_SECONDS = 20
_WAITS = (1, 2, 4, 8)  # seconds before each further attempt; starts over when more data has arrived
_BUSY = (408, 425, 429, 500, 502, 503, 504)  # errors that another attempt may not meet


def fetch(url: str, path: PathLike) -> Path:
    """Downloads `url`, or copies a file, to `path` unless that exists; returns `path`.

    Verifies the size that the server announces, and what `KNOWN_FILES` says. What cannot be
    downloaded or written is a `UserError`, which names `path` as the place for it.
    """
    path = Path(path)
    if path.exists():
        return path
    source = Path(url).absolute().as_uri() if os.path.isfile(url) else url
    what, remedy = f"{url} could not be downloaded", f"place it by hand as {path}, then run again"
    with explained(what, OSError, HTTPException, ValueError, remedy=remedy):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part, _new_file(part) as file:
            _receive(source, file, path)
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
            is_busy = isinstance(error, HTTPError) and error.code in _BUSY
            wait = next(waits, None) if is_busy or furthest else None
            if wait is None:
                raise
            print(f"{path.name}: {error}; trying again", file=sys.stderr, flush=True)
            time.sleep(wait)
    found, known = (file.tell(), digest.hexdigest()), KNOWN_FILES.get(url)
    if known not in (None, found):
        raise ValueError("size and SHA-256 are {} and {}, not {} and {}".format(*found, *known))


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
        archive: a zip archive (deflated), or a tar archive, uncompressed or compressed with gzip, bzip2 or xz.
        directory: where to write the files, under their names in the archive.
        is_wanted: called with the name of a member, such as "training/europarl-v7.de-en.de".

    Raises:
        UserError: the archive is damaged or too large, or a file cannot be written.
    """
    taken = set()
    with contextlib.ExitStack() as parts:
        for written, content in _members(archive):
            member = PurePosixPath(written)  # without "./"
            name, path = str(member), directory / member
            is_outside = member.is_absolute() or ".." in member.parts
            is_odd = not member.name or {"\0", "\n"}.intersection(name)  # an error has one line
            if is_outside or is_odd or name in taken or not is_wanted(name):
                continue
            taken.add(name)
            parts.enter_context(writing(path))
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                with _new_file(parts.enter_context(atomic_write(path))) as file:
                    file.writelines(content)


def gunzip_file(gz_path: PathLike, new_path: PathLike) -> None:
    """Decompresses a `.gz` file unless the new file exists (T2T's name)."""
    if not os.path.exists(new_path):
        with writing(new_path), atomic_write(new_path) as part, part.open("wb") as file:
            file.writelines(_content(Path(gz_path), partial(gzip.open, gz_path)))


def _members(archive: Path) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yields the name of each plain file, and its content, which must be read before the next."""
    with reading_archive(archive), archive.open("rb") as stored:
        most = most_unpacked(archive.stat().st_size)
        start = stored.read(8)
        stored.seek(0)
        if start.startswith(b"PK\3\4"):
            with zipfile.ZipFile(stored) as files:
                members = [member for member in files.infolist() if not member.is_dir()]
                if sum(member.file_size for member in members) > most:  # `zipfile` yields no more
                    raise too_large(archive, most)
                for member in members:
                    yield member.filename, _content(archive, partial(_of_zip, files, member))
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


def _of_zip(files: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
    if member.compress_type in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        # `zipfile` would unpack it without regard to the member's size.
        raise UserError(
            f"{files.filename} holds {member.filename!r} compressed by bzip2 or LZMA, only deflated "
            "files are read: unpack it by hand."
        )
    return files.open(member)


def _content(archive: Path, opened: Callable[[], Any]) -> Iterator[bytes]:
    with reading_archive(archive), opened() as file:
        while block := file.read(_BLOCK):
            yield block


_OPENERS: dict[bytes, Callable] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}


class _Tape:
    """Decompresses a tar archive, up to a number of bytes; shows progress."""

    def __init__(self, archive: Path, stored: BinaryIO, start: bytes, most: int):
        openers = (opener for magic, opener in _OPENERS.items() if start.startswith(magic))
        self._archive, self._stored, self._most, self._count = archive, stored, most, 0
        self._file = next(openers, lambda plain: plain)(stored)
        self._progress = megabytes(f"unpacking {archive.name}", archive.stat().st_size)

    def read(self, size: int) -> bytes:
        block = self._file.read(size)
        self._count += len(block)
        if self._count > self._most:
            raise too_large(self._archive, self._most)
        self._progress.update(self._stored.tell() / 1e6)
        return block


class _Header(tarfile.TarInfo):
    """A tar header with a size limit: Python reads long names and attributes into memory."""

    @classmethod
    def frombuf(cls, buf, encoding, errors):
        header = super().frombuf(buf, encoding, errors)
        if not header.isreg() and header.size > _BLOCK:
            raise ValueError(f"a header of {header.size:,} bytes")
        return header


def reading_archive(archive: Path) -> contextlib.AbstractContextManager[None]:
    """Turns whatever is raised while an archive is read into a `UserError`."""
    remedy = "if it is damaged or cut off, delete it and run again"
    # A dozen types, from `tarfile`, `zipfile` and the decompressors.
    return explained(f"{archive} cannot be read to its end", Exception, remedy=remedy)
