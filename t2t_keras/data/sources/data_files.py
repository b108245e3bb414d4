"""Fetches, unpacks and reads source files, which problems name as in T2T: `[url, files]`.

A source is one of

    [url, ("a.en", "a.de")]            line N of one file translates line N of the other; `.sgm` too
    [url, ("tsv", 3, 2, "a/*.tsv")]    tables: column of the inputs, column of the targets, glob pattern
    [url, ("tmx", "a.tmx")]            translation units

File names are relative to `tmp_dir` and may end in `.gz`. `url` is that of an archive that contains the
files, or of the only file, or a pair of URLs, one per file. Without "://" it is the name of an archive in
`tmp_dir`; "" means that there is none.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import itertools
import os
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from t2t_keras.data.sources.download import fetch, megabytes
from t2t_keras.data.sources.pair_readers import (
    Pair,
    read_pairs,
    read_sgm,
    read_tmx,
    read_tsv,
    require_parallel,
)
from t2t_keras.errors import UserError
from t2t_keras.files import lock, publish
from t2t_keras.text.lines import most_unpacked

PathLike = str | os.PathLike


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
                if not _is_present(tmp_dir / name):
                    _fetch(address, tmp_dir / name)
        return
    archive = _archive(tmp_dir, url)
    lacking = [source for source in sources if _lacks_files(source, tmp_dir, archive)]
    if not lacking:
        return
    if "://" in url:
        _fetch(url, archive)
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
    if is_archive(archive):
        unpack(archive, tmp_dir, lambda name: any(source.is_wanted(name) for source in lacking))
        _read_through.update((_state(archive), source.names) for source in lacking)
    for source in lacking:
        if absent := _first_absent(source, tmp_dir):
            raise UserError(
                f"{archive} does not hold {absent.relative_to(tmp_dir)}: place the right archive "
                f"there (it comes from {url}), or the file itself as {absent}."
            )


def _fetch(url: str, path: Path) -> None:
    size, sha256 = KNOWN_FILES.get(url, (None, None))
    fetch(url, path, size=size, sha256=sha256)


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
    if source.kind != "tsv" or not archive.is_file() or not is_archive(archive):
        return False
    return (_state(archive), source.names) not in _read_through


def _first_absent(source: _Source, tmp_dir: Path) -> Path | None:
    if source.kind == "tsv":
        return None if _matches(tmp_dir, *source.names) else tmp_dir / source.names[0]
    absent = (tmp_dir / name for name in source.names if not _is_present(tmp_dir / name))
    return next(absent, None)


def _matches(tmp_dir: Path, pattern: str) -> list[Path]:
    paths = map(Path, glob.glob(os.path.join(glob.escape(os.fspath(tmp_dir)), pattern)))
    return sorted(path for path in paths if path.is_file() and path.suffix != ".part")


def _present(path: Path) -> Path:
    """Returns `path` or, if only that exists, `path` without `.gz`."""
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    return plain if plain.is_file() and not path.is_file() else path


def _is_present(path: Path) -> bool:
    return _present(path).is_file()


# Unpacking tar and zip archives: each file completely or not at all.


_BLOCK = 1 << 20


def unpack(archive: Path, directory: Path, is_wanted: Callable[[str], bool]) -> list[Path]:
    """Unpacks the wanted files of an archive and returns their paths.

    The archive is read to its end before any file gets its final name, so that no file comes from a damaged
    or truncated archive. Existing files are left alone. Members outside of `directory`, and those that
    are not plain files, are skipped. A second process waits for the first.

    Args:
        archive: a zip archive, or a tar archive, uncompressed or compressed with gzip, bzip2 or xz.
        directory: where to write the files, under their names in the archive.
        is_wanted: called with the name of a member, such as "training/europarl-v7.de-en.de".
    """
    try:
        with archive.open("rb") as file:
            is_alone = lock(file, archive.name)
            return _unpack(archive, directory, is_wanted, is_alone)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise UserError(
            f"{archive} cannot be read to its end ({error}): it is damaged or cut off, so delete it "
            "and run again."
        ) from error
    except (NotImplementedError, RuntimeError) as error:  # zip: unknown method, password
        raise UserError(f"{archive} cannot be unpacked: {error}.") from error


def is_archive(path: Path) -> bool:
    """Returns True if the content of a file is a tar or zip archive."""
    if zipfile.is_zipfile(path):
        return True
    try:
        with tarfile.open(path, tarinfo=_Header):
            return True
    except tarfile.TarError:
        return False


class _Header(tarfile.TarInfo):
    """A tar header with a size limit; Python would read one of any size into memory."""

    @classmethod
    def frombuf(cls, buf, encoding, errors):
        """Returns a header; rejects long-name and attribute headers of more than `_BLOCK` bytes."""
        header = super().frombuf(buf, encoding, errors)
        if header.type in _READ_WHOLE and header.size > _BLOCK:
            raise tarfile.ReadError(f"a header of {header.size:,} bytes")
        return header


_READ_WHOLE = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)


def _unpack(
    archive: Path, directory: Path, is_wanted: Callable[[str], bool], is_alone: bool
) -> list[Path]:
    found = []
    unfinished: dict[Path, Path] = {}
    unpacked, most = 0, most_unpacked(archive.stat().st_size)
    try:
        for name, size, content in _members(archive):
            unpacked += size
            if unpacked > most:
                raise UserError(
                    f"{archive} unpacks to more than {most:,} bytes, too much for text: unpack it by "
                    "hand if that is right."
                )
            path = directory / name
            if not is_wanted(name) or path in unfinished:
                continue
            found.append(path)
            part = path.with_name(f"{path.name}.{os.getpid()}.part")
            with _writing(part, archive):
                if path.exists():
                    continue
                for old in path.parent.glob(f"{glob.escape(path.name)}.*.part"):
                    if is_alone or old == part:  # left by a process that was killed
                        old.unlink()
                part.parent.mkdir(parents=True, exist_ok=True)
                file = part.open("xb")  # does not follow links
            unfinished[path] = part
            with content() as member, file:
                while block := member.read(_BLOCK):
                    with _writing(part, archive):
                        file.write(block)
        if unfinished:
            publish({part: path for path, part in unfinished.items()})
    finally:
        for part in filter(Path.exists, unfinished.values()):
            part.unlink()
    return found


_Member = tuple[str, int, Callable[[], Any]]


def _members(archive: Path) -> Iterator[_Member]:
    """Yields name, size and an opening function of each plain file; then checks the rest of the archive."""
    if zipfile.is_zipfile(archive):
        yield from _zip_members(archive)
    else:
        yield from _tar_members(archive)


def _zip_members(archive: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as files:
        for member in files.infolist():
            name = _safe_name(member.filename)
            if name and not member.is_dir():
                yield name, member.file_size, partial(files.open, member)


def _tar_members(archive: Path) -> Iterator[_Member]:
    progress = megabytes(f"unpacking {archive.name}", archive.stat().st_size)
    with archive.open("rb") as stored, tarfile.open(fileobj=stored, tarinfo=_Header) as files:
        while (member := files.next()) is not None:
            progress.update(stored.tell() / 1e6)
            name = _safe_name(member.name)
            if name and member.isfile():
                yield name, member.size, partial(files.extractfile, member)
        content = files.fileobj
        while content and content.read(_BLOCK):  # a compressed stream ends with its checksum
            progress.update(stored.tell() / 1e6)


def _safe_name(name: str) -> str | None:
    """Returns a member's name without "./"; None if it would be outside of the directory."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name:
        return None
    return str(path)


@contextlib.contextmanager
def _writing(part: Path, archive: Path) -> Iterator[None]:
    """Distinguishes errors in writing a file from those of a damaged archive."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            remedy = "the name is too long for this file system"
        else:
            remedy = "make room or name another --tmp_dir"
        raise UserError(
            f"{part} cannot be written ({error.strerror}) while unpacking {archive}: {remedy}."
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
