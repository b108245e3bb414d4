"""Text for a vocabulary: so much of a corpus, from all over it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

_MEASURED = 1000


def evenly_spaced(
    every: Callable[[int], Iterable[str]], lines: int, characters: int
) -> Iterator[str]:
    """Yields every k-th line of a text, so that about `characters` come from the whole of it.

    k is chosen by the mean length of the first lines; nothing more is yielded once `characters` are
    reached. A text that is not longer than that is yielded whole.

    Args:
        every: called with k, returns lines k, 2k, 3k, ... of the text, counted from 1.
        lines: the number of lines of the text.
        characters: how many are wanted.
    """
    first = [len(line) for line in islice(every(1), _MEASURED)]
    expected = lines * sum(first) / max(len(first), 1)
    left = characters
    for line in every(max(1, math.ceil(expected / characters))):
        if left <= 0:
            return
        yield line
        left -= len(line)
