"""A result for every line of a text, written as it comes, from where an earlier run stopped."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

from t2t_keras.decoding.by_length import Done
from t2t_keras.decoding.line_files import LineOutput
from t2t_keras.decoding.line_progress import LineProgress
from t2t_keras.decoding.source_lines import Line, SourceLines, numbered

Results = Callable[[Iterable[Line], int, Callable[[Done], None]], Iterator[str]]
"""`results(lines, skip, done)`: see `ByLength.results`."""


def write_results(
    results: Results,
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
        first_of_window: of `ByLength`, which works on whole windows.
        source: the lines.
        prefixes: what goes with them.
        output: where results go, in the order of the lines, after every batch.
        progress: is told how far it is.
        leave: whether to stop, asked after every batch.

    Returns:
        Whether the output is complete.
    """
    there = output.lines

    def coming():
        for line in numbered(source, prefixes):
            if line.number <= there:
                progress.skip(1, line.text_bytes)
            yield line

    def done(batch: Done) -> None:
        output.flush()
        progress.update(batch)
        if leave():
            raise _Left

    first = first_of_window(there)
    try:
        for text in results(itertools.islice(coming(), first, None), there - first, done):
            output.write(text)
    except _Left:
        return False
    finally:
        progress.end()
    output.complete()
    return True


class _Left(Exception):
    """Leaves the work between two batches."""
