"""Models for CTranslate2: T2T's numbers and our translations, by the package from PyPI."""

import functools
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import golden
import keras
import numpy as np
import pytest
from networks import search_model, small_model
from subclasses import CHANGED

from t2t_keras.decoding import DecodeSettings, Translator
from t2t_keras.errors import UserError
from t2t_keras.export.ctranslate2 import POSITIONS, export_ctranslate2
from t2t_keras.network_settings import INFERENCE_SETTINGS
from t2t_keras.serving import CTranslate2Translator
from t2t_keras.serving.ctranslate2 import read_encoders
from t2t_keras.text import ByteTextEncoder, SubwordTextEncoder, TokenTextEncoder
from t2t_keras.text.encoders import tokens

ctranslate2 = pytest.importorskip("ctranslate2", reason="the package ctranslate2 is not installed")

every_model = pytest.mark.parametrize("name", golden.MODELS)


def words(vocab_size=23):
    """Encoders whose text is the ids: "w5 w6"."""
    encoder = TokenTextEncoder(vocab_list=[f"w{i}" for i in range(2, vocab_size)])
    return {"inputs": encoder, "targets": encoder}


def rows(ids):
    """Rows of ids without their end of sentence, as CTranslate2's tokens."""
    return [[f"w{i}" for i in row if i not in (0, 1)] for row in golden.up_to_eos(ids)]


def one_thread(directory, **options):
    """A translator of one thread: several wait for one another where other tests run."""
    return CTranslate2Translator(directory, intra_threads=1, **options)


@functools.cache
def model_of(name):
    return golden.load(name).model()


@pytest.fixture(scope="module")
def directory_of(tmp_path_factory):
    """The exported T2T model of a name."""

    @functools.cache
    def export(name):
        directory = str(tmp_path_factory.mktemp(name) / "model")
        export_ctranslate2(model_of(name), words(), directory)
        return directory

    return export


# The network and the searches against T2T's numbers.


@every_model
def test_log_probabilities_are_those_of_t2t(name, directory_of):
    case = golden.load(name)
    logits = case.arrays["logits"].reshape(*case.arrays["targets"].shape[:2], -1)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    engine = ctranslate2.Translator(directory_of(name), intra_threads=1)
    found = engine.score_batch(rows(case.arrays["inputs"]), rows(case.arrays["targets"]))
    for result, ids, p in zip(found, golden.up_to_eos(case.arrays["targets"]), log_p, strict=True):
        assert ids[-1] == 1
        wanted = [p[t, i] for t, i in enumerate(ids)]
        np.testing.assert_allclose(result.log_probs, wanted, atol=2e-5)


@every_model
def test_beam_search_gives_the_translations_and_scores_of_t2t(name, directory_of):
    case = golden.load(name)
    lines = [" ".join(row) for row in rows(case.arrays["inputs"])]
    settings = {"extra_length": case.extra_length, "batch_size": len(lines)}
    found = one_thread(directory_of(name)).translate(lines, **settings)
    wanted = rows(case.arrays["beam_top1/outputs"].reshape(len(lines), -1))
    scores = case.arrays["beam_top1/scores"].ravel()
    for line, answer, row, score in zip(lines, found, wanted, scores, strict=True):
        if line:  # an empty one does not reach the model
            assert answer[0][0] == " ".join(row)
            assert answer[0][1] == pytest.approx(score, abs=2e-5)


# Against our own translations, of random models with every kind of output.


def random_lines(count, vocab_size=23):
    random = np.random.default_rng(0)
    lengths = random.integers(1, 9, count)
    return [" ".join(f"w{i}" for i in random.integers(2, vocab_size, n)) for n in lengths]


@pytest.mark.parametrize(
    "overrides",
    [
        "multiply_embedding_mode=none,use_target_space_embedding=false,vocab_divisor=8,norm_epsilon=0.1",
        "attention_key_channels=8,attention_value_channels=12",
        "pos=none,num_encoder_layers=2",
        "pos=timing_paper",
    ],
)
def test_translations_are_ours(overrides, tmp_path):
    model = search_model(overrides)
    (tmp_path / "model.host.77.incomplete").mkdir()  # of one that was killed
    export_ctranslate2(model, words(), str(tmp_path / "model"))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    lines, settings = random_lines(40), {"beam_size": 1, "extra_length": 5, "batch_size": 64}
    ours = Translator(model, words(), DecodeSettings(**settings))
    theirs = one_thread(str(tmp_path / "model")).translate(lines, **settings)
    for line, mine, other in zip(lines, ours.translate(lines), theirs, strict=True):
        assert other[0][0] == mine.texts[0], line
        assert other[0][1] == pytest.approx(mine.scores[0], abs=1e-4)


def test_ids_beyond_the_vocabulary_are_shown_as_t2t_shows_them(directory_of, tmp_path):
    """The model has 23 rows, the list of words 10: what the whole list spells w15 is ID_15."""
    few = str(tmp_path / "model")
    export_ctranslate2(model_of("base_v1_postnorm"), words(10), few)
    lines = random_lines(8, vocab_size=10)
    texts = [
        [text for [(text, _)] in one_thread(directory).translate(lines, extra_length=5)]
        for directory in (directory_of("base_v1_postnorm"), few)
    ]
    shown = [re.sub(r"\bw(\d\d)\b", r"ID_\1", text) for text in texts[0]]
    assert texts[1] == shown != texts[0]


def test_n_best_comes_ranked_by_t2ts_score(directory_of):
    translator = one_thread(directory_of("base_prenorm"))
    line, alpha = "w5 w6 w7", 1.0
    [found] = translator.translate([line], beam_size=4, alpha=alpha, top_beams=4)
    assert len({text for text, _ in found}) == 4
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
    scored = translator.engine.score_batch([line.split()] * 4, [text.split() for text, _ in found])
    for (_, score), result in zip(found, scored, strict=True):
        penalty = ((5 + len(result.log_probs)) / 6) ** alpha  # with the end of sentence
        assert score == pytest.approx(sum(result.log_probs) / penalty, abs=1e-4)


def test_order_of_lines_stays_and_an_empty_line_has_an_empty_translation(directory_of):
    translator = one_thread(directory_of("base_prenorm"))
    lines = ["w5 w6", "", "w7 w8 w9 w10", " w6 "]
    found = [answer[0] for answer in translator.translate(lines, batch_size=2)]
    assert [text for text, _ in found] == ["w6 w5", "", "w10 w9 w8 w7", "w6"]
    assert found[1][1] == 0
    assert translator.translate([]) == []


def test_eight_bit_weights_are_smaller_and_translate_the_same(directory_of, tmp_path):
    model, whole = model_of("base_v1_postnorm"), directory_of("base_v1_postnorm")
    int8 = str(tmp_path / "int8")
    export_ctranslate2(model, words(), int8, quantization="int8")
    lines = ["w5 w6 w7 w8", "w20 w4", "w9 w9 w3"]
    exact = one_thread(whole).translate(lines)
    # In float32, so that only the stored weights are rounded: CTranslate2's 8-bit products without VNNI are
    # far less exact than these.
    found = one_thread(int8, compute_type="float32").translate(lines)
    assert [answer[0][0] for answer in found] == [answer[0][0] for answer in exact]
    for answer, wanted in zip(found, exact, strict=True):
        assert answer[0][1] == pytest.approx(wanted[0][1], abs=0.1)
        assert answer[0][1] != wanted[0][1]
    assert one_thread(int8).translate(lines)  # in 8 bits
    small, large = (Path(each, "model.bin").stat().st_size for each in (int8, whole))
    assert small < large
    with open(tmp_path / "int8" / "config.json") as file:
        assert json.load(file)["layer_norm_epsilon"] == model.hp.norm_epsilon


def test_translates_without_tensorflow(directory_of):
    code = (
        "import sys; from t2t_keras.serving import CTranslate2Translator as T; "
        f"print(T({directory_of('base_prenorm')!r}).translate(['w5 w6 w7'])[0][0][0], "
        "'tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "w7 w6 w5 False\n"


# Tokens and encoders.


def test_every_id_has_a_token_of_its_own(tmp_path):
    vocabulary = tmp_path / "vocab"
    vocabulary.write_text("'<pad>_'\n'<EOS>_'\n'a'\n''\n'<id 3>'\n'\\'\n'_'\n'\u2028'\n", "utf-8")
    assert tokens(SubwordTextEncoder(vocabulary), 10) == [
        "<pad>", "<EOS>", "a", "<id 3>", "<id 4>", "\\", "_", "\u2028", "<id 8>", "<id 9>",
    ]  # fmt: skip
    of_bytes = tokens(ByteTextEncoder(), 258)
    assert len(set(of_bytes)) == 258
    assert of_bytes[2 + ord("A")] == "A"
    assert of_bytes[2 + 0xE4] == f"<id {2 + 0xE4}>"


def test_encoders_come_back(tmp_path):
    model = small_model(source_vocab=258, target_vocab=23)
    target = TokenTextEncoder(vocab_list=[f"w{i}" for i in range(2, 23)], replace_oov="w2")
    directory = str(tmp_path / "model")
    export_ctranslate2(model, {"inputs": ByteTextEncoder(), "targets": target}, directory)
    encoders, positions = read_encoders(directory)
    assert encoders["inputs"].encode("ä") == ByteTextEncoder().encode("ä")
    assert encoders["targets"].encode("w5 unheard") == [5, 2]
    assert positions == POSITIONS
    [[(text, _)]] = one_thread(directory).translate(["ä"], beam_size=1)
    assert text


def test_subword_vocabulary_is_kept_as_t2t_writes_it(tmp_path):
    text = ["the cat sat on the mat", "a cat_and\\dog"] * 50
    encoder = SubwordTextEncoder.build_from_generator(text, 60)
    size = encoder.vocab_size
    model = small_model(source_vocab=size, target_vocab=size)
    encoders = {"inputs": encoder, "targets": encoder}
    export_ctranslate2(model, encoders, str(tmp_path / "model"))
    stored = SubwordTextEncoder(tmp_path / "model" / "inputs.subwords")
    assert stored.all_subtoken_strings == encoder.all_subtoken_strings
    settings = {"beam_size": 1, "extra_length": 3, "batch_size": 8}
    ours = Translator(model, encoders, DecodeSettings(**settings))
    lines = ["the mat", "cat_\\dog, \u4f60!", "on a dog"]
    theirs = one_thread(str(tmp_path / "model")).translate(lines, **settings)
    assert [answer[0][0] for answer in theirs] == [t.texts[0] for t in ours.translate(lines)]


# What is refused.


class Other(TokenTextEncoder):
    """An encoder of one's own."""


OTHER = {**words(), "targets": Other(vocab_list=[f"w{i}" for i in range(2, 23)])}


@pytest.mark.parametrize(
    ("overrides", "options", "message"),
    [
        ("proximity_bias=true", {}, "proximity_bias; got True"),
        ("self_attention_type=dot_product_relative,max_relative_position=4", {}, "relative and absolute positions together"),
        ("layer_postprocess_sequence=dan", {}, "got n with dan"),
        ("attention_key_channels=32", {}, "attention_key_channels greater than hidden_size=16; got 32"),
        ("num_encoder_layers=0,num_hidden_layers=0", {}, "an encoder without layers"),
        ("", {"encoders": words(30)}, "inputs has 30 tokens and the model 23"),
        ("", {"encoders": OTHER}, "encoder of the targets is a Other"),
        ("", {"quantization": "int9"}, "'int9'.*Did you mean 'int"),
    ],
)  # fmt: skip
def test_refuses_what_ctranslate2_has_not(overrides, options, message, tmp_path, refused):
    with refused(message):
        options = {"encoders": words(), **options}
        export_ctranslate2(small_model(overrides), directory=str(tmp_path / "model"), **options)
    assert list(tmp_path.iterdir()) == []


def test_refuses_other_networks_and_integers(tmp_path):
    own, quantized, part = small_model(model_class=CHANGED["memory"]), small_model(), small_model()
    quantized.quantize("int8")
    part.decoder.layers[-1].ffn.conv1.activation = keras.activations.tanh
    refused = {"a model of your own; got": own, "quantized weights": quantized, "activation": part}
    for message, model in {**refused, "uni": small_model("unidirectional_encoder=true")}.items():
        with pytest.raises(UserError, match=message):
            export_ctranslate2(model, words(), str(tmp_path / "model"))


def test_every_setting_that_decides_the_logits_is_expressed_or_refused():
    expressed = {
        "attention_key_channels", "attention_value_channels", "filter_size", "hidden_size",
        "layer_postprocess_sequence", "layer_preprocess_sequence", "max_relative_position",
        "multiply_embedding_mode", "norm_epsilon", "num_decoder_layers", "num_encoder_layers",
        "num_heads", "num_hidden_layers", "pos", "self_attention_type", "shared_embedding",
        "shared_embedding_and_softmax_weights", "use_pad_remover", "use_target_space_embedding",
        "vocab_divisor",
    }  # fmt: skip
    refused = {"proximity_bias", "unidirectional_encoder", "prepend_mode"}
    assert set(INFERENCE_SETTINGS) == expressed | refused


def test_refuses_other_directories(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for directory, message in {
        ".": "is the current directory: name another",
        str(tmp_path): "is the current directory: name another",
        "full": "is not empty",
        "file/model": "cannot be written",
    }.items():
        with pytest.raises(UserError, match=message):
            export_ctranslate2(search_model(), words(), directory)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["file"]


def test_translator_refuses_what_it_cannot_do(directory_of, tmp_path, refused):
    for content in (None, "[]", '{"inputs": {"kind": 5}}', '{"inputs": 5}', "[" * 100_000):
        if content:
            (tmp_path / "encoders.json").write_text(content)
        with refused("is not an export of t2t-keras-export"):
            one_thread(str(tmp_path))
    for option in ({"compute_type": "int3"}, {"inter_threads": 0}):
        with pytest.raises(UserError, match="cannot be loaded by CTranslate2"):
            one_thread(directory_of("base_prenorm"), **option)
    translator = one_thread(directory_of("base_prenorm"))
    with pytest.raises(UserError, match=f"line 2 has {POSITIONS + 1} tokens.*{POSITIONS}"):
        translator.translate(["w5", "w5 " * POSITIONS])
    with pytest.raises(UserError, match=r"line 2 has <pad>, which CTranslate2 does not mask"):
        translator.translate(["w5", "w5 <pad> w6"])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"top_beams": 5}, "top_beams must be from 1 to beam_size=4, got 5"),
        ({"top_beams": 0}, "top_beams must be from 1 to beam_size=4, got 0"),
        ({"alpha": math.nan}, "alpha must be a number, got nan"),
        ({"extra_length": -5}, "extra_length must be an integer of at least 0, got -5"),
    ],
)
def test_numbers_out_of_range(option, message, directory_of):
    with pytest.raises(UserError, match=message):
        one_thread(directory_of("base_prenorm")).translate(["w5"], **option)


def test_says_that_the_package_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(UserError, match=r"pip install 't2t-keras\[ctranslate2\]'"):
        export_ctranslate2(search_model(), words(), str(tmp_path / "model"))
