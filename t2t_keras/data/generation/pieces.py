"""Encoded text on its way to the shards: thousands of examples a file, laid out by shard.

A piece is a line of JSON that says what follows, then for each shard its examples: for each field the
lengths of all of them, then their values.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from t2t_keras.data.generation.records import Lists
from t2t_keras.whole_file import whole_file

_LENGTHS = np.dtype("<u4")


def write_piece(path: Path, fields: Mapping[str, Lists], shard_of_row: np.ndarray, shards: int):
    """Writes a piece.

    Args:
        path: where.
        fields: the examples.
        shard_of_row: [N], the shard that each example goes to.
        shards: their number.
    """
    order = np.argsort(shard_of_row, kind="stable")
    bounds = np.searchsorted(shard_of_row[order], np.arange(shards + 1)).tolist()
    types = {name: _smallest_type(lists.values) for name, lists in fields.items()}
    fields = {name: lists.take(order) for name, lists in fields.items()}
    segments = []
    for first, last in itertools.pairwise(bounds):
        parts = []
        for name, lists in fields.items():
            start, end = lists.starts[[first, last]]
            parts.append(lists.lengths[first:last].astype(_LENGTHS).tobytes())
            parts.append(lists.values[start:end].astype(types[name]).tobytes())
        segments.append(b"".join(parts))
    header = {
        "types": {name: dtype.str for name, dtype in types.items()},
        "rows": np.diff(bounds).tolist(),
        "bytes": [len(segment) for segment in segments],
    }
    with whole_file(path) as partial, partial.open("wb") as file:
        file.write(json.dumps(header).encode() + b"\n")
        file.writelines(segments)


def read_segment(paths: Sequence[Path], shard: int) -> dict[str, Lists]:
    """Returns the examples of a shard that are in some pieces, in the order of these."""
    parts: dict[str, list[Lists]] = {}
    for path in paths:
        with path.open("rb") as file:
            header = json.loads(file.readline())
            file.seek(sum(header["bytes"][:shard]), 1)
            for name, dtype in header["types"].items():
                lengths = _read(file, _LENGTHS, header["rows"][shard])
                values = _read(file, np.dtype(dtype), int(lengths.sum()))
                parts.setdefault(name, []).append(Lists(values, lengths))
    return {
        name: Lists(
            np.concatenate([lists.values for lists in pieces]),
            np.concatenate([lists.lengths for lists in pieces]).astype(np.int64),
        )
        for name, pieces in parts.items()
    }


def _read(file, dtype: np.dtype, count: int) -> np.ndarray:
    return np.frombuffer(file.read(dtype.itemsize * count), dtype, count)


def _smallest_type(values: np.ndarray) -> np.dtype:
    if values.min(initial=0) < 0:
        return np.dtype("<i8")
    return np.dtype(np.min_scalar_type(int(values.max(initial=0)))).newbyteorder("<")
