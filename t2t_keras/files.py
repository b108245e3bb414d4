"""Writing files: whole or not at all, one writer at a time, and one line when it cannot be done."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from t2t_keras.errors import UserError

# Atomic writing


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike, suffix: str = "") -> Iterator[Path]:
    """Yields a temporary name; the file or directory written there becomes `path` at the end.

    A process that is killed, a full disk or a power cut leaves what was there, or all of the new.

    Args:
        path: of the result. A directory can only replace an empty one.
        suffix: what the temporary name must end in.
    """
    path = Path(path)
    partial = path.with_name(f"{path.name}.{platform.node()}.{os.getpid()}.incomplete{suffix}")
    try:
        yield partial
        publish({partial: path})
    finally:
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        else:
            partial.unlink(missing_ok=True)


def publish(names: Mapping[Path, Path]) -> None:
    """Renames finished files or directories, once all of them are on disk.

    Args:
        names: temporary -> final name, in the order of renaming. Of a set of files the last must be
            the one that readers look for, and the others must not replace what the old one refers to.
    """
    for partial in names:
        for folder, _, files in os.walk(partial):
            for name in [*files, ""]:  # at last the folder itself
                _sync(Path(folder, name))
        if not partial.is_dir():
            _sync(partial)
    *others, last = names
    for step in (others, [last]):
        for partial in step:
            os.replace(partial, names[partial])
        for directory in {names[partial].parent for partial in step}:
            _sync(directory)


def _sync(path: Path) -> None:
    """Waits until a file, or the list of files of a directory, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():  # some network file systems cannot sync a directory
            raise
    finally:
        os.close(descriptor)


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes a file of UTF-8 atomically.

    Raises:
        UserError: it cannot be written; what was there is as it was.
    """
    with writing(path), atomic_write(path) as partial:
        partial.write_text(text, "utf-8")


def write_json(path: str | os.PathLike, value: Mapping[str, Any]) -> None:
    """Writes an object as JSON, its keys sorted; see `write_text`."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True) + "\n")


# One writer at a time


def lock(
    file: BinaryIO | int, name: str, before_waiting: Callable[[], object] = lambda: None
) -> bool:
    """Locks an open file (or its descriptor) against other processes until it is closed.

    Args:
        file: the file or directory.
        name: of what is written, for the line that says that another process writes it.
        before_waiting: called first if it has to wait; it may raise instead.

    Returns:
        False if the file system has no locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        before_waiting()
        print(f"{name}: waiting for another process that writes it", file=sys.stderr, flush=True)
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def locked_directory(
    directory: str | os.PathLike, before_waiting: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Keeps other processes that lock the directory from writing into it; see `lock`."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        lock(descriptor, str(directory), before_waiting)
        yield
    finally:
        os.close(descriptor)


def open_locked(path: str | os.PathLike, name: str) -> BinaryIO:
    """Opens a file for appending that no other process has opened so, and makes it if absent.

    The process that it waits for may rename or remove the file: then a new one is opened.
    """
    while True:
        file = open(path, "ab")
        try:
            lock(file, name)
            if has_name(file, Path(path)):
                return file
        except BaseException:
            file.close()
            raise
        file.close()


def has_name(file: BinaryIO, path: Path) -> bool:
    """Returns True if an open file still has that name: it may have been removed or replaced."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


# Errors


@contextlib.contextmanager
def writing(name: str | os.PathLike) -> Iterator[None]:
    """Turns an `OSError` inside into the line "NAME cannot be written: REASON"."""
    try:
        yield
    except BrokenPipeError:
        raise  # not an error: nobody reads on, and the command ends without a word
    except OSError as error:
        raise UserError(f"{name} cannot be written: {error.strerror or error}.") from error


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describes each difference of two records: "num_heads was 4 and is now 2"."""
    return [
        f"{name} was {before.get(name)} and is now {now.get(name)}"
        for name in [*now, *(name for name in before if name not in now)]
        if before.get(name) != now.get(name)
    ]
