"""Items of about one length worked on together, with results in the order of the items."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

Report = Callable[[str], None]
"""Is told, in one line, what should not pass unnoticed."""


class Done(NamedTuple):
    """What a batch has done."""

    lines: int
    text_bytes: int  # of the lines
    tokens: int  # made, or scored
    made: list[tuple[int, Any]]  # numbers of items and their results


class Work(Protocol):
    """What is done with items: of a line each, with its `number` (from 1) and `text_bytes`."""

    def size(self, item: Any) -> int:
        """The tokens of an item; 0: nothing is done with it."""

    def order(self, item: Any) -> Any:
        """Items are worked on from the smallest of these to the largest."""

    def run(self, items: Sequence[Any], longest: int) -> Sequence[Any]:
        """A result for each item; `longest` is the largest size of the batch they come from."""

    def without(self, item: Any) -> Any:
        """The result of an item with which nothing is done."""

    def tokens(self, result: Any) -> int:
        """How many tokens a result has made or scored."""


class BatchLimits(NamedTuple):
    """How many items are worked on together.

    Args:
        items: of a batch, at most; 0: no limit.
        tokens: items of a batch times the largest size in it, at most; 0: no limit.
        window: items that are sorted together; 0: all.
        fixed: whether results depend on the batches, so that they must be the same again when
            work goes on in the middle of a window.
    """

    items: int = 0
    tokens: int = 0
    window: int = 0
    fixed: bool = False


class ByLength:
    """Sorts items within windows, works on batches of them, and gives results in order.

    A batch that does not fit into memory is halved, and so are, from then on, others as large. An
    item that does not fit alone is left without a result.

    Args:
        work: what is done.
        limits: of batches.
        report: is told about memory.
    """

    def __init__(self, work: Work, limits: BatchLimits, report: Report):
        self.work = work
        self.limits = limits
        self.report = report
        self._fits = float("inf")  # tokens of a batch

    def first_of_window(self, number: int) -> int:
        """The first item of the window that item `number` (from 0) belongs to."""
        return number - number % self.limits.window if self.limits.window else 0

    def results(
        self,
        items: Iterable[Any],
        skip: int = 0,
        done: Callable[[Done], None] | None = None,
        known: Collection[int] = (),
    ) -> Iterator[Any]:
        """Yields the result of every item but the first `skip`, as soon as none before is missing.

        Args:
            items: in any order of length. They are taken a window at a time.
            skip: results that are not wanted.
            done: called after every batch, when what it made ready has been yielded.
            known: numbers of items whose results are not needed: nothing is done with them.
        """
        for window in windows(items, self.limits.window):
            yield from self._results_of_window(window, min(skip, len(window)), done, known)
            skip -= min(skip, len(window))

    def _results_of_window(self, items, skip, done, known):
        coming = iter(range(skip, len(items)))
        needed = {
            i
            for i in range(skip, len(items))
            if self.work.size(items[i]) and items[i].number not in known
        }
        results = {
            i: self.work.without(items[i]) for i in range(skip, len(items)) if i not in needed
        }
        awaited = next(coming, None)
        for batch in [[], *self._batches(items, needed)]:
            rows = [items[i] for i in batch]
            made = self._run(rows, max(map(self.work.size, rows))) if batch else []
            results.update((i, r) for i, r in zip(batch, made, strict=True) if i in needed)
            while awaited in results:
                yield results.pop(awaited)
                awaited = next(coming, None)
            if batch and done:
                done(
                    Done(
                        lines=len(rows),
                        text_bytes=sum(item.text_bytes for item in rows),
                        tokens=sum(map(self.work.tokens, made)),
                        made=[(item.number, r) for item, r in zip(rows, made, strict=True)],
                    )
                )

    def _batches(self, items, needed) -> list[list[int]]:
        sizes = {i: self.work.size(item) for i, item in enumerate(items)}
        rows = [i for i, size in sizes.items() if i in needed or (size and self.limits.fixed)]
        rows.sort(key=lambda i: self.work.order(items[i]))
        batches = plan([(i, sizes[i]) for i in rows], self.limits)
        return [batch for batch in batches if not needed.isdisjoint(batch)]

    def _run(self, items, longest):
        """Works on a batch, or, where memory does not hold it, on its halves."""
        size = max(map(self.work.size, items))
        if len(items) == 1 or len(items) * size <= self._fits:
            try:
                return list(self.work.run(items, longest))
            except (tf.errors.ResourceExhaustedError, MemoryError):
                pass  # leaves what the failed batch holds before trying again
            if len(items) == 1:
                self.report(f"line {items[0].number} does not fit into memory: it is left out")
                return [self.work.without(items[0])]
            self._fits = size * (len(items) // 2)
            self.report(
                f"{len(items)} sentences of up to {size} tokens do not fit into memory: "
                "halved, as all batches of that size from now on"
            )
        middle = (len(items) + 1) // 2
        return [*self._run(items[:middle], longest), *self._run(items[middle:], longest)]


def windows(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Lists of `size` items, the last one shorter; 0: one list of all."""
    items = iter(items)
    while window := list(itertools.islice(items, size or None)):
        yield window


def plan(sizes: Iterable[tuple[int, int]], limits: BatchLimits) -> list[list[int]]:
    """Cuts (item, size) pairs into batches of items, in their order."""
    batches: list[list[int]] = []
    longest = 0
    for item, size in sizes:
        batch = batches[-1] if batches else []
        longest = max(longest, size)
        full = limits.items and len(batch) == limits.items
        too_large = limits.tokens and (len(batch) + 1) * longest > limits.tokens
        if not batch or full or too_large:
            batches.append([])
            longest = size
        batches[-1].append(item)
    return batches
