"""Atomic writing, locks against a second writer, and JSON that is checked when read."""

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from t2t_keras.errors import UserError, explained

PathLike = str | os.PathLike

# Atomic writing


@contextlib.contextmanager
def atomic_write(path: PathLike, suffix: str = "", locked: bool = False) -> Iterator[Path]:
    """Yields a temporary path; on exit, the file or directory written there is renamed to `path`.

    After a kill, a full disk or a power cut, `path` is either unchanged or completely new. A
    directory can only replace an empty one. `suffix` is that of the temporary name. If the caller has
    `locked` out other writers of `path`, what killed ones have left is removed.
    """
    path = Path(followed(path))
    partial = path.with_name(f"{path.name}.{platform.node()}.{os.getpid()}.incomplete{suffix}")
    left = f"{glob.escape(path.name)}.*.[0-9]*.incomplete{suffix}"
    for leftover in path.parent.glob(left) if locked else ():
        _remove(leftover)
    try:
        yield partial
        publish({partial: path})
    finally:
        _remove(partial)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def followed(path: PathLike) -> str:
    """Returns the path that a file written to `path` gets: the target of a link, which stays."""
    return os.path.realpath(path) if os.path.islink(path) else os.fspath(path)


def publish(names: Mapping[Path, Path]) -> None:
    """Flushes finished files or directories to disk, then renames each, temporary -> final name.

    The last file of a set must be the one that readers look for; the others must not replace files
    that its old version names.
    """
    for partial in names:
        for folder, _, files in os.walk(partial):
            for name in [*files, ""]:  # the folder itself comes last
                _sync(Path(folder, name))
        if not partial.is_dir():
            _sync(partial)
    *others, last = names.items()
    for step in (others, [last]):
        for partial, path in step:
            os.replace(partial, path)
        for directory in {path.parent for _, path in step}:
            _sync(directory)


_TOGETHER = ".together.json"


def publish_together(directory: Path, names: Mapping[str, str]) -> None:
    """Renames finished files of a directory; readers find all of the old files or all of the new.

    The list of names is written before the first file is renamed. If the process is killed in
    between, a reader finishes its work: see `finish_publishing`. `names`: final -> temporary name,
    which no other process may use; "" removes the file.
    """
    for partial in filter(None, names.values()):
        _sync(directory / partial)
    write_json(directory / _TOGETHER, names)
    finish_publishing(directory)


def finish_publishing(directory: PathLike) -> None:
    """Finishes an interrupted `publish_together`; call it before reading the directory's files."""
    record = Path(directory, _TOGETHER)
    if not os.path.exists(record):  # unlike `Path.exists`, no error for a name that is too long
        return
    names = read_json(record, {str: str})
    for name in (*names, *filter(None, names.values())):
        if not name or "/" in name or "\0" in name:
            raise UserError(f"{record} names {name!r}, which is not a file of its directory.")
    with writing(directory):
        for final, partial in names.items():
            path = record.with_name(final)
            with contextlib.suppress(FileNotFoundError):  # already done, perhaps by another reader
                if partial:
                    os.replace(path.with_name(partial), path)
                else:
                    os.remove(path)
        _sync(record.parent)
        record.unlink(missing_ok=True)


def is_publishing(directory: PathLike) -> bool:
    """Returns True if a `publish_together` in the directory is unfinished."""
    return os.path.exists(Path(directory, _TOGETHER))


def _sync(path: Path) -> None:
    """Flushes a file, or the entries of a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():  # some network file systems cannot sync a directory
            raise
    finally:
        os.close(descriptor)


def write_text(path: PathLike, text: str) -> None:
    """Writes a UTF-8 file atomically; raises UserError, and keeps an old file, if it cannot."""
    with writing(path), atomic_write(path) as partial:
        partial.write_text(text, "utf-8")


def json_text(value: Mapping[str, Any]) -> str:
    """Returns an object as JSON text with sorted keys."""
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def write_json(path: PathLike, value: Mapping[str, Any]) -> None:
    """Writes an object as `json_text`; see `write_text`. What cannot be read again replaces nothing."""
    parse_json(text := json_text(value), dict, os.fspath(path))
    write_text(path, text)


def content_digest(content: bytes) -> str:
    """Returns the first 16 digits of the SHA-256, to see whether two contents are the same."""
    return hashlib.sha256(content).hexdigest()[:16]


def is_special(path: str) -> bool:
    """Returns True for pipes and devices, which a finished file must not replace.

    /dev/stdout is one even if it leads to a file: it is a link, and the link would be replaced.
    """
    if os.path.abspath(path).startswith(("/dev/", "/proc/")):
        return not os.path.abspath(path).startswith("/dev/shm/")
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


# One writer at a time


def lock(
    file: BinaryIO | int, name: str, before_waiting: Callable[[], object] = lambda: None
) -> bool:
    """Locks an open file (or its descriptor) against other processes until it is closed.

    If it has to wait, it calls `before_waiting`, which may raise instead, and says that another
    process writes `name`. Returns False if the file system has no locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        before_waiting()
        print(f"{name}: waiting for another process to write it", file=sys.stderr, flush=True)
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def locked_directory(
    directory: PathLike, before_waiting: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Locks a directory against other processes that lock it; see `lock`."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        lock(descriptor, str(directory), before_waiting)
        yield
    finally:
        os.close(descriptor)


def open_locked(path: PathLike, name: str) -> BinaryIO:
    """Opens a file for appending, creates it if absent, and locks it.

    The process that held the lock may have renamed or removed the file: then it opens a new one.
    """
    while True:
        file = open(path, "ab")
        try:
            lock(file, name)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                    return file
        except BaseException:
            file.close()
            raise
        file.close()


@contextlib.contextmanager
def locked_name(path: PathLike) -> Iterator[None]:
    """Locks a file or directory that need not exist, through PATH.lock; see `lock`."""
    with open_locked(f"{path}.lock", str(path)) as file:
        try:
            yield
        finally:
            os.remove(file.name)


# Reading JSON

Kind = Any
"""What a JSON value must be.

A type: `bool`, `str`, `int` (64 bits), `float` (or an integer), `list`, `dict`, `object` (anything).
A `range` of integers. `(kind, None)`: that kind or null. `[kind]`: a list of that kind.
`{"name": kind, "name?": kind, str: kind}`: an object with a required field, an optional field, and
any others of the last kind; without `str` the others may be anything.
"""

_WORDS = {bool: "true or false", str: "a string", int: "an integer", float: "a number"}
_WORDS |= {list: "a list", dict: "an object"}
_SHOWN = 60  # characters of a wrong value in its error
_NESTED = 100  # maximum depth of objects and lists


def read_json(path: PathLike, kind: Kind = dict, remedy: str = "") -> Any:
    """Reads a JSON file and checks the kinds of its values.

    Raises:
        UserError: it cannot be read, is not JSON, or a field is missing or of the wrong kind; the
            latter two end in the remedy, such as "remove it to continue".
    """
    # ValueError: a name with a zero byte
    with explained(f"{path} cannot be read", OSError, ValueError):
        content = Path(path).read_bytes()
    return parse_json(content, kind, str(path), remedy)


def parse_json(text: str | bytes, kind: Kind, name: str, remedy: str = "") -> Any:
    """Parses and checks a JSON text, which errors call `name`; see `read_json`."""
    try:
        text = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        value = json.loads(text, object_pairs_hook=_object)
        parts = [(value, _NESTED)]
        while parts:
            part, levels = parts.pop()
            if isinstance(part, str):
                part.encode()  # fails for half of a surrogate pair
            elif isinstance(part, list | dict):
                if not levels:
                    raise ValueError(f"objects or lists are nested more than {_NESTED} deep")
                inner = part if isinstance(part, list) else [*part, *part.values()]
                parts += [(each, levels - 1) for each in inner]
    except (ValueError, RecursionError) as error:  # UnicodeError is a ValueError
        raise UserError(f"{name} is not JSON: {error}{remedy and ': '}{remedy}.") from error
    require_kind(value, kind, name, remedy)
    return value


def _object(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object of a JSON text; one that has a field twice is a ValueError."""
    value = dict(fields)
    if len(value) < len(fields):
        names = [name for name, _ in fields]
        raise ValueError(f"{max(names, key=names.count)!r} is there twice")
    return value


def require_kind(value: Any, kind: Kind, name: str, remedy: str = "", field: str = "") -> None:
    """Raises the `UserError` "NAME: FIELD must be ..., got ...: REMEDY." for the first wrong field."""
    if isinstance(kind, tuple):
        kind = object if value is None else kind[0]
    shape = type(kind) if isinstance(kind, list | dict) else kind
    shape = int if isinstance(kind, range) else shape
    if type(value) is int and shape in (int, float):
        fits = value in (kind if isinstance(kind, range) else range(-(2**63), 2**63))
    else:
        fits = shape in (type(value), object)
    wrong, parts = "", []
    if not fits:
        limits = f" from {kind[0]} to {kind[-1]}" if isinstance(kind, range) else ""
        shown = json.dumps(value)
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
        wrong = f"must be {_WORDS[shape]}{limits}, got {shown}"
    elif isinstance(kind, list):
        parts = [(part, kind[0], f"{field}[{place}]") for place, part in enumerate(value)]
    elif isinstance(kind, dict):
        required = (n for n in kind if n is not str and not n.endswith("?"))
        wrong = next((f"has no {n}" for n in required if n not in value), "")
        for n, part in value.items():
            its_kind = kind.get(n, kind.get(f"{n}?", kind.get(str, object)))
            parts.append((part, its_kind, f"{field}{field and '.'}{n}"))
    if wrong:
        raise UserError(f"{name}{field and ': '}{field} {wrong}{remedy and ': '}{remedy}.")
    for part, its_kind, place in parts:
        require_kind(part, its_kind, name, remedy, place)


# Errors


@contextlib.contextmanager
def writing(name: PathLike) -> Iterator[None]:
    """Turns an `OSError` inside it into the `UserError` "NAME cannot be written: REASON"."""
    try:
        yield
    except BrokenPipeError:
        raise  # not an error: the reader of a pipe has closed it, and the command ends silently
    except OSError as error:
        raise UserError(f"{name} cannot be written: {error.strerror or error}.") from error


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describes each difference between two records: "num_heads was 4 and is now 2"."""
    return [
        f"{name} was {before.get(name)} and is now {now.get(name)}"
        for name in {**now, **before}
        if before.get(name) != now.get(name)
    ]
