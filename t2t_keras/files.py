"""Files that are there whole or not at all, and files that one process at a time works on."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

# ----------------------------------------------------------------------------
# Files that are there whole or not at all.


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yields the name to write to: what is there becomes `path` when the block ends without an error.

    It is on disk before it gets that name, so a power cut leaves what was there, or all of the new.
    """
    partial = path.with_name(f"{path.name}.{platform.node()}.{os.getpid()}.incomplete")
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


# ----------------------------------------------------------------------------
# Files that only one process at a time works on.


def lock(file: BinaryIO | int, name: str) -> bool:
    """Waits until no other process has locked an open file (or its descriptor), and locks it.

    It stays locked until it is closed.

    Returns:
        False where the file system has no locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"{name}: waiting for another process that is at it", file=sys.stderr, flush=True)
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


def has_name(file: BinaryIO, path: Path) -> bool:
    """Returns whether an open file still has that name: it may have been deleted or replaced."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
