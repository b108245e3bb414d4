"""Trees as parsers are trained and judged on: without traces and functional tags."""

from __future__ import annotations

from typing import TypeGuard

from t2t_keras.parsing.labels import TRACE, bare_label
from t2t_keras.parsing.trees import ROOT, ROOT_LABELS, Tree


def strip_for_parsing(tree: Tree) -> Tree | None:
    """Returns a tree of its words and phrases alone, with the root `TOP`.

    Traces (`-NONE-`) go, and phrases that hold nothing else; functional tags and indices are taken
    off all labels; the roots TOP, ROOT, S1 and the empty one become TOP, and a tree without any gets
    one. Words stay as they are written, `-LRB-` and `\\/` too.

    Returns:
        The tree; None if no word is left.
    """
    stack: list[list[Tree | str]] = [[]]
    for label, word, closes in tree.brackets():
        if word is not None:
            if label != TRACE:
                stack[-1].append(Tree(bare_label(label), (word,)))
        elif not closes:
            stack.append([])
        else:
            children = stack.pop()
            if children:
                stack[-1].append(Tree(bare_label(label), tuple(children)))
    if not stack[0]:
        return None
    children = tuple(stack[0])
    while len(children) == 1 and _is_root(children[0]):
        children = children[0].children
    return Tree(ROOT, children)


def _is_root(tree: Tree | str) -> TypeGuard[Tree]:
    return isinstance(tree, Tree) and tree.label in ROOT_LABELS and not tree.is_tag
