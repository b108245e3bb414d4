"""Bracketed constituency trees, `(TOP (NP (NN tea)))`, and their linearisation as text."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from t2t_keras.errors import UserError
from t2t_keras.text.lines import iterate_lines

ROOT = "TOP"
"""The root label of trees that this library writes."""

ROOT_LABELS = frozenset({"", "TOP", "ROOT", "S1"})
"""Root labels: those of an outermost bracket that only marks the beginning of a tree."""

TRACE = "-NONE-"
"""The tag of traces, which are not words of the sentence."""

_TOKEN = re.compile(  # (tag word), ( or (label, ), word
    r"\(\s*([^\s()]+)\s+([^\s()]+)\s*\)|\(\s*([^\s()]*)|(\))|([^\s()]+)", re.ASCII
)
_PRETERMINAL, _OPENING, _CLOSING = 2, 3, 4

Bracket = tuple[str, str | None, bool]
"""A label, a tag's word (None for a phrase), and True if the phrase closes: see `Tree.brackets`."""


class Tree(NamedTuple):
    """A phrase, or a tag with its word."""

    label: str
    """The label of a phrase, such as "NP", or the tag of a word, such as "NN"; "" if there is none."""
    children: tuple[Tree | str, ...]
    """The phrases and tags inside a phrase, or the word of a tag."""

    # By brackets: Python compares nested tuples recursively, and fails for trees as deep as a text may have.

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and [*self.brackets()] == [*other.brackets()]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(tuple(self.brackets()))

    def __repr__(self) -> str:
        return f"parse_tree({str(self)!r})"

    def __reduce__(self):
        return _from_brackets, ([*self.brackets()],)

    @property
    def is_tag(self) -> bool:
        """True if this is a tag with its word (a preterminal)."""
        return len(self.children) == 1 and isinstance(self.children[0], str)

    def brackets(self) -> Iterator[Bracket]:
        """Yields (label, word, closes) of all brackets, in the order in which they are written.

        A phrase that opens gives ("NP", None, False), a tag with its word ("NN", "tea", False), and a
        phrase that closes ("NP", None, True).
        """
        stack: list[tuple[Tree, bool]] = [(self, False)]
        while stack:
            node, closes = stack.pop()
            if closes:
                yield node.label, None, True
            elif node.is_tag:
                yield node.label, str(node.children[0]), False
            else:
                yield node.label, None, False
                stack += [(node, True), *((child, False) for child in reversed(node.subtrees))]

    @property
    def subtrees(self) -> list[Tree]:
        """The children except words."""
        return [child for child in self.children if isinstance(child, Tree)]

    def tagged_words(self) -> list[tuple[str, str]]:
        """Returns (tag, word) pairs: `[("DT", "the"), ("NN", "tea")]`."""
        return [(label, word) for label, word, _ in self.brackets() if word is not None]

    def __str__(self) -> str:
        """Returns the tree on one line; brackets in words and labels are written as -LRB- and -RRB-."""
        pieces = []
        for label, word, closes in self.brackets():
            inside = label if word is None else f"{label} {word}"
            inside = inside.replace("(", "-LRB-").replace(")", "-RRB-")
            end = "" if word is None else ")"
            pieces.append(")" if closes else f" ({inside}{end}")
        return "".join(pieces)[1:]


def _from_brackets(brackets: Iterable[Bracket]) -> Tree:
    return build_trees(brackets, empty=True)[0]


def build_trees(brackets: Iterable[Bracket], empty: bool = False) -> tuple[Tree, ...]:
    """Builds trees from matching brackets as of `Tree.brackets`; drops `empty` phrases by default."""
    stack: list[list[Tree]] = [[]]
    for label, word, closes in brackets:
        if word is not None:
            stack[-1].append(Tree(label, (word,)))
        elif not closes:
            stack.append([])
        else:
            children = stack.pop()
            if children or empty:
                stack[-1].append(Tree(label, tuple(children)))
    return tuple(stack[0])


def parse_tree(text: str) -> Tree:
    """Returns the only tree in a text; see `iterate_trees`.

    Raises:
        UserError: the brackets are not those of one tree.
    """
    trees = read_trees(text)
    if len(trees) != 1:
        raise UserError(f"Expected one tree in brackets, got {len(trees)} in {text[:60]!r}.")
    return trees[0]


def read_trees(text: str) -> list[Tree]:
    """Returns all trees of a text; see `iterate_trees`."""
    return list(iterate_trees(text.split("\n"), "the text"))


def read_tree_file(path: str | os.PathLike[str]) -> Iterator[Tree]:
    """Yields the trees of a file, plain or `.gz`; see `iterate_trees`.

    Raises:
        UserError: the file cannot be read, or its brackets are not those of trees.
    """
    return iterate_trees(iterate_lines(path), os.fspath(path))


def iterate_trees(lines: Iterable[str], name: str, first_line: int = 1) -> Iterator[Tree]:
    """Yields the trees in lines of text; a line may have several, and a tree may span several lines.

    The outermost bracket may have any label or none. A bracket may be empty, as in `(())`, which some
    parsers write for a sentence that they cannot parse.
    """
    open_: list[tuple[str, list[Tree | str]]] = []
    first = number = 0
    for number, line in enumerate(lines, first_line):
        for match in _TOKEN.finditer(line):
            kind = match.lastindex
            if kind == _PRETERMINAL:
                closed = Tree(match[1], (match[2],))
            elif kind == _OPENING:
                if not open_:
                    first = number
                elif match[3] in ROOT_LABELS and (open_[-1][1] or open_[-1][0] not in ROOT_LABELS):
                    raise UserError(
                        f"{name}, line {number}: ({match[3]} begins a tree inside the tree that "
                        f"begins on line {first}: add the closing brackets that are missing there."
                    )
                open_.append((match[3], []))
                continue
            elif kind == _CLOSING:
                if not open_:
                    raise UserError(
                        f"{name}, line {number}: unmatched closing bracket at column "
                        f"{match.start() + 1}: remove it or add its opening bracket."
                    )
                label, children = open_.pop()
                closed = Tree(label, tuple(children))
                if not closed.is_tag and len(closed.subtrees) != len(children):
                    raise UserError(
                        f"{name}, line {number}: ({label} contains a word beside other children: put "
                        "every word into its own bracket with its tag."
                    )
            elif not open_:
                raise UserError(
                    f"{name}, line {number}: {match[5]!r} is outside of all brackets: expected "
                    "trees such as (TOP (NP (NN tea)))."
                )
            else:
                open_[-1][1].append(match[5])
                continue
            if open_:
                open_[-1][1].append(closed)
            else:
                yield closed
    if open_:
        raise UserError(
            f"{name}, line {first}: the tree that begins here is not closed by the end, line "
            f"{number}: {len(open_)} closing bracket(s) are missing."
        )


@functools.lru_cache(4096)
def bare_label(label: str) -> str:
    """Returns a label without functional tags and indices: "NP" for "NP-SBJ-1" and "NP=2"; "-LRB-" stays."""
    match = re.match("[^-=]+", label)
    return match[0] if match else label


# Linearised trees, and the trees that parsers are trained on.


def linearize(tree: Tree | str) -> tuple[str, str]:
    """Returns the words of a tree and its linearised tags (T2T's `words_and_tags_from_wsj_tree`).

    A phrase is written as its label, its contents, and its label after a slash; a word as its tag. The
    outermost bracket is omitted, whatever its label:

        linearize("(TOP (S (NP (PRP I)) (VP (VBP see))))")
        == ("I see", "S NP PRP /NP VP VBP /VP /S")

    Traces and functional tags are kept; see `strip_for_parsing`.

    Raises:
        UserError: the brackets of a string are not those of one tree.
    """
    words, symbols = [], []
    for label, word, closes in (parse_tree(tree) if isinstance(tree, str) else tree).brackets():
        symbols.append("/" + label if closes else label)
        if word is not None:
            words.append(word)
    return " ".join(words), " ".join(symbols[1:-1])


words_and_tags_from_wsj_tree = linearize  # T2T's name


def strip_for_parsing(tree: Tree) -> Tree | None:
    """Strips a tree to what parsers are trained and scored on: words and plain phrases, with root `TOP`.

    Removes traces (`-NONE-`), phrases that contain nothing else, and functional tags and indices of
    labels. The roots TOP, ROOT, S1 and the empty label become TOP; a tree without such a root gets one.
    Words are kept as written, including `-LRB-` and `\\/`. A tree without words becomes None.
    """
    children = build_trees(
        (bare_label(label), word, closes)
        for label, word, closes in tree.brackets()
        if word is None or label != TRACE
    )
    if not children:
        return None
    while len(children) == 1 and children[0].label in ROOT_LABELS and not children[0].is_tag:
        children = tuple(children[0].subtrees)
    return Tree(ROOT, children)


def with_tags(tree: Tree, tags: Iterable[str]) -> Tree:
    """Returns a tree with its tags replaced, one for each word."""
    other = iter(tags)
    built = build_trees(
        (label if word is None else next(other), word, closes)
        for label, word, closes in tree.brackets()
    )
    return built[0] if built else tree
