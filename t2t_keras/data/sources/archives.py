"""Taking the wanted files out of tar and zip archives, whole or not at all."""

from __future__ import annotations

import glob
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from t2t_keras.data.sources.download import Progress
from t2t_keras.errors import UserError
from t2t_keras.file_lock import lock

_BLOCK = 1 << 20


def unpack(archive: Path, directory: Path, is_wanted: Callable[[str], bool]) -> list[Path]:
    """Takes wanted files out of an archive and returns where they are.

    The archive is read to its end before any file gets its name, so that none comes from a damaged
    or unfinished one. A file that is there already is left alone. Members that would lie outside
    `directory`, and those that are no plain files, are passed over. A second process waits.

    Args:
        archive: a tar archive, compressed with gzip, bzip2, xz or not at all, or a zip archive.
        directory: the files go there, under their names in the archive.
        is_wanted: gets the name of a member, such as "training/europarl-v7.de-en.de".

    Raises:
        UserError: the file is no archive, is damaged, or a member cannot be written.
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
    except (NotImplementedError, RuntimeError) as error:  # zip: a method, a password
        raise UserError(f"{archive} cannot be unpacked: {error}.") from error


def is_archive(path: Path) -> bool:
    """Whether a file is a tar or a zip archive, by its content."""
    return zipfile.is_zipfile(path) or tarfile.is_tarfile(path)


def _unpack(
    archive: Path, directory: Path, is_wanted: Callable[[str], bool], is_alone: bool
) -> list[Path]:
    found = []
    unfinished: dict[Path, Path] = {}
    try:
        for name, content in _members(archive):
            path = directory / name
            if not is_wanted(name) or path in unfinished:
                continue
            found.append(path)
            if not path.exists():
                if is_alone:  # then these are of processes that were killed
                    for part in path.parent.glob(f"{glob.escape(path.name)}.*.part"):
                        part.unlink()
                unfinished[path] = path.with_name(f"{path.name}.{os.getpid()}.part")
                _write(content(), unfinished[path], archive)
        for path, part in unfinished.items():
            part.replace(path)
    finally:
        for part in filter(Path.exists, unfinished.values()):
            part.unlink()
    return found


def _members(archive: Path) -> Iterator[tuple[str, Callable[[], BinaryIO]]]:
    """Yields the name of each plain file and what opens it; at last checks the rest."""
    if zipfile.is_zipfile(archive):
        yield from _zip_members(archive)
    else:
        yield from _tar_members(archive)


def _zip_members(archive: Path) -> Iterator[tuple[str, Callable[[], BinaryIO]]]:
    with zipfile.ZipFile(archive) as files:
        for member in files.infolist():
            name = _safe_name(member.filename)
            if name and not member.is_dir():
                yield name, lambda member=member: files.open(member)  # type: ignore[misc]


def _tar_members(archive: Path) -> Iterator[tuple[str, Callable[[], BinaryIO]]]:
    progress = Progress(f"unpacking {archive.name}", archive.stat().st_size)
    with archive.open("rb") as stored, tarfile.open(fileobj=stored) as files:
        while (member := files.next()) is not None:
            progress.update(stored.tell())
            name = _safe_name(member.name)
            if name and member.isfile():
                yield name, lambda member=member: files.extractfile(member)  # type: ignore[misc]
        content = files.fileobj
        while content and content.read(_BLOCK):  # a compressed stream ends with its checksum
            progress.update(stored.tell())


def _safe_name(name: str) -> str | None:
    """The name of a member without "./"; None if it would lie outside the directory."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name:
        return None
    return str(path)


def _write(content: BinaryIO, part: Path, archive: Path) -> None:
    """Copies a member; what goes wrong in writing is told apart from a damaged archive."""
    with content:
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            file = part.open("wb")
        except OSError as error:
            raise _unwritable(part, archive, error) from error
        with file:
            while block := content.read(_BLOCK):
                try:
                    file.write(block)
                except OSError as error:
                    raise _unwritable(part, archive, error) from error


def _unwritable(part: Path, archive: Path, error: OSError) -> UserError:
    return UserError(
        f"{part} cannot be written ({error.strerror}): {archive} is to be unpacked there, so make "
        "room or name another --tmp_dir."
    )
