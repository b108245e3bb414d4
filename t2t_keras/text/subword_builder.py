"""How tensor2tensor finds a subword vocabulary of a wanted size.

For one minimum count, four rounds: cut every token with the vocabulary of the round before (single
characters at first), count every substring that starts at a cut, and keep what is frequent enough
once the occurrences inside longer kept subtokens are taken off. The minimum count is then bisected.

All of this happens on arrays: the frequent substrings are the nodes of a tree (`substring_tree`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from t2t_keras.errors import UserError
from t2t_keras.text.escaping import ESCAPE_CHARACTERS, escape
from t2t_keras.text.substring_tree import SubstringTree
from t2t_keras.text.vocabulary_file import RESERVED_TOKENS

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
