"""Trees as parsers are trained and judged on: without traces and functional tags."""

from __future__ import annotations

from collections.abc import Iterable

from t2t_keras.parsing.labels import TRACE, bare_label
from t2t_keras.parsing.trees import ROOT, ROOT_LABELS, Tree, build_trees


def strip_for_parsing(tree: Tree) -> Tree | None:
    """Returns a tree of its words and phrases alone, with the root `TOP`.

    Traces (`-NONE-`) go, and phrases that hold nothing else; functional tags and indices are taken
    off all labels; the roots TOP, ROOT, S1 and the empty one become TOP, and a tree without any
    gets one. Words stay as they are written, `-LRB-` and `\\/` too.

    Returns:
        The tree; None if no word is left.
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
    """Returns a tree with other tags, one for each of its words."""
    other = iter(tags)
    built = build_trees(
        (label if word is None else next(other), word, closes)
        for label, word, closes in tree.brackets()
    )
    return built[0] if built else tree
