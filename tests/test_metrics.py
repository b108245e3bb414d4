"""BLEU against t2t-bleu's own figures and by hand; labelled bracketing against what EVALB printed."""

import json
import math
import random
import sys
import time
import unicodedata
from pathlib import Path

import pytest
from damaged_trees import damaged
from evalb_figures import FIGURES, GUM_FIGURES, SENTENCES, SUMMARY

from t2t_keras.errors import UserError
from t2t_keras.metrics import bleu, parsing_f1
from t2t_keras.metrics.bleu import international, paper_style
from t2t_keras.metrics.parsing_f1 import Brackets, read_brackets, root_label, trees_of_lines
from t2t_keras.parsing import parse_tree, read_tree_file
from t2t_keras.text import read_lines

SHARED = Path(__file__).parents[2] / "shared"


@pytest.mark.skipif(not SHARED.exists(), reason="needs T2T's reference numbers in ../shared")
def test_equals_t2t_bleu():
    golden = SHARED / "golden/text"
    figures = bleu(read_lines(golden / "bleu.ref.txt"), read_lines(golden / "bleu.hyp.txt"))
    expected = json.loads((golden / "bleu.json").read_text())
    assert figures.t2t_cased == pytest.approx(expected["cased"], abs=1e-6)
    assert figures.t2t_uncased == pytest.approx(expected["uncased"], abs=1e-6)


def mean(*precisions):
    return 100 * math.prod(precisions) ** (1 / 4)


BY_HAND = {
    "perfect": (["One, two, three.", "Four five six."], ["One, two, three.", "Four five six."], [100] * 3),
    # Precisions 3/4, 1/3, then 0/2 and 0/1, which count as (1/2)/2 and (1/4)/1.
    "smoothing": (["a b c d"], ["a b x d"], [mean(3 / 4, 1 / 3, 1 / 4, 1 / 4)] * 2 + [0]),
    "case": (["A b c d"], ["a b c d"], [mean(3 / 4, 2 / 3, 1 / 2, 1 / 2), None, None]),
    "brevity": (["a b c d", "a b c d e f"], ["a b c d"] * 2, [100 * math.exp(1 - 10 / 8)] * 3),
    "an order without an n-gram, left out by T2T only": (["a b"], ["a b"], [100, 0, None]),
    "no output": (["a b c d"], [""], [0, 0, 0]),
    # ein rich ##AT##-##AT## text Format: the first 4 of 5 tokens match.
    "parts of compounds": (["ein rich-text Format"], ["ein rich-text Formular"], [None, None, mean(4 / 5, 3 / 4, 2 / 3, 1 / 2)]),
}  # fmt: skip


@pytest.mark.parametrize(("references", "hypotheses", "by_hand"), BY_HAND.values(), ids=BY_HAND)
def test_by_hand(references, hypotheses, by_hand):
    figures = bleu(references, hypotheses)
    ours = (figures.t2t_cased, figures.sacrebleu, figures.paper_style)
    for our, wanted, tolerance in zip(ours, by_hand, (1e-5, 1e-9, 1e-9), strict=True):
        assert wanted is None or our == pytest.approx(wanted, abs=tolerance)
    assert figures.t2t_uncased == (100 if "A" in references[0] else figures.t2t_cased)


def test_international_tokens():
    for line, tokens in {
        "Hello, world!": "Hello , world !",
        "1,000.5 in 2014.": "1,000.5 in 2014.",
        "(a-b) 3-4 5%": "( a - b ) 3-4 5%",
        "x² ½-ton 5€ a\\b": "x² ½ - ton 5 € a\\b",
        "„So“ – so…": "„ So “ – so …",
    }.items():
        assert international(line) == tokens.split()


def test_international_tokens_of_all_kinds_of_characters():
    """The first and the last character of each run of one Unicode category, by the rules' definition."""
    kinds = ["", *(unicodedata.category(chr(c)) for c in range(sys.maxunicode + 1)), ""]
    for code_point, neighbours in enumerate(zip(kinds, kinds[1:], kinds[2:], strict=False)):
        if len(set(neighbours)) > 1:
            character, kind = chr(code_point), neighbours[1]
            alone = kind[0] in "PS" and character != "\\"
            tokens = ["a", character, "b"] if alone else f"a{character}b".split()
            assert international(f"a{character}b") == tokens


def test_a_long_line_takes_little_time():
    line = "Ein Satz, 3,5 Wörter - „lang“! 😀 " * 20_000
    start = time.process_time()
    assert len(international(line)) == 220_000
    assert time.process_time() - start < 1.75  # 0.5 s; with single characters, not ranges, 3.3 s


def test_paper_style_tokens():
    """By hand; Moses's `tokenizer.perl -l fr` and its Python port sacremoses give the same French."""
    data = Path(__file__).with_name("data") / "paper_style_tokens.json"
    for language, rows in json.loads(data.read_text("utf-8")).items():
        assert [paper_style(line, language) for line, _ in rows] == [t.split() for _, t in rows]
    assert paper_style("a-b") == paper_style("a-b", "de")  # the default


def test_french_is_scored_by_french_rules():
    # l' eau est-là bien vue ici: the first 5 of 6 tokens match. By German rules there are nine:
    # l ' eau est ##AT##-##AT## là bien vue ici.
    pair = ["l'eau est-là bien vue ici"], ["l'eau est-là bien vue hier"]
    french, german = bleu(*pair, language="fr"), bleu(*pair)
    assert french.paper_style == pytest.approx(mean(5 / 6, 4 / 5, 3 / 4, 2 / 3), abs=1e-9)
    assert german.paper_style == pytest.approx(mean(8 / 9, 7 / 8, 6 / 7, 5 / 6), abs=1e-9)
    assert (french.sacrebleu, french.t2t_cased) == (german.sacrebleu, german.t2t_cased)


def test_what_cannot_be_scored():
    for message, *arguments in (
        ("language must be one of de, fr, got 'en'", ["a"], ["a"], "en"),
        ("2 references but 1 translations", ["a", "b"], ["a"]),
        ("no sentences", [], []),
    ):
        with pytest.raises(UserError, match=message):
            bleu(*arguments)


# Parse trees

GUM = SHARED / "data/gum/dev.trees.gz"
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


def test_no_damage_raises():
    generator = random.Random(4)
    pieces = ["(", ")", " ", "(NP ", "(TOP ", "(NN tea)", "(, ,)", *"-=\t\n\0éx"]
    texts = ["".join(generator.choices(pieces, k=generator.randrange(30))) for _ in range(1500)]
    tree = parse_tree(
        "(TOP (S (NP (NP (DT a) (NN b)) (, ,) (SBAR (WHNP (WDT c)) (S (VP (VBD d))))) (VP (VB e) "
        "(PP (IN f) (NP (DT g) (JJ h) (NN i))) (PRT (RP j)) (SBAR (IN k) (S (VP (VBG l))))) (. .)))"
    )
    gold = [damaged(tree, generator, 0.1) for _ in texts]
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
    assert parsing_f1(iter([text]), iter([TEA])).f1 == 100
    deep = "(TOP " + "(NP " * 5000 + "(NN tea)" + ")" * 5001
    assert parsing_f1([deep], [deep]).by_sentence[0].matched == 5000


@pytest.mark.parametrize(
    "gold, predicted, reason",
    [
        (TEA, "(TOP (S (NP (NN tea)) (. .)))", "Length unmatch (2|1)"),
        (TEA, TEA.replace("cools", "is"), "Words unmatch (cools|is)"),
        (TEA, TEA[:-2], "predicted tree: 2 of its brackets never close"),
        (TEA, "(TOP (NN a b))(NN c)", "predicted tree: 'a' stands where a bracket should"),
        (TEA, "", "no words are predicted"),
        (TEA[1:], TEA, "gold tree: 'TOP' stands where a bracket should"),
    ],
)
def test_says_why_a_sentence_does_not_count(gold, predicted, reason):
    assert parsing_f1([gold], [predicted]).by_sentence[0].reason == reason


@pytest.mark.parametrize(
    "gold, predicted, message",
    [
        ([TEA], [], "1 gold trees but 0 predicted ones"),
        ([], [], "There are no trees to score"),
        ([TEA], TEA, "predicted_trees takes a list of texts, got"),
    ],
)
def test_one_line_for_what_is_no_list_of_pairs(gold, predicted, message, refused):
    with refused(message):
        parsing_f1(gold, predicted)


# The brackets of a tree as EVALB reads it


def test_reads_what_counts():
    verb = "(VP (VBZ is) (VP (VBN seen) (NP (-NONE- *-1))))"
    spans = [(0, 1, "NP"), (2, 3, "VP"), (1, 3, "VP"), (0, 3, "S")]
    assert read_brackets(f"(TOP (S (NP-SBJ-1 (NNP K\xa0m)) (, ,) {verb} (. .)))") == Brackets(
        ["K\xa0m", "is", "seen"], ["NNP", "VBZ", "VBN"], spans, length=5, fault=""
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
        ["(TOP (NN tea)", "(TOP (NN a))", " (NN b)"],  # not closed; the second begins anew
        [" (TOP (NN tea))", " (TOP (NN milk))"],
        [""],
        [],
    ):
        assert trees_of_lines(lines) == lines
