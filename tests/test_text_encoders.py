"""Tokens, escapes and ids, against tensor2tensor's own; bytes, listed tokens and subwords; building these."""

import gzip
import itertools
import json
import pickle
import random
import string
import time
import unicodedata
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import t2t_release
from networks import small_model

import t2t_keras as t2t
from t2t_keras import checkpoints, registry
from t2t_keras.decoding import DecodeSettings, Translator
from t2t_keras.errors import UserError
from t2t_keras.export.served import ServedTransformer
from t2t_keras.text import encoders, read_lines, subword_builder, tokenizer
from t2t_keras.text.encoders import ByteTextEncoder, SubwordTextEncoder, TokenTextEncoder
from t2t_keras.text.tokenizer import ALPHANUMERIC_RANGES, ESCAPE_CHARACTERS, escape, unescape
from t2t_keras.transformer import Transformer

SHARED = Path(__file__).parents[2] / "shared"
needs_t2t = pytest.mark.skipif(not SHARED.exists(), reason="needs T2T's numbers in ../shared")
build = SubwordTextEncoder.build_from_generator


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (" a b  c", [" ", "a", "b", "  ", "c"]),
        ("x_1\t2", ["x", "_", "1", "\t", "2"]),
        ("½²Ⅷ٣日", ["½²Ⅷ٣日"]),  # No, No, Nl, Nd, Lo
        ("e\u0301t", ["e", "\u0301", "t"]),  # a combining accent is no letter
        ("a 𝒜 😀b", ["a", "𝒜", " 😀", "b"]),
        ("a\U00011f04", ["a", "\U00011f04"]),  # a letter since Unicode 15 only
    ],
)
def test_splits_where_words_end(text, tokens):
    assert tokenizer.encode(text) == tokens


def by_character(text):
    """T2T's rule, one character after the other."""
    words = [any(first <= ord(c) <= last for first, last in ALPHANUMERIC_RANGES) for c in text]
    cuts = [i for i in range(1, len(text)) if words[i] != words[i - 1]]
    runs = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    return [run for i, run in enumerate(runs) if run and (run != " " or i in (0, len(runs) - 1))]


@pytest.mark.parametrize("characters", [" aé,—", " aé,—𝒜😀\U0001f3ff"])
def test_any_text_is_cut_by_character(characters):
    rng = random.Random(2)
    texts = ["".join(rng.choices(characters, k=20)) for _ in range(1000)]
    short = itertools.chain(*(itertools.product(" a,", repeat=length) for length in range(7)))
    for text in (*map("".join, short), *texts):
        assert tokenizer.encode(text) == by_character(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_table_is_that_of_unicode_14():
    words = {c for first, last in ALPHANUMERIC_RANGES for c in range(first, last + 1)}
    assert len(words) == 133_547  # the count of categories L* and N* in Unicode 14.0
    if unicodedata.unidata_version == "14.0.0":  # that of Python 3.11
        assert words == {c for c in range(0x110000) if unicodedata.category(chr(c))[0] in "LN"}


def test_bytes_follow_the_reserved_ids():
    encoder = ByteTextEncoder()
    assert encoder.vocab_size == 258
    assert encoder.encode("aé\n") == [99, 0xC3 + 2, 0xA9 + 2, 12]
    assert encoder.decode([99, 197, 171, 12]) == "aé\n"
    assert encoder.decode([99, 1, 0, 197]) == "a<EOS><pad>\N{REPLACEMENT CHARACTER}"
    with pytest.raises(UserError, match="id -1 is out of range; 0 to 257"):
        encoder.decode([-1])


def test_tokens_of_a_file_and_of_a_list(tmp_path):
    path = write(tmp_path / "vocab", ["<pad>", "<EOS>", "the", "cat", "<UNK>"], quote="")
    encoder = TokenTextEncoder(path, replace_oov="<UNK>")
    assert encoder.vocab_size == 5
    assert encoder.encode(" the\tdog\ncat ") == [2, 4, 3]
    assert encoder.decode([2, 3, 1, 9]) == "the cat <EOS> ID_9"
    encoder.store_to_file(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    encoder = TokenTextEncoder(vocab_list=["<EOS>", "the", "cat"])
    assert encoder.encode("cat the <EOS>") == [3, 2, 1]
    encoder = TokenTextEncoder(None, True, ["the", "cat"])
    assert (encoder.encode("cat the"), encoder.decode([2, 3])) == ([2, 3], "cat the")
    assert encoder.decode_list([2, 3]) == ["cat", "the"]


def test_a_list_without_reserved_tokens_gets_a_warning(tmp_path, capsys):
    path = write(tmp_path / "vocab", ["the", "cat"], quote="")
    assert [TokenTextEncoder(path).encode("cat the") for _ in range(2)] == [[1, 0]] * 2
    said = f"warning: {path}: ids 0 and 1, padding and end of sentence, are ['the', 'cat'] there\n"
    assert capsys.readouterr().err == said
    assert encoders.ClassLabelEncoder(class_labels_fname=path).encode("cat") == 1


def test_unknown_tokens_need_a_replacement():
    for message, *arguments in (
        ("Token 'dog' is not in the vocabulary of 3 tokens", None, False, ["cat"]),
        ("Token 'dog' is not in", None, False, ["cat"], "<UNK>"),
        ("got no tokens",),
    ):
        with pytest.raises(UserError, match=message):
            TokenTextEncoder(*arguments).encode("cat dog")


# Subwords

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
        ("lower", ["lo", "w", "er_"]),
        ("low, low", ["low_", ", _", "low_"]),
        ("lo_", ["lo", *"_\\u_"]),
        ("\\", [*"\\\\_"]),
        ("é", [*"\\233;_"]),
    ],
)
def test_cuts_the_longest_subtoken_first(encoder, text, subtokens):
    assert spelled(encoder, text) == spelled(encoder, text) == subtokens  # again, from the cache


def test_ids_are_line_numbers_and_others_are_skipped(encoder):
    assert encoder.encode("lower, low") == [2, 8, 4, 5, 3]
    assert encoder.vocab_size == len(HAND_MADE) == len(encoder.all_subtoken_strings)
    assert encoder.subtoken(-1) == encoder.subtoken(encoder.vocab_size) == ""
    assert encoder.decode([3, -1, 10**6, 1, 0]) == "low<EOS><pad>"


def test_escapes_as_t2t():
    texts = {"\\u": "_", "\\\\u": "\\u", "\\\\\\u": "\\_", "\\233;": "é", "\\233": "\\233"}
    texts |= {f"\\{n};": "〓" for n in (1114112, 2**31, "9" * 5000)} | {"a\\": "a\\"}
    assert {spelling: unescape(spelling) for spelling in texts} == texts
    assert escape("a_\\bé\n", frozenset("ab\\u;_0123456789\n")) == "a\\u\\\\b\\233;\\10;_"


def test_reads_any_quotes_blank_entries_and_a_byte_order_mark(tmp_path):
    for quote, first in (("'", ""), ('"', ""), ("", ""), ("", "\ufeff")):
        path = write(tmp_path / "vocab", [first + HAND_MADE[0], *HAND_MADE[1:]], quote)
        assert SubwordTextEncoder(path).encode("lower, low") == [2, 8, 4, 5, 3]
    encoder = SubwordTextEncoder(write(tmp_path / "vocab", [*HAND_MADE, "'", '"', "\u2028"]))
    assert spelled(encoder, "'\"\u2028") == ["'", '"', "\u2028", "_"]
    encoder = SubwordTextEncoder(write(tmp_path / "vocab", ["<pad>", "<EOS>", "", "", "ab_"]))
    assert encoder.encode("ab") == [4]  # a blank entry takes up an id
    assert TokenTextEncoder(write(tmp_path / "vocab", ["", "a"], "")).encode("a") == [1]
    with pytest.raises(UserError, match="single character 'b'"):
        encoder.encode("b")


def test_stores_what_it_loads_and_pickles_the_vocabulary_alone(encoder, tmp_path):
    encoder.store_to_file(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "vocab").read_bytes()
    with pytest.raises(UserError, match=r"absent/vocab cannot be written: No such file"):
        encoder.store_to_file(tmp_path / "absent" / "vocab")
    pickled = pickle.dumps(encoder)
    assert pickle.loads(pickled).encode("lower") == encoder.encode("lower")
    encoder.encode(" ".join(f"low{i}" for i in range(1000)))
    assert len(pickle.dumps(encoder)) == len(pickled)


def test_caches_a_bounded_number_of_tokens_the_frequent_ones(encoder, monkeypatch):
    monkeypatch.setattr(encoders, "_CACHED", 10)
    texts = [f"low, {i} lower {i + 1}" for i in range(100)]
    expected = [pickle.loads(pickle.dumps(encoder)).encode(text) for text in texts]
    assert [encoder.encode(text) for text in texts] == expected
    assert max(len(encoder._recent), len(encoder._earlier)) == 10
    encoder.encode("lower")  # stays, as it is frequent
    cut = []
    monkeypatch.setattr(encoder, "_encode_token", lambda token: cut.append(token) or (2,))
    for i in range(200, 300):
        assert len(encoder.encode(f"lower {i}")) == 4
    assert cut == [str(i) for i in range(200, 300)]


@pytest.mark.parametrize(
    ("subtokens", "message"),
    [
        ([], "vocab is empty"),
        (["", ""], "vocab is empty"),
        (["<pad>"], r"vocab, line 2: got '' where a vocabulary has <EOS>"),
        # Of tokens, these are T2T's ids.
        (["a", "<EOS>"], r"vocab, line 1: got 'a' where a vocabulary has <pad>"),
    ],
)
def test_refuses_what_is_no_vocabulary(tmp_path, subtokens, message):
    path = write(tmp_path / "vocab", subtokens, quote="")
    with pytest.raises(UserError, match=message):
        SubwordTextEncoder(path)
    if "a" in subtokens:
        assert TokenTextEncoder(path).encode("a") == [0]
    else:
        with pytest.raises(UserError, match=message):
            TokenTextEncoder(path)


def test_of_what_is_listed_twice_the_last_counts(tmp_path, capsys):
    """As a word in T2T's vocabulary that is also one of `additional_reserved_tokens`."""
    path = write(tmp_path / "vocab", ["<pad>", "<EOS>", "a", "a_", "_", "a"], quote="")
    assert SubwordTextEncoder(path).encode_without_tokenizing("aa") == [5, 3]
    assert "vocab has 'a' twice: the last id counts" in capsys.readouterr().err
    assert TokenTextEncoder(path).encode("a") == [5]


def test_subwords_that_differ_in_carriage_returns_are_read_as_by_t2t(tmp_path):
    texts = [f"one two\r three {i}\r" for i in range(60)]
    encoder = SubwordTextEncoder.build_from_generator(texts, 100)
    encoder.store_to_file(path := str(tmp_path / "vocab"))
    read = SubwordTextEncoder(path)
    assert encoder.vocab_size == read.vocab_size > len({*read.all_subtoken_strings})
    assert read.encode("one_") == read.encode_tensor(["one_"]).to_list()[0]
    assert read.decode(read.encode(texts[3])) == texts[3]


@needs_t2t
def test_equals_t2t_on_every_case():
    with gzip.open(SHARED / "golden/text/subword_cases.json.gz", "rt", encoding="utf-8") as file:
        cases = json.load(file)
    vocabulary = "golden/t2t_release/vocab.translate_ende_wmt32k.32768.subwords"
    encoder = SubwordTextEncoder(SHARED / vocabulary)
    assert encoder.vocab_size == 33708
    assert len(cases) == 773
    for case in cases:
        assert tokenizer.encode(case["text"]) == case["tokens"]
        assert encoder.encode(case["text"]) == case["ids"]
        assert encoder.decode(case["ids"]) == case["decoded"]


# Building a vocabulary of subwords


def plainly(lines, min_count, max_subtoken_length, reserved):
    """T2T's four rounds without any shortcut; a reserved token is listed once."""
    tokens = Counter(token for line in lines for token in tokenizer.encode(line))
    alphabet = ESCAPE_CHARACTERS.union(*tokens, *reserved)
    reserved = [escape(token, alphabet) for token in reserved]
    subtokens = set(alphabet)
    for _ in range(4):
        counts = Counter()
        for token, n in tokens.items():
            text = escape(token, alphabet)
            start = 0
            while start < len(text):
                for end in range(start + 1, min(len(text), start + max_subtoken_length - 1) + 1):
                    counts[text[start:end]] += n
                ends = range(start + 1, len(text) + 1)
                start = max(end for end in ends if text[start:end] in subtokens)
        kept = []
        for candidate in sorted([s for s, n in counts.items() if n >= min_count], key=len)[::-1]:
            n = counts[candidate]
            if n >= min_count:
                kept += [(n, candidate)] * (candidate not in alphabet)
                for end in range(1, len(candidate)):
                    counts[candidate[:end]] -= n
        ranked = sorted(kept + [(counts[c], c) for c in alphabet], reverse=True)
        ranked = reserved + [s for _, s in ranked if s not in reserved]
        subtokens = set(ranked)
    return ranked


@pytest.mark.parametrize("few_keys", [0, 10**9], ids=["sorted", "counted"])
@pytest.mark.parametrize("max_subtoken_length", [2, 4, 1000])
@pytest.mark.parametrize("extra", [[], ["abc", "[x]", "b"]])
def test_shortcuts_change_nothing(monkeypatch, max_subtoken_length, extra, few_keys):
    monkeypatch.setattr(subword_builder, "_CUTS_SIDE_BY_SIDE", 3)
    monkeypatch.setattr(subword_builder, "_FEW_KEYS", few_keys)
    rng = random.Random(3)
    reserved = ["<pad>", "<EOS>", *extra]
    for target in (20, 40, 60):
        weights = (9, 6, 4, 5, 1, 1, 1, 1, 1, 1)
        lines = ["".join(rng.choices("abc _\n,é𝒜\ud800", weights, k=40)) for _ in range(8)]
        lines += ["abb" * 9 + " " + "a" * 20, "defghij " * 20]  # repeat themselves
        # T2T bisects the minimum count between 1 and 1000.
        low, high, tried = 1, 1000, []
        while True:
            min_count = (low + high) // 2
            tried.append(plainly(lines, min_count, max_subtoken_length, reserved))
            size = len(tried[-1])
            if abs(size - target) * 100 < target or low >= high or min_count < 2:
                break
            low, high = (min_count + 1, high) if size > target else (low, min_count - 1)
        expected = min(tried, key=lambda subtokens: abs(len(subtokens) - target))
        encoder = build(lines, target, max_subtoken_length, reserved)
        assert list(encoder.all_subtoken_strings) == expected


def test_building_from_counts_between_other_limits(tmp_path, capsys):
    (tmp_path / "a").write_text("y,z,3\nno\n")
    (tmp_path / "b").write_text("x\r y\r\nz\n", newline="")
    found = tokenizer.corpus_token_counts(f"{tmp_path}/?", 3)
    assert found == {"y": 2, ",": 2, "z": 1, "3": 1, "no": 1, "x": 1}
    assert tokenizer.vocab_token_counts(f"{tmp_path}/a", 0) == {"y,z": 3}
    counts = {"low": 3, "lower": 2}  # each is a subtoken, as it occurs twice or more
    encoder = SubwordTextEncoder.build_to_target_size(40, counts, 2, 2.0)
    assert encoder.all_subtoken_strings[2:4] == ("low_", "lower_")
    encoder.store_to_file(tmp_path / "vocab", add_single_quotes=False)
    assert (tmp_path / "vocab").read_text().splitlines()[0] == "<pad>_"
    assert SubwordTextEncoder(tmp_path / "vocab").encode("lower") == [3]
    encoder.dump()
    assert capsys.readouterr().out.startswith("0 : '<pad>_', 1 : '<EOS>_', 2 : 'low_', ")
    standard = SubwordTextEncoder.build_to_target_size(40, counts, 1, 1000)
    lines = ["low"] * 3 + ["lower"] * 2
    assert standard.all_subtoken_strings == build(lines, 40).all_subtoken_strings
    (own := SubwordTextEncoder()).build_from_token_counts(counts, 2)  # T2T's way to an own number
    assert own.all_subtoken_strings == encoder.all_subtoken_strings
    wrongs = {"subwords take 4 iterations": {"num_iterations": 1}, "no text": {"token_counts": {}}}
    for message, wrong in wrongs.items():
        given = {"token_counts": counts, "min_val": 1, "max_val": 9, **wrong}
        with pytest.raises(UserError, match=message):
            SubwordTextEncoder.build_to_target_size(9, **given)


def test_half_a_surrogate_pair_has_no_file(tmp_path):
    assert ByteTextEncoder().encode("a\ud83d") == [99]
    with pytest.raises(UserError, match=r"vocab: UTF-8 cannot encode .*\\ud83d.*: remove it"):
        build(["a \ud83d"], 30).store_to_file(tmp_path / "vocab")


def test_an_extra_reserved_token_has_one_id(tmp_path):
    encoder = build(["low low low\n"], 40, None, ["<pad>", "<EOS>", "low"])
    assert encoder.encode("low") == [2]
    encoder.store_to_file(tmp_path / "vocab")
    # The newline is last, as in T2T.
    assert (tmp_path / "vocab").read_text().endswith("'0'\n'\n'\n")
    stored = SubwordTextEncoder(tmp_path / "vocab")
    assert stored.encode("low\n") == encoder.encode("low\n")
    assert stored.vocab_size == encoder.vocab_size + 1


@pytest.mark.parametrize(
    ("lines", "arguments", "message"),
    [
        ([""], {}, "There is no text"),
        (["a"], {"target_size": 0}, "size is 0; it must be at least 1"),
        (["a"], {"reserved_tokens": ["<EOS>", "<pad>"]}, "must begin with <pad>, <EOS>"),
        (["a"], {"reserved_tokens": ["<pad>", "<EOS>", "<EOS>"]}, "'<EOS>' is already on place 2"),
    ],
)
def test_refuses_what_gives_no_vocabulary(lines, arguments, message):
    with pytest.raises(UserError, match=message):
        build(lines, **{"target_size": 30, **arguments})


@pytest.mark.parametrize(
    ("token", "max_subtoken_length"),
    [("a" * 20_000, None), ("".join(random.Random(0).choices(string.hexdigits, k=200_000)), 200)],
    ids=["one letter", "random letters"],
)
def test_time_is_linear_in_the_length_of_a_token(token, max_subtoken_length):
    start = time.process_time()
    encoder = build(["the cat sat on the mat"] * 500 + [token], 300, max_subtoken_length)
    assert encoder.decode(encoder.encode(token)) == token
    assert time.process_time() - start < 12  # 2 s; with the square of the length, a minute


def test_a_text_of_almost_matches_takes_no_longer(tmp_path):
    almost = ["a" * n + "b" for n in [*range(1, 19), *range(20, 1000), 19]]
    encoder = SubwordTextEncoder(write(tmp_path / "vocab", ["<pad>", "<EOS>", *"ab_", *almost]))
    start = time.process_time()
    assert encoder.encode("a" * 20_000) == [2] * 20_000 + [4]
    assert encoder.encode("a" * 19 + "ba") == [encoder.vocab_size - 1, 2, 4]
    assert time.process_time() - start < 3  # 0.02 s; it was 15


@needs_t2t
@pytest.mark.parametrize("lines_per_language", [2000, 10000])
def test_vocabulary_equals_t2t_byte_for_byte(tmp_path, lines_per_language):
    golden = SHARED / "golden/text"
    builds = json.loads((golden / "vocab_builds.json").read_text()).items()
    [(name, made)] = [b for b in builds if b[1]["lines_per_language"] == lines_per_language]
    lines = []
    for language in ("en", "de"):
        lines += read_lines(SHARED / f"data/multi30k/train.{language}.gz")[:lines_per_language]
    encoder = build(lines, made["target_size"], made["max_subtoken_length"])
    encoder.store_to_file(tmp_path / name)
    assert encoder.vocab_size == made["built_size"]
    assert (tmp_path / name).read_bytes() == (golden / name).read_bytes()


# Vocabularies beside tables of other sizes: T2T's tables may have more rows than there are tokens

RUN = {"source_vocab_size": 48, "target_vocab_size": 48}
OF_T2T = {}  # says nothing about them


@pytest.mark.parametrize(
    ("tokens", "run", "divisor", "message"),
    [
        (47, OF_T2T, 1, "47 tokens and the model's table 48 rows: make sure that the model was"),
        (40, OF_T2T, 16, ""),  # `vocab_divisor` has added rows
        (49, OF_T2T, 1, "49 tokens and the model 48: give the data the model was trained on."),
        (47, RUN, 1, "47 tokens and the model 48: give the data"),
        (48, RUN, 1, ""),
        (47, None, 1, ""),  # an export
    ],
)
def test_vocabularies_fit_the_tables(tokens, run, divisor, message):
    model = SimpleNamespace(**RUN, hp=SimpleNamespace(vocab_divisor=divisor))
    sizes = {"inputs": 48, "targets": tokens}
    if tokens > 48 or (run and message):
        with pytest.raises(UserError, match=f"the targets in data has {message}"):
            encoders.require_vocabulary(model, sizes, run, "data")
    else:
        warning = encoders.require_vocabulary(model, sizes, run, "data")
        assert message in warning and bool(message) == bool(warning)


def test_a_run_of_t2t_with_a_larger_table_translates_with_a_warning(tmp_path, capsys):
    hp = registry.hparams("transformer_test", "num_hidden_layers=1,hidden_size=8,filter_size=8")
    model = Transformer(hp, source_vocab_size=48, target_vocab_size=48)
    checkpoints.save_t2t(model, str(tmp_path / "model.ckpt-1"))
    (tmp_path / "hparams.json").write_text(json.dumps(hp.to_dict()))
    write(tmp_path / t2t_release.VOCABULARY, t2t_release.made_up_subwords(40))
    settings = {"data_dir": tmp_path, "decode_hparams": "beam_size=2,extra_length=2"}
    loaded = t2t.load(tmp_path, problem=t2t_release.PROBLEM, **settings)
    assert len(loaded.translate(["Hello"])) == 1
    warning = f"warning: the vocabulary of the inputs in {tmp_path} has 40 tokens and the model's"
    assert capsys.readouterr().err.startswith(warning)


SUBWORDS = build(["aa"], 10)


@pytest.mark.parametrize(
    ("encoder", "ids", "text"),
    [
        # As T2T 1.15.7's encoders decode them.
        (TokenTextEncoder(vocab_list=["a", "b"]), [3, 7, 2, 1, 2], "b ID_7 a"),
        (SUBWORDS, [40, 2, 41], SUBWORDS.decode([2])),
        (ByteTextEncoder(), [67, 300, 68, 1], "AB"),  # T2T's fails
    ],
    ids=["tokens", "subwords", "bytes"],
)
def test_ids_beyond_the_vocabulary(encoder, ids, text):
    model = small_model()
    model.source_vocab_size = model.target_vocab_size = 400  # all `ServedTransformer` looks at
    encoders = {"inputs": encoder, "targets": encoder}
    assert Translator(model, encoders).text(ids) == text
    served = ServedTransformer(model, encoders, DecodeSettings(beam_size=1))
    assert served._parts.texts(np.array([[ids]], np.int32)).numpy().tolist() == [[text.encode()]]
