"""tensor2tensor's subwords in plain Python, as documented: the baseline that ours is compared with."""

from collections import defaultdict
from collections.abc import Iterable

from t2t_keras.ids import RESERVED_TOKENS
from t2t_keras.text.tokenizer import ALPHANUMERIC_RANGES

_WORD_CHARACTERS = {
    chr(code_point) for first, last in ALPHANUMERIC_RANGES for code_point in range(first, last + 1)
}
_ESCAPES = "\\_u;0123456789"
_CACHE_SLOTS = 2**20
_ROUNDS = 4


def split(text: str) -> list[str]:
    """The tokens of a text, character by character."""
    if not text:
        return []
    in_word = [character in _WORD_CHARACTERS for character in text]
    tokens = []
    start = 0
    for i in range(1, len(text)):
        if in_word[i] != in_word[i - 1]:
            token = text[start:i]
            if start == 0 or token != " ":
                tokens.append(token)
            start = i
    return [*tokens, text[start:]]


def count_tokens(lines: Iterable[str]) -> dict[str, int]:
    """Counts the occurrences of each token."""
    counts: defaultdict[str, int] = defaultdict(int)
    for line in lines:
        for token in split(line):
            counts[token] += 1
    return counts


class Encoder:
    """Text to ids, with a cache of 2^20 slots by hash."""

    def __init__(self, subtokens: Iterable[str]):
        self._cutter = _Cutter(subtokens)
        self._cache: list[tuple[str | None, list[int]]] = [(None, [])] * _CACHE_SLOTS

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        ids = []
        for token in split(text):
            ids.extend(self._token_ids(token))
        return ids

    def _token_ids(self, token: str) -> list[int]:
        slot = hash(token) % _CACHE_SLOTS
        cached, ids = self._cache[slot]
        if cached != token:
            ids = [self._cutter.ids[subtoken] for subtoken in self._cutter.cut_token(token)]
            self._cache[slot] = (token, ids)
        return ids


def build_to_target_size(token_counts: dict[str, int], target_size: int) -> list[str]:
    """Bisects the minimum count between 1 and 1000."""

    def search(low: int, high: int) -> list[str]:
        middle = (low + high) // 2
        found = build(token_counts, middle)
        error = abs(len(found) - target_size)
        if error * 100 < target_size or low >= high or middle < 2:
            return found
        too_many = len(found) > target_size
        other = search(middle + 1, high) if too_many else search(low, middle - 1)
        return other if abs(len(other) - target_size) < error else found

    return search(1, 1000)


def build(token_counts: dict[str, int], min_count: int) -> list[str]:
    """The vocabulary for one minimum count, in four rounds.

    Unlike in T2T, whose files lose an id because of it, the newline is not a subtoken here.
    """
    alphabet = set(_ESCAPES).union(*token_counts, *RESERVED_TOKENS) - {"\n"}
    reserved = [_escape(token, alphabet) for token in RESERVED_TOKENS]
    subtokens = list(alphabet)
    for _ in range(_ROUNDS):
        cutter = _Cutter(subtokens, alphabet)
        counts: defaultdict[str, int] = defaultdict(int)
        for token, count in token_counts.items():
            spelled = _escape(token, alphabet)
            start = 0
            for subtoken in cutter.cut(spelled):
                for end in range(start + 1, len(spelled) + 1):
                    counts[spelled[start:end]] += count
                start += len(subtoken)

        by_length: defaultdict[int, list[str]] = defaultdict(list)
        for substring, count in counts.items():
            if count >= min_count:
                by_length[len(substring)].append(substring)
        kept = []
        for length in sorted(by_length, reverse=True):
            for substring in by_length[length]:
                count = counts[substring]
                if count >= min_count:
                    if substring not in alphabet:
                        kept.append((count, substring))
                    for end in range(1, length):
                        counts[substring[:end]] -= count
        kept += [(counts.get(character, 0), character) for character in alphabet]
        kept.sort(reverse=True)
        subtokens = reserved + [subtoken for _, subtoken in kept]
    return subtokens


class _Cutter:
    def __init__(self, subtokens: Iterable[str], alphabet: set[str] | None = None):
        self.ids = {subtoken: i for i, subtoken in enumerate(subtokens)}
        self._longest = max(map(len, self.ids))
        self._alphabet = set(_ESCAPES).union(*self.ids) if alphabet is None else alphabet

    def cut_token(self, token: str) -> list[str]:
        return self.cut(_escape(token, self._alphabet))

    def cut(self, spelled: str) -> list[str]:
        """Cuts a token into the longest subtokens, from left to right."""
        subtokens = []
        start = 0
        while start < len(spelled):
            for end in range(min(len(spelled), start + self._longest), start, -1):
                if spelled[start:end] in self.ids:
                    break
            else:
                raise ValueError(f"No subtoken for the start of {spelled[start:]!r}.")
            subtokens.append(spelled[start:end])
            start = end
        return subtokens


def _escape(token: str, alphabet: set[str]) -> str:
    token = token.replace("\\", "\\\\").replace("_", "\\u")
    spelled = [c if c in alphabet and c != "\n" else f"\\{ord(c)};" for c in token]
    return "".join(spelled) + "_"
