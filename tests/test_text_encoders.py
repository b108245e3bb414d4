"""Text encoders: bytes, listed tokens, and subwords against tensor2tensor's ids."""

import gzip
import json
import pickle
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import t2t_release
import toy

from t2t_keras import checkpoints, registry
from t2t_keras.decoding import DecodeSettings, Translator
from t2t_keras.errors import UserError
from t2t_keras.export.served import ServedTransformer
from t2t_keras.text import ByteTextEncoder, SubwordTextEncoder, TokenTextEncoder, encoders
from t2t_keras.text.encoders import require_vocabulary, require_vocabulary_of_run
from t2t_keras.text.tokenizer import escape, unescape
from t2t_keras.transformer import Transformer


def test_bytes_follow_the_reserved_ids():
    encoder = ByteTextEncoder()
    assert encoder.vocab_size == 258
    assert encoder.encode("aé\n") == [99, 0xC3 + 2, 0xA9 + 2, 12]
    assert encoder.decode([99, 197, 171, 12]) == "aé\n"
    assert encoder.decode([99, 1, 0, 197]) == "a<EOS><pad>\N{REPLACEMENT CHARACTER}"
    for byte_id in (-1, 258):
        with pytest.raises(UserError, match=f"id {byte_id} is out of range; 0 to 257"):
            encoder.decode([byte_id])


def test_tokens_of_a_file_and_of_a_list(tmp_path):
    path = tmp_path / "vocab"
    path.write_text("<pad>\n<EOS>\nthe\ncat\n<UNK>\n")
    encoder = TokenTextEncoder(path, replace_oov="<UNK>")
    assert encoder.vocab_size == 5
    assert encoder.encode(" the\tdog\ncat ") == [2, 4, 3]
    assert encoder.decode([2, 3, 1, 9]) == "the cat <EOS> ID_9"
    encoder.store_to_file(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    encoder = TokenTextEncoder(vocab_list=["<EOS>", "the", "cat"])
    assert encoder.encode("cat the <EOS>") == [3, 2, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocab_list": ["cat"]}, "Token 'dog' is not in the vocabulary of 3 tokens"),
        (
            {"vocab_list": ["cat"], "replace_oov": "<UNK>"},
            "replace_oov is '<UNK>', which is not in",
        ),
        ({}, "got no tokens"),
    ],
)
def test_unknown_tokens_need_a_replacement(arguments, message):
    with pytest.raises(UserError, match=message):
        TokenTextEncoder(**arguments).encode("cat dog")


# Subwords


SHARED = Path(__file__).parents[2] / "shared"

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
        ("lo_", ["lo", *"_\\u_"]),
        ("\\", [*"\\\\_"]),
        ("é", [*"\\233;_"]),
        ("\n", [*"\\10;_"]),
    ],
)
def test_cuts_the_longest_subtoken_first(encoder, text, subtokens):
    assert spelled(encoder, text) == subtokens
    assert encoder.encode(text) == encoder.encode(text)  # from the cache
    assert encoder.decode(encoder.encode(text)) == text


def test_ids_are_line_numbers_and_others_are_skipped(encoder):
    assert encoder.encode("lower, low") == [2, 8, 4, 5, 3]
    assert encoder.vocab_size == len(HAND_MADE) == len(encoder.all_subtoken_strings)
    assert encoder.subtoken(-1) == encoder.subtoken(encoder.vocab_size) == ""
    assert encoder.decode([3, 1]) == "low<EOS>"
    assert encoder.decode([3, -1, 10**6, 0]) == "low<pad>"
    assert encoder.decode([]) == ""


def test_escapes_as_t2t():
    texts = {"\\u": "_", "\\\\u": "\\u", "\\\\\\u": "\\_", "\\233;": "é", "\\233": "\\233"}
    texts |= {"\\1114112;": "〓", "\\" + "9" * 5000 + ";": "〓", "a\\": "a\\"}
    assert {spelling: unescape(spelling) for spelling in texts} == texts
    alphabet = frozenset("ab\\u;_0123456789\n")
    assert escape("a_\\bé\n", alphabet) == "a\\u\\\\b\\233;\\10;_"


def test_any_text_comes_back():
    encoder = SubwordTextEncoder.build_from_generator(["low lower lowest", "a_b \\u 12;"] * 3, 60)
    rng = random.Random(7)
    code_points = [*range(0xD800), *range(0xE000, 0x110000)]
    for _ in range(2000):
        characters = [*" lowa_\\u1;\n<>", chr(rng.choice(code_points))]
        text = "".join(rng.choice(characters) for _ in range(12))
        ids = encoder.encode(text)
        assert encoder.decode(ids) == text
        assert all(1 < i < encoder.vocab_size for i in ids)


@pytest.mark.parametrize(("quote", "first"), [("'", ""), ('"', ""), ("", ""), ("", "\ufeff")])
def test_reads_any_quotes_and_skips_a_byte_order_mark(tmp_path, quote, first):
    path = write(tmp_path / "vocab", [first + HAND_MADE[0], *HAND_MADE[1:]], quote)
    assert SubwordTextEncoder(path).encode("lower, low") == [2, 8, 4, 5, 3]


def test_a_quote_is_a_subtoken_like_others(tmp_path):
    encoder = SubwordTextEncoder(write(tmp_path / "vocab", [*HAND_MADE, "'", '"', "\u2028"]))
    assert spelled(encoder, "'\"\u2028") == ["'", '"', "\u2028", "_"]


def test_stores_what_it_loads(encoder, tmp_path):
    encoder.store_to_file(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "vocab").read_bytes()
    with pytest.raises(UserError, match=r"Cannot write .*absent.vocab: No such file"):
        encoder.store_to_file(tmp_path / "absent" / "vocab")


def test_a_pickle_holds_the_vocabulary_alone(encoder):
    pickled = pickle.dumps(encoder)
    assert pickle.loads(pickled).encode("lower") == encoder.encode("lower")
    encoder.encode(" ".join(f"low{i}" for i in range(1000)))
    assert len(pickle.dumps(encoder)) == len(pickled)


def test_caches_a_bounded_number_of_tokens(encoder, monkeypatch):
    monkeypatch.setattr(encoders, "_CACHED", 10)
    texts = [f"low, {i} lower {i + 1}" for i in range(100)]
    expected = [pickle.loads(pickle.dumps(encoder)).encode(text) for text in texts]
    assert [encoder.encode(text) for text in texts] == expected
    assert max(len(encoder._recent), len(encoder._earlier)) == 10

    encoder.encode("l" * 10_000)  # no long ones
    assert all(len(token) < 10_000 for token in (*encoder._recent, *encoder._earlier))


def test_keeps_frequent_tokens_cached(encoder, monkeypatch):
    monkeypatch.setattr(encoders, "_CACHED", 10)
    encoder.encode("lower")
    cut = []
    monkeypatch.setattr(encoder, "_encode_token", lambda token: cut.append(token) or (2,))
    for i in range(100):
        assert len(encoder.encode(f"lower {i}")) == 4
    assert cut == [str(i) for i in range(100)]


@pytest.mark.parametrize(
    ("subtokens", "message"),
    [
        ([], "vocab is empty"),
        (["", ""], "vocab is empty"),
        (["a", "<EOS>"], r"vocab, line 1: got 'a' where a vocabulary has <pad>"),
        (["<pad>"], r"vocab, line 2: got '' where a vocabulary has <EOS>"),
        (["<pad>", "<EOS>", "a", "b", "a"], r"vocab, line 5: 'a' is already on line 3"),
    ],
)
def test_refuses_what_is_no_vocabulary(tmp_path, subtokens, message):
    path = write(tmp_path / "vocab", subtokens, quote="")
    for encoder in (SubwordTextEncoder, TokenTextEncoder):
        with pytest.raises(UserError, match=message):
            encoder(path)


def test_a_blank_entry_keeps_its_id_and_a_character_that_is_not_there_is_named(tmp_path):
    encoder = SubwordTextEncoder(write(tmp_path / "vocab", ["<pad>", "<EOS>", "", "", "ab_"]))
    assert encoder.encode("ab") == [4]
    with pytest.raises(UserError, match="single character 'b'"):
        encoder.encode("b")


@pytest.mark.skipif(not SHARED.exists(), reason="needs T2T's reference numbers in ../shared")
def test_equals_t2t_on_every_case():
    with gzip.open(SHARED / "golden/text/subword_cases.json.gz", "rt", encoding="utf-8") as file:
        cases = json.load(file)
    vocabulary = "golden/t2t_release/vocab.translate_ende_wmt32k.32768.subwords"
    encoder = SubwordTextEncoder(SHARED / vocabulary)
    assert encoder.vocab_size == 33708
    assert len(cases) == 773
    for case in cases:
        assert encoder.encode(case["text"]) == case["ids"]
        assert encoder.decode(case["ids"]) == case["decoded"]


# Vocabularies beside tables of other sizes: T2T's tables may have more rows than there are tokens


TINY = "transformer_test,num_hidden_layers=1,hidden_size=8,filter_size=8"
ROWS = 48


def write_run_of_t2t(directory, hparams=TINY):
    """Writes a checkpoint of `ROWS` rows and the settings, as T2T leaves them: nothing says how many tokens."""
    hp = registry.hparams(hparams)
    model = Transformer(hp, source_vocab_size=ROWS, target_vocab_size=ROWS)
    checkpoints.save_t2t(model, str(directory / "model.ckpt-1"))
    (directory / "hparams.json").write_text(json.dumps(hp.to_dict()))
    return str(directory)


def decode(tmp_path, tokens, hparams=TINY):
    write_run_of_t2t(tmp_path, hparams)
    write(tmp_path / t2t_release.VOCABULARY, t2t_release.made_up_subwords(tokens))
    (tmp_path / "lines").write_text("Hello\n")
    flags = (f"--problem={t2t_release.PROBLEM}", f"--data_dir={tmp_path}")
    files = ("--decode_from_file", tmp_path / "lines", "--decode_to_file", tmp_path / "out")
    search = "--decode_hparams=beam_size=2,extra_length=2"
    return toy.command("decode", *flags, f"--checkpoint_path={tmp_path}", *files, search)


@pytest.mark.parametrize("divisor", [1, 16])
def test_a_table_of_more_rows_than_tokens_decodes_with_a_word(tmp_path, divisor):
    """Rows that `vocab_divisor` added need none."""
    done = decode(tmp_path, ROWS - 8, f"{TINY},vocab_divisor={divisor}")
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "out").read_text().splitlines()) == 1
    warning = (
        f"warning: the vocabulary of the inputs in {tmp_path} has 40 tokens and the model's table 48 "
        "rows: make sure that the model was trained on it."
    )
    warnings = [line for line in done.stderr.splitlines() if "vocabulary" in line]
    assert warnings == [warning] * (divisor == 1)


def test_more_tokens_than_rows_are_refused(tmp_path):
    assert toy.complaint(decode(tmp_path, ROWS + 1)) == (
        f"t2t-keras-decode: the vocabulary of the inputs in {tmp_path} has 49 tokens and the model 48: "
        "give the data the model was trained on."
    )


def test_a_run_of_ours_says_how_many_tokens_it_had(tmp_path):
    model = checkpoints.load_model(write_run_of_t2t(tmp_path))
    sizes = {"inputs": ROWS, "targets": ROWS - 1}
    run = {"source_vocab_size": ROWS, "target_vocab_size": ROWS}
    assert "of the targets" in require_vocabulary_of_run(model, sizes, {}, "data")
    with pytest.raises(UserError, match=r"targets in data has 47 tokens and the model 48: give"):
        require_vocabulary_of_run(model, sizes, run, "data")
    assert require_vocabulary_of_run(model, {**sizes, "targets": ROWS}, run, "data") == ""


def test_an_export_refuses_more_tokens_than_rows_alone():
    model = SimpleNamespace(source_vocab_size=300, target_vocab_size=258)
    encoders = dict.fromkeys(("inputs", "targets"), ByteTextEncoder())
    require_vocabulary(model, encoders)
    model.target_vocab_size = 257
    with pytest.raises(UserError, match="of the targets has 258 tokens and the model 257"):
        require_vocabulary(model, encoders)


SUBWORDS = SubwordTextEncoder.build_from_generator(["aa"], 10)


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
def test_ids_beyond_the_vocabulary(encoder, ids, text, tmp_path):
    model = checkpoints.load_model(write_run_of_t2t(tmp_path))
    model.source_vocab_size = model.target_vocab_size = 400  # all `ServedTransformer` looks at
    encoders = {"inputs": encoder, "targets": encoder}
    assert Translator(model, encoders).text(ids) == text
    served = ServedTransformer(model, encoders, DecodeSettings(beam_size=1))
    rows = np.array([[ids]], np.int32)
    assert served._parts.texts(rows).numpy().tolist() == [[text.encode()]]
