"""How tensor2tensor finds a subword vocabulary of a wanted size.

For one minimum count, four rounds: cut every token with the vocabulary of the round before (single
characters at first), count every substring that starts at a cut, and keep what is frequent enough
once the occurrences inside longer kept subtokens are taken off. The minimum count is then bisected.

All of this happens on arrays: the frequent substrings are the nodes of a tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from t2t_keras.errors import UserError
from t2t_keras.ids import RESERVED_TOKENS
from t2t_keras.text.tokenizer import ESCAPE_CHARACTERS, escape

_ROUNDS = 4
_LOWEST_MIN_COUNT = 1
_HIGHEST_MIN_COUNT = 1000
# A tree for one minimum count serves all higher ones, so each is made for some bisections ahead.
_AHEAD = 8


def build_to_target_size(
    token_counts: Mapping[str, int],
    target_size: int,
    max_subtoken_length: int | None = None,
    reserved_tokens: Sequence[str] | None = None,
) -> list[str]:
    """Returns a vocabulary whose size is near `target_size` (T2T: `build_to_target_size`).

    Args:
        token_counts: how often each token occurs.
        target_size: the wanted number of subtokens.
        max_subtoken_length: subtokens have fewer characters than this.
        reserved_tokens: what gets the first ids, `<pad>` and `<EOS>` leading.

    Returns:
        The subtokens in the order of their ids: reserved ones, then by falling count, then by
        falling string.

    Raises:
        UserError: no token, a size below 1, or other reserved tokens in front.
    """
    reserved = tuple(reserved_tokens or RESERVED_TOKENS)
    if target_size < 1:
        raise UserError(f"The wanted vocabulary size is {target_size}; it must be at least 1.")
    if reserved[: len(RESERVED_TOKENS)] != RESERVED_TOKENS:
        raise UserError(
            f"The reserved tokens are {', '.join(reserved)}; "
            f"they must begin with {', '.join(RESERVED_TOKENS)}."
        )
    if not token_counts:
        raise UserError("There is no text to build a vocabulary from; give lines with words.")
    corpus = _Corpus(token_counts, reserved, max_subtoken_length)

    def distance(counts: Mapping[str, int]) -> int:
        return abs(len(reserved) + len(counts) - target_size)

    tried = []
    low, high = _LOWEST_MIN_COUNT, _HIGHEST_MIN_COUNT
    while True:
        min_count = (low + high) // 2
        counts = corpus.subtoken_counts(min_count)
        tried.append(counts)
        if distance(counts) * 100 < target_size or low >= high or min_count < 2:
            break
        if len(reserved) + len(counts) > target_size:
            low = min_count + 1
        else:
            high = min_count - 1
    best = min(tried, key=distance)
    return corpus.reserved + sorted(best, key=lambda subtoken: (best[subtoken], subtoken))[::-1]


class _Corpus:
    """The tokens of a text, spelled, one behind the other; P characters in all."""

    def __init__(
        self,
        token_counts: Mapping[str, int],
        reserved: Sequence[str],
        max_subtoken_length: int | None,
    ):
        self._alphabet = ESCAPE_CHARACTERS.union(*token_counts, *reserved) - {"\n"}
        self.reserved = [escape(token, self._alphabet) for token in reserved]
        spelled = [escape(token, self._alphabet) for token in token_counts]
        lengths = np.fromiter(map(len, spelled), np.int64, len(spelled))
        counts = np.fromiter(token_counts.values(), np.int64, len(spelled))
        self._text = "".join(spelled)
        self._weights = np.repeat(counts, lengths)  # [P]
        self._ends = np.cumsum(lengths)  # [tokens]
        self._starts = self._ends - lengths  # [tokens]
        self._reserved_lengths = self._find_reserved()
        self._max_length = lengths.max() if max_subtoken_length is None else max_subtoken_length - 1
        if self._max_length < 1:
            self._weights[:] = 0  # nothing is counted, not even single characters
        self._tree: SubstringTree | None = None

    def subtoken_counts(self, min_count: int) -> dict[str, int]:
        """Returns the vocabulary for one minimum count (T2T: `build_from_token_counts`).

        The reserved tokens are left out. The counts are those that decide the order.
        """
        tree = self._tree_for(min_count)
        counts = tree.count(np.arange(len(self._text)))
        for _ in range(_ROUNDS - 1):
            kept, _ = tree.select(counts, min_count)
            counts = tree.count(self._cuts(tree.longest(kept)))
        kept, left = tree.select(counts, min_count)
        kept[tree.characters] = True
        found = tree.substrings(np.flatnonzero(kept))
        subtokens = dict.fromkeys(self._alphabet, 0) | dict(
            zip(found, left[kept].tolist(), strict=True)
        )
        for token in self.reserved:
            subtokens.pop(token, None)
        return subtokens

    def _tree_for(self, min_count: int) -> SubstringTree:
        if self._tree is None or self._tree.min_count > min_count:
            self._tree = None  # frees its memory for the next
            self._tree = SubstringTree(
                self._text, self._weights, self._max_length, max(1, min_count // _AHEAD)
            )
        return self._tree

    def _cuts(self, lengths: np.ndarray) -> np.ndarray:
        """Where subtokens start if each is as long as `lengths`, [P], says for its start."""
        lengths = np.maximum(lengths, self._reserved_lengths)
        cuts = []
        at, ends = self._starts, self._ends
        while len(at):
            cuts.append(at)
            at = at + lengths[at]
            inside = at < ends
            at, ends = at[inside], ends[inside]
        return np.concatenate(cuts)

    def _find_reserved(self) -> np.ndarray:
        """The length of the longest reserved token at each place, 0 where there is none: [P]."""
        lengths = np.zeros(len(self._text), np.int32)
        for token in sorted(self.reserved, key=len):
            for match in re.finditer(f"(?={re.escape(token)})", self._text):
                lengths[match.start()] = len(token)
        return lengths


# ----------------------------------------------------------------------------
# The frequent substrings of many tokens, as a tree in arrays.


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
