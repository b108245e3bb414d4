"""Repair of trees: from words and tags back to whole trees."""

import time

import pytest
from hypothesis import given, strategies as st
from random_trees import trees

from t2t_keras.parsing import Repairs, linearize, parse_tree, repair_tree, to_tree
from t2t_keras.parsing.repair import PERFECT, POOR, WRONG, mismatch

SENTENCE = "(TOP (S (NP (DT the) (JJ old) (NN cat)) (, ,) (VP (VBD sat) (ADVP (RB up))) (. .)))"
WORDS, TAGS = linearize(SENTENCE)

SYMBOLS = "S NP VP /S /NP /VP /X DT NN , . X -LRB- NP-SBJ /NP-SBJ ( / <EOS> é"
symbols = st.sampled_from(SYMBOLS.split())


@given(trees)
def test_linearized_trees_come_back_without_repairs(tree):
    words, tags = linearize(tree)
    assert repair_tree(words, tags) == (tree, Repairs())


def test_labels_that_no_treebank_knows_come_back():
    text = "(TOP (A (B (c d)) (NPP (NN e) (VP f))) (g (g h)))"
    assert to_tree(*linearize(text)) == text


@given(st.lists(st.text("ab.,()é\u00a0", min_size=1), max_size=8), st.lists(symbols, max_size=40))
def test_whatever_is_written_becomes_a_tree_of_the_words(words, tags):
    tree, repairs = repair_tree(" ".join(words), " ".join(tags))
    escaped = [word.replace("(", "-LRB-").replace(")", "-RRB-") for word in words]
    assert [word for _, word in parse_tree(str(tree)).tagged_words()] == escaped
    below = list(tree.subtrees)
    for node in below:
        assert node.children
        below += node.subtrees
    again, more = repair_tree(*linearize(tree))
    assert (str(again), bool(more)) == (str(tree), False)
    assert bool(repairs) or linearize(tree)[1].split() == tags


@pytest.mark.parametrize(
    "tags, tree, repairs",
    [
        (TAGS, SENTENCE, Repairs()),
        ("S NP DT JJ NN /NP , VP VBD ADVP-1 RB /VP . /S", SENTENCE.replace("ADVP", "ADVP-1"), Repairs(closings_added=1)),
        ("S NP DT JJ NN /NP , VP VBD ADVP RB /ADVP /VP .", SENTENCE, Repairs(closings_added=1)),
        (f"{TAGS} /S /NN", SENTENCE, Repairs(closings_dropped=2)),
        (f"<UNK> {TAGS} <UNK>", SENTENCE, Repairs(symbols_dropped=2)),  # brackets of a rare label
        (TAGS.replace("/NP", "/NP /PP /NP"), SENTENCE, Repairs(closings_dropped=2)),
        (TAGS.replace("NN", "NN PP /PP"), SENTENCE, Repairs(phrases_dropped=1)),
        (TAGS.replace("NN", "NN ( <pad> /"), SENTENCE, Repairs(symbols_dropped=3)),
        (TAGS.replace(" .", ""), SENTENCE, Repairs(tags_added=1)),
        (TAGS.replace("RB", "RB RB"), SENTENCE, Repairs(tags_dropped=1)),
        # The comma tells that a word before it lacks its tag, or has one too many.
        (TAGS.replace("JJ NN", "JJ"), SENTENCE.replace("NN", "XX"), Repairs(tags_added=1)),
        (TAGS.replace("JJ", "JJ NN"), SENTENCE, Repairs(tags_dropped=1)),
        ("", "(TOP (XX the) (XX old) (XX cat) (, ,) (XX sat) (XX up) (. .))", Repairs(tags_added=7)),
    ],
)  # fmt: skip
def test_repairs_by_hand(tags, tree, repairs):
    assert (to_tree(WORDS, tags), repair_tree(WORDS, tags)[1]) == (tree, repairs)


def test_a_word_that_was_passed_over_is_found_by_the_tags_of_its_neighbours():
    tags = "S NP NP DT NN /NP PP IN NP NN /NP /PP /NP VP VBZ ADJP JJ /ADJP /VP /S"
    assert str(repair_tree("the roof of her house is red", tags)[0]) == (
        "(TOP (S (NP (NP (DT the) (NN roof)) (PP (IN of) (XX her) (NP (NN house)))) "
        "(VP (VBZ is) (ADJP (JJ red)))))"
    )


def test_tags_that_are_as_many_but_shifted_are_realigned_on_demand():
    shifted = TAGS.replace("DT ", "").replace("RB", "RB RB")
    as_read, nothing = repair_tree(WORDS, shifted)
    assert (as_read.tagged_words()[0], nothing) == (("JJ", "the"), Repairs())
    tree, repairs = repair_tree(WORDS, shifted, realign=True)
    assert str(tree) == "(TOP (XX the) " + SENTENCE[len("(TOP ") :].replace("(DT the) ", "")
    assert repairs == Repairs(tags_added=1, tags_dropped=1)
    assert repair_tree(WORDS, TAGS, realign=True) == repair_tree(WORDS, TAGS)


SUITS = {
    PERFECT: ["the DT", "cat NN", "Cats NNPS", "running VBG", "1990s CD", "? .", "-LRB- -LRB-"],
    POOR: ["cat RB", "the ART", ", ."],
    WRONG: ["The NN", "cat DT", ", NN", "cat ,"],
}


def test_how_badly_a_tag_suits_a_word():
    for badly, pairs in SUITS.items():
        assert {pair: mismatch(*pair.split()) for pair in pairs} == dict.fromkeys(pairs, badly)


def test_words_and_tags_may_come_one_by_one_or_not_at_all():
    assert to_tree(WORDS.split(), TAGS.split()) == SENTENCE
    assert to_tree("", "S NP NN /NP /S") == "(TOP)"
    assert to_tree(", tea", "S NN /S") == "(TOP (S (, ,) (NN tea)))"
    assert repair_tree("", "NN")[1] == Repairs(tags_dropped=1)


def test_counts_add_up_and_say_what_they_are():
    total = Repairs(closings_added=2) + Repairs(closings_added=1, tags_dropped=4)
    assert total == Repairs(closings_added=3, tags_dropped=4)
    assert str(total) == "closings added: 3, tags dropped: 4"
    assert not Repairs() and total


def test_long_nonsense_takes_no_time():
    words = " ".join(["word", ","] * 200)
    start = time.perf_counter()
    for tags in ("NP " * 3000, "NN " * 3000, "/NP " * 3000, "S NP NN /VP " * 200):
        repair_tree(words, tags)
    assert time.perf_counter() - start < 5
