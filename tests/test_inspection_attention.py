"""Attention weights of a model, laid out for a text and its translation."""

import json

import networks
import numpy as np
import pytest

from t2t_keras import registry
from t2t_keras.decoding import DecodeSettings, Ensemble, beam_search, greedy
from t2t_keras.errors import UserError
from t2t_keras.ids import until_eos
from t2t_keras.inspection.attention import KINDS, MOST_TOKENS, attention_data, attention_weights
from t2t_keras.inspection.attention_page import attention_page, batch_page
from t2t_keras.parsing.grammar import TagEncoder
from t2t_keras.text import SubwordTextEncoder

SYMBOLS = ["S", "NP", "VP", "PRP", "VBP", "NN", "/S", "/NP", "/VP"]
WORDS = TagEncoder(vocab_list=["I", "see", "rain", *SYMBOLS, *"abcdefghi"])  # 23 with 0, 1
WORDS.grammar = {"tags": {}, "openings": 9}
ENCODERS = {"inputs": WORDS, "targets": WORDS}
SOURCE, TARGET = [5, 9, 3, 7, 6, 8, 1], [7, 3, 9, 1]
QUICK = DecodeSettings(extra_length=2, beam_size=2)


@pytest.fixture(scope="module")
def model():
    return networks.search_model("num_encoder_layers=2")


def data_of(model, text="a b c", target="c b", **options):
    return attention_data(model, ENCODERS, text, target, **options)


@pytest.mark.parametrize(
    "overrides",
    ["num_encoder_layers=2", "self_attention_type=dot_product_relative,max_relative_position=3"],
)
def test_weights_are_those_of_the_model(overrides):
    """`attention_weights` stacks the layers' weights, whose rows sum to 1."""
    model = networks.search_model(overrides)
    batch = {"inputs": np.array([SOURCE]), "targets": np.array([TARGET])}
    _, wanted = model(batch, return_attention_weights=True)
    weights = attention_weights(model, SOURCE, TARGET)
    shapes = {"encoder": (7, 7), "decoder": (4, 4), "encdec": (4, 7)}
    for kind in KINDS:
        assert weights[kind].shape == (len(wanted[kind]), 2, *shapes[kind])
        for layer, of_model in zip(weights[kind], wanted[kind], strict=True):
            np.testing.assert_array_equal(layer, np.asarray(of_model)[0])
        np.testing.assert_allclose(weights[kind].sum(-1), 1, rtol=1e-6)
    assert not np.triu(weights["decoder"], 1).any()


def test_a_translation_that_is_given(model):
    """The weights are those of the ids of both texts and their ends."""
    data = data_of(model)
    ids = {"source": [*WORDS.encode("a b c"), 1], "target": [*WORDS.encode("c b"), 1]}
    weights = attention_weights(model, ids["source"], ids["target"])
    for kind in KINDS:
        np.testing.assert_array_equal(data.weights(kind), weights[kind])
    assert data.source.tokens == ["a", "b", "c", "</s>"]
    assert data.target.text == "c b" and data.target.tokens == ["c", "b", "</s>"]
    assert data.tree is None
    assert [len(side.tokens) for side in data.sides("encdec")] == [3, 4]


def test_a_translation_that_is_found(model):
    """Without a target, that of beam search is taken."""
    data = data_of(model, target=None, settings=QUICK)
    source = [*WORDS.encode("a b c"), 1]
    [[ids]], _ = beam_search(model, [source], beam_size=2, extra_length=2)
    best = [int(i) for i in ids if i]
    weights = attention_weights(model, source, best)
    np.testing.assert_array_equal(data.encdec, weights["encdec"])
    assert data.target.text == WORDS.decode([i for i in best if i != 1])


def test_a_beam_of_one_is_greedy(model):
    data = data_of(model, target=None, settings=DecodeSettings(beam_size=1, extra_length=2))
    [ids], _ = greedy(model, [[*WORDS.encode("a b c"), 1]], extra_length=2)
    assert data.target.text == WORDS.decode(until_eos(ids.numpy()))


def test_words_get_the_sum_over_keys_and_the_mean_over_queries(tmp_path):
    path = tmp_path / "vocabulary"
    path.write_text("".join(f"'{s}'\n" for s in ["<pad>", "<EOS>", *"0123456789\\u;_ab"]))
    subwords = SubwordTextEncoder(path)
    model = networks.small_model("num_hidden_layers=1", 18, 18)
    encoders = {"inputs": subwords, "targets": subwords}
    data = attention_data(model, encoders, "ab a", "b ba")
    words = data.by_words()
    assert words.source.tokens == ["ab", "a", "</s>"]
    assert words.target.tokens == ["b", "ba", "</s>"]
    # "ab a" is a b _ a _ </s>, "b ba" is b _ b a _ </s>.
    by_key = np.stack(
        [data.encdec[..., :3].sum(-1), data.encdec[..., 3:5].sum(-1), data.encdec[..., 5]], -1
    )
    wanted = np.stack(
        [by_key[:, :, :2].mean(2), by_key[:, :, 2:5].mean(2), by_key[:, :, 5]], axis=2
    )
    np.testing.assert_allclose(words.encdec, wanted, atol=1e-6)
    for kind in KINDS:
        np.testing.assert_allclose(words.weights(kind).sum(-1), 1, rtol=1e-5)


TREE = "(TOP (S (NP (PRP I)) (VP (VBP see) (NP (NN rain)))))"


@pytest.mark.parametrize("target", ["S NP PRP /NP VP VBP NP NN /NP /VP /S", TREE, None])
def test_parsing_has_the_tree(model, target):
    """Tags or a tree in brackets are the same target; what the model finds makes a tree, too."""
    problem = registry.problem("parsing_english_gum")
    data = data_of(model, "I see rain", target, problem=problem, settings=QUICK)
    if target is None:
        assert data.tree == problem.format_output("I see rain", data.target.text)
        assert problem.format_report() == "0 of 2 trees were repaired"
    else:
        assert data.tree == TREE
        assert " ".join(data.target.tokens) == "S NP PRP /NP VP VBP NP NN /NP /VP /S </s>"


def test_numpy_reads_it_again(model, tmp_path):
    """`save` writes weights, tokens and title for `numpy.load`."""
    data = data_of(model, target=None, settings=QUICK, title="a title")
    path = tmp_path / "attention.npz"
    data.save(path)
    stored = np.load(path)
    for kind in KINDS:
        np.testing.assert_array_equal(stored[kind], data.weights(kind))
    assert stored["source_tokens"].tolist() == data.source.tokens
    assert stored["target_words"].tolist() == data.target.words
    assert str(stored["title"]) == "a title" and str(stored["tree"]) == ""


def test_json_is_what_the_page_takes(model):
    """`to_json` has texts as they are and weights to four digits."""
    data = data_of(model, title="a title")
    page = json.loads(json.dumps(data.to_json()))
    assert page["title"] == "a title" and page["tree"] is None
    assert page["source"]["tokens"] == ["a", "b", "c", "</s>"]
    assert page["source"]["words"] == [0, 1, 2, 3]
    for kind in KINDS:
        np.testing.assert_allclose(page["attention"][kind], data.weights(kind), atol=5.1e-5)


@pytest.mark.parametrize("segments", [None, [1, 1, 1, 1, 2, 2]])
def test_page_of_a_batch_shows_its_first_pair(model, segments):
    """The page of a batch is that of the first pair without padding, of a packed row, too."""
    source, target = [*WORDS.encode("a b c"), 1], [*WORDS.encode("c b c"), 1]
    rest = [7, 1] if segments else [0, 0]
    batch = {"inputs": np.array([[*source, *rest]]), "targets": np.array([[*target, *rest]])}
    if segments:
        batch |= {f"{side}_segmentation": np.array([segments]) for side in ("inputs", "targets")}
    wanted = attention_page(data_of(model, "a b c", "c b c", title="a title").to_json())
    assert batch_page(model, ENCODERS, batch, "a title") == wanted


def test_mistakes_end_in_one_line(model):
    """Unknown words, long texts, settings without effect, other trees and ensembles are errors."""
    gum = registry.problem("parsing_english_gum")
    see = "(TOP (S (VP (VBP see))))"
    for message, options in {
        "text: Token 'unknown' is not in the vocabulary": {"text": "a unknown"},
        "target text: Token 'unknown'": {"target": "unknown"},
        f"the text has {MOST_TOKENS + 1} tokens": {"text": "a " * MOST_TOKENS},
        "decode hparam return_beams has no effect": {"settings": DecodeSettings(return_beams=True)},
        "the tree's words are 'see' and those of the text 'rain'": {
            "text": "rain",
            "target": see,
            "problem": gum,
        },
        "an ensemble has no attention of its own": {"model": Ensemble([model, model])},
    }.items():
        with pytest.raises(UserError, match=message):
            data_of(**{"model": model, **options})
