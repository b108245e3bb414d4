"""How tensor2tensor finds a subword vocabulary of a wanted size.

For one minimum count, four rounds: cut every token with the vocabulary of the round before (single
characters at first), count every substring that starts at a cut, and keep what is frequent enough
once the occurrences inside longer kept subtokens are taken off. The minimum count is then bisected.

The counts of the first round, where every position is a cut, bound those of all later rounds and of all
minimum counts. So they are computed once, and later rounds look no further into a token than a
substring can still be frequent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from t2t_keras.errors import UserError
from t2t_keras.text.escaping import ESCAPE_CHARACTERS, escape
from t2t_keras.text.vocabulary_file import RESERVED_TOKENS

_ROUNDS = 4
_LOWEST_MIN_COUNT = 1
_HIGHEST_MIN_COUNT = 1000


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

    def distance(subtokens: list[str]) -> int:
        return abs(len(subtokens) - target_size)

    tried = []
    low, high = _LOWEST_MIN_COUNT, _HIGHEST_MIN_COUNT
    while True:
        min_count = (low + high) // 2
        subtokens = corpus.subtokens(min_count)
        tried.append(subtokens)
        if distance(subtokens) * 100 < target_size or low >= high or min_count < 2:
            break
        if len(subtokens) > target_size:
            low = min_count + 1
        else:
            high = min_count - 1
    return min(tried, key=distance)


class _Corpus:
    """The tokens of a text, spelled, with the counts that every vocabulary search shares."""

    def __init__(
        self,
        token_counts: Mapping[str, int],
        reserved: Sequence[str],
        max_subtoken_length: int | None,
    ):
        alphabet = ESCAPE_CHARACTERS.union(*token_counts, *reserved) - {"\n"}
        self._alphabet = alphabet
        self._reserved = [escape(token, alphabet) for token in reserved]
        self._tokens = [(escape(token, alphabet), n) for token, n in token_counts.items()]
        longest = max(len(spelled) for spelled, _ in self._tokens)
        self._max_length = longest if max_subtoken_length is None else max_subtoken_length - 1
        self._substring_counts = self._count_substrings()

    def subtokens(self, min_count: int) -> list[str]:
        """Returns the vocabulary for one minimum count (T2T: `build_from_token_counts`)."""
        reaches = [self._reach(spelled, min_count) for spelled, _ in self._tokens]
        subtokens = self._select(self._substring_counts, min_count)
        for _ in range(_ROUNDS - 1):
            subtokens = self._select(self._count_at_cuts(set(subtokens), reaches), min_count)
        return subtokens

    def _count_substrings(self) -> dict[str, int]:
        counts: defaultdict[str, int] = defaultdict(int)
        for spelled, n in self._tokens:
            for start in range(len(spelled)):
                for end in range(start + 1, min(len(spelled), start + self._max_length) + 1):
                    counts[spelled[start:end]] += n
        return counts

    def _reach(self, spelled: str, min_count: int) -> list[int]:
        """For each start, an end that no subtoken of the vocabulary starting there goes beyond."""
        if any(reserved in spelled for reserved in self._reserved):
            return [len(spelled)] * len(spelled)
        counts = self._substring_counts
        reach = []
        end = 0
        for start in range(len(spelled)):
            # What is frequent from `start` is as frequent without its first character.
            end = max(end, start + 1)
            while end < len(spelled) and counts.get(spelled[start : end + 1], 0) >= min_count:
                end += 1
            reach.append(end)
        return reach

    def _count_at_cuts(
        self, vocabulary: set[str], reaches: Sequence[Sequence[int]]
    ) -> dict[str, int]:
        counts: defaultdict[str, int] = defaultdict(int)
        for (spelled, n), reach in zip(self._tokens, reaches, strict=True):
            start = 0
            while start < len(spelled):
                cut = start + 1
                for end in range(start + 1, reach[start] + 1):
                    substring = spelled[start:end]
                    if end - start <= self._max_length:
                        counts[substring] += n
                    if substring in vocabulary:
                        cut = end
                start = cut
        return counts

    def _select(self, counts: Mapping[str, int], min_count: int) -> list[str]:
        """Keeps frequent substrings, longest first, each taking its count off its prefixes."""
        frequent = {substring: n for substring, n in counts.items() if n >= min_count}
        remaining = frequent | {c: counts.get(c, 0) for c in self._alphabet}
        kept = []
        for substring in sorted(frequent, key=len, reverse=True):
            n = remaining[substring]
            if n >= min_count:
                if substring not in self._alphabet:
                    kept.append((n, substring))
                for end in range(1, len(substring)):
                    remaining[substring[:end]] -= n
        kept.extend((remaining[c], c) for c in self._alphabet)
        kept.sort(reverse=True)
        return self._reserved + [s for _, s in kept if s not in self._reserved]
