"""Labelled bracketing against what EVALB printed, and against counting the long way."""

import random
from pathlib import Path

import pytest
from damaged_trees import damaged
from evalb_figures import FIGURES, GUM_FIGURES, SENTENCES, SUMMARY

from t2t_keras.errors import UserError
from t2t_keras.metrics import parsing_f1
from t2t_keras.metrics.parsing_f1 import Brackets, read_brackets, root_label, trees_of_lines
from t2t_keras.parsing import parse_tree, read_tree_file

GUM = Path(__file__).parents[2] / "shared/data/gum/dev.trees.gz"
STATUS = {"valid": 0, "error": 1, "skipped": 2}
TEA = "(TOP (S (NP (NN tea)) (VP (VBZ cools)) (. .)))"


def figures_of(summary):
    """The numbers of EVALB's summary."""
    return [line.split("=")[1].strip() for line in summary.splitlines() if " = " in line]


@pytest.mark.parametrize(
    "pair, expected", [*zip(SENTENCES.values(), FIGURES, strict=True)], ids=SENTENCES
)
def test_a_sentence_counts_as_in_evalb(pair, expected):
    (found,) = parsing_f1(*([tree] for tree in pair)).by_sentence
    figures = (found.length, STATUS[found.status], found.matched, found.gold, found.predicted)
    figures += (found.crossing, found.words, found.correct_tags)
    assert figures == expected
    assert (found.reason == "") == (found.status == "valid")


def test_the_summary_is_that_of_evalb():
    figures = parsing_f1(*zip(*SENTENCES.values(), strict=True))
    assert figures_of(str(figures)) == figures_of(SUMMARY)


@pytest.mark.skipif(not GUM.exists(), reason="needs the trees of GUM in ../shared")
@pytest.mark.parametrize("rate, expected", GUM_FIGURES.items())
def test_damaged_trees_of_gum_score_as_in_evalb(rate, expected):
    trees = list(read_tree_file(GUM))
    generator = random.Random(1)
    predicted = [damaged(tree, generator, float(rate)) for tree in trees]
    assert figures_of(str(parsing_f1(trees, predicted))) == expected.split()


def random_trees(count, seed):
    """Gold trees and worse ones; half of them have the words of the gold tree."""
    generator = random.Random(seed)
    tree = parse_tree(
        "(TOP (S (NP (NP (DT a) (NN b)) (, ,) (SBAR (WHNP (WDT c)) (S (VP (VBD d))))) (VP (VB e) "
        "(PP (IN f) (NP (DT g) (JJ h) (NN i))) (PRT (RP j)) (SBAR (IN k) (S (VP (VBG l))))) (. .)))"
    )
    gold = [damaged(tree, generator, 0.1) for _ in range(count)]
    return gold, [damaged(tree, generator, 0.5) for _ in range(count)]


def test_counts_are_those_of_comparing_every_bracket_with_every_other():
    gold_trees, predicted_trees = random_trees(400, seed=2)
    figures = parsing_f1(gold_trees, predicted_trees)
    assert {s.status for s in figures.by_sentence} == {"valid", "error", "skipped"}
    trees = zip(gold_trees, predicted_trees, figures.by_sentence, strict=True)
    for gold_tree, predicted_tree, found in (t for t in trees if t[-1].status == "valid"):
        gold, predicted = read_brackets(gold_tree).spans, read_brackets(predicted_tree).spans
        left, matched = list(gold), 0
        for span in predicted:
            if span in left:
                left.remove(span)
                matched += 1
        crossing = sum(
            any(a < start < b < end or start < a < end < b for a, b, _ in gold)
            for start, end, _ in predicted
        )
        assert (found.matched, found.crossing) == (matched, crossing)


def test_no_damage_raises():
    generator = random.Random(4)
    pieces = ["(", ")", " ", "(NP ", "(TOP ", "(NN tea)", "(, ,)", *"-=\t\n\0éx"]
    texts = ["".join(generator.choices(pieces, k=generator.randrange(30))) for _ in range(1500)]
    gold, _ = random_trees(len(texts), seed=5)
    for place, tree in enumerate(gold):
        cut = generator.randrange(len(tree) + 1)
        gold[place] = tree[:cut] + texts[place] * (place % 2) + tree[cut + place % 3 :]
    for pair in ((gold, texts), (texts, gold), (texts, texts)):
        figures = parsing_f1(*pair)
        assert figures.sentences == figures.valid + figures.skipped + figures.errors
        assert 0 <= figures.f1 <= 100
        str(figures)
    assert parsing_f1(gold, gold).f1 == 100


def test_takes_trees_as_well_as_strings_and_deeper_ones_than_python_recurses():
    text = "(TOP (S (NP-SBJ (NN tea)) (VP (VBZ cools)) (. .)))"
    assert parsing_f1([parse_tree(text)], [TEA]) == parsing_f1([text], [parse_tree(TEA)])
    assert parsing_f1([text], [TEA]).f1 == 100
    deep = "(TOP " + "(NP " * 5000 + "(NN tea)" + ")" * 5001
    assert parsing_f1([deep], [deep]).by_sentence[0].matched == 5000


@pytest.mark.parametrize(
    "gold, predicted, reason",
    [
        (TEA, "(TOP (S (NP (NN tea)) (. .)))", "Length unmatch (2|1)"),
        (TEA, TEA.replace("cools", "is"), "Words unmatch (cools|is)"),
        (TEA, TEA[:-2], "predicted tree: 2 of its brackets never close"),
        (TEA, TEA + ")", "predicted tree: a bracket closes that never opened"),
        (TEA, "(TOP (NN a b))(NN c)", "predicted tree: 'a' stands where a bracket should"),
        (TEA, "", "no words are predicted"),
        (TEA[1:], TEA, "gold tree: 'TOP' stands where a bracket should"),
    ],
)
def test_says_why_a_sentence_does_not_count(gold, predicted, reason):
    (found,) = parsing_f1([gold], [predicted]).by_sentence
    assert found.reason == reason


@pytest.mark.parametrize(
    "gold, predicted, message",
    [
        ([TEA], [], "1 gold trees but 0 predicted ones"),
        ([], [], "There are no trees to score"),
        (TEA, [TEA], "gold_trees is one string"),
        ([TEA], TEA, "predicted_trees is one string"),
    ],
)
def test_one_line_for_what_is_no_list_of_pairs(gold, predicted, message):
    with pytest.raises(UserError, match=message) as error:
        parsing_f1(gold, predicted)
    assert "\n" not in str(error.value)


# The brackets of a tree as EVALB reads it


def test_reads_what_counts():
    verb = "(VP (VBZ is) (VP (VBN seen) (NP (-NONE- *-1))))"
    spans = [(0, 1, "NP"), (2, 3, "VP"), (1, 3, "VP"), (0, 3, "S")]
    assert read_brackets(f"(TOP (S (NP-SBJ-1 (NNP Kim)) (, ,) {verb} (. .)))") == Brackets(
        ["Kim", "is", "seen"], ["NNP", "VBZ", "VBN"], spans, length=5, fault=""
    )


def test_label_of_the_root():
    labels = {"(TOP (NN tea))": "TOP", " ( (S (NN tea)) )": "", "(ROOT(NN tea))": "ROOT"}
    labels |= {"(S-TTL (NN tea))": "S", "tea": None, "": None}
    assert {tree: root_label(tree) for tree in labels} == labels


def test_lines_that_begin_with_white_space_go_on_with_an_open_tree():
    text = "\n( (S\n    (NP (NN tea))\n\n\t(VP (VBZ cools)) ))\n\n(TOP (NN milk))\n"
    joined = [" ".join(tree.split()) for tree in trees_of_lines(text.split("\n"))]
    assert joined == ["( (S (NP (NN tea)) (VP (VBZ cools)) ))", "(TOP (NN milk))"]
    for lines in (  # a file of one tree a line stays as it is
        ["(TOP (NN tea))", "", "(TOP (NN milk))", ""],
        ["(TOP (NN tea)", "(TOP (NN milk))"],  # the first is not closed, but the second begins anew
        [" (TOP (NN tea))", " (TOP (NN milk))"],
        [""],
        [],
    ):
        assert trees_of_lines(lines) == lines
