"""Word alignments by attention: hand-made weights, words of every encoder, error rates."""

import networks
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings, strategies as st

from t2t_keras.decoding import DecodeSettings
from t2t_keras.decoding.translator import Line
from t2t_keras.errors import UserError
from t2t_keras.export.served import ServedTransformer
from t2t_keras.inspection.alignment import (
    PairAligner,
    alignment_error_rate,
    from_pharaoh,
    strongest,
    to_pharaoh,
    words_of_tokens,
)
from t2t_keras.inspection.attention import attention_weights
from t2t_keras.inspection.tokens import shown_tokens
from t2t_keras.text import (
    ByteTextEncoder,
    SentencePieceEncoder,
    SubwordTextEncoder,
    TokenTextEncoder,
)

TEXT = ["low lower, lowest: (a b)", "  x  y-z 3.14 \u3000 日本", "a"]
SUBWORDS = SubwordTextEncoder.build_from_generator(TEXT * 5, 90)
WORDS = TokenTextEncoder(vocab_list=[*"abcdefghijklmnopqrstu"])
ENCODERS = {"inputs": WORDS, "targets": WORDS}


@pytest.fixture(scope="module")
def model():
    return networks.search_model("num_hidden_layers=2")


def test_tokens_belong_to_the_words_between_white_space():
    """Each word is written by the tokens from its first to its last; some write two, such as ". ."."""

    @settings(max_examples=60, deadline=None, database=None)
    @given(st.text("ab,.3\u3000 日", max_size=20), st.sampled_from([SUBWORDS, ByteTextEncoder()]))
    def check(text, encoder):
        ids = [*encoder.encode(text), 1]
        found = words_of_tokens(encoder, ids).numpy()
        assert found[-1].tolist() == [1, *[0] * len(text.split())]
        for number, word in enumerate(text.split(), start=1):
            places = np.flatnonzero(found[:, number])
            assert word in encoder.decode(ids[places[0] : places[-1] + 1])
            others = np.flatnonzero(found[:, number + 1 :].any(1))
            assert not len(others) or places[-1] <= others[0]

    check()
    pytest.importorskip("sentencepiece")
    pieces = SentencePieceEncoder.build_from_generator(["low lower newest"] * 9, 16)
    ids = [*pieces.encode("日low 日lower lo日w 日 newest"), 1]
    assert pieces.decode(ids[:-1]).count("\u2047") == 4
    assert words_of_tokens(pieces, ids).shape == (len(ids), 1 + 5)
    ids = [*SUBWORDS.encode("a lower, a"), 1]
    words = [np.flatnonzero(row).tolist() for row in words_of_tokens(SUBWORDS, ids)]
    assert words[0] == [1] and words[-2:] == [[3], [0]]
    ids = [*SUBWORDS.encode("r a"), 1]  # "r", "_", "a_" and the end
    assert words_of_tokens(SUBWORDS, ids)[:, 1].numpy().tolist() == [1, 1, 0, 0]


def test_a_word_gets_the_sum_of_its_tokens_and_ends_get_none(model):
    """Two source words of two tokens and one, by weights [T, S] of which the last is the end."""
    aligner = PairAligner(model, {"inputs": ByteTextEncoder(), "targets": WORDS})
    pair = aligner._pair(Line(1, "ab c\tu d e"))
    weights = np.array(
        [  # a    b    " "  c    end
            [0.3, 0.3, 0.0, 0.4, 0.0],  # u: the two tokens of the first word
            [0.1, 0.1, 0.0, 0.5, 0.3],  # d
            [0.1, 0.1, 0.1, 0.3, 0.4],  # e: most of all the end, and no word
            [1.0, 0.0, 0.0, 0.0, 0.0],
        ]
    )
    words = words_of_tokens(WORDS, pair.target), words_of_tokens(ByteTextEncoder(), pair.source)
    assert strongest(*words, weights[None]).numpy().tolist() == [[0, 1, -1]]


@pytest.mark.parametrize("heads", ["mean", "1", "1:0", "0:1+1"])
def test_links_are_those_of_the_attention(model, heads, eagerly):
    """Each word is a token here, so the strongest weight of a row is the link."""
    sources, targets = ["a b c d", "e <pad> f", "g h i"], ["c b", "a d h", "i"]
    found = PairAligner(model, ENCODERS, heads).align(sources, targets)
    for source, target, each in zip(sources, targets, found, strict=True):
        ids = [[*WORDS.encode(text), 1] for text in (source, target)]
        weights = attention_weights(model, *ids)["encdec"]
        layer, _, head = heads.removesuffix("+1").partition(":")
        if layer != "mean":
            weights = weights[[int(layer)]]
        if head:
            weights = weights[:, [int(head)]]
        rows = weights.mean((0, 1))[heads.endswith("+1") :][: len(ids[1]) - 1]
        best = rows.argmax(1).tolist()
        assert each == [(s, t) for t, s in enumerate(best) if s < len(ids[0]) - 1]


def test_white_space_that_pieces_do_not_know_separates_words(model, eagerly):
    """In texts to align, here and in an export; a tab separates the sides of a line."""
    pytest.importorskip("sentencepiece")
    pieces = SentencePieceEncoder.build_from_generator(["low lower newest"] * 9, 16)
    assert pieces.decode(pieces.encode("low\u3000")) == "low \u2047 "
    encoders = {"inputs": pieces, "targets": pieces}
    aligner = PairAligner(model, encoders)
    pair = aligner._pair(Line(1, "low\u3000lower\xa0new\tlow lower"))
    words = [words_of_tokens(pieces, ids).shape[1] - 1 for ids in (pair.source, pair.target)]
    assert words == [3, 2]
    served = ServedTransformer(model, encoders, align_heads="mean")
    sides = (["low\u3000lower low", "low"], ["new\xa0est", "low\u2003low low"])
    lines = served.align(*map(tf.constant, sides))["alignment"].numpy()
    assert [line.decode() for line in lines] == list(map(to_pharaoh, aligner.align(*sides)))
    known = SentencePieceEncoder.build_from_generator(["low low\u3000lower newest"] * 9, 20)
    assert shown_tokens(known, known.encode("n low\u3000low")[1:]).word_texts == ["n", "low", "low"]
    sources, targets = tf.constant(["low low"] * 2), tf.constant(["low low", "low\tlow"])
    [spaces, tab] = served.align(sources, targets)["alignment"].numpy()
    assert spaces == tab


def test_error_rates_by_hand():
    """Och and Ney 2003: 1 - (|A and S| + |A and P|) / (|A| + |S|), sure links being possible ones."""
    gold = [from_pharaoh("0-0 1-2 1?1"), from_pharaoh("")]
    assert gold[0] == ({(0, 0), (1, 2)}, {(0, 0), (1, 2), (1, 1)})
    assert alignment_error_rate([[(0, 0), (1, 1), (2, 2)], []], gold) == 1 - (1 + 2) / (3 + 2)
    assert alignment_error_rate([[(0, 0), (1, 2)], []], gold) == 0
    assert to_pharaoh([(1, 0), (0, 2)]) == "0-2 1-0"
    with pytest.raises(UserError, match=r"line 3 has '1:2': links are 1-2"):
        from_pharaoh("0-0 1:2", "line 3")


def test_every_head_is_scored_as_it_aligns(model, eagerly):
    sources, targets = ["a b c d", "e f"], ["c b", "a d h"]
    gold = [({(0, 0)}, {(0, 0), (1, 1)}), ({(1, 2)}, {(1, 2)})]
    lines = ["\t".join(pair) for pair in zip(sources, targets, strict=True)]
    rates = PairAligner(model, ENCODERS).error_rates(lines, gold)
    assert len(rates) == 2 * (1 + 2 * (1 + 2))  # layers of the decoder with their heads
    for heads, rate in rates.items():
        found = PairAligner(model, ENCODERS, str(heads)).align(sources, targets)
        assert alignment_error_rate(found, gold) == rate
    with pytest.raises(UserError, match=r"^2 pairs but 1 reference alignments"):
        PairAligner(model, ENCODERS).error_rates(lines, gold[:1])
    with pytest.raises(UserError, match=r"^1-3 is beyond the words of .* counted from 0"):
        PairAligner(model, ENCODERS).error_rates(lines, [gold[0], ({(1, 3)}, {(1, 3)})])


def test_a_pair_that_is_too_long_has_no_links(model):
    messages = []
    aligner = PairAligner(model, ENCODERS, "0", DecodeSettings(max_input_size=4), messages.append)
    assert aligner.align(["a b", "a b c d e"], ["b a", "b"])[1] == []
    assert set(aligner.error_rates(["a b c d e\tb"], [({(0, 0)}, {(0, 0)})]).values()) == {1.0}
    assert "it is not scored" in messages[0]
    aligner = PairAligner(model := networks.small_model(spread=3.0), ENCODERS, "0:1")
    before = aligner.align(["a b c d"], ["c b a d"])
    (q := model.decoder.layers[0].encdec_attention.q).enable_lora(2)
    for weight in (q.lora_kernel_a, q.lora_kernel_b):
        weight.assign(np.random.default_rng(1).normal(0, 9, weight.shape))
    assert before != aligner.align(["a b c d"], ["c b a d"])


def test_mistakes_end_in_one_line(model):
    for heads, message in {
        "all": "heads must be mean, LAYER or LAYER:HEAD.* got 'all'",
        "0:2": "heads=0:2: there is no head 2, only 0 to 1",
    }.items():
        with pytest.raises(UserError, match=message):
            PairAligner(model, ENCODERS, heads)
    for side, use in {"encoder": PairAligner, "decoder": attention_weights}.items():
        one = networks.small_model(f"num_hidden_layers=0,num_{side}_layers=1")
        with pytest.raises(UserError, match="an encoder and a decoder, with layers"):
            use(one, ENCODERS, [1])
