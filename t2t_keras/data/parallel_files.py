"""A pair of text files a split, line N of one translating line N of the other."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path

from t2t_keras.data.sources.pair_readers import read_pairs, require_parallel, text_size
from t2t_keras.data.sources.vocabulary_text import evenly_spaced
from t2t_keras.text.lines import iterate_lines

_READ_AT_ONCE = 2**20


class ParallelFiles:
    """Files that are named one by one, plain or `.gz`.

    Args:
        files: the paths of source and target, by split.
    """

    def __init__(self, files: Mapping[str, Sequence[str | os.PathLike]]):
        self.files = {
            split: (Path(source).expanduser(), Path(target).expanduser())
            for split, (source, target) in files.items()
        }

    @property
    def splits(self) -> list[str]:
        """The splits that there are files of."""
        return list(self.files)

    def pairs(self, split: str) -> Iterator[tuple[str, str]]:
        """Yields source and target of each line, stripped.

        Raises:
            UserError: a file cannot be read or is empty, or their numbers of lines differ.
        """
        return read_pairs(*self.files[split])

    def vocabulary_text(self, split: str, characters: int) -> Iterator[str]:
        """Yields so many characters of each file of a split, from evenly spaced lines."""
        require_parallel(*self.files[split])
        for path in self.files[split]:

            def every(k: int, path: Path = path) -> Iterator[str]:
                return (line.strip() for line in islice(iterate_lines(path), k - 1, None, k))

            yield from evenly_spaced(every, text_size(path).lines, characters)

    def description(self, split: str) -> dict:
        """Returns the paths of the files and digests of their contents; see `pairs` for errors."""
        paths = self.files[split]
        require_parallel(*paths)
        identity = [_digest(path, _state(path)) for path in paths]
        return {"from": " and ".join(map(str, paths)), "identity": identity}


def _state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


@lru_cache
def _digest(path: Path, state: tuple[int, int]) -> str:
    """A digest of the contents; `state` is only there so that a changed file is read again."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_READ_AT_ONCE):
            digest.update(block)
    return digest.hexdigest()
