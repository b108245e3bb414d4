"""From words and tags back to a tree, whatever a model wrote."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from t2t_keras.parsing.labels import PHRASES, TAG_OF_MARK, TAGS, UNKNOWN_TAG, bare_label
from t2t_keras.parsing.trees import ROOT, Bracket, Tree, build_trees
from t2t_keras.parsing.word_tags import is_mark, mismatch

_WORD = re.compile(r"\S+", re.ASCII)  # words may hold other spaces
_NO_SYMBOL = re.compile(r"[()]|^/?$|^<(pad|EOS)>$")


@dataclasses.dataclass(frozen=True)
class Repairs:
    """What had to be done to make a tree of some words and tags; true if anything."""

    closings_added: int = 0
    """Phrases that were not closed where they had to be."""

    closings_dropped: int = 0
    """Closing symbols of phrases that were not open."""

    phrases_dropped: int = 0
    """Phrases without a word."""

    tags_added: int = 0
    """Words that had no tag and got XX or, punctuation, its own."""

    tags_dropped: int = 0
    """Tags that had no word."""

    symbols_dropped: int = 0
    """Symbols that can be neither tag nor phrase."""

    def __add__(self, other: Repairs) -> Repairs:
        return Repairs(**{name: n + getattr(other, name) for name, n in vars(self).items()})

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def __str__(self) -> str:
        """Such as "closings added: 2, tags dropped: 1"."""
        counts = vars(self).items()
        return ", ".join(f"{name.replace('_', ' ')}: {n}" for name, n in counts if n)


def to_tree(words: str | Iterable[str], tags: str | Iterable[str]) -> str:
    """Returns words and tags as a tree in brackets, on one line: the inverse of `linearize`.

    Never fails: see `repair_tree`, which also counts what it repairs.
    """
    return str(repair_tree(words, tags)[0])


def repair_tree(
    words: str | Iterable[str], tags: str | Iterable[str], *, realign: bool = False
) -> tuple[Tree, Repairs]:
    """Returns the tree of words and tags, with the root `TOP`, and what had to be repaired for it.

    If every phrase is closed and there are as many tags as words, nothing is repaired. (A label
    that is both a tag and a phrase in one tree is ambiguous, as in T2T.) Otherwise a symbol is a
    phrase if it is one in the Penn Treebank or is closed somewhere; phrases that are not closed
    are closed with the phrase around them; what closes nothing is dropped; words and tags that
    are not as many are aligned by which tags suit which words (`word_tags.mismatch`); and phrases
    without a word are dropped. The words of the tree are always those that were given.

    Args:
        words: separated by spaces, such as "I see", or one by one.
        tags: as `linearize` writes them, such as "S NP PRP /NP VP VBP /VP /S".
        realign: also align words and tags that are as many but do not suit each other. A model
            that passes over a word and writes a tag too many later shifts all between them.
    """
    given = _split(words)
    symbols = _split(tags)
    usable = [symbol for symbol in symbols if not _NO_SYMBOL.search(symbol)]
    events = _exact(usable)
    added = dropped = 0
    if events is None or sum(event.is_tag for event in events) != len(given):
        events, added, dropped = _balanced(usable)
    tagged = [event.label for event in events if event.is_tag]
    tag_of_word = _align(given, tagged, realign)
    aligned = sum(tag is not None for tag in tag_of_word)
    tree = Tree(ROOT, build_trees(_brackets(events, given, tag_of_word)))
    phrases = sum(event.closes for event in events)
    kept = sum(closes for *_, closes in tree.brackets()) - 1 if given else 0
    return tree, Repairs(
        closings_added=added,
        closings_dropped=dropped,
        phrases_dropped=phrases - kept,
        tags_added=len(given) - aligned,
        tags_dropped=len(tagged) - aligned,
        symbols_dropped=len(symbols) - len(usable),
    )


class _Event(NamedTuple):
    label: str
    is_tag: bool = False
    closes: bool = False


def _split(text: str | Iterable[str]) -> list[str]:
    joined = text if isinstance(text, str) else " ".join(text)
    return _WORD.findall(joined)


def _exact(symbols: list[str]) -> list[_Event] | None:
    """Reads what is not closed as tags; None: something is closed that is not open."""
    events = [_Event(symbol, is_tag=True) for symbol in symbols]
    open_: list[int] = []
    for place, symbol in enumerate(symbols):
        if not symbol.startswith("/"):
            open_.append(place)
            continue
        label = symbol[1:]
        while open_ and (symbols[open_[-1]] != label or open_[-1] == place - 1):
            open_.pop()
        if not open_:
            return None
        events[open_.pop()] = _Event(label)
        events[place] = _Event(label, closes=True)
    return events


def _balanced(symbols: list[str]) -> tuple[list[_Event], int, int]:
    """Reads as phrases what are some by their labels; returns closings added and dropped, too."""
    closed = {symbol[1:] for symbol in symbols if symbol.startswith("/")} - TAGS
    events: list[_Event] = []
    open_: list[str] = []
    added = dropped = 0
    for symbol in symbols:
        label = symbol[1:]
        if symbol.startswith("/"):
            if label not in open_:
                dropped += 1
                continue
            while open_[-1] != label:
                events.append(_Event(open_.pop(), closes=True))
                added += 1
            events.append(_Event(open_.pop(), closes=True))
        elif symbol in closed or bare_label(symbol) in PHRASES:
            open_.append(symbol)
            events.append(_Event(symbol))
        else:
            events.append(_Event(symbol, is_tag=True))
    events += [_Event(label, closes=True) for label in reversed(open_)]
    return events, added + len(open_), dropped


def _brackets(
    events: list[_Event], words: list[str], tag_of_word: list[int | None]
) -> Iterator[Bracket]:
    """Yields the events with the words of the tags, without tags that have none.

    A word without a tag goes to the phrase of the word before it; punctuation to that of the word
    after it or, at the end, to the outermost phrase.
    """
    has_word = set(tag_of_word)
    last = len(events) - 1
    tag = word = 0

    def untagged(marks: bool) -> Iterator[Bracket]:
        nonlocal word
        while word < len(words) and tag_of_word[word] is None:
            if is_mark(words[word]) and not marks:
                return
            yield TAG_OF_MARK.get(words[word], UNKNOWN_TAG), words[word], False
            word += 1

    yield from untagged(marks=False)
    for place, (label, is_tag, closes) in enumerate(events):
        if not is_tag:
            if closes and place == last:
                yield from untagged(marks=True)
            yield label, None, closes
            continue
        if tag in has_word:
            yield from untagged(marks=True)
            yield label, words[word], False
            word += 1
            yield from untagged(marks=False)
        tag += 1
    yield from untagged(marks=True)


def _align(words: list[str], tags: list[str], realign: bool) -> list[int | None]:
    """Returns for each word which tag is its own, if any, in rising order.

    Of all alignments it is that in which the tags suit best, a word or tag without the other
    counting nearly as much as a tag that is wrong. What is left over stands as late as can be.
    """
    n, m = len(words), len(tags)
    in_turn = [k if k < m else None for k in range(n)]
    if not n or not m or m > 2 * n or (n == m and not realign):  # or there is nothing to be saved
        return in_turn
    best = [[_GAP * (i + k) for k in range(m + 1)] for i in range(n + 1)]
    for i, word in enumerate(words):
        above, row = best[i], best[i + 1]
        for k, tag in enumerate(tags):
            row[k + 1] = min(above[k] + mismatch(word, tag), above[k + 1] + _GAP, row[k] + _GAP)
    if n == m and sum(map(mismatch, words, tags)) < best[n][m] + _DOUBT:
        return in_turn
    result: list[int | None] = [None] * n
    i, k = n, m
    while i and k:
        if best[i][k] == best[i - 1][k] + _GAP:
            i -= 1
        elif best[i][k] == best[i][k - 1] + _GAP:
            k -= 1
        else:
            i, k = i - 1, k - 1
            result[i] = k
    return result


_GAP = 2
"""What a word or a tag that has no other costs."""

_DOUBT = 6
"""How much better it must get for tags that are as many as the words to move: of the 1,575 trees of
GUM's dev split none does, of 256 outputs of a parser for them those of three."""
