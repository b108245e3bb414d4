"""Work in other processes: in order, a little ahead, and gone when the parent is."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import Any, TypeVar

from t2t_keras.errors import UserError

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
