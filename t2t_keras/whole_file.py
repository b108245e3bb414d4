"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path


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
