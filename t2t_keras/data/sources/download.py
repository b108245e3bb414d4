"""Downloads of source files: resumable, verified, and atomic (complete or not at all)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO, NamedTuple

from t2t_keras.errors import UserError
from t2t_keras.files import has_name, lock, publish, read_json, require_kind
from t2t_keras.progress import CountProgress

_TIMEOUT_SECONDS = 60
_WAITS = (1, 2, 4, 8)
"""Seconds before each further attempt; starts over whenever more data has arrived."""
_BLOCK = 1 << 18
_TRANSIENT_STATUS = (408, 425, 429, 500, 502, 503, 504)


def fetch(
    url: str, path: str | os.PathLike, *, size: int | None = None, sha256: str | None = None
) -> Path:
    """Downloads `url` to `path` unless that exists; returns `path`.

    The file is kept as `<path>.part` until it is complete. A broken connection is opened again, and a
    later call resumes an interrupted download, unless the server does not support ranges or its file has
    changed. A second process waits for the first.

    Args:
        url: the address of the file.
        path: where to write it; an existing file is used unchanged.
        size: the expected size in bytes; None: the size that the server announces.
        sha256: the expected checksum in hexadecimal; None: not verified.
    """
    path = Path(path)
    if path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _open_part(path) as file:
            if file is not None:
                part = _Part(url, path, file, size)
                part.receive_all()
                part.check(sha256)
                publish({_part_name(path): path})
    except (OSError, HTTPException, ValueError) as error:
        resume = "run again to resume, or " if _part_name(path).exists() else ""
        raise UserError(
            f"{url} could not be downloaded ({error}): {resume}place it by hand as {path}, then run again."
        ) from error
    return path


def megabytes(name: str, total: int | None, done: int = 0) -> CountProgress:
    """Returns the progress of a file of `total` bytes, of which `done` were already present."""
    return CountProgress(name, "MB", total and total / 1e6, done / 1e6)


class _Facts(NamedTuple):
    """The remote file that a partial download belongs to: stored beside it for a later run."""

    url: str
    total: int
    validator: str | None
    """Identifies this version of the file: its ETag, or else its modification time."""


_FACTS = {"url": str, "total": int, "validator": (str, None)}


class _Part:
    """The open and locked file of a partial download."""

    def __init__(self, url: str, path: Path, file: BinaryIO, size: int | None):
        self.url, self.path, self.file, self.size = url, path, file, size

    def receive_all(self) -> None:
        """Receives until the file is complete, over as many connections as necessary."""
        failures, furthest = 0, self._arrived()
        while True:
            try:
                self._receive()
                return
            except (OSError, HTTPException) as error:
                if self._arrived() > furthest:
                    failures, furthest = 0, self._arrived()
                if failures == len(_WAITS) or not _is_transient(
                    error, something_arrived=furthest > 0
                ):
                    raise
                print(f"{self.path.name}: {error}; trying again", file=sys.stderr, flush=True)
                time.sleep(_WAITS[failures])
                failures += 1

    def check(self, sha256: str | None) -> None:
        """Verifies the checksum, if one is given; deletes a wrong file."""
        if sha256 is None:
            return
        digest = hashlib.sha256()
        self.file.seek(0)
        while block := self.file.read(_BLOCK):
            digest.update(block)
        if digest.hexdigest() != sha256:
            self._restart()
            raise ValueError(f"its SHA-256 is {digest.hexdigest()}, expected {sha256}")

    def _receive(self) -> None:
        """Makes one request for the missing bytes and appends them."""
        facts, have = self._facts(), self._arrived()
        if facts is None:
            have = 0
        elif have == facts.total:
            return
        request = urllib.request.Request(self.url)
        if facts and have:
            request.add_header("Range", f"bytes={have}-")
            if facts.validator:
                request.add_header("If-Range", facts.validator)
        with self._open(request) as response:
            if response.status == 206 and not _continues(response, facts, have):
                self._restart()
                raise ConnectionError("the file has changed")
            if response.status != 206:
                have, facts = 0, self._restart(response)
            total = facts.total if facts else None
            progress = megabytes(self.path.name, total, have)
            while block := response.read(_BLOCK):
                self._write(block)
                have += len(block)
                progress.update(have / 1e6)
        self._check_size(total)

    def _open(self, request: urllib.request.Request):
        try:
            return urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
        except urllib.error.HTTPError as error:
            if error.code != 416:  # "range not satisfiable": the file is shorter than the part
                raise
            error.close()
            self._restart()
            raise ConnectionError("the file has changed") from error

    def _restart(self, response=None) -> _Facts | None:
        """Empties the part; stores the facts of the response's file, if the server announces its size."""
        self.file.truncate(0)
        _facts_name(self.path).unlink(missing_ok=True)
        length = response.headers.get("Content-Length") if response else None
        if length is None:
            return None
        if self.size not in (None, int(length)):
            raise ValueError(f"it has {length} bytes, expected {self.size}")
        etag = response.headers.get("ETag", "")
        strong = (
            etag if etag.startswith('"') else None
        )  # a weak ETag does not guarantee equal bytes
        facts = _Facts(self.url, int(length), strong or response.headers.get("Last-Modified"))
        _facts_name(self.path).write_text(json.dumps(facts))
        return facts

    def _write(self, block: bytes) -> None:
        try:
            self.file.write(block)
            self.file.flush()
        except OSError as error:
            raise UserError(
                f"{_part_name(self.path)} cannot be written ({error.strerror}): make room for "
                f"{self.url}, then run again."
            ) from error

    def _check_size(self, total: int | None) -> None:
        have = self._arrived()
        if total is not None and have != total:
            raise ConnectionError(f"the connection broke after {have} bytes of {total}")
        if self.size not in (None, have):
            self._restart()
            raise ValueError(f"it has {have} bytes, expected {self.size}")

    def _arrived(self) -> int:
        return self.file.seek(0, os.SEEK_END)

    def _facts(self) -> _Facts | None:
        """Returns the stored facts of the part; None if absent or those of another file."""
        try:
            facts = _Facts(*read_json(_facts_name(self.path), list))
            require_kind(facts._asdict(), _FACTS, "facts")
        except (UserError, TypeError):  # TypeError: another number of values
            return None
        return facts if facts.url == self.url and self._arrived() <= facts.total else None


def _continues(response, facts: _Facts | None, have: int) -> bool:
    """Returns True if the server sends the rest of the same file."""
    if facts is None:
        return False
    asked = f"bytes {have}-{facts.total - 1}/{facts.total}"
    return response.headers.get("Content-Range", "") == asked


def _is_transient(error: Exception, something_arrived: bool) -> bool:
    if isinstance(error, urllib.error.HTTPError):
        return error.code in _TRANSIENT_STATUS
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, socket.gaierror):  # usually there is no network at all
        return something_arrived
    return isinstance(cause, (HTTPException, ConnectionError, TimeoutError, ssl.SSLError))


@contextlib.contextmanager
def _open_part(path: Path) -> Iterator[BinaryIO | None]:
    """Opens and locks the part of `path`; yields None if another process has completed `path`."""
    while True:
        with open(_part_name(path), "ab+", opener=_open_without_following) as file:
            lock(file, path.name)
            if not path.exists() and not has_name(file, _part_name(path)):
                continue  # the process that held the lock has deleted it
            try:
                yield None if path.exists() else file
            finally:
                if has_name(file, _part_name(path)) and not file.seek(0, os.SEEK_END):
                    _part_name(path).unlink()
                if not _part_name(path).exists():
                    _facts_name(path).unlink(missing_ok=True)
            return


def _open_without_following(path: str, flags: int) -> int:
    """Opens a file unless it is a link, which another user may have put into a shared directory."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _part_name(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _facts_name(path: Path) -> Path:
    return path.with_name(path.name + ".part.json")
