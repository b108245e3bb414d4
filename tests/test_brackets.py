"""What is read of a bracketed tree before it is scored."""

import pytest

from t2t_keras.metrics.parsing_f1 import Brackets, read_brackets, root_label, trees_of_lines


def test_reads_what_counts():
    tree = (
        "(TOP (S (NP-SBJ-1 (NNP Kim)) (, ,) (VP (VBZ is) (VP (VBN seen) (NP (-NONE- *-1)))) (. .)))"
    )
    assert read_brackets(tree) == Brackets(
        words=["Kim", "is", "seen"],
        tags=["NNP", "VBZ", "VBN"],
        spans=[(0, 1, "NP"), (2, 3, "VP"), (1, 3, "VP"), (0, 3, "S")],
        length=5,
        fault="",
    )


@pytest.mark.parametrize(
    "tree, label",
    [
        ("(TOP (NN tea))", "TOP"),
        (" ( (S (NN tea)) )", ""),
        ("(ROOT(NN tea))", "ROOT"),
        ("(S-TTL (NN tea))", "S"),
        ("tea", None),
        ("", None),
    ],
)
def test_label_of_the_root(tree, label):
    assert root_label(tree) == label


def test_lines_that_begin_with_white_space_go_on_with_an_open_tree():
    lines = [
        "",
        "( (S",
        "    (NP (NN tea))",
        "",
        "\t(VP (VBZ cools)) ))",
        "",
        "(TOP (NN milk))",
        "",
    ]
    trees = trees_of_lines(lines)
    assert [" ".join(tree.split()) for tree in trees] == [
        "( (S (NP (NN tea)) (VP (VBZ cools)) ))",
        "(TOP (NN milk))",
    ]


@pytest.mark.parametrize(
    "lines",
    [
        ["(TOP (NN tea))", "", "(TOP (NN milk))", ""],
        ["(TOP (NN tea)", "(TOP (NN milk))"],  # the first is not closed, but the second begins anew
        [" (TOP (NN tea))", " (TOP (NN milk))"],
        [""],
        [],
    ],
)
def test_a_file_of_one_tree_a_line_stays_as_it_is(lines):
    assert trees_of_lines(lines) == lines
