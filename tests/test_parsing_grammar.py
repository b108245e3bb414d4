"""The grammar of a search for trees: what it allows, beside all trees of a few tokens, and what is found."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
from networks import small_model

from t2t_keras.decoding import DecodeSettings, SearchStep, Translator, score
from t2t_keras.errors import UserError
from t2t_keras.parsing import Repairs, repair_tree
from t2t_keras.parsing.grammar import TagEncoder, learn_grammar, tree_grammar
from t2t_keras.text import TokenTextEncoder

TAGS = TagEncoder(vocab_list=["<UNK>", "NP", "/NP", "S", "/S", "NN", ","], replace_oov="<UNK>")
TAGS.grammar = {"tags": {}, "openings": 99}
WORDS = TokenTextEncoder(vocab_list=[*"abcdefgh"])
ENCODERS = {"inputs": WORDS, "targets": TAGS}
LINES = ["a b c", "a", "b c d e f g h", "h h", "", "a b", "c d e f"]


@functools.cache
def trees(words, symbols):
    """All sequences of nodes with so many words and at most so many symbols, by the rules of trees."""
    found = {()} if words == 0 else set()
    for inner in range(1, words + 1):  # words of the first node
        nodes = {(tag,) for tag in ("NN", ",")} if inner == 1 else set()
        for label in ("NP", "S") if symbols > 2 else ():
            nodes |= {(label, *node, f"/{label}") for node in trees(inner, symbols - 2)}
        for node in nodes:
            if len(node) <= symbols:
                found |= {node + rest for rest in trees(words - inner, symbols - len(node))}
    return found


LEARNED = {"tags": {"a": "NN XX NP", " word": ", S"}, "openings": 1}


def is_as_learned(tree):
    """By hand: the first word, a, is NN, the other a comma, and no phrase is opened just after another."""
    opened = [symbol in ("NP", "S") for symbol in tree]
    twice = (True, True) in itertools.pairwise(opened)
    return [s for s in tree if s in ("NN", ",")] == ["NN", ","] and not twice


@pytest.mark.parametrize(
    ("words", "limit", "learned"),
    [(0, 3, False), (1, 8, False), (2, 8, False), (3, 7, False), (2, 9, True)],
)
def test_prefixes_of_trees_and_nothing_else(monkeypatch, words, limit, learned):
    """Every prefix allowed belongs to a tree that ends within the limit, and every tree is allowed."""
    wanted = {(*tree, "<EOS>") for tree in trees(words, limit - 1)}
    assert words != 2 or len(wanted) > 100
    if learned:
        monkeypatch.setattr(TAGS, "grammar", LEARNED)
        wanted = set(filter(is_as_learned, wanted))
        assert len(wanted) > 10
    allow = tree_grammar(TAGS)(["", " ".join("abc"[:words])])
    prefixes, found = [()], set()
    for i in range(limit):
        ids = [[TAGS.encode(" ".join(prefix))] for prefix in prefixes]
        rows, limits = tf.ones(len(ids), tf.int32), tf.fill([len(ids)], limit)
        ids = tf.reshape(tf.constant(ids, tf.int32), [len(ids), 1, i])
        may = allow(tf.zeros([len(ids), 1, 64]), SearchStep(tf.constant(i), ids, rows, limits))
        allowed = np.argwhere(may.numpy()[:, 0])
        longer = {(*prefixes[row], TAGS.decode([token])) for row, token in allowed}
        assert longer == {tree[: i + 1] for tree in wanted if len(tree) > i}
        found |= {prefix for prefix in longer if prefix[-1] == "<EOS>"}
        if not (prefixes := sorted(longer - found)):
            break
    assert found == wanted


@functools.cache
def parser():
    overrides = "shared_embedding_and_softmax_weights=false,num_hidden_layers=1"
    return small_model(overrides, WORDS.vocab_size, TAGS.vocab_size, spread=3.0, ending=1.0)


def translator(**settings):
    return Translator(parser(), ENCODERS, DecodeSettings(**settings), constraint=tree_grammar(TAGS))


def repairs(lines, found):
    outputs = [  # a line may have fewer trees than there are beams
        (line, text)
        for line, each in zip(lines, found, strict=True)
        for text, length in zip(each.texts, each.lengths, strict=True)
        if length
    ]
    assert not any("<UNK>" in text for _, text in outputs)
    return [str(made) for line, text in outputs if (made := repair_tree(line, text)[1])]


@pytest.mark.parametrize(
    "search",
    [
        {"beam_size": 1},
        {"beam_size": 3, "return_beams": True},
        {"beam_size": 1, "sampling_method": "random", "sampling_temp": 3.0},
    ],
)
@pytest.mark.parametrize("extra_length", [0, 30])
def test_a_random_model_writes_trees(search, extra_length):
    """In every search, with sentences that leave it one after the other, and without room to spare."""
    restricted = translator(extra_length=extra_length, constrained="always", **search)
    found = restricted.translate(LINES * 3)
    assert not repairs(LINES * 3, found)
    assert extra_length == 0 or len({each.lengths[0] for each in found}) > 4
    by_ids = restricted.translate_ids([[*WORDS.encode(line), 1] for line in LINES * 3])
    assert [each.texts for each in by_ids] == [each.texts for each in found]
    assert min(each.scores[0] for each in found) > -1e6


@pytest.mark.parametrize(("constrained", "beam_size"), [("never", 2), ("beam", 1)])
def test_it_can_be_left_out(constrained, beam_size):
    assert tree_grammar(WORDS) is None
    free = translator(constrained=constrained, beam_size=beam_size)
    assert repairs(LINES, free.translate(LINES))
    message = "XLA cannot compile a search with a constraint: leave out xla"
    with pytest.raises(UserError, match=message):
        translator(xla=True)


def test_a_prefix_may_break_the_grammar():
    """It has more tags than there are words: the search ends, and other sentences are as ever."""
    for beam_size in (1, 3):
        restricted = translator(beam_size=beam_size, constrained="always")
        prefixes = ["NN NN S NN", "NP NN"]
        found = [each.texts[0] for each in restricted.translate(["a", "b c"], prefixes)]
        assert found[0].startswith("NN NN S NN") and (beam_size > 1 or found[0].endswith(" /S"))
        assert found[1].startswith("NP NN") and repair_tree("b c", found[1])[1] == Repairs()


def test_scores_are_those_of_the_model():
    """What the model would have liked to say instead costs its probability, also with a beam."""
    settings = {"extra_length": 9, "constrained": "always", "alpha": 0.0}
    for beam_size in (1, 3):
        found = translator(beam_size=beam_size, **settings).translate(["b c d"])[0]
        source, target = [[*WORDS.encode("b c d"), 1]], [[*TAGS.encode(found.texts[0]), 1]]
        wanted = score(parser(), np.array(source), np.array(target))
        np.testing.assert_allclose(found.scores, wanted, rtol=1e-4)


def test_what_words_may_be_is_learned():
    """Ten times make a word frequent; of others three of a form; counted by hand."""
    often = {"inputs": "tea ,", "targets": "S NP NN /NP , /S"}
    once = {"inputs": "Tea 7a \u0a05", "targets": "S S NP NP NNP /NP /NP CD FW /S /S"}
    assert learn_grammar([often] * 10 + [once] * 3) == {
        "tags": {"tea": "NN", ",": ",", " capital": "NNP", " digits": "CD", " word": "FW"},
        "openings": 4,
    }
    assert [learn_grammar([often] * n + [once])["openings"] for n in (998, 999)] == [4, 2]
    assert learn_grammar([often] * 9 + [once] * 2)["tags"] == {" word": "NN", " mark": ","}
