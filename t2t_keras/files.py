"""Files: written whole or not at all, by one writer at a time; JSON of the shape that is expected."""

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


_TOGETHER = ".together.json"


def publish_together(directory: Path, names: Mapping[str, str]) -> None:
    """Renames finished files of a directory; readers find all of the old ones, or all of the new.

    The names are on disk before the first is renamed, so that a reader can do what a process that was
    killed has left undone: see `finish_publishing`.

    Args:
        directory: of all the files.
        names: final -> temporary name, one that no other process uses; "": the file is to be removed.
    """
    for partial in filter(None, names.values()):
        _sync(directory / partial)
    write_json(directory / _TOGETHER, names)
    finish_publishing(directory)


def finish_publishing(directory: str | os.PathLike) -> None:
    """Ends what `publish_together` has begun in a directory; whoever reads its files calls it first."""
    record = Path(directory, _TOGETHER)
    if not record.exists():
        return
    names = read_json(record, {str: str})
    for name in (*names, *filter(None, names.values())):
        if not name or "/" in name or "\0" in name:
            raise UserError(f"{record} names {name!r}, which is no file of its directory.")
    with writing(directory):
        for final, partial in names.items():
            with contextlib.suppress(FileNotFoundError):  # done already, maybe by another reader
                if partial:
                    os.replace(record.with_name(partial), record.with_name(final))
                else:
                    os.remove(record.with_name(final))
        _sync(record.parent)
        record.unlink(missing_ok=True)


def is_publishing(directory: str | os.PathLike) -> bool:
    """Returns True if what `publish_together` has begun there is not yet done."""
    return Path(directory, _TOGETHER).exists()


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
    write_text(path, json_text(value))


def json_text(value: Mapping[str, Any]) -> str:
    """Returns an object as the text of a file of JSON, its keys sorted."""
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


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


@contextlib.contextmanager
def locked_name(path: str | os.PathLike) -> Iterator[None]:
    """Keeps other processes from writing a file or directory, which need not be there; see `lock`."""
    with open_locked(f"{path}.lock", str(path)) as file:
        yield
        os.remove(file.name)


def has_name(file: BinaryIO, path: Path) -> bool:
    """Returns True if an open file still has that name: it may have been removed or replaced."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


# JSON that is read


Kind = Any
"""What a value of JSON must be.

A type: `bool`, `str`, `int` (of 64 bits), `float` (an integer, too), `list`, `dict`, or `datetime` for
"2026-11-22T20:15:00+00:00"; or a `range` of integers.
`[kind]`: a list of it.
`{"name": kind, "name?": kind, str: kind}`: an object with a field, with one that may be absent, and with
others; without `str` the others may be anything.
`(kind, None)`: one of several; None is null.
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
_SHOWN = 60  # characters of a wrong value
_NESTED = 100  # objects and lists in each other, at most


def read_json(path: str | os.PathLike, kind: Kind = dict, remedy: str = "") -> Any:
    """Reads a file of JSON whose values are of given kinds.

    Args:
        path: of the file.
        kind: see `Kind`.
        remedy: what the user can do about an error, such as "remove it to go on".

    Raises:
        UserError: it cannot be read, is not JSON, or a field is absent or of another kind.
    """
    return parse_json(_content(path), kind, str(path), remedy)


def read_json_lines(path: str | os.PathLike, kind: Kind = dict, remedy: str = "") -> list[Any]:
    """Reads a file with a JSON value in every line; see `read_json`."""
    lines = enumerate(_content(path).splitlines(), 1)
    return [parse_json(line, kind, f"{path}, line {number}", remedy) for number, line in lines]


def _content(path: str | os.PathLike) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', error)}.") from error


def parse_json(text: str | bytes, kind: Kind, name: str, remedy: str = "") -> Any:
    """Returns the value of a JSON text; `name` says in errors where it is from. See `read_json`."""
    try:
        value = json.loads(text.decode("utf-8") if isinstance(text, bytes) else text)
        _require_plain(value)
    except (ValueError, RecursionError) as error:  # UnicodeError is a ValueError
        raise UserError(f"{name} is not JSON: {error}{remedy and ': '}{remedy}.") from error
    require_kind(value, kind, name, remedy)
    return value


def require_kind(value: Any, kind: Kind, name: str, remedy: str = "") -> None:
    """Raises a `UserError` that names the first field of a value of JSON that is of another kind."""
    if wrong := _wrong(value, kind):
        raise UserError(f"{name}{wrong}{remedy and ': '}{remedy}.")


def _require_plain(value: Any) -> None:
    """Raises a `ValueError` for a value that cannot be written or shown again."""
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
                text.encode("utf-8")  # half of a surrogate pair is no character
    if level:
        raise ValueError(f"more than {_NESTED} objects or lists are in each other")


def _wrong(value: Any, kind: Kind, field: str = "") -> str:
    """Describes the first value of another kind: ": starts[0].host must be a string, got 5"; or ""."""
    if isinstance(kind, tuple):
        told = [_wrong(value, one, field) for one in kind]
        return "" if "" in told else told[0]
    if isinstance(kind, list) and isinstance(value, list):
        parts = [(part, kind[0], f"{field}[{place}]") for place, part in enumerate(value)]
    elif isinstance(kind, dict) and isinstance(value, dict):
        named = {name.removesuffix("?"): of for name, of in kind.items() if name is not str}
        for name in named:
            if name in kind and name not in value:
                return f"{field and ': '}{field} has no {name}"
        dot, other = field and ".", kind.get(str, object)
        parts = [(part, named.get(n, other), f"{field}{dot}{n}") for n, part in value.items()]
    elif _is(value, kind):
        return ""
    else:
        return f"{field and ': '}{field} must be {_words(kind)}, got {_shown(value)}"
    return next(filter(None, (_wrong(*part) for part in parts)), "")


def _is(value: Any, kind: Kind) -> bool:
    if kind is None:
        return value is None
    if kind is int:
        kind = _INT64
    if isinstance(kind, range):
        return type(value) is int and value in kind
    if kind is float:
        return type(value) is float or _is(value, int)
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
