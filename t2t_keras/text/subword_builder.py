"""Builds subword vocabularies of a given size that equal tensor2tensor's, subtoken for subtoken.

For a given minimum count there are four rounds: cut every token with the vocabulary of the previous round
(at first single characters), count every substring that starts at a cut, and keep those that are frequent
enough after subtracting their occurrences inside longer kept subtokens. Bisection finds the minimum count.

All of this works on arrays: the frequent substrings are the nodes of a suffix tree.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from t2t_keras.errors import UserError
from t2t_keras.ids import RESERVED_TOKENS
from t2t_keras.text.lines import require_unique
from t2t_keras.text.tokenizer import ESCAPE_CHARACTERS, escape

_ROUNDS = 4
# A tree for one minimum count serves all higher ones: built for a lower one, it serves the next bisections.
_AHEAD = 8
# T2T has no such limit; its time and memory grow with the square of a token's length.
_LONGEST_SUBTOKEN = 1000
# The first cuts of all tokens are found in parallel; tokens with more cuts than this are finished singly.
_CUTS_SIDE_BY_SIDE = 64
# If at most this many keys are possible per key that occurs, counting all is faster than sorting.
_FEW_KEYS = 8


def build_to_target_size(
    token_counts: Mapping[str, int],
    target_size: int,
    max_subtoken_length: int | None = None,
    reserved_tokens: Sequence[str] | None = None,
    limits: tuple[int, int] = (1, 1000),
) -> list[str]:
    """Returns a vocabulary for the tokens that occur so often (T2T: `build_to_target_size`).

    The arguments are those of `SubwordTextEncoder.build_from_generator`; `limits` bound the minimum
    count. Reserved tokens come first, others by descending count, ties in descending string order.
    """
    reserved = tuple(reserved_tokens or RESERVED_TOKENS)
    if target_size < 1:
        raise UserError(f"The target vocabulary size is {target_size}; it must be at least 1.")
    if reserved[: len(RESERVED_TOKENS)] != RESERVED_TOKENS:
        raise UserError(
            f"The reserved tokens are {', '.join(reserved)}; "
            f"they must begin with {', '.join(RESERVED_TOKENS)}."
        )
    require_unique(reserved, "reserved_tokens", "place")
    if not token_counts:
        raise UserError("There is no text to build a vocabulary from; give lines with words.")
    corpus = _Corpus(token_counts, reserved, max_subtoken_length)

    def distance(counts: Mapping[str, int]) -> int:
        return abs(len(reserved) + len(counts) - target_size)

    tried = []
    low, high = limits
    while True:
        min_count = (low + high) // 2
        counts = corpus.subtoken_counts(min_count)
        tried.append(counts)
        if distance(counts) * 100 < target_size or low >= high or min_count < 2:
            break
        is_larger = len(reserved) + len(counts) > target_size
        low, high = (min_count + 1, high) if is_larger else (low, min_count - 1)
    best = min(tried, key=distance)
    return corpus.reserved + sorted(best, key=lambda subtoken: (best[subtoken], subtoken))[::-1]


class _Corpus:
    """The escaped tokens of a text, concatenated; P characters in total."""

    def __init__(
        self, token_counts: Mapping[str, int], reserved: Sequence[str], max_length: int | None
    ):
        self._alphabet = ESCAPE_CHARACTERS.union(*token_counts, *reserved)
        self.reserved = [escape(token, self._alphabet) for token in reserved]
        spelled = [escape(token, self._alphabet) for token in token_counts]
        lengths = np.fromiter(map(len, spelled), np.int64, len(spelled))
        counts = np.fromiter(token_counts.values(), np.int64, len(spelled))
        self._text = "".join(spelled)
        self._weights = np.repeat(counts, lengths)  # [P]
        self._ends = np.cumsum(lengths)  # [tokens]
        self._starts = self._ends - lengths  # [tokens]
        # [P] the length of the longest reserved token at each position, or 0
        self._reserved_lengths = np.zeros(len(self._text), np.int32)
        for token in sorted(self.reserved, key=len):
            for match in re.finditer(f"(?={re.escape(token)})", self._text):
                self._reserved_lengths[match.start()] = len(token)
        longest = _LONGEST_SUBTOKEN if max_length is None else max_length - 1
        self._max_length = min(longest, int(lengths.max()))
        if self._max_length < 1:
            self._weights[:] = 0  # nothing is counted, not even single characters
        self._tree: SubstringTree | None = None

    def subtoken_counts(self, min_count: int) -> dict[str, int]:
        """Returns the unreserved subtokens and their counts (T2T: `build_from_token_counts`)."""
        tree = self._tree
        if tree is None or tree.min_count > min_count:
            tree = self._tree = None  # frees its memory before the next is built
            tree = self._tree = SubstringTree(
                self._text, self._weights, self._max_length, max(1, min_count // _AHEAD)
            )
        counts = tree.count(np.arange(len(self._text)))
        for _ in range(_ROUNDS - 1):
            kept, _ = tree.select(counts, min_count)
            counts = tree.count(self._cuts(tree.longest(kept)))
        kept, left = tree.select(counts, min_count)
        kept[tree.characters] = True
        found = zip(tree.substrings(np.flatnonzero(kept)), left[kept].tolist(), strict=True)
        subtokens = dict.fromkeys(self._alphabet, 0) | dict(found)
        for token in self.reserved:
            subtokens.pop(token, None)
        return subtokens

    def _cuts(self, lengths: np.ndarray) -> np.ndarray:
        """Returns where subtokens start if a subtoken at position p has length `lengths[p]`; [P]."""
        lengths = np.maximum(lengths, self._reserved_lengths)
        cuts = []
        at, ends = self._starts, self._ends
        for _ in range(_CUTS_SIDE_BY_SIDE):
            cuts.append(at)
            at = at + lengths[at]
            inside = at < ends
            at, ends = at[inside], ends[inside]
        for start, end in zip(at.tolist(), ends.tolist(), strict=True):
            steps = lengths[start:end].tolist()
            place, places = 0, []
            while place < len(steps):
                places.append(place)
                place += steps[place]
            cuts.append(start + np.array(places))
        return np.concatenate(cuts)


class _Branches(NamedTuple):
    """The nodes that branch off from their parents at one length."""

    nodes: slice  # ordered by parent
    starts: np.ndarray  # for each parent, the index within `nodes` of its first child
    parents: np.ndarray  # the parents, each once


class SubstringTree:
    """The suffix tree of a text: its characters, and substrings that occur at least `min_count` times.

    Of several substrings that start at the same positions, only the longest is a node. The others are never
    kept: they have the same count, and the longest subtracts its count from theirs. So a token of n
    characters adds at most 2n nodes. Single characters are always nodes. A node's parent is the longest
    node that is a proper prefix of it. N is the number of nodes, P the length of the text.
    """

    def __init__(self, text: str, weights: np.ndarray, max_length: int, min_count: int):
        """Finds the substrings of at most `max_length` characters; `min_count` is at least 1.

        `text`: the tokens, concatenated. Each ends in "_", which occurs nowhere else; no substring
        extends beyond it. `weights` [P] int64: that of a substring that starts at this position.
        """
        self.min_count, self._text, self._weights = min_count, text, weights
        code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        numbered = np.cumsum(np.bincount(code_points) > 0, dtype=np.int32) - 1  # in their order
        characters, alphabet_size = numbered[code_points], int(numbered[-1]) + 1
        ends = np.flatnonzero(characters == characters[-1]) + 1  # the ends of tokens

        self.characters = np.arange(alphabet_size)  # the nodes of single characters
        self._deepest = characters.copy()  # [P] the longest node that starts here
        self._branches: list[_Branches] = []
        parents = [np.full(alphabet_size, -1)]
        places = [_places_of(characters, np.arange(len(text)), alphabet_size)]
        lengths = np.empty(alphabet_size + 2 * len(text), np.int32)
        lengths[:alphabet_size] = 1
        # The occurrences of substrings of one length: [n] where they start, [n] the number of the
        # substring, from 0; and for each number, [m], the node that it is or is a prefix of.
        at, numbers, nodes = np.arange(len(text)), characters, self.characters
        size = alphabet_size
        for length in range(1, max_length):
            occurrences = np.bincount(numbers, minlength=len(nodes))
            if length > 1:  # a substring that occurs once extends to the end of its token
                once = occurrences[numbers] == 1
                token_ends = ends[np.searchsorted(ends, at[once], "right")]
                lengths[nodes[numbers[once]]] = np.minimum(token_ends - at[once], max_length)
                at, numbers = at[~once], numbers[~once]
            continues = characters[at + length - 1] != characters[-1]
            at, numbers = at[continues], numbers[continues]
            if not len(at):
                break
            bound = len(nodes) * alphabet_size
            integers = np.int32 if bound < 2**31 else np.int64
            keys = numbers.astype(integers) * alphabet_size + characters[at + length]
            frequent, kept, numbers = _number_frequent(keys, bound, weights[at], min_count)
            at = at[kept]
            prefix = frequent // alphabet_size
            grows = np.bincount(numbers, minlength=len(prefix)) == occurrences[prefix]
            branches = ~grows | (length == 1)
            above, nodes = nodes[prefix], nodes[prefix]
            first, size = size, size + int(np.count_nonzero(branches))
            nodes[branches] = np.arange(first, size)
            lengths[nodes] = length + 1
            self._deepest[at] = nodes[numbers]
            if first < size:
                parents.append(above[branches])
                places.append(_places_of(numbers, at, len(nodes))[branches])
                starts = np.flatnonzero(np.diff(parents[-1], prepend=-1))
                self._branches.append(_Branches(slice(first, size), starts, parents[-1][starts]))
        self._parents = np.concatenate(parents)  # [N]
        self._places = np.concatenate(places)  # [N] a position where each node occurs
        self._lengths = lengths[:size].copy()  # [N]

    def count(self, places: np.ndarray) -> np.ndarray:
        """Returns how often each substring starts at `places`: [n] distinct int64."""
        counts = np.bincount(
            self._deepest[places], self._weights[places], minlength=len(self._parents)
        ).astype(np.int64)
        for nodes, starts, parents in reversed(self._branches):
            counts[parents] += np.add.reduceat(counts[nodes], starts)
        return counts

    def select(self, counts: np.ndarray, min_count: int) -> tuple[np.ndarray, np.ndarray]:
        """Selects frequent substrings, longest first; each one kept reduces the counts of its prefixes.

        Returns [N] bool, False for single characters, and the remaining counts, [N].
        """
        left = counts.copy()
        taken = np.zeros_like(counts)
        kept = np.zeros(len(counts), bool)
        for nodes, starts, parents in reversed(self._branches):
            left[nodes] -= taken[nodes]
            kept[nodes] = left[nodes] >= min_count
            taken[parents] = np.add.reduceat(taken[nodes] + left[nodes] * kept[nodes], starts)
        left[self.characters] -= taken[self.characters]
        return kept, left

    def longest(self, kept: np.ndarray) -> np.ndarray:
        """Returns the length of the longest kept substring, at least 1, at each position: [P]."""
        lengths = np.ones(len(kept), np.int32)
        for nodes, _, _ in self._branches:
            shorter = lengths[self._parents[nodes]]
            lengths[nodes] = np.where(kept[nodes], self._lengths[nodes], shorter)
        return lengths[self._deepest]

    def substrings(self, nodes: np.ndarray) -> list[str]:
        places, lengths = self._places[nodes].tolist(), self._lengths[nodes].tolist()
        return [self._text[p : p + n] for p, n in zip(places, lengths, strict=True)]


def _places_of(numbers: np.ndarray, at: np.ndarray, size: int) -> np.ndarray:
    """Returns one position of each numbered substring: [size] int64."""
    places = np.empty(size, np.int64)
    places[numbers] = at
    return places


def _number_frequent(
    keys: np.ndarray, bound: int, weights: np.ndarray, min_count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the frequent keys [k], where they are among the keys [n] bool, and their numbers."""
    if bound <= _FEW_KEYS * len(keys):
        distinct, inverse = np.arange(bound), keys
    else:
        distinct, inverse = np.unique(keys, return_inverse=True)
    frequent = np.bincount(inverse, weights, minlength=len(distinct)) >= min_count
    kept = frequent[inverse]
    numbers = np.cumsum(frequent, dtype=np.int32) - 1
    return distinct[frequent], kept, numbers[inverse[kept]]
