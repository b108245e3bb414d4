"""The grammar of a search for trees: what it allows, beside all trees of a few tokens, and what is found."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from networks import small_model

from t2t_keras.decoding import DecodeSettings, SearchStep, Translator
from t2t_keras.errors import UserError
from t2t_keras.export import ServedTransformer
from t2t_keras.parsing import repair_tree
from t2t_keras.parsing.grammar import tree_grammar
from t2t_keras.text import SubwordTextEncoder, TokenTextEncoder

TAGS = TokenTextEncoder(
    vocab_list=["<UNK>", "NP", "/NP", "S", "/S", "NN", ","], replace_oov="<UNK>"
)
WORDS = TokenTextEncoder(vocab_list=[*"abcdefgh"])
ENCODERS = {"inputs": WORDS, "targets": TAGS}
LINES = ["a b c", "a", "b c d e f g h", "h h", "", "a b", "c d e f"]


@functools.cache
def trees(words, symbols):
    """All sequences of nodes with so many words and at most so many symbols, by the rules of trees."""
    found = {()} if words == 0 else set()
    for inner in range(1, words + 1):  # words of the first node
        nodes = {(tag,) for tag in ("NN", ",")} if inner == 1 else set()
        if symbols > 2:
            nodes |= {
                (label, *node, f"/{label}")
                for label in ("NP", "S")
                for node in trees(inner, symbols - 2)
            }
        for node in nodes:
            if len(node) <= symbols:
                found |= {node + rest for rest in trees(words - inner, symbols - len(node))}
    return found


@pytest.mark.parametrize(("words", "limit"), [(0, 3), (1, 8), (2, 8), (3, 7)])
def test_prefixes_of_trees_and_nothing_else(words, limit):
    """Every prefix allowed belongs to a tree that ends within the limit, and every tree is allowed."""
    wanted = {(*tree, "<EOS>") for tree in trees(words, limit - 1)}
    assert (words, limit) != (2, 8) or len(wanted) > 100
    process = tree_grammar(TAGS)(["", "a " * words])
    prefixes, found = [()], set()
    for i in range(limit):
        ids = [[TAGS.encode(" ".join(prefix))] for prefix in prefixes]
        rows, limits = tf.ones(len(ids), tf.int32), tf.fill([len(ids)], limit)
        ids = tf.reshape(tf.constant(ids, tf.int32), [len(ids), 1, i])
        logits = process(tf.zeros([len(ids), 1, 64]), SearchStep(tf.constant(i), ids, rows, limits))
        allowed = np.argwhere(logits.numpy()[:, 0] == 0)
        longer = {(*prefixes[row], TAGS.decode([token])) for row, token in allowed}
        assert longer == {tree[: i + 1] for tree in wanted if len(tree) > i}
        found |= {prefix for prefix in longer if prefix[-1] == "<EOS>"}
        prefixes = sorted(longer - found)
        if not prefixes:
            break
    assert found == wanted


@functools.cache
def parser():
    overrides = "shared_embedding_and_softmax_weights=false,num_hidden_layers=1"
    return small_model(overrides, WORDS.vocab_size, TAGS.vocab_size, spread=3.0, ending=1.0)


def repairs(lines, translations):
    outputs = [
        (line, text) for line, each in zip(lines, translations, strict=True) for text in each
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
    settings = DecodeSettings(extra_length=extra_length, **search)
    translator = Translator(parser(), ENCODERS, settings, constraint=tree_grammar(TAGS))
    found = translator.translate(LINES * 3)
    assert not repairs(LINES * 3, [each.texts for each in found])
    assert extra_length == 0 or len({each.lengths[0] for each in found}) > 4
    by_ids = translator.translate_ids([[*WORDS.encode(line), 1] for line in LINES * 3])
    assert [each.texts for each in by_ids] == [each.texts for each in found]
    assert min(each.scores[0] for each in found) > -1e6


def test_it_is_of_vocabularies_with_phrases_and_can_be_left_out():
    assert tree_grammar(WORDS) is None
    assert tree_grammar(SubwordTextEncoder.build_from_generator(["NP /NP"], 30)) is None
    free = DecodeSettings(constrained=False, beam_size=1)
    translator = Translator(parser(), ENCODERS, free, constraint=tree_grammar(TAGS))
    assert repairs(LINES, [each.texts for each in translator.translate(LINES)])
    with pytest.raises(
        UserError, match=r"XLA compiles no constrained search: .* give constrained=false"
    ):
        Translator(parser(), ENCODERS, DecodeSettings(xla=True), constraint=tree_grammar(TAGS))


@pytest.mark.parametrize("beam_size", [1, 3])
def test_an_export_has_it(beam_size):
    settings = DecodeSettings(beam_size=beam_size, extra_length=9)
    grammar = tree_grammar(TAGS)
    found = Translator(parser(), ENCODERS, settings, constraint=grammar).translate(LINES)
    served = ServedTransformer(parser(), ENCODERS, settings, grammar)
    texts = served.translate(tf.constant(LINES))["translation"].numpy()
    assert [text.decode() for text in texts] == [each.texts[0] for each in found]
