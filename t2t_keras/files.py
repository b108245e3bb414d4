"""Atomic writing, locks against a second writer, and JSON that is checked when read."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import itertools
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
    """Yields a temporary path; on exit, the file or directory written there is renamed to `path`.

    After a kill, a full disk or a power cut, `path` is either unchanged or completely new.

    Args:
        path: the final path. A directory can only replace an empty one.
        suffix: suffix of the temporary name.
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
    """Flushes finished files or directories to disk, then renames them.

    Args:
        names: temporary -> final name, in the order of renaming. The last file of a set must be the
            one that readers look for; the others must not replace files that its old version names.
    """
    for partial in names:
        for folder, _, files in os.walk(partial):
            for name in [*files, ""]:  # the folder itself comes last
                _sync(Path(folder, name))
        if not partial.is_dir():
            _sync(partial)
    *others, last = names
    for step in (others, [last]):
        for partial in step:
            os.replace(partial, names[partial])
        for directory in {names[partial].parent for partial in step}:
            _sync(directory)


_TOGETHER = ".together.json"


def publish_together(directory: Path, names: Mapping[str, str]) -> None:
    """Renames finished files of a directory; readers find all of the old files or all of the new.

    The list of names is written before the first file is renamed. If the process is killed in
    between, a reader finishes its work: see `finish_publishing`.

    Args:
        directory: the directory of all the files.
        names: final -> temporary name, which no other process may use; "" removes the file.
    """
    for partial in filter(None, names.values()):
        _sync(directory / partial)
    write_json(directory / _TOGETHER, names)
    finish_publishing(directory)


def finish_publishing(directory: str | os.PathLike) -> None:
    """Finishes an interrupted `publish_together`; call it before reading the directory's files."""
    record = Path(directory, _TOGETHER)
    if not record.exists():
        return
    names = read_json(record, {str: str})
    for name in (*names, *filter(None, names.values())):
        if not name or "/" in name or "\0" in name:
            raise UserError(f"{record} names {name!r}, which is not a file of its directory.")
    with writing(directory):
        for final, partial in names.items():
            with contextlib.suppress(FileNotFoundError):  # already done, perhaps by another reader
                if partial:
                    os.replace(record.with_name(partial), record.with_name(final))
                else:
                    os.remove(record.with_name(final))
        _sync(record.parent)
        record.unlink(missing_ok=True)


def is_publishing(directory: str | os.PathLike) -> bool:
    """Returns True if a `publish_together` in the directory is unfinished."""
    return Path(directory, _TOGETHER).exists()


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


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes a UTF-8 file atomically.

    Raises:
        UserError: it cannot be written; an old file is unchanged.
    """
    with writing(path), atomic_write(path) as partial:
        partial.write_text(text, "utf-8")


def write_json(path: str | os.PathLike, value: Mapping[str, Any]) -> None:
    """Writes an object as JSON with sorted keys; see `write_text`."""
    write_text(path, json_text(value))


def json_text(value: Mapping[str, Any]) -> str:
    """Returns an object as JSON text with sorted keys."""
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def is_special(path: str) -> bool:
    """Returns True for pipes and devices, which a finished file must not replace.

    /dev/stdout is one even if it leads to a file: it is a link, and the link would be replaced.
    """
    if os.path.abspath(path).startswith(("/dev/", "/proc/")):
        return not os.path.abspath(path).startswith("/dev/shm/")
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


# One writer at a time


def lock(
    file: BinaryIO | int, name: str, before_waiting: Callable[[], object] = lambda: None
) -> bool:
    """Locks an open file (or its descriptor) against other processes until it is closed.

    Args:
        file: the file or directory.
        name: what is written, for the message that another process is writing it.
        before_waiting: called if it has to wait; it may raise instead.

    Returns:
        False if the file system has no locks.
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
    directory: str | os.PathLike, before_waiting: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Locks a directory against other processes that lock it; see `lock`."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        lock(descriptor, str(directory), before_waiting)
        yield
    finally:
        os.close(descriptor)


def open_locked(path: str | os.PathLike, name: str) -> BinaryIO:
    """Opens a file for appending and locks it; creates it if absent.

    The process that held the lock may have renamed or removed the file: then it opens a new one.
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


@contextlib.contextmanager
def locked_name(path: str | os.PathLike) -> Iterator[None]:
    """Locks a file or directory that need not exist, through PATH.lock; see `lock`."""
    with open_locked(f"{path}.lock", str(path)) as file:
        yield
        os.remove(file.name)


def has_name(file: BinaryIO, path: Path) -> bool:
    """Returns False if an open file has been removed from `path` or replaced there."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


# Reading JSON


Kind = Any
"""The kind that a JSON value must have.

A type: `bool`, `str`, `int` (64 bits), `float` (or an integer), `list`, `dict`, or `datetime` for
"2026-11-22T20:15:00+00:00"; or a `range` of integers.
`[kind]`: a list of that kind.
`{"name": kind, "name?": kind, str: kind}`: an object with a required field, an optional field, and
any others of the last kind; without `str` the others may be anything.
`(kind, None)`: one of several kinds; None is null.
"""

_WORDS: dict[Any, str] = {
    bool: "true or false",
    str: "a string",
    int: "an integer",
    float: "a number",
    list: "a list",
    dict: "an object",
    datetime.datetime: "a time such as 2026-01-31T12:00:00+00:00",
    None: "null",
}
_INT64 = range(-(2**63), 2**63)
_SHOWN = 60  # characters of a wrong value in its error
_NESTED = 100  # maximum depth of objects and lists


def read_json(path: str | os.PathLike, kind: Kind = dict, remedy: str = "") -> Any:
    """Reads a JSON file and checks the kinds of its values.

    Args:
        path: the file.
        kind: see `Kind`.
        remedy: what the user can do about an error, such as "remove it to continue".

    Raises:
        UserError: it cannot be read, is not JSON, or a field is missing or of the wrong kind.
    """
    return parse_json(_content(path), kind, str(path), remedy)


def read_json_lines(path: str | os.PathLike, kind: Kind = dict, remedy: str = "") -> list[Any]:
    """Reads a file with one JSON value per line; see `read_json`."""
    lines = enumerate(_content(path).splitlines(), 1)
    return [parse_json(line, kind, f"{path}, line {number}", remedy) for number, line in lines]


def _content(path: str | os.PathLike) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', error)}.") from error


def parse_json(text: str | bytes, kind: Kind, name: str, remedy: str = "") -> Any:
    """Parses and checks a JSON text, which errors call `name`; see `read_json`."""
    try:
        value = json.loads(text.decode("utf-8") if isinstance(text, bytes) else text)
        _require_plain(value)
    except (ValueError, RecursionError) as error:  # UnicodeError is a ValueError
        raise UserError(f"{name} is not JSON: {error}{remedy and ': '}{remedy}.") from error
    require_kind(value, kind, name, remedy)
    return value


def require_kind(value: Any, kind: Kind, name: str, remedy: str = "") -> None:
    """Raises a `UserError` that names the first field of the wrong kind in a JSON value."""
    if wrong := _wrong(value, kind):
        raise UserError(f"{name}{wrong}{remedy and ': '}{remedy}.")


def _require_plain(value: Any) -> None:
    """Raises a `ValueError` for strings that UTF-8 cannot encode and for too deep nesting."""
    level = [value]
    for _ in range(_NESTED):
        level = [
            part
            for whole in level
            if isinstance(whole, dict | list)
            for part in (itertools.chain(*whole.items()) if isinstance(whole, dict) else whole)
        ]
        for text in level:
            if isinstance(text, str):
                text.encode("utf-8")  # fails for half of a surrogate pair
    if level:
        raise ValueError(f"objects or lists are nested more than {_NESTED} deep")


def _wrong(value: Any, kind: Kind, field: str = "") -> str:
    """Describes the first wrong value, ": starts[0].host must be a string, got 5", or returns ""."""
    if isinstance(kind, tuple):
        errors = [_wrong(value, one, field) for one in kind]
        return "" if "" in errors else errors[0]
    if isinstance(kind, list) and isinstance(value, list):
        parts = [(part, kind[0], f"{field}[{place}]") for place, part in enumerate(value)]
    elif isinstance(kind, dict) and isinstance(value, dict):
        named = {name.removesuffix("?"): one for name, one in kind.items() if name is not str}
        for name in named:
            if name in kind and name not in value:
                return f"{field and ': '}{field} has no {name}"
        dot, other = field and ".", kind.get(str, object)
        parts = [(part, named.get(n, other), f"{field}{dot}{n}") for n, part in value.items()]
    elif _is_of_kind(value, kind):
        return ""
    else:
        return f"{field and ': '}{field} must be {_words(kind)}, got {_shown(value)}"
    return next(filter(None, (_wrong(*part) for part in parts)), "")


def _is_of_kind(value: Any, kind: Kind) -> bool:
    if kind is None:
        return value is None
    if kind is int:
        kind = _INT64
    if isinstance(kind, range):
        return type(value) is int and value in kind
    if kind is float:
        return type(value) is float or _is_of_kind(value, int)
    if kind is datetime.datetime:
        with contextlib.suppress(ValueError, TypeError):
            return kind.fromisoformat(value).tzinfo is not None
        return False
    return isinstance(value, type(kind) if isinstance(kind, list | dict) else kind)


def _words(kind: Kind) -> str:
    if isinstance(kind, range):
        return f"an integer from {kind.start} to {kind.stop - 1}"
    return _WORDS[type(kind) if isinstance(kind, list | dict) else kind]


def _shown(value: Any) -> str:
    shown = json.dumps(value)
    return shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."


# Errors


@contextlib.contextmanager
def writing(name: str | os.PathLike) -> Iterator[None]:
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
        for name in [*now, *(name for name in before if name not in now)]
        if before.get(name) != now.get(name)
    ]
