"""Encoded text on its way to the shards: thousands of examples a file, laid out by shard.

A piece is a line of JSON that says what follows, then for each shard its examples: for each field the
lengths of all of them, then their values.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from t2t_keras.data.generation.records import Lists
from t2t_keras.errors import UserError
from t2t_keras.files import atomic_write

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
    with atomic_write(path) as partial, partial.open("wb") as file:
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


# ----------------------------------------------------------------------------
# Work in other processes: in order, a little ahead, and gone when the parent is.


_T = TypeVar("_T")


def run_ordered(
    function: Callable[..., _T],
    arguments: Iterable[tuple],
    processes: int,
    start: Callable[..., None],
    start_arguments: tuple,
) -> Iterator[_T]:
    """Yields `function(*item)` for each item of `arguments`, in their order.

    Items are taken when a process is about to be free, so what waits in memory does not grow with
    their number. A single item, or `processes` = 1, is done in this process.

    Args:
        function: defined at the top of a module, as `start`.
        arguments: what to call it with.
        processes: how many work at once.
        start: is called with `start_arguments` in each process before its first item.

    Raises:
        UserError: a process was killed; or what `function` raises.
    """
    items = iter(arguments)
    first = list(islice(items, 2))
    items = chain(first, items)
    if processes == 1 or len(first) < 2:
        start(*start_arguments)
        for item in items:
            yield function(*item)
        return
    # A fork of a process that runs TensorFlow's threads could hang, so each begins anew.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, _begin, (start, start_arguments))
    waiting: deque[Future] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, *item))
            if len(waiting) > 2 * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise UserError(
            f"One of {processes} processes was killed, perhaps for want of memory: "
            "run again with fewer, see --num_concurrent_processes; what is done is kept."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(start: Callable[..., None], start_arguments: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    start(*start_arguments)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)
