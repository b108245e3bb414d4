"""Serialised examples from anywhere in the shards of a split."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from t2t_keras.data.generation.records import FOOTER_BYTES, HEADER_BYTES, Lists, frame
from t2t_keras.data.index import SplitIndex
from t2t_keras.errors import UserError


class StoredExamples:
    """Reads examples by their numbers.

    An example's checksums are checked when it is read for the first time. Shards are opened when
    they are needed and stay open. Several threads may read at once, and the files are waited
    for without Python's lock. About 7 bytes an example are kept in memory.

    Args:
        index: of the split.
    """

    def __init__(self, index: SplitIndex):
        self._files: dict[int, int] = {}
        self.paths = index.paths
        self._first = np.concatenate([[0], np.cumsum(index.counts)])
        self._places = _narrow(index.offsets - HEADER_BYTES)
        self._sizes = _narrow(index.sizes + (HEADER_BYTES + FOOTER_BYTES))
        self._checked = np.zeros(len(index.sizes), bool)
        self._lock = threading.Lock()

    def read(self, rows: np.ndarray) -> list[bytes]:
        """Returns the serialised examples of some rows.

        Raises:
            UserError: one cannot be read, or is not what was written; shard and example are named.
        """
        shards = np.searchsorted(self._first, rows, side="right") - 1
        places, sizes = self._places[rows].tolist(), self._sizes[rows].tolist()
        try:
            files = {shard: self._file(shard) for shard in set(shards.tolist())}
            framed = [
                os.pread(files[shard], size, place)
                for shard, place, size in zip(shards.tolist(), places, sizes, strict=True)
            ]
        except OSError as error:
            path = self.paths[shards[0]]
            raise UserError(
                f"The shards at {path.parent} cannot be read ({error.strerror}): see that "
                "they are there, and that as many files may be open (ulimit -n)."
            ) from error
        new = ~self._checked[rows]
        if new.any():
            self._check(rows[new], [framed[i] for i in np.flatnonzero(new)])
        return [record[HEADER_BYTES:-FOOTER_BYTES] for record in framed]

    def place(self, row: int) -> tuple[Path, int]:
        """Returns the shard of an example and its number there, from 1."""
        shard = int(np.searchsorted(self._first, row, side="right")) - 1
        return self.paths[shard], row - int(self._first[shard]) + 1

    def __del__(self):
        for file in self._files.values():
            os.close(file)

    def _file(self, shard: int) -> int:
        with self._lock:
            if shard not in self._files:
                self._files[shard] = os.open(self.paths[shard], os.O_RDONLY)
            return self._files[shard]

    def _check(self, rows: np.ndarray, framed: Sequence[bytes]) -> None:
        """Compares records with what they would be if they were written now."""
        parts = [record[HEADER_BYTES:-FOOTER_BYTES] for record in framed]
        lengths = np.array([len(part) for part in parts], np.int64)
        content = Lists(np.frombuffer(b"".join(parts), np.uint8), lengths)
        expected = frame(content)
        if expected.values.tobytes() != b"".join(framed):
            starts = expected.starts
            for number, (row, record) in enumerate(zip(rows.tolist(), framed, strict=True)):
                if expected.values[starts[number] : starts[number + 1]].tobytes() != record:
                    raise self._damaged(row)
        self._checked[rows] = True

    def _damaged(self, row: int) -> UserError:
        path, number = self.place(row)
        return UserError(
            f"Example {number} of the shard {path} is damaged: copy the shard again, or delete the "
            "shards of its split and run t2t-keras-datagen again."
        )


def _narrow(column: np.ndarray) -> np.ndarray:
    return column.astype(np.min_scalar_type(int(column.max(initial=0))))
