"""Downloads and unpacks source files; each is complete under its name, or absent."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import lzma
import os
import sys
import tarfile
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from t2t_keras.errors import UserError
from t2t_keras.files import atomic_write, writing
from t2t_keras.progress import CountProgress
from t2t_keras.text.lines import most_unpacked

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
