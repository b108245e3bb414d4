"""Trees from words and tags, with repair of malformed model output."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from t2t_keras.parsing.trees import ROOT, Bracket, Tree, bare_label, build_trees

_WORD = re.compile(r"\S+", re.ASCII)  # words may contain non-ASCII spaces
_NO_SYMBOL = re.compile(r"[()]|^/?$|^<(pad|EOS)>$")


@dataclasses.dataclass(frozen=True)
class Repairs:
    """Counts of the repairs that turned words and tags into a tree; true if there were any."""

    closings_added: int = 0  # phrases whose closing symbol was missing
    closings_dropped: int = 0  # closing symbols of phrases that were not open
    phrases_dropped: int = 0  # phrases without a word
    tags_added: int = 0  # words without a tag; they got XX or, if punctuation, their own tag
    tags_dropped: int = 0  # tags without a word
    symbols_dropped: int = 0  # symbols that are neither tags nor phrases

    def __add__(self, other: Repairs) -> Repairs:
        return Repairs(**{name: n + getattr(other, name) for name, n in vars(self).items()})

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def __str__(self) -> str:
        """Returns, for example, "closings added: 2, tags dropped: 1"."""
        return ", ".join(f"{name.replace('_', ' ')}: {n}" for name, n in vars(self).items() if n)


def to_tree(words: str | Iterable[str], tags: str | Iterable[str]) -> str:
    """Returns the tree of `repair_tree` in brackets, on one line: the inverse of `linearize`."""
    return str(repair_tree(words, tags)[0])


def repair_tree(
    words: str | Iterable[str], tags: str | Iterable[str], *, realign: bool = False
) -> tuple[Tree, Repairs]:
    """Returns the tree of words and tags, with the root `TOP`, and the repairs that it needed.

    If every phrase is closed and there are as many tags as words, nothing is repaired. (A label that is both
    a tag and a phrase in one tree is ambiguous, as in T2T.) Otherwise a symbol is a phrase if it is one in
    the Penn Treebank or is closed somewhere; open phrases are closed with the phrase around them; closings
    without a phrase and phrases without a word are dropped; and if the numbers of words and tags differ,
    they are aligned by how well tags fit words (`mismatch`). The words are always the given ones.

    Args:
        words: a string of words separated by spaces, such as "I see", or a sequence.
        tags: the symbols that `linearize` writes, such as "S NP PRP /NP VP VBP /VP /S".
        realign: True: also align equally many words and tags if they fit badly: a model that skips a
            word and writes an extra tag later shifts all tags in between.
    """
    given, symbols = words_of(words), words_of(tags)
    usable = [symbol for symbol in symbols if not _NO_SYMBOL.search(symbol)]
    added = dropped = 0
    known = [symbol for symbol in usable if symbol != UNKNOWN_SYMBOL]
    for read in (usable, known):  # the unknown ones are tags, or else brackets
        events = _exact(read)
        if events is not None and sum(event.is_tag for event in events) == len(given):
            usable = read
            break
    else:
        events, added, dropped = _balanced(usable)
    tagged = [event.label for event in events if event.is_tag]
    tag_of_word = _align(given, tagged, realign)
    aligned = sum(tag is not None for tag in tag_of_word)
    tree = Tree(ROOT, build_trees(_brackets(events, given, tag_of_word)))
    phrases = sum(event.closes for event in events)
    kept = sum(closes for *_, closes in tree.brackets()) - 1
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


def words_of(text: str | Iterable[str]) -> list[str]:
    """Returns the words of a text, or of several texts, separated by ASCII white space."""
    return _WORD.findall(text if isinstance(text, str) else " ".join(text))


def _exact(symbols: list[str]) -> list[_Event] | None:
    """Reads symbols that are not closed as tags; returns None if a closing symbol matches no open phrase."""
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
    """Recognises phrases by their labels; also returns the numbers of closings added and dropped."""
    closed = {symbol[1:] for symbol in symbols if symbol.startswith("/")} - TAGS
    events: list[_Event] = []
    open_: list[str] = []
    added = dropped = 0
    for symbol in symbols:
        label = symbol[1:]
        if symbol.startswith("/") and label not in open_:
            dropped += 1
        elif symbol.startswith("/"):
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
    """Yields the events with the words of the tags; drops tags that have no word.

    A word without a tag joins the phrase of the previous word; punctuation without a tag joins that of the
    next word or, at the end, the outermost phrase.
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
    """Aligns tags to words monotonically; returns the index of each word's tag, or None.

    Minimises the total mismatch, where a word or tag without a partner costs nearly as much as a wrong
    tag. Unaligned items are as late as possible.
    """
    n, m = len(words), len(tags)
    one_by_one = [k if k < m else None for k in range(n)]
    if not n or not m or m > 2 * n or (n == m and not realign):  # hopeless beyond 2n
        return one_by_one
    best = [[_GAP * (i + k) for k in range(m + 1)] for i in range(n + 1)]
    for i, word in enumerate(words):
        above, row = best[i], best[i + 1]
        for k, tag in enumerate(tags):
            row[k + 1] = min(above[k] + mismatch(word, tag), above[k + 1] + _GAP, row[k] + _GAP)
    if n == m and sum(map(mismatch, words, tags)) < best[n][m] + _DOUBT:
        return one_by_one
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


_GAP = 2  # the cost of a word or a tag without a partner

_DOUBT = 6
"""The improvement required to realign equally many words and tags. None of the 1,575 trees of GUM's dev
split reaches it; 3 of 256 outputs of a parser do."""

# The labels of the Penn Treebank and of treebanks that follow its guidelines.

_PHRASES = """
ADJP ADVP CONJP FRAG INTJ LST NAC NP NX PP PRN PRT QP ROOT RRC S S1 SBAR SBARQ SINV SQ TOP UCP VP
WHADJP WHADVP WHNP WHPP X
"""
_TAGS = """
CC CD DT EX FW IN JJ JJR JJS LS MD NN NNP NNPS NNS PDT POS PRP PRP$ RB RBR RBS RP SYM TO UH VB VBD
VBG VBN VBP VBZ WDT WP WP$ WRB # $ . , : '' `` -LRB- -RRB- ADD AFX GW HYPH NFP XX
"""  # with those of the English Web Treebank
PHRASES, TAGS = frozenset(_PHRASES.split()), frozenset(_TAGS.split())

UNKNOWN_SYMBOL = "<UNK>"  # the token for tags and brackets that no training tree has
UNKNOWN_TAG = "XX"  # of words that have none

# The tags of punctuation marks that have only one possible tag.
TAG_OF_MARK = {
    **{mark: mark for mark in [",", ".", ":", "``", "''", "-LRB-", "-RRB-"]},
    **dict.fromkeys("?!", "."),
    **dict.fromkeys([";", "--", "..."], ":"),
}

# How well a tag of the Penn Treebank fits an English word, judged only by the word's form.

PERFECT, POOR, OTHER_MARK, WRONG = 0, 1, 1, 3

_CLOSED = "CC DT EX IN MD PDT POS PRP PRP$ RP TO WDT WP WP$ WRB"
_CLOSED_TAGS = frozenset(_CLOSED.split())
_PUNCTUATION_TAGS = frozenset({"-LRB-", "-RRB-", "HYPH", "NFP", "SYM"})
_SYMBOLIC_WORDS = frozenset({"%", "&"})  # tagged as words

# Closed-class words, by their possible tags.
_CLOSED_CLASSES = """
DT PDT: the a an these those every each another any some no all both either neither half such;
DT: this; DT IN WDT RB: that; TO IN: to; CC: and or but nor & yet plus;
IN RP RB: of in on at by for with from as than into about after before between through during over
under against without within since until till among like if because while although though whether
upon per via out up off down across around along behind beside besides beyond above below near
toward towards onto despite throughout once except outside inside unless;
PRP: i you he she it we they me him us them myself yourself himself herself itself ourselves
themselves; PRP PRP$: her his mine yours; PRP$: my your its our their;
MD VBD: can could will would shall should may might must ca wo 'll ’ll 'd ’d;
VB VBD VBG VBN VBP VBZ: is are was were be been being am have has had having do does did done doing
're ’re 'm ’m 've ’ve; POS PRP VBZ: 's ’s; EX RB: there;
IN WDT WP WP$: who what which whom whose; WRB: when where why how;
RB: not n't n’t never very also then too just now here only even still again ever always often so;
JJR JJS RBR RBS: more most less least; RB UH: oh yeah uh um yes okay ok;
CD NN PRP: one two three four five six seven eight nine ten hundred thousand million billion
"""
_TAGS_OF_WORD = {
    word: frozenset(tags.split())
    for tags, words in (row.split(":") for row in _CLOSED_CLASSES.split(";"))
    for word in words.split()
}

_TAGS_OF_ENDING = {
    "ly": frozenset({"RB", "JJ"}),
    "ing": frozenset({"VBG", "NN"}),
    "ed": frozenset({"VBD", "VBN", "JJ"}),
    "s": frozenset({"NNS", "VBZ", "NN"}),
    "": frozenset({"NN", "JJ", "VB", "VBD", "VBN", "VBP"}),
}
_TAGS_OF_CAPITALISED = frozenset({"NN", "NNS", "NNP", "NNPS", "JJ", "UH"})
_TAGS_OF_DIGITS = frozenset({"CD", "JJ", "LS", "NN", "NNP"})


@functools.lru_cache(2**16)
def mismatch(word: str, tag: str) -> int:
    """Returns the mismatch of a tag and a word, from `PERFECT` to `WRONG`.

    Punctuation tags only fit punctuation. A tag that is not in the Penn Treebank is `POOR` for every word.
    """
    mark = is_mark(word)
    if mark != (tag in _PUNCTUATION_TAGS or not any(map(str.isalpha, tag))):
        return WRONG
    if mark:
        return PERFECT if tag == TAG_OF_MARK.get(word, word) else OTHER_MARK
    if tag not in TAGS:
        return POOR
    closed = _TAGS_OF_WORD.get(word.lower())
    if closed is not None:
        return PERFECT if tag in closed else WRONG
    if any(map(str.isdigit, word)):
        likely = _TAGS_OF_DIGITS
    elif word[0].isupper():
        likely = _TAGS_OF_CAPITALISED
    else:
        endings = _TAGS_OF_ENDING.items()
        likely = next(tags for ending, tags in endings if word.lower().endswith(ending))
    if tag in likely:
        return PERFECT
    return WRONG if tag in _CLOSED_TAGS else POOR


def is_mark(word: str) -> bool:
    """Returns True if a word is punctuation, possibly written as its tag, such as "-LRB-"."""
    symbolic = word in _SYMBOLIC_WORDS or any(map(str.isalnum, word))
    return word in _PUNCTUATION_TAGS or not symbolic
