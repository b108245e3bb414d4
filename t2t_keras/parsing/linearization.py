"""A tree as two lines of text, as tensor2tensor writes them."""

from __future__ import annotations

from t2t_keras.parsing.trees import Tree, parse_tree


def linearize(tree: Tree | str) -> tuple[str, str]:
    """Returns the words of a tree and its tags (T2T's `words_and_tags_from_wsj_tree`).

    A phrase is its label, what it holds, and its label after a slash; a word is its tag alone. The
    outermost bracket is left out, whatever its label:

        linearize("(TOP (S (NP (PRP I)) (VP (VBP see))))")
        == ("I see", "S NP PRP /NP VP VBP /VP /S")

    Nothing else of the tree is left out; see `strip_for_parsing` for that.

    Args:
        tree: a tree, or one in brackets.

    Raises:
        UserError: the brackets are not those of one tree.
    """
    words, symbols = [], []
    for label, word, closes in (parse_tree(tree) if isinstance(tree, str) else tree).brackets():
        symbols.append("/" + label if closes else label)
        if word is not None:
            words.append(word)
    return " ".join(words), " ".join(symbols[1:-1])
