"""Trees in brackets, T2T's linearisation of them, and what is stripped before."""

import copy
import gzip
import itertools
import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from random_trees import trees

from t2t_keras import parsing
from t2t_keras.errors import UserError
from t2t_keras.parsing import Tree, linearize, parse_tree, read_trees, strip_for_parsing
from t2t_keras.text import iterate_lines

SHARED = Path(__file__).parents[2] / "shared"
GUM = sorted((SHARED / "data" / "gum").glob("*.trees.gz"))
LINEARIZED = SHARED / "golden" / "text" / "linearized_trees.json.gz"

PRETTY = """
( (S
    (NP-SBJ-1 (DT The) (NN tea) )
    (VP (VBD was)
      (VP (VBN drunk)
        (NP (-NONE- *-1) )
        (PP-LGS (IN by) (NP=2 (PRP us) ))))
    (. .) ))

(TOP (FRAG (-LRB- -LRB-) (NN a\\/b) (-RRB- -RRB-)))
"""


# Brackets


@given(st.lists(trees, max_size=4))
def test_what_is_written_is_read_again(some):
    assert read_trees("\n".join(map(str, some))) == some
    assert read_trees(" ".join(str(t).replace(" ", "\n").replace("(", " ( ") for t in some)) == some


def test_pretty_printed_and_others_in_one_text():
    first, second = read_trees(PRETTY)
    assert str(second) == "(TOP (FRAG (-LRB- -LRB-) (NN a\\/b) (-RRB- -RRB-)))"
    assert first.label == ""
    beginning = "( (S (NP-SBJ-1 (DT The) (NN tea)) (VP (VBD was) (VP (VBN drunk) (NP"
    assert str(first).startswith(beginning)
    assert first.tagged_words()[:2] == [("DT", "The"), ("NN", "tea")]
    assert ("-NONE-", "*-1") in first.tagged_words()


@pytest.mark.parametrize("text", ["(())", "( () )", "(TOP)", "(TOP (S))"])
def test_a_tree_without_words_is_one(text):
    assert parse_tree(text).tagged_words() == []


def test_words_keep_spaces_that_are_not_ascii_and_brackets_become_escapes():
    tree = parse_tree("(TOP (NP (CD 10\u00a0000) (NN x\u2028y)))")
    assert tree.tagged_words() == [("CD", "10\u00a0000"), ("NN", "x\u2028y")]
    assert str(Tree("TOP", (Tree("NN", ("f(x)",)),))) == "(TOP (NN f-LRB-x-RRB-))"


def test_depth_has_no_limit():
    text = "(TOP " + "(NP " * 5000 + "(NN x)" + ")" * 5001
    assert str(parse_tree(text)) == text
    assert str(strip_for_parsing(parse_tree(text))) == text
    assert linearize(text)[1].count("/NP") == 5000


@pytest.mark.parametrize(
    "text, line, words",
    [
        ("(S (NN a))\n\n(S (NN a)", 3, "is not closed"),
        ("(S (NN a))\n(S (NN a)))\n", 2, "unmatched closing bracket at column 11"),
        ("(TOP (NP (NN a))\n(TOP (NP (NN b)))", 2, "inside the tree that begins on line 1"),
        ("( (NP\n( (NP (NN b)))", 2, "inside the tree that begins on line 1"),
        ("(S (NN a))\nb\n", 2, "'b' is outside of all brackets"),
        ("(S\n(NN a) b)", 2, "(S contains a word beside other children"),
        ("(S (NN a b))", 1, "(NN contains a word beside other children"),
    ],
)
def test_wrong_brackets_are_reported_with_their_line(tmp_path, text, line, words, refused):
    path = tmp_path / "a.trees.gz"
    path.write_bytes(gzip.compress(text.encode()))
    with refused(f"^{path}, line {line}: ") as error:
        list(parsing.read_tree_file(path))
    assert words in str(error.value)


@pytest.mark.parametrize("text, number", [("", 0), ("(A b) (C d)", 2)])
def test_one_tree_is_one(text, number):
    with pytest.raises(UserError, match=f"one tree in brackets, got {number}"):
        linearize(text)


# Stripping


@pytest.mark.parametrize(
    "text, stripped",
    [
        (PRETTY.split("\n\n")[0], "(TOP (S (NP (DT The) (NN tea)) (VP (VBD was) (VP (VBN drunk) (PP "
         "(IN by) (NP (PRP us))))) (. .)))"),
        ("(S1 (NP (NN a)))", "(TOP (NP (NN a)))"),
        ("(ROOT (TOP (NP (NN a)) (. .)))", "(TOP (NP (NN a)) (. .))"),
        ("(S (NP (NN a)))", "(TOP (S (NP (NN a))))"),
        ("(S1 a)", "(TOP (S1 a))"),
        ("(TOP (-LRB- -LRB-) (PRT|ADVP (RP up)))", "(TOP (-LRB- -LRB-) (PRT|ADVP (RP up)))"),
        ("(TOP (S (NP-SBJ (-NONE- *)) (S (-NONE- 0))))", "None"),
        ("(())", "None"),
    ],
)  # fmt: skip
def test_stripping_as_usual_for_parsing(text, stripped):
    assert str(strip_for_parsing(parse_tree(text))) == stripped


# T2T's linearisation


def test_linearization_by_hand():
    assert linearize("(TOP (NP (NN x)))") == ("x", "NP NN /NP")
    words, tags = linearize("( (S (NP-1 (PRP I)) (VP (VBP see)) (. .)) )")
    assert (words, tags) == ("I see .", "S NP-1 PRP /NP-1 VP VBP /VP . /S")
    assert linearize(Tree("TOP", (Tree("NN", ("x",)),))) == ("x", "NN")


@pytest.mark.skipif(not LINEARIZED.exists(), reason="needs T2T's linearised trees in ../shared")
def test_linearization_equals_t2ts():
    cases = json.loads(gzip.decompress(LINEARIZED.read_bytes()))
    assert len(cases) >= 300
    for case in cases:
        assert linearize(case["tree"]) == (case["words"], case["tags"])


@pytest.mark.skipif(not GUM, reason="needs the GUM treebank in ../shared/data")
@pytest.mark.parametrize("path", GUM, ids=lambda path: path.name)
def test_a_treebank_comes_back(path):
    trees = zip(iterate_lines(path), parsing.read_tree_file(path), strict=True)
    for line, tree in itertools.islice(trees, 2000):
        assert str(tree) == line
        stripped = strip_for_parsing(tree)
        assert parsing.repair_tree(*linearize(stripped)) == (stripped, parsing.Repairs())


@pytest.mark.parametrize("depth", [1, 500, 20_000])
def test_a_tree_may_be_as_deep_as_a_text(depth):
    text = f"{'(A ' * depth}(NN -LRB-){')' * depth}"
    tree, other = parse_tree(text), parse_tree(text.replace("NN", "N"))
    assert tree == parse_tree(text) and hash(tree) == hash(parse_tree(text))
    assert (tree != other, tree == other, tree == tuple(tree)) == (True, False, False)
    assert repr(tree) == f"parse_tree({text!r})"
    assert pickle.loads(pickle.dumps(tree)) == copy.deepcopy(tree) == tree
    assert Tree("A", ("b", Tree("(", ()))) != Tree("A", ("b",)) != Tree("A", ())
