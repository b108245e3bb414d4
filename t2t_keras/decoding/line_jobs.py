"""A result for every line of a text, written as it comes, from where an earlier run stopped."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from t2t_keras.decoding.by_length import Done
from t2t_keras.decoding.line_files import LineOutput
from t2t_keras.decoding.line_progress import LineProgress
from t2t_keras.decoding.source_lines import Line, SourceLines, numbered

Results = Callable[[Iterable[Line], int, Callable[[Done], None], Collection[int]], Iterator[Any]]
"""`results(lines, skip, done, known)`: see `ByLength.results`."""


def write_results(
    results: Results,
    as_text: Callable[[Any], str],
    first_of_window: Callable[[int], int],
    source: SourceLines,
    prefixes: SourceLines | None,
    output: LineOutput,
    progress: LineProgress,
    leave: Callable[[], bool],
) -> bool:
    """Writes the results of the lines that the output does not have yet.

    Args:
        results: makes them.
        as_text: makes a line of one.
        first_of_window: of `ByLength`, which works on whole windows.
        source: the lines.
        prefixes: what goes with them.
        output: where results go, in the order of the lines, after every batch.
        progress: is told how far it is.
        leave: whether to stop, asked after every batch.

    Returns:
        Whether the output is complete.
    """
    there, known = output.lines, output.ahead

    def coming():
        for line in numbered(source, prefixes):
            if line.number <= there or line.number in known:
                progress.skip(1, line.text_bytes)
            yield line

    def done(batch: Done) -> None:
        for number, result in batch.made:
            output.keep(number, as_text(result))
        output.flush()
        progress.update(batch)
        if leave():
            raise _Left

    first = first_of_window(there)
    try:
        lines = itertools.islice(coming(), first, None)
        for number, result in enumerate(results(lines, there - first, done, known), there + 1):
            output.write(known[number] if number in known else as_text(result))
    except _Left:
        return False
    finally:
        progress.end()
    output.complete()
    return True


class _Left(Exception):
    """Leaves the work between two batches."""
