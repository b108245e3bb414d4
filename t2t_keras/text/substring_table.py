"""A vocabulary as arrays in which longest subtokens are found in a few steps, for many places at once.

A walk through a trie takes a step a character. Here a step takes a block of 2^k characters, for
falling k, so that no more steps are needed than the longest subtoken's length has binary digits. Every
string that matters has a number: the beginnings of subtokens, and the blocks that they consist of. The
number of a longer string is looked up from those of its two parts, in one table of joins. A block of 2^k
characters is numbered by joining its halves, a beginning by joining a shorter one and a block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

_ROUNDS = 100
_NONE = -1


class SubstringTable(NamedTuple):
    """The arrays. 0 is the number of every string that does not matter.

    Strings u and v join to `joined[slot]` with `slot = (base[u] + v) % slots` if `owner[slot] == u`, to 0
    otherwise.
    """

    numbers: dict[str, int]  # of single characters
    base: np.ndarray  # [strings + 1] int32
    owner: np.ndarray  # [slots] int32; slots is a power of two
    joined: np.ndarray  # [slots] int32
    first_beginning: int  # numbers from here on are of beginnings of subtokens
    match_id: (
        np.ndarray
    )  # [strings + 1] int32: of the longest subtoken that begins the string, or -1
    match_length: np.ndarray  # [strings + 1] int32: its characters, or 0
    levels: int  # blocks have 2^0 to 2^(levels - 1) characters


def build(ids: Mapping[str, int], alphabet: Iterable[str]) -> SubstringTable:
    """Returns the table of non-empty strings and their ids, with a number for each character given."""
    beginnings = _beginnings(ids)
    blocks = set(alphabet)
    joins: list[tuple[str, str]] = []
    for string in beginnings:
        last = len(string) & -len(string)
        if last < len(string):
            joins.append((string[:-last], string[-last:]))
        _add_block(string[-last:], blocks, joins)
    others = sorted(blocks.difference(beginnings))
    numbers = {string: n for n, string in enumerate([*others, *beginnings], start=1)}
    first, second, both = (
        np.array([[numbers[u], numbers[v], numbers[u + v]] for u, v in joins], np.int32)
        .reshape(-1, 3)
        .T
    )
    base, owner, joined = _place(first, second, both, strings=len(numbers) + 1)
    match_id = np.full(len(numbers) + 1, _NONE, np.int32)
    match_length = np.zeros(len(numbers) + 1, np.int32)
    for string in beginnings:  # shorter ones come first
        n = numbers[string]
        if string in ids:
            match_id[n], match_length[n] = ids[string], len(string)
        elif len(string) > 1:
            shorter = numbers[string[:-1]]
            match_id[n], match_length[n] = match_id[shorter], match_length[shorter]
    return SubstringTable(
        numbers={string: n for string, n in numbers.items() if len(string) == 1},
        base=base,
        owner=owner,
        joined=joined,
        first_beginning=len(others) + 1,
        match_id=match_id,
        match_length=match_length,
        levels=max(map(len, beginnings), default=1).bit_length(),
    )


def _beginnings(strings: Mapping[str, int]) -> list[str]:
    found: set[str] = set()
    for string in strings:
        for end in range(len(string), 0, -1):
            if string[:end] in found:
                break
            found.add(string[:end])
    return sorted(found, key=lambda string: (len(string), string))


def _add_block(block: str, blocks: set[str], joins: list[tuple[str, str]]) -> None:
    if block in blocks:
        return
    blocks.add(block)
    if len(block) > 1:
        half = len(block) // 2
        joins.append((block[:half], block[half:]))
        _add_block(block[:half], blocks, joins)
        _add_block(block[half:], blocks, joins)


def _place(
    u: np.ndarray, v: np.ndarray, joined: np.ndarray, strings: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Finds bases at which no two joins share a slot; returns `base`, `owner`, `joined` by slot."""
    slots = 1 << (2 * max(len(u), strings)).bit_length()
    while True:
        placed = _try_to_place(u, v, joined, strings, slots)
        if placed is not None:
            return placed
        slots *= 2


def _try_to_place(
    u: np.ndarray, v: np.ndarray, joined: np.ndarray, strings: int, slots: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    random = np.random.default_rng(0)
    base = np.zeros(strings, np.int32)
    owner = np.full(slots, _NONE, np.int32)
    value = np.zeros(slots, np.int32)
    joins_of = np.bincount(u, minlength=strings)
    order = np.argsort(-joins_of[u], kind="stable")
    u, v, joined = u[order], v[order], joined[order]
    while len(u):
        # Those with the most joins while there is room, all of similar size at once.
        size = np.count_nonzero(joins_of[u] > joins_of[u[0]] // 2)
        waiting = [array[:size] for array in (u, v, joined)]
        u, v, joined = u[size:], v[size:], joined[size:]
        for _ in range(_ROUNDS):
            wu, wv, wj = waiting
            rows = np.unique(wu)
            base[rows] = random.integers(0, slots, len(rows))
            slot = (base[wu] + wv) & (slots - 1)
            claimed = np.full(slots, strings, np.int32)
            np.minimum.at(claimed, slot, wu)
            clash = (owner[slot] != _NONE) | (claimed[slot] != wu)
            fits = ~np.isin(wu, wu[clash])
            owner[slot[fits]] = wu[fits]
            value[slot[fits]] = wj[fits]
            waiting = [array[~fits] for array in waiting]
            if not len(waiting[0]):
                break
        else:
            return None
    return base, owner, value
