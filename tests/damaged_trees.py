"""Damages trees as a bad parser would: other brackets, labels, tags and, rarely, other words."""

import random

from t2t_keras.parsing.trees import Tree

PHRASES = ("NP", "VP", "S-1", "SBAR=2", "ADVP", "PRT", "NP-SBJ", "TOP", "-NONE-", "X", "")
TAGS = ("NN", "VBZ", "RB", "POS", "PRT", "NN-X")
LEFT_OUT = (",", ":", "``", "''", ".", "-NONE-")
EMPTY = ("", "(())", "()", "(TOP)", "(TOP (. .))", "(TOP (S (-NONE- 0)))")


def damaged(tree: Tree, generator: random.Random, rate: float) -> str:
    """A tree with about `rate` changes for each of its brackets; now and then no tree at all."""
    text = str(Tree(tree.label, tuple(_changed_children(tree, generator, rate))))
    chance = generator.random()
    if chance < rate / 20:
        return generator.choice(EMPTY)
    if chance < rate / 10:
        return text[:-1]
    if chance < rate / 8:
        return text + ")"
    return text


def _changed_children(tree, generator, rate):
    children = [changed for child in tree.children for changed in _changed(child, generator, rate)]
    if len(children) > 1 and generator.random() < rate:
        first = generator.randrange(len(children) - 1)
        left, right = children[first : first + 2]
        if left.subtrees and right.subtrees:  # brackets that cross those of before
            left = Tree(left.label, left.children + right.children[:1])
            children[first : first + 2] = [left, Tree(right.label, right.children[1:])]
        else:
            last = generator.randrange(first + 1, len(children)) + 1
            wrapped = Tree(generator.choice(PHRASES), tuple(children[first:last]))
            children[first:last] = [wrapped]
    return children


def _changed(tree, generator, rate):
    chance = generator.random() / rate
    if tree.is_tag:
        (word,) = tree.children
        if chance < 0.4:
            return [Tree(generator.choice(TAGS), (word,))]
        if chance < 0.42:
            return [Tree(generator.choice(LEFT_OUT), (word,))]
        if chance < 0.43:
            return [Tree(tree.label, (word + "x",))]
        if chance < 0.44:
            return []
        if chance < 0.5:
            return [Tree("NP", (Tree("-NONE-", ("*",)),)), tree]
        return [tree]
    children = tuple(_changed_children(tree, generator, rate))
    if chance < 0.3:
        return [Tree(generator.choice(PHRASES), children)]
    if chance < 0.5:
        return list(children)
    if chance < 0.7:
        return [Tree(tree.label, (Tree(generator.choice((tree.label, *PHRASES)), children),))]
    return [Tree(tree.label, children)]
