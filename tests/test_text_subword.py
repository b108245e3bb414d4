"""The subword encoder, against tensor2tensor's ids and a vocabulary made by hand."""

import gzip
import json
import pickle
import random
from pathlib import Path

import pytest

from t2t_keras.errors import UserError
from t2t_keras.text import SubwordTextEncoder, subword
from t2t_keras.text.tokenizer import escape, unescape

SHARED = Path(__file__).parents[2] / "shared"
needs_shared = pytest.mark.skipif(
    not SHARED.exists(), reason="needs T2T's reference numbers in ../shared"
)

# Ids of this vocabulary: lo 2, low_ 3, er_ 4, ", _" 5, then single characters from 6 on.
HAND_MADE = ["<pad>", "<EOS>", "lo", "low_", "er_", ", _", *"low er_\\u;0123456789,"]


def write(path, subtokens, quote="'"):
    path.write_text("".join(f"{quote}{s}{quote}\n" for s in subtokens), encoding="utf-8")
    return path


@pytest.fixture
def encoder(tmp_path):
    return SubwordTextEncoder(write(tmp_path / "vocab", HAND_MADE))


def spelled(encoder, text):
    return [encoder.subtoken(i) for i in encoder.encode(text)]


@pytest.mark.parametrize(
    ("text", "subtokens"),
    [
        ("", []),
        ("low", ["low_"]),
        ("lower", ["lo", "w", "er_"]),
        ("low, low", ["low_", ", _", "low_"]),
        ("lo_", ["lo", "_", "\\", "u", "_"]),
        ("\\", ["\\", "\\", "_"]),
        ("é", ["\\", *"233;", "_"]),
        ("\n", ["\\", *"10;", "_"]),
    ],
)
def test_cuts_the_longest_subtoken_first(encoder, text, subtokens):
    assert spelled(encoder, text) == subtokens
    assert encoder.encode(text) == encoder.encode(text)  # from the cache
    assert encoder.decode(encoder.encode(text)) == text


def test_ids_are_line_numbers(encoder):
    assert encoder.encode("lower, low") == [2, 8, 4, 5, 3]
    assert encoder.vocab_size == len(HAND_MADE) == len(encoder.all_subtoken_strings)
    assert encoder.subtoken(-1) == encoder.subtoken(encoder.vocab_size) == ""


def test_decoding_shows_reserved_ids_and_skips_unknown_ones(encoder):
    assert encoder.decode([3, 1]) == "low<EOS>"
    assert encoder.decode([3, -1, 10**6, 0]) == "low<pad>"
    assert encoder.decode([]) == ""


@pytest.mark.parametrize(
    ("spelling", "text"),
    [
        ("\\u", "_"),
        ("\\\\u", "\\u"),
        ("\\\\\\u", "\\_"),
        ("\\233;", "é"),
        ("\\233", "\\233"),
        ("\\1114112;", "〓"),
        ("\\" + "9" * 5000 + ";", "〓"),
        ("a\\", "a\\"),
    ],
)
def test_unescapes_as_t2t(spelling, text):
    assert unescape(spelling) == text


def test_escapes_what_is_not_in_the_alphabet():
    assert escape("a_\\bé\n", frozenset("ab\\u;_0123456789\n")) == "a\\u\\\\b\\233;\\10;_"


def test_any_text_comes_back():
    encoder = SubwordTextEncoder.build_from_generator(["low lower lowest", "a_b \\u 12;"] * 3, 60)
    rng = random.Random(7)
    code_points = [*range(0xD800), *range(0xE000, 0x110000)]
    for _ in range(2000):
        text = "".join(
            rng.choice([*" lowa_\\u1;\n<>", chr(rng.choice(code_points))]) for _ in range(12)
        )
        ids = encoder.encode(text)
        assert encoder.decode(ids) == text
        assert all(1 < i < encoder.vocab_size for i in ids)


@pytest.mark.parametrize("quote", ["'", '"', ""])
def test_reads_any_quotes(tmp_path, quote):
    path = write(tmp_path / "vocab", HAND_MADE, quote)
    assert SubwordTextEncoder(path).encode("lower, low") == [2, 8, 4, 5, 3]


def test_a_quote_is_a_subtoken_like_others(tmp_path):
    encoder = SubwordTextEncoder(write(tmp_path / "vocab", [*HAND_MADE, "'", '"', "\u2028"]))
    assert spelled(encoder, "'\"\u2028") == ["'", '"', "\u2028", "_"]


def test_a_blank_entry_keeps_its_id(tmp_path):
    encoder = SubwordTextEncoder(write(tmp_path / "vocab", ["<pad>", "<EOS>", "", "", "a", "_"]))
    assert encoder.encode("a") == [4, 5]


def test_stores_what_it_loads(encoder, tmp_path):
    encoder.store_to_file(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "vocab").read_bytes()


def test_pickles(encoder):
    assert pickle.loads(pickle.dumps(encoder)).encode("lower") == encoder.encode("lower")


def test_a_pickle_holds_the_vocabulary_alone(encoder):
    size = len(pickle.dumps(encoder))
    encoder.encode(" ".join(f"low{i}" for i in range(1000)))
    assert len(pickle.dumps(encoder)) == size


def test_remembers_a_bounded_number_of_tokens(encoder, monkeypatch):
    monkeypatch.setattr(subword, "_REMEMBERED", 10)
    texts = [f"low, {i} lower {i + 1}" for i in range(100)]
    expected = [pickle.loads(pickle.dumps(encoder)).encode(text) for text in texts]
    assert [encoder.encode(text) for text in texts] == expected
    assert max(len(encoder._recent), len(encoder._earlier)) == 10


def test_does_not_forget_tokens_that_keep_coming(encoder, monkeypatch):
    monkeypatch.setattr(subword, "_REMEMBERED", 10)
    encoder.encode("lower")
    cut = []
    monkeypatch.setattr(encoder, "_encode_token", lambda token: cut.append(token) or (2,))
    for i in range(100):
        assert len(encoder.encode(f"lower {i}")) == 4
    assert cut == [str(i) for i in range(100)]


def test_does_not_remember_long_tokens(encoder):
    encoder.encode("l" * 10_000)
    assert not encoder._recent


@pytest.mark.parametrize(
    ("subtokens", "message"),
    [
        ([], "vocab is empty"),
        (["", ""], "vocab is empty"),
        (["a", "<EOS>"], r"vocab, line 1: got 'a' where a vocabulary has <pad>"),
        (["<pad>"], r"vocab, line 2: got '' where a vocabulary has <EOS>"),
        (["<pad>", "<EOS>", "a", "b", "a"], r"vocab, line 5: 'a' stands already in line 3"),
    ],
)
def test_refuses_what_is_no_vocabulary(tmp_path, subtokens, message):
    with pytest.raises(UserError, match=message):
        SubwordTextEncoder(write(tmp_path / "vocab", subtokens))


def test_says_which_character_a_vocabulary_lacks(tmp_path):
    encoder = SubwordTextEncoder(write(tmp_path / "vocab", ["<pad>", "<EOS>", "ab_"]))
    assert encoder.encode("ab") == [2]
    with pytest.raises(UserError, match="single character 'b'"):
        encoder.encode("b")


def test_names_the_file_that_cannot_be_written(encoder, tmp_path):
    with pytest.raises(UserError, match=r"Cannot write .*absent.vocab: No such file"):
        encoder.store_to_file(tmp_path / "absent" / "vocab")


@needs_shared
def test_equals_t2t_on_every_case():
    with gzip.open(SHARED / "golden/text/subword_cases.json.gz", "rt", encoding="utf-8") as file:
        cases = json.load(file)
    encoder = SubwordTextEncoder(
        SHARED / "golden/t2t_release/vocab.translate_ende_wmt32k.32768.subwords"
    )
    assert encoder.vocab_size == 33708
    assert len(cases) == 773
    for case in cases:
        assert encoder.encode(case["text"]) == case["ids"]
        assert encoder.decode(case["ids"]) == case["decoded"]
