"""Files that only one process at a time works on."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path
from typing import BinaryIO


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
