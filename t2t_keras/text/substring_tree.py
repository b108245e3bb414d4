"""The frequent substrings of many tokens, as a tree in arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

# Where so few keys are possible for each that occurs, counting all is faster than sorting.
_FEW_KEYS = 8


class SubstringTree:
    """The characters of a text, and its substrings that occur at least `min_count` times.

    A node is a substring; its parent lacks the last character. Nodes are ordered by length. N is the
    number of nodes, P the length of the text; the arrays of counts are [N] int64.
    """

    def __init__(self, text: str, weights: np.ndarray, max_length: int, min_count: int):
        """Finds the substrings.

        Args:
            text: tokens one behind the other. Each ends in "_", which stands nowhere else; no
                substring goes beyond.
            weights: [P] int64, what a substring that starts at this character counts.
            max_length: substrings are not longer.
            min_count: at least 1.
        """
        self.min_count = min_count
        self._text = text
        self._weights = weights
        characters = _numbered(text)
        alphabet_size = int(characters.max()) + 1
        token_end = characters[-1]

        self._deepest = np.empty(len(text), np.int32)  # [P] the longest node that starts here
        self._levels: list[slice] = []  # the nodes of length 1, 2, ...
        parents, places = [], []
        # Occurrences of nodes of one length: [n] where they start, [n] their nodes within the level.
        at, nodes = np.arange(len(text)), characters
        first, stop = 0, alphabet_size
        level_parents = np.full(alphabet_size, -1)
        while True:
            self._levels.append(slice(first, stop))
            self._deepest[at] = first + nodes
            parents.append(level_parents)
            level_places = np.empty(stop - first, np.int64)
            level_places[nodes] = at
            places.append(level_places)

            length = len(self._levels)
            goes_on = characters[at + length - 1] != token_end
            at, nodes = at[goes_on], nodes[goes_on]
            if length >= max_length or not len(at):
                break
            bound = (stop - first) * alphabet_size
            integers = np.int32 if bound < 2**31 else np.int64
            keys = nodes.astype(integers) * alphabet_size + characters[at + length]
            frequent, kept, nodes = _number_frequent(keys, bound, weights[at], min_count)
            at = at[kept]
            level_parents = first + frequent // alphabet_size
            first, stop = stop, stop + len(frequent)
        self._parents = np.concatenate(parents)  # [N]
        self._places = np.concatenate(places)  # [N] a place where it occurs

    def count(self, places: np.ndarray) -> np.ndarray:
        """Returns how often each substring starts at `places`: [n] int64, all different."""
        counts = np.bincount(
            self._deepest[places], self._weights[places], minlength=len(self._parents)
        ).astype(np.int64)
        for level, above in self._upwards():
            counts[above] += self._sums(level, above, counts[level])
        return counts

    def select(self, counts: np.ndarray, min_count: int) -> tuple[np.ndarray, np.ndarray]:
        """Keeps frequent substrings, longest first, each taking its count off its prefixes.

        Args:
            counts: how often each substring occurs.
            min_count: what is left of a count must be as much.

        Returns:
            [N] bool, whether it is kept, false for single characters; and what is left of the counts.
        """
        left = counts.copy()
        taken = np.zeros_like(counts)
        kept = np.zeros(len(counts), bool)
        for level, above in self._upwards():
            left[level] -= taken[level]
            kept[level] = left[level] >= min_count
            taken[above] = self._sums(level, above, taken[level] + left[level] * kept[level])
        left[self._levels[0]] -= taken[self._levels[0]]
        return kept, left

    def longest(self, kept: np.ndarray) -> np.ndarray:
        """Returns the length of the longest kept substring, or character, at each place: [P]."""
        lengths = np.ones(len(kept), np.int32)
        for length, level in enumerate(self._levels[1:], start=2):
            lengths[level] = np.where(kept[level], length, lengths[self._parents[level]])
        return lengths[self._deepest]

    def substrings(self, nodes: np.ndarray) -> list[str]:
        """Returns the substrings of nodes, [n]."""
        lengths = np.searchsorted([level.stop for level in self._levels], nodes, "right") + 1
        starts = self._places[nodes]
        return [
            self._text[start:stop]
            for start, stop in zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
        ]

    @property
    def characters(self) -> np.ndarray:
        """The nodes of single characters."""
        return np.arange(self._levels[0].stop)

    def _upwards(self) -> Iterator[tuple[slice, slice]]:
        """Each level with the one above, the longest substrings first."""
        return zip(self._levels[:0:-1], self._levels[-2::-1], strict=True)

    def _sums(self, level: slice, above: slice, values: np.ndarray) -> np.ndarray:
        """Sums values of the nodes of a level by their parents."""
        parents = self._parents[level] - above.start
        return np.bincount(parents, values, minlength=above.stop - above.start).astype(np.int64)


def _numbered(text: str) -> np.ndarray:
    """The characters as numbers from 0 on, in the order of their code points: [P] int32."""
    code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    occurs = np.zeros(int(code_points.max()) + 1, bool)
    occurs[code_points] = True
    return (np.cumsum(occurs, dtype=np.int32) - 1)[code_points]


def _number_frequent(
    keys: np.ndarray, bound: int, weights: np.ndarray, min_count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers the keys that occur at least `min_count` times.

    Args:
        keys: [n] integers, below `bound`.
        bound: how many keys are possible.
        weights: [n] int64, what each counts.
        min_count: at least 1.

    Returns:
        The frequent keys [k]; whether each of the given keys is frequent [n]; and the numbers of those
        that are.
    """
    if bound <= _FEW_KEYS * len(keys):
        distinct, inverse = np.arange(bound), keys
    else:
        distinct, inverse = np.unique(keys, return_inverse=True)
    frequent = np.bincount(inverse, weights, minlength=len(distinct)) >= min_count
    kept = frequent[inverse]
    numbers = np.cumsum(frequent, dtype=np.int32) - 1
    return distinct[frequent], kept, numbers[inverse[kept]]
