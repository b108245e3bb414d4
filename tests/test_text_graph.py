"""Encoding and decoding inside a graph: equal to the encoders of single texts, on everything."""

import functools
import json
import pickle
import random
import re

import numpy as np
import pytest
import tensorflow as tf
import toy
from hypothesis import example, given, settings, strategies as st
from properties import SEED, holds

from t2t_keras.errors import UserError
from t2t_keras.text import ByteTextEncoder, SubwordTextEncoder, TokenTextEncoder
from t2t_keras.text.graph import SubwordCutter
from t2t_keras.text.tokenizer import ESCAPE_CHARACTERS

LINES = [
    "Zwei junge Männer, low lower lowest.",
    "a_b \\u \\10; 12;34 C:\\new 日本語の 日本 ½ e\u0301t <EOS> 😀",
    'lowland, "slow" — 3.14 (low-lying) ..., low',
]
SUBWORDS = SubwordTextEncoder.build_from_generator(LINES * 5, 150)
TOKENS = TokenTextEncoder(vocab_list=["low", "日本", "<UNK>"], replace_oov="<UNK>")
BYTES = ByteTextEncoder()
ENCODERS = [SUBWORDS, TOKENS, BYTES]

# 𑼄 (U+11F04) is a letter since Unicode 15, which RE2 knows and the tokenizer does not. For SentencePiece:
# the stand-in of a space, what a normalisation would change, and what looks like a special piece.
PIECES = [*" aZ9_\\u1;\n\r\t\0<>é日😀\u0301\u2028\u3000\xa0〓𑼄▁½ﬁ", "  ", "\\10;", "low", "日本"]
PIECES += ["<EOS>", "<unk>", "<0x41>"]
CHARACTERS = st.sampled_from(PIECES) | st.characters(exclude_categories=["Cs"])
TEXTS = st.lists(st.lists(CHARACTERS, max_size=20).map("".join), max_size=8)
WITHIN_ESCAPES = set("\\_u;0123456789")
ESCAPING = [i for i, s in enumerate(SUBWORDS.all_subtoken_strings) if set(s) <= WITHIN_ESCAPES]
SINGLE = {s: i for i, s in enumerate(SUBWORDS.all_subtoken_strings)}

fast = settings(max_examples=60, deadline=None, database=None)


def encoded(encoder, texts):
    return encoder.encode_tensor(tf.constant(texts, tf.string)).to_list()


def decoded(encoder, rows):
    ragged = tf.ragged.constant(rows, tf.int32, ragged_rank=1)
    return [text.decode() for text in encoder.decode_tensor(ragged).numpy()]


def shown(text):
    """UTF-8 has no surrogates."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


class Server(tf.Module):
    """Text there and back by several encoders."""

    def __init__(self, encoders):
        super().__init__()
        self._encoders = encoders
        self.text = {type(encoder).__name__: encoder.graph for encoder in encoders}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def serve(self, text):
        ids = [encoder.encode_tensor(text) for encoder in self._encoders]
        texts = [e.decode_tensor(i) for e, i in zip(self._encoders, ids, strict=True)]
        return {"ids": [i.to_tensor() for i in ids], "texts": texts}


def padded(rows):
    """Rows as long as the longest."""
    return [row + [0] * (max(map(len, rows)) - len(row)) for row in rows]


# Equality


@functools.cache
def vocabularies():
    """Encoders of all kinds, and two that are made of text by chance."""
    chance = random.Random(f"text {SEED}")
    pieces = [*"abcdefgh_\\19é日", "low", "lowest", " ", ", "]
    lines = ["".join(chance.choices(pieces, k=chance.randint(1, 40))) for _ in range(60)]
    words = sorted({*" ".join(lines).split()})
    return [
        *ENCODERS,
        SubwordTextEncoder.build_from_generator(lines + LINES, chance.randint(120, 220)),
        TokenTextEncoder(vocab_list=[*words[:20], "<UNK>"], replace_oov="<UNK>"),
    ]


ODD_BYTES = [b"\xff", b"\xc3", b"\xa4", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80"]
IDS = st.integers(-(2**31), 2**31 - 1) | st.integers(-1, 250) | st.sampled_from(ESCAPING)
ODD_PARTS = st.sampled_from(ODD_BYTES) | st.binary(max_size=3) | CHARACTERS.map(str.encode)
ODD = st.lists(ODD_PARTS).map(b"".join)


@holds(
    200,
    number=st.integers(0, 4),
    strings=st.lists(
        st.lists(CHARACTERS, max_size=20).map("".join).map(str.encode) | ODD, max_size=8
    ),
    rows=st.lists(st.lists(IDS, max_size=30), max_size=8),
)
def test_text_and_ids_go_there_and_back_alike_in_python_and_in_a_graph(number, strings, rows):
    """Bytes that are not UTF-8 are left out."""
    encoder = vocabularies()[number]
    texts = [string.decode("utf-8", "ignore") for string in strings]
    ids = [encoder.encode(text) for text in texts]
    assert encoded(encoder, strings) == ids
    assert all((number in (1, 4) or i >= 2) and i < encoder.vocab_size for row in ids for i in row)
    rows = [[i % 258 if number == 2 else i for i in row] for row in rows]
    assert decoded(encoder, rows + ids) == [shown(encoder.decode(row)) for row in rows + ids]
    if number in (0, 2, 3):
        assert decoded(encoder, ids) == texts


def test_every_code_point():
    """One code point in 32 of planes without characters, or with private ones alone."""
    planes = {0, 1, 2, 3, 14}  # with characters
    valid = (c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF)
    code_points = [c for c in valid if c >> 16 in planes or c % 32 == 31]
    size = 2**17
    texts = ["".join(map(chr, code_points[i : i + size])) for i in range(0, len(code_points), size)]
    ids = [np.array(SUBWORDS.encode(text), np.int32) for text in texts]
    got = SUBWORDS.encode_tensor(tf.constant(texts))
    np.testing.assert_array_equal(got.row_lengths(), [len(row) for row in ids])
    np.testing.assert_array_equal(got.flat_values, np.concatenate(ids))
    assert [text.decode() for text in SUBWORDS.decode_tensor(got).numpy()] == texts


def test_tokens_end_at_the_white_space_of_python():
    text = "".join(f"low{chr(c)}low " for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF)
    assert encoded(TOKENS, [text]) == [TOKENS.encode(text)]


@pytest.mark.parametrize(
    "spelling", ["\\55296;", "\\0057;", "\\1114112;", "\\;", "\\9\\", "\\\\\\u", "\\99999999;"]
)
@pytest.mark.parametrize("ending", ["", "_", "__low_"])
def test_odd_escapes(spelling, ending):
    row = [SINGLE[c] for c in spelling + ending]
    rows = [row, [], row, row[:-1], row[1:]]
    assert decoded(SUBWORDS, rows) == [shown(SUBWORDS.decode(row)) for row in rows]


def test_numbers_longer_than_python_reads():
    rows = [[SINGLE[c] for c in f"\\{'10':0>{digits}};_"] for digits in (4300, 4301)]
    assert decoded(SUBWORDS, rows) == [SUBWORDS.decode(row) for row in rows] == ["\n", "〓"]


def test_many_escapes_take_no_longer_than_other_text():
    texts = [chr(0x10000 + i) * 60 for i in range(2000)]  # a million ids; not with squared effort
    ids = SUBWORDS.encode_tensor(tf.constant(texts))
    assert [text.decode() for text in SUBWORDS.decode_tensor(ids).numpy()] == texts


# Where it can be used


def test_shapes_and_types():
    ids = SUBWORDS.encode_tensor(tf.constant(["low", ""]))
    assert (ids.dtype, ids.row_splits.dtype) == (tf.int32, tf.int64)
    assert ids.to_list() == [SUBWORDS.encode("low"), []]
    assert encoded(SUBWORDS, []) == decoded(SUBWORDS, []) == []
    dense = SUBWORDS.decode_tensor(tf.constant([[*SUBWORDS.encode("low"), 1, 0]]))
    assert dense.numpy().tolist() == [b"low<EOS><pad>"]
    texts = SUBWORDS.decode_tensor(ids.with_row_splits_dtype(tf.int32))
    assert texts.numpy().tolist() == [b"low", b""]


@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda e: type(e).__name__)
def test_works_in_a_pipeline_and_is_made_when_first_needed(encoder):
    assert encoder.graph
    encoder = pickle.loads(pickle.dumps(encoder))
    assert "graph" not in vars(encoder)

    @tf.function
    def there_and_back(strings):
        return encoder.decode_tensor(encoder.encode_tensor(strings))

    texts = ["low lower", "日本 <UNK>", "", "x"] * 3
    data = tf.data.Dataset.from_tensor_slices(texts).batch(5).map(there_and_back)
    got = [text.decode() for batch in data for text in batch.numpy()]
    assert got == [encoder.decode(encoder.encode(text)) for text in texts]
    assert "graph" in vars(encoder)


def test_a_saved_model_needs_tensorflow_alone(tmp_path):
    tf.saved_model.save(Server(ENCODERS), str(tmp_path))
    texts = [*LINES, "\u2028_ \\10; 𑼄"]
    code = f"""
import json, sys
sys.modules["tensorflow_text"] = sys.modules["t2t_keras"] = None
import tensorflow as tf
server = tf.saved_model.load({str(tmp_path)!r})
out = server.serve(tf.constant({texts!r}))
ids = [i.numpy().tolist() for i in out["ids"]]
texts = [[t.decode() for t in text.numpy()] for text in out["texts"]]
direct = {{n: g.encode(tf.constant(["low lower"])).to_list() for n, g in server.text.items()}}
print(json.dumps([ids, texts, direct]))
"""
    *results, direct = json.loads(toy.succeeded(toy.python("-c", code)).stdout)
    for encoder, ids, back in zip(ENCODERS, *results, strict=True):
        want = [encoder.encode(text) for text in texts]
        assert ids == padded(want)
        assert back == [encoder.decode(row) for row in want]
        assert direct[type(encoder).__name__] == [encoder.encode("low lower")]


# Mistakes


@pytest.mark.parametrize("wrong", ["low", [["low"]], [1, 2], [[1.0]], [[[1]]]])
def test_refuses_what_is_no_vector_of_strings_or_no_rows_of_ids(wrong):
    with pytest.raises(UserError, match=r"encode_tensor got .*; it takes a vector of strings, "):
        SUBWORDS.encode_tensor(tf.constant(wrong))
    with pytest.raises(UserError, match=r"decode_tensor got .*; it takes rows of int32, ragged"):
        SUBWORDS.decode_tensor(tf.constant(wrong))


def test_says_what_cannot_be_encoded(tmp_path):
    subtokens = ["<pad>", "<EOS>", "ab_", "c", "_", "long_", *"\\u;0123456789"]
    (tmp_path / "vocab").write_text("".join(f"'{s}'\n" for s in subtokens))
    encoder = SubwordTextEncoder(tmp_path / "vocab")
    texts = ["ab", "c long", "é"]
    assert encoded(encoder, texts) == [encoder.encode(text) for text in texts]
    with pytest.raises(UserError, match="single character 'b'"):
        encoder.encode_tensor(tf.constant(["ab", "c cb", "ab"]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Cannot encode a word.*\n?.*cb"):
        list(tf.data.Dataset.from_tensors(["ab", "c cb"]).map(encoder.encode_tensor))


def test_says_which_token_or_byte_is_unknown():
    encoder = TokenTextEncoder(vocab_list=["cat"])
    with pytest.raises(UserError, match="Token 'dog' is not in the vocabulary"):
        encoder.encode_tensor(tf.constant(["cat", "cat dog"]))
    with pytest.raises(UserError, match="Byte id 258 is out of range"):
        BYTES.decode_tensor(tf.constant([[5, 258]]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Byte id out of range; 0 to 257"):
        tf.function(BYTES.decode_tensor)(tf.constant([[-1]]))


# The longest subtokens at all positions

STRINGS = st.text(st.sampled_from("abc") | st.characters(exclude_characters="_"), min_size=1)


def check(vocabulary, texts):
    ids = {string: i for i, string in enumerate(sorted(vocabulary))}
    cutter = SubwordCutter(ids, ESCAPE_CHARACTERS | {"a", "b"})
    spelled, wanted = [], []
    for text in texts:
        for start in range(len(text)):
            matches = [text[start:end] for end in range(start + 1, len(text) + 1)]
            longest = max((match for match in matches if match in ids), key=len, default="")
            wanted.append([ids.get(longest, -1), len(longest)])
        spelled += [*(cutter._table.numbers.get(c, 0) for c in text), 0]
        wanted.append([-1, 0])  # nothing goes on beyond it
    found = cutter._longest_matches(tf.constant(spelled, tf.int32))
    np.testing.assert_array_equal(tf.stack(found, axis=1), np.reshape(wanted, [-1, 2]))


@settings(fast, max_examples=150)
@example(set(), ["a", "b", "aa"])
@example({"a", "abc"}, ["a", "b", "c", "aab"])
@given(st.sets(STRINGS, max_size=30), st.lists(STRINGS, max_size=10))
def test_finds_the_longest_match(vocabulary, others):
    check(vocabulary, [*others, *vocabulary, *(a + b for a in vocabulary for b in others)])


def test_has_room_for_characters_that_many_others_follow():
    first, second = np.random.default_rng(5).integers(0x4E00, 0x5E00, (2, 40_000))
    vocabulary = {chr(0x4E00 + f % 40) + chr(s) for f, s in zip(first, second, strict=True)}
    check(vocabulary, [*list(vocabulary)[:500], "一", "一a", "ab"])
