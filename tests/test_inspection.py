"""Attention weights of a model, laid out for a text and its translation: as data, tokens and figures."""

import json

import networks
import numpy as np
import pytest

from t2t_keras import registry
from t2t_keras.decoding import DecodeSettings, beam_search, greedy
from t2t_keras.errors import UserError
from t2t_keras.ids import until_eos
from t2t_keras.inspection import AttentionData, Tokens, attention_data, attention_page, batch_page
from t2t_keras.inspection.attention import KINDS, MOST_TOKENS, attention_weights
from t2t_keras.inspection.attention_figure import attention_figure, require_figure, save_figure
from t2t_keras.inspection.tokens import shown_tokens
from t2t_keras.parsing.grammar import TagEncoder
from t2t_keras.text import ByteTextEncoder, SubwordTextEncoder, TokenTextEncoder

SYMBOLS = ["S", "NP", "VP", "PRP", "VBP", "NN", "/S", "/NP", "/VP"]
WORDS = TagEncoder(vocab_list=["I", "see", "rain", *SYMBOLS, *"abcdefghi"])  # 23 with 0, 1
WORDS.grammar = {"tags": {}, "openings": 9}
ENCODERS = {"inputs": WORDS, "targets": WORDS}
SOURCE, TARGET = [5, 9, 3, 7, 6, 8, 1], [7, 3, 9, 1]
QUICK = DecodeSettings(extra_length=2, beam_size=2)


@pytest.fixture(scope="module")
def model():
    return networks.search_model("num_hidden_layers=2")


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
    """The weights are those of the ids of both texts and their ends; the page gets four digits of them."""
    data = data_of(model, title="a title")
    weights = attention_weights(model, [*WORDS.encode("a b c"), 1], [*WORDS.encode("c b"), 1])
    page = json.loads(json.dumps(data.to_json()))
    for kind in KINDS:
        np.testing.assert_array_equal(data.weights(kind), weights[kind])
        np.testing.assert_allclose(page["attention"][kind], data.weights(kind), atol=5.1e-5)
    assert data.target.text == "c b" and data.target.tokens == ["c", "b", "</s>"]
    assert [len(side.tokens) for side in data.sides("encdec")] == [3, 4]
    assert page["title"] == "a title" and page["tree"] is None
    assert page["source"]["tokens"] == ["a", "b", "c", "</s>"]
    assert page["source"]["words"] == [0, 1, 2, 3]


@pytest.mark.parametrize("beam_size", [1, 2])
def test_a_translation_that_is_found(model, beam_size):
    data = data_of(model, target=None, settings=DecodeSettings(beam_size=beam_size, extra_length=2))
    source = [*WORDS.encode("a b c"), 1]
    ids = beam_search(model, [source], beam_size=2, extra_length=2)[0][:, 0]
    [best] = (greedy(model, [source], extra_length=2)[0] if beam_size == 1 else ids).numpy()
    assert data.target.text == WORDS.decode(until_eos(best))
    weights = attention_weights(model, source, best[best != 0])
    np.testing.assert_array_equal(data.encdec, weights["encdec"])


def test_words_get_the_sum_over_keys_and_the_mean_over_queries(tmp_path):
    path = tmp_path / "vocabulary"
    path.write_text("".join(f"'{s}'\n" for s in ["<pad>", "<EOS>", *"0123456789\\u;_ab"]))
    subwords = SubwordTextEncoder(path)
    model = networks.small_model("", 18, 18)
    data = attention_data(model, {"inputs": subwords, "targets": subwords}, "ab a", "b ba")
    words = data.by_words()
    assert words.source.tokens == ["ab", "a", "</s>"]
    assert words.target.tokens == ["b", "ba", "</s>"]
    # "ab a" is a b _ a _ </s>, "b ba" is b _ b a _ </s>.
    by_key = [data.encdec[..., :3].sum(-1), data.encdec[..., 3:5].sum(-1), data.encdec[..., 5]]
    by_key = np.stack(by_key, -1)
    wanted = [by_key[:, :, :2].mean(2), by_key[:, :, 2:5].mean(2), by_key[:, :, 5]]
    np.testing.assert_allclose(words.encdec, np.stack(wanted, 2), atol=1e-6)
    for kind in KINDS:
        np.testing.assert_allclose(words.weights(kind).sum(-1), 1, rtol=1e-5)


TREE = "(TOP (S (NP (PRP I)) (VP (VBP see) (NP (NN rain)))))"


@pytest.mark.parametrize("target", ["S NP PRP /NP VP VBP NP NN /NP /VP /S", " " + TREE, None])
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


@pytest.mark.parametrize("segments", [None, [1, 1, 1, 1, 2, 2]])
def test_page_of_a_batch_shows_its_first_pair(model, segments):
    source, target = [*WORDS.encode("a b c"), 1], [*WORDS.encode("c b c"), 1]
    rest = [7, 1] if segments else [0, 0]
    batch = {"inputs": np.array([[*source, *rest]]), "targets": np.array([[*target, *rest]])}
    if segments:
        batch |= {f"{side}_segmentation": np.array([segments]) for side in ("inputs", "targets")}
    wanted = attention_page(data_of(model, "a b c", "c b c", title="a title").to_json())
    assert batch_page(model, ENCODERS, batch, "a title") == wanted


GUM = registry.problem("parsing_english_gum")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": "a unknown"}, "text: Token 'unknown' is not in the vocabulary"),
        ({"target": "unknown"}, "target text: Token 'unknown'"),
        ({"text": "a " * MOST_TOKENS}, f"the text has {MOST_TOKENS + 1} tokens"),
        ({"settings": DecodeSettings(return_beams=True)}, "decode hparam return_beams has no effect"),
        ({"text": "rain", "target": "(TOP (S (VP (VBP see))))", "problem": GUM}, "the tree's words are 'see' and those of the text 'rain'"),
    ],
)  # fmt: skip
def test_mistakes_end_in_one_line(model, options, message):
    with pytest.raises(UserError, match=message):
        data_of(model, **options)


# Tokens: ids as text, and grouped into words

SUBTOKENS = ["<pad>", "<EOS>", "Ein_", "Ha", "us", ", _", "ja_", "S_", "NP_", " /_"]
CHARACTERS = "_\\0123456789;u b"


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab"
    path.write_text("".join(f"'{subtoken}'\n" for subtoken in [*SUBTOKENS, *CHARACTERS]))
    escapes = SubwordTextEncoder.__new__(SubwordTextEncoder)
    escapes.__setstate__({"subtokens": ["<pad>", "<EOS>", "\\u_", "a\\\\"]})
    words = TokenTextEncoder(vocab_list=["big", "dog"])
    subwords = SubwordTextEncoder(path)
    return {"subwords": subwords, "escapes": escapes, "bytes": ByteTextEncoder(), "words": words}


@pytest.mark.parametrize(
    ("name", "text", "tokens", "words", "numbers"),
    [
        # A word is a token of T2T's tokenizer; "·" only ends one.
        ("subwords", "Ein Haus, ja", "Ein Ha us · , ja", "Ein Haus , ja", [0, 1, 1, 1, 2, 3]),
        # A character without a subtoken is spelled by its number; "␣" is a space.
        ("subwords", "u € b", "u · ␣ \\ 8 3 6 4 ; ␣ · b ·", "u € b", [0, 0, *[1] * 9, 2, 2]),
        ("bytes", "a\t ß", "a ␣ ␣ \ufffd \ufffd", "a ␣␣ ß", [0, 1, 1, 2, 2]),
        ("words", "dog big", "dog big", "dog big", [0, 1]),
    ],
)
def test_tokens_and_words(encoders, name, text, tokens, words, numbers):
    """Tokens are shown without T2T's marks, and belong to words; the end of sentence is one."""
    shown = shown_tokens(encoders[name], [*encoders[name].encode(text), 1])
    tokens, words = ([*each.split(), "</s>"] for each in (tokens, words))
    assert shown == Tokens(text, tokens, [*numbers, numbers[-1] + 1], words)
    assert shown.by_words() == Tokens(text, words, [*range(len(words))], words)


@pytest.mark.parametrize(
    ("name", "ids", "tokens", "words"),
    [
        ("escapes", [3, 2], ["a\\", "_"], [0, 0]),
        ("subwords", [3, 99, 4], ["Ha", "ID_99", "us"], [0, 0, 1]),
    ],
)
def test_ids_that_no_text_has(encoders, name, ids, tokens, words):
    """Escapes are undone where they are whole, and an id beyond the vocabulary is a number."""
    shown = shown_tokens(encoders[name], ids)
    assert (shown.tokens, shown.words) == (tokens, words)


def test_symbols_of_a_tree_are_whole_words(encoders):
    subwords, text = encoders["subwords"], "S NP , NP /NP /S"
    ids = [*subwords.encode(text), 1]
    assert " ".join(shown_tokens(subwords, ids).word_texts) == "S NP , NP / NP / S </s>"
    tokens = shown_tokens(subwords, ids, split_at_space=True)
    assert " ".join(tokens.word_texts) == "S NP , NP /NP /S </s>"
    assert tokens.words == [0, 1, 2, 2, 3, 4, 4, 5, 5, 6]


# Figures: lines are where the weights are, and as strong


@pytest.fixture(scope="module")
def data():
    pytest.importorskip("matplotlib")
    random = np.random.default_rng(0)
    source = Tokens("big $dog", ["big", "$dog", "</s>"], [0, 1, 2], ["big", "$dog", "</s>"])
    target = Tokens("Hund", ["Hund", "</s>"], [0, 1], ["Hund", "</s>"])
    shapes = ((3, 3), (2, 2), (2, 3))  # in two layers of three heads
    weights = [random.dirichlet(np.ones(keys), (2, 3, queries)) for queries, keys in shapes]
    weights[2][0, 0, 1] = 1 + 5e-7, 0, 0  # more than 1 by rounding
    return AttentionData("toy", source, target, *(each.astype(np.float32) for each in weights))


def lines(axes):
    """(query, key) of each line, from where it begins and ends, and its strength."""
    found = {}
    for drawn in axes.collections:
        segments = zip(drawn.get_segments(), drawn.get_alpha(), strict=True)
        for ((_, query), (_, key)), alpha in segments:
            found[round(query), round(key)] = alpha
    return found


def test_a_head_has_a_picture_with_a_line_for_every_weight(data):
    figure = attention_figure(data, "encdec", layer=0)
    assert [axes.get_title() for axes in figure.axes] == ["head 0", "head 1", "head 2"]
    for head, axes in enumerate(figure.axes):
        drawn = lines(axes)
        for (query, key), weight in np.ndenumerate(data.encdec[0, head]):
            assert drawn.pop((query, key), 0) == pytest.approx(weight if weight >= 0.02 else 0)
        assert not drawn
        written = [(text.get_text(), *text.get_position()) for text in axes.texts]
        assert [text for text, x, _ in written if x < 0.5] == ["Hund", "</s>"]
        assert [text for text, x, _ in written if x > 0.5] == ["big", r"\$dog", "</s>"]
        assert [y for _, x, y in written if x > 0.5] == [0, 1, 2]


def test_some_words_have_one_picture_with_a_colour_a_head(data):
    from matplotlib.colors import to_hex

    figure = attention_figure(data, "encoder", heads=[0, 2], words=["big"])
    [axes] = figure.axes
    [legend] = figure.legends
    named = {line.get_label(): to_hex(line.get_color()) for line in legend.get_lines()}
    assert list(named) == ["head 0", "head 2"]
    assert [to_hex(c.get_colors()[0]) for c in axes.collections] == list(named.values())
    assert {query for query, _ in lines(axes)} == {0}
    strong = data.encoder[1][[0, 2], 0] >= 0.02
    assert sum(len(drawn.get_segments()) for drawn in axes.collections) == strong.sum()


@pytest.mark.parametrize(("ending", "content"), [("PNG", b"\x89PNG"), ("svg", b"</svg>")])
def test_is_written(data, tmp_path, ending, content):
    path = tmp_path / f"figure.{ending}"
    require_figure(str(path))
    save_figure(attention_figure(data, "decoder"), str(path))
    assert content in path.read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"kind": "encoders"},
            "the kind of attention must be one of .*'encoders'. Did you mean 'encoder'?",
        ),
        ({"layer": 2}, "no layer 2: the encdec attention has layers 0 to 1"),
        ({"heads": [3]}, "no head 3: a layer has heads 0 to 2"),
        ({"words": ["Hunt"]}, "'Hunt' is not a query; queries are Hund, </s>. Did you mean"),
    ],
)
def test_what_a_figure_lacks(data, options, message):
    with pytest.raises(UserError, match=message):
        attention_figure(data, **options)


def test_a_name_without_a_known_end_is_refused(data):
    for path in ("figure", "figure.docx"):
        with pytest.raises(UserError, match=f"unknown figure format '{path}'"):
            require_figure(path)
