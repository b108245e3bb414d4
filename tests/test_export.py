"""A SavedModel: its texts are those of `Translator`, and no text of a client harms it."""

import dataclasses
import json
import re

import numpy as np
import pytest
import tensorflow as tf
import toy
from networks import ENCODERS as WORDS, padding_model, small_model
from test_transformer import SOURCE, TARGETS

import t2t_keras as t2t
from t2t_keras.decoding import DecodeSettings, Translator
from t2t_keras.errors import UserError
from t2t_keras.export import SIGNATURES, ServedTransformer, export_saved_model
from t2t_keras.inspection.alignment import PairAligner, to_pharaoh
from t2t_keras.precision import has_int8, in_precision
from t2t_keras.text import ByteTextEncoder, SubwordTextEncoder
from t2t_keras.text.graph import SPACES

CORPUS = ["Zwei junge Männer, low lower lowest.", "lowland, slow 3.14; 日本語の 日本 Straße"]
SUBWORDS = SubwordTextEncoder.build_from_generator(CORPUS * 5, 130)
ENCODERS = {"inputs": SUBWORDS, "targets": SUBWORDS}
LINES = [*CORPUS, "", "low", "\u3000 low\tlower \x1f", "Männer Männer, 日本"]
LINES += ["😀\x00\x07 a_b\\", "lowest 3.14"]
HEADS = "0:1+1"  # for word alignments
SETTINGS = DecodeSettings(beam_size=3, extra_length=3, return_beams=True, max_input_size=24)


def make_model(encoder=SUBWORDS, **kwargs):
    """Some of its searches end, some reach their limit."""
    size = encoder.vocab_size
    overrides = "shared_embedding_and_softmax_weights=false,num_hidden_layers=1"
    settings = {"source_vocab": size, "target_vocab": size, "spread": 2.0, "ending": 1.0}
    return small_model(overrides, **{**settings, **kwargs})


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    directory, more = tmp_path_factory.mktemp("export"), {"align_heads": HEADS, "phrases": True}
    return export_saved_model(model, ENCODERS, directory, SETTINGS, **more)


@pytest.fixture(scope="module")
def loaded(path):
    return tf.saved_model.load(path)


@pytest.fixture(scope="module")
def serve(loaded):
    """Calls a signature of the loaded model with NumPy in and out."""

    def call(signature, **inputs):
        outputs = loaded.signatures[signature](**{k: tf.constant(v) for k, v in inputs.items()})
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    return call


def texts(array):
    return [[text.decode() for text in row] for row in array]


def python_translations(model, lines, settings=SETTINGS, encoders=ENCODERS):
    """One line at a time, so that no line is padded."""
    translator = Translator(model, encoders, settings)
    return [next(iter(translator.translate([line]))) for line in lines]


# Signatures


def test_signatures(loaded):
    def described(specs):
        return {name: (spec.dtype.name, spec.shape.as_list()) for name, spec in specs.items()}

    n, text = SETTINGS.beam_size, ("string", [None])
    pairs = {"source": text, "target": text}
    truncated = {"truncated": ("bool", [None])}
    found = {
        "scores": ("float32", [None, n]),
        "lengths": ("int32", [None, n]),
        "token_scores": ("float32", [None, n, None]),
        **truncated,
    }
    translated = {"translation": text, "translations": ("string", [None, n]), **found}
    log_p = {"log_probability": ("float32", [None]), "token_scores": ("float32", [None, None])}
    ids = ("int32", [None, n, None])
    key = {"batch_prediction_key": ("int32", [None, 1])}
    options = {"alpha": ("float32", []), "extra_length": ("int32", [])}
    wanted = {
        "serving_default": ({"text": text}, translated),
        "translate": ({"text": text}, translated),
        "translate_with_options": ({"text": text, **options}, translated),
        "translate_ids": ({"source_ids": ("int32", [None, None])}, {"target_ids": ids, **found}),
        "score": (pairs, {"tokens": ("int32", [None]), **log_p, **truncated}),
        "align": (pairs, {"alignment": text, **truncated}),
        "translate_with_phrases": ({"text": text, "phrases": text}, translated),
        "serialized_example": (
            {"input": text},
            {"outputs": ids, "scores": ("float32", [None, n]), **key},
        ),
    }
    assert set(loaded.signatures) == wanted.keys()
    for name, function in loaded.signatures.items():
        inputs = described(function.structured_input_signature[1])
        assert (inputs, described(function.structured_outputs)) == wanted[name]


def test_text_is_that_of_the_translator(model, serve):
    got = serve("serving_default", text=LINES)
    wanted = python_translations(model, LINES)
    assert texts(got["translations"]) == [w.texts for w in wanted]
    assert [t.decode() for t in got["translation"]] == [w.texts[0] for w in wanted]
    np.testing.assert_allclose(got["scores"], [w.scores for w in wanted], rtol=1e-4)
    assert got["lengths"].tolist() == [w.lengths for w in wanted]
    for rows, each in zip(got["token_scores"], wanted, strict=True):
        for row, token_scores in zip(rows, each.token_scores, strict=True):
            np.testing.assert_allclose(row[: len(token_scores)], token_scores, rtol=1e-4, atol=1e-6)
            assert not row[len(token_scores) :].any()
    lengths = [len(SUBWORDS.encode(line.strip())) + 1 for line in LINES]
    assert got["truncated"].tolist() == [n > SETTINGS.max_input_size for n in lengths]
    assert 0 < sum(got["truncated"]) < len(LINES)
    assert len({w.texts[0] for w in wanted}) > 4


def test_ids(model, serve):
    rows = [[*SUBWORDS.encode(line.strip()), 1] for line in LINES]
    ids = tf.ragged.constant(rows, tf.int32).to_tensor()
    got = serve("translate_ids", source_ids=ids)
    text = serve("translate", text=LINES)
    np.testing.assert_array_equal(got["scores"], text["scores"])
    np.testing.assert_array_equal(got["truncated"], text["truncated"])
    row = next(i for i, cut in enumerate(got["truncated"]) if not cut and len(rows[i]) > 3)
    options = {"beam_size": 3, "extra_length": 3, "top_beams": 3}
    wanted, _ = t2t.decoding.beam_search(model, [rows[row]], **options)
    np.testing.assert_array_equal(got["target_ids"][row][:, : wanted.shape[2]], wanted[0])
    assert not got["target_ids"][row][:, wanted.shape[2] :].any()


def test_a_row_of_no_ids_is_an_empty_sentence(serve):
    got = serve("translate_ids", source_ids=np.array([[0, 0], [1, 0]], np.int32))
    np.testing.assert_array_equal(got["target_ids"][0], got["target_ids"][1])
    got = serve("translate_ids", source_ids=np.zeros([1, 0], np.int32))
    assert got["target_ids"].shape[:2] == (1, 3)


def test_score(model, serve):
    targets = ["low", "Männer", *CORPUS, "", "a", "", "日本"]
    got = serve("score", source=LINES, target=targets)
    for n, (line, target) in enumerate(zip(LINES, targets, strict=True)):
        source = [*SUBWORDS.encode(line.strip()), 1]
        target = [*SUBWORDS.encode(target.strip()), 1]
        cut = max(len(source), len(target)) > SETTINGS.max_input_size
        assert got["truncated"][n] == cut
        if not cut:
            (wanted,) = t2t.decoding.score(model, [source], [target])
            assert got["log_probability"][n] == pytest.approx(float(wanted), rel=1e-4)
            assert got["tokens"][n] == len(target)
    assert (got["tokens"] <= SETTINGS.max_input_size).all()


def test_options(model, serve):
    for alpha, extra_length in ((1.5, 24), (-0.5, 0)):
        settings = dataclasses.replace(SETTINGS, alpha=alpha, extra_length=extra_length)
        options = {"alpha": np.float32(alpha), "extra_length": np.int32(extra_length)}
        got = serve("translate_with_options", text=LINES, **options)
        wanted = python_translations(model, LINES, settings)
        assert texts(got["translations"]) == [w.texts for w in wanted]


def test_phrases_that_must_appear(model, serve):
    lines = ["low", "lowest 3.14", "slow", "", " "]
    phrases = [["Männer", "low"], [], ["3.14"], ["low"], []]
    joined = [" \t ".join(each) for each in phrases]
    got = serve("translate_with_phrases", text=lines, phrases=joined)
    wanted = Translator(model, ENCODERS, SETTINGS).translate(lines, phrases=phrases)
    assert texts(got["translations"]) == [each.texts for each in wanted]
    assert not wanted[4].texts[0]  # a blank line without phrases
    for row, each in zip(got["translation"], phrases, strict=True):
        assert all(phrase in row.decode() for phrase in each)


def test_padding_among_the_tokens_is_text_and_no_token_of_a_target():
    lines = ["w20", "w5 w6 w7", "w7 <pad> w9", "w2 w3"]
    settings = DecodeSettings(beam_size=2, extra_length=14, max_input_size=40)
    served = ServedTransformer(padding_model(), WORDS, settings)
    got = served.translate(tf.constant(lines))
    wanted = python_translations(padding_model(), lines, settings, WORDS)
    assert texts([got["translation"].numpy()]) == [[w.texts[0] for w in wanted]]
    assert any("<pad> w" in w.texts[0] for w in wanted)
    scored = served.score(tf.constant(["w4"]), tf.constant(["w6 <pad> w8"]))
    assert scored["tokens"].numpy().tolist() == [3]


def example(ids, **others):
    features = {"inputs": ids, **others}
    lists = {name: tf.train.Int64List(value=values) for name, values in features.items()}
    features = {name: tf.train.Feature(int64_list=values) for name, values in lists.items()}
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def test_serialized_examples(serve):
    rows = [[*SUBWORDS.encode("low"), 1], [*SUBWORDS.encode("Männer lowest"), 1], [1]]
    examples = [
        example(rows[0]),
        example(rows[1], batch_prediction_key=[7], targets=[3, 1]),
        example(rows[2], batch_prediction_key=[8]),
    ]
    got = serve("serialized_example", input=examples)
    wanted = serve("translate_ids", source_ids=tf.ragged.constant(rows, tf.int32).to_tensor())
    np.testing.assert_array_equal(got["outputs"], wanted["target_ids"])
    np.testing.assert_array_equal(got["scores"], wanted["scores"])
    assert got["batch_prediction_key"].tolist() == [[0], [7], [8]]


def with_options(alpha, extra_length):
    return {"text": ["low"], "alpha": np.float32(alpha), "extra_length": np.int32(extra_length)}


NO_EXAMPLES = {
    b"no example": "Could not parse",
    b"": "has no int64 list inputs; its number:\\] \\[\\[1\\]\\]",
    b"\x12\x03abc": "has no int64 list inputs",  # a field of another message
    example([]): "has no int64 list inputs",
    example([2**32 + 7, 1]): r"Source id out of range; 0 to .*\[4294967303\]",
    example([-3, 1]): r"Source id out of range; 0 to .*\[-3\]",
    example([5, 1], batch_prediction_key=[2**32 + 7]): "needs more than 32 bits",
}
REFUSED = [
    ("translate_with_options", with_options(float("nan"), 0), "alpha must be a number"),
    ("translate_with_options", with_options(0.6, 25), "extra_length must be from 0 to 24"),
    ("translate_with_options", with_options(0.6, -1), "extra_length must be from 0 to 24"),
    ("score", {"source": ["a", "b"], "target": ["a"]}, "numbers of sources and targets differ"),
    ("translate_with_phrases", {"text": ["a", "b"], "phrases": ["a"]}, "texts and phrases differ"),
    *(
        ("translate_ids", {"source_ids": np.array([[5, wrong, 1]], np.int32)}, "Source id out of")
        for wrong in (SUBWORDS.vocab_size, -1)
    ),
    *(
        ("serialized_example", {"input": [example([5, 1]), wrong]}, message)
        for wrong, message in NO_EXAMPLES.items()
    ),
]


@pytest.mark.parametrize(("signature", "inputs", "message"), REFUSED, ids=range(len(REFUSED)))
def test_requests_that_are_refused(serve, signature, inputs, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        serve(signature, **inputs)


# What clients may send


def test_requests_of_any_size(serve):
    """More than are decoded at once, in an order of their own; and none."""
    got = serve("translate", text=LINES[3:6] * 40)["translation"]
    assert got.tolist() == serve("translate", text=LINES[3:6])["translation"].tolist() * 40
    empty = np.array([], object).astype("S")
    none = serve("translate", text=empty)
    assert {name: array.shape[1:] for name, array in none.items() if not len(array)} == {
        **dict.fromkeys(("translation", "truncated"), ()),
        **dict.fromkeys(("translations", "scores", "lengths"), (3,)),
        "token_scores": (3, 0),
    }
    assert serve("translate_ids", source_ids=np.zeros([0, 4], np.int32))["scores"].shape == (0, 3)
    assert serve("score", source=empty, target=empty)["tokens"].shape == (0,)
    assert serve("align", source=empty, target=empty)["alignment"].shape == (0,)


def test_hostile_texts(serve):
    words = "low Männer, lowest 3.14 "
    texts = {
        "empty": b"",
        "spaces": b" " * 10_000,
        "white space": "\u3000\t\n\x85".encode() * 2_500,
        "not UTF-8": b"\xff\xfe low \xc3",
        "control characters": bytes(range(32)),
        "a megabyte": (words * (2**20 // len(words.encode()))).encode(),
        "a megabyte of one word": b"x" * 2**20,
        "a megabyte of no letters": "日😀".encode() * 150_000,
    }
    got = serve("translate", text=list(texts.values()))
    by_name = dict(zip(texts, got["translation"], strict=True))
    assert by_name["spaces"] == by_name["white space"] == by_name["empty"]
    truncated = dict(zip(texts, got["truncated"], strict=True))
    assert [name for name, cut in truncated.items() if cut] == [
        name for name in texts if name.startswith("a megabyte") or name == "control characters"
    ]
    assert by_name["not UTF-8"] == serve("translate", text=["low"])["translation"][0]
    for text in got["translation"]:
        text.decode()


def test_white_space_is_what_python_strips():
    pattern = re.compile(f"[{SPACES}]")
    characters = list(map(chr, range(0x110000)))
    assert [c for c in characters if pattern.match(c)] == [c for c in characters if c.isspace()]


# Encoders, greedy search, precision


def test_bytes_in_bfloat16_with_another_default(path, tmp_path):
    encoder = ByteTextEncoder()
    model = make_model(encoder)
    encoders = {"inputs": encoder, "targets": encoder}
    settings = DecodeSettings(beam_size=1, extra_length=4, batch_size=2)
    options = {"precision": "bfloat16", "default_signature": "score", "warm_up": False}
    half_path = export_saved_model(model, encoders, tmp_path, settings, **options)
    assert stored_types(half_path) == [tf.bfloat16] * len(model.weights)
    assert set(stored_types(path)) == {tf.float32}

    loaded = tf.saved_model.load(half_path)
    lines = ["low", "日本 low x", ""]
    got = loaded.signatures["translate"](text=tf.constant(lines))
    wanted = python_translations(in_precision(model, "bfloat16"), lines, settings, encoders)
    assert texts(got["translations"].numpy()) == [w.texts for w in wanted]
    assert got["scores"].dtype == tf.float32
    ids = tf.constant([example([2, 3, 1])])
    assert loaded.signatures["serialized_example"](input=ids)["outputs"].shape.rank == 2
    assert "log_probability" in loaded.signatures["serving_default"].structured_outputs


def read_warm_up(path):
    """Yields signature and inputs, tensors by name, of each warm-up request of a version."""
    api = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    records = tf.data.TFRecordDataset(f"{path}/assets.extra/tf_serving_warmup_requests")
    for record in records.as_numpy_iterator():
        request = api.PredictionLog.FromString(record).predict_log.request
        inputs = {n: tf.constant(tf.make_ndarray(t)) for n, t in request.inputs.items()}
        yield request.model_spec.signature_name, inputs


def stored_types(path):
    """Returns the dtypes of the weights in the files of a SavedModel."""
    types = tf.train.load_checkpoint(f"{path}/variables/variables").get_variable_to_dtype_map()
    return [types[name] for name in types if name.startswith("_weights/")]


# Directories and their files


def test_load_with_tensorflow_alone(path, serve, tmp_path):
    model = small_model()
    inputs = {"inputs": SOURCE, "targets": TARGETS}
    model.export(str(tmp_path / "keras"), verbose=False)
    program = f"""
import json, sys
sys.modules["t2t_keras"] = sys.modules["tensorflow_text"] = None
import tensorflow as tf
tf.config.optimizer.set_experimental_options({{"disable_meta_optimizer": True}})  # for one call
lines, arrays = map(json.loads, sys.argv[1:])
loaded = tf.saved_model.load({path!r})
found = loaded.signatures["serving_default"](text=tf.constant(lines))["translation"].numpy()
again = loaded.translate(tf.constant(lines))["translation"].numpy()
given = {{name: tf.constant(array, tf.int32) for name, array in arrays.items()}}
of_keras = tf.saved_model.load({str(tmp_path / "keras")!r})
logits = of_keras.serve(given).numpy()
print(json.dumps([[text.decode() for text in texts] for texts in (found, again)]))
print(json.dumps(logits.tolist()))
"""
    arrays = {name: array.tolist() for name, array in inputs.items()}
    done = toy.succeeded(toy.python("-c", program, json.dumps(LINES), json.dumps(arrays)))
    texts, logits = map(json.loads, done.stdout.splitlines())
    wanted = [text.decode() for text in serve("translate", text=LINES)["translation"]]
    assert texts == [wanted, wanted]
    np.testing.assert_allclose(logits, model(inputs), atol=1e-5)


def test_versions(model, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "t2t_keras.export.saved_model.tf.saved_model.save",
        lambda module, path, signatures: open(f"{path}/saved_model.pb", "w").close(),
    )

    def export(**options):
        return export_saved_model(model, ENCODERS, tmp_path / "served", warm_up=False, **options)

    assert export() == str(tmp_path / "served" / "1")
    (tmp_path / "served" / "notes").mkdir()
    assert export(version=9) == str(tmp_path / "served" / "9")
    assert export().endswith("/10")
    assert export(version=0).endswith("/0") and export().endswith("/11")
    with pytest.raises(UserError, match="served/9 exists: give another version"):
        export(version=9)
    with pytest.raises(UserError, match="version must be 0 or more, got -1"):
        export(version=-1)
    assert len([*(tmp_path / "served").iterdir()]) == 6


def test_nothing_is_left_of_an_export_that_failed(model, tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("t2t_keras.export.saved_model.tf.saved_model.save", fail)
    (tmp_path / "1.host.77.incomplete" / "variables").mkdir(parents=True)  # of one that was killed
    with pytest.raises(UserError, match="1 cannot be written: No space left on device"):
        export_saved_model(model, ENCODERS, tmp_path)
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file cannot be read"):
        export_saved_model(model, ENCODERS, tmp_path / "file")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"default_signature": "translat"}, "Did you mean 'translate'?"),
        ({"precision": "int4"}, "precision must be one of float32, bfloat16, float16, int8, got 'int4'"),
        ({"settings": DecodeSettings(long_inputs="skip")}, "long_inputs cannot be skip in an export"),
        ({"settings": DecodeSettings(t2t_batches=True)}, "t2t_batches cannot be True in an export"),
        ({"settings": DecodeSettings(constrained="always")}, "constrained cannot be always in an"),
        ({"settings": DecodeSettings(beam_size=1, sampling_method="random")}, "sampling_method cannot be random"),
        ({"encoders": {**ENCODERS, "inputs": ByteTextEncoder()}}, "vocabulary of the inputs has 258 tokens and the"),
        ({"align_heads": "1"}, "heads=1: there is no layer 1, only 0 to 0"),
    ],
)  # fmt: skip
def test_refuses(options, message, model, tmp_path):
    with pytest.raises(UserError) as error:
        export_saved_model(model, directory=tmp_path, **{"encoders": ENCODERS, **options})
    assert message in str(error.value)
    assert not list(tmp_path.iterdir())


# Warm-up


def test_warm_up_requests_can_be_answered(path, loaded):
    asked = {}
    for signature, inputs in read_warm_up(path):
        function = loaded.signatures[signature]
        assert {n: (t.dtype, t.shape.rank) for n, t in inputs.items()} == {
            n: (s.dtype, s.shape.rank) for n, s in function.structured_input_signature[1].items()
        }
        function(**inputs)
        sizes = asked.setdefault(signature, [])
        sizes.append(max((t.shape[0] for t in inputs.values() if t.shape.rank), default=0))
    wanted = {*SIGNATURES, "align", "translate_with_phrases"}
    assert set(asked) == wanted - {"serialized_example"}
    assert set(asked["translate"]) == {1, 4}


SOURCES = ["low lower", "", "Männer low, lower", "slow 3.14"]
TRANSLATED = ["lower low", "low", "", "3.14; lowest slow"]


def alignments(model):
    found = PairAligner(model, ENCODERS, HEADS).align(SOURCES, TRANSLATED)
    assert sum(map(bool, found)) > 1 and [] in found
    return [to_pharaoh(links) for links in found]


def test_word_alignments(model, serve):
    got = serve("align", source=SOURCES, target=TRANSLATED)
    assert [line.decode() for line in got["alignment"]] == alignments(model)
    assert not got["truncated"].any()


def test_word_alignments_in_8_bits(model, eagerly):
    if not has_int8():
        pytest.skip("int8 needs oneDNN, which TensorFlow has on x86 processors")
    model = in_precision(model, "int8")
    served = ServedTransformer(model, ENCODERS, SETTINGS, align_heads=HEADS)
    got = served.align(tf.constant(SOURCES), tf.constant(TRANSLATED))["alignment"].numpy()
    assert [line.decode() for line in got] == alignments(model)


def test_an_ensemble(model, eagerly):
    lines = ["low", "low lower"]
    ensemble = t2t.decoding.Ensemble([model, make_model(seed=1)])
    module = ServedTransformer(in_precision(ensemble, "float32"), ENCODERS, SETTINGS)
    translate = module.translate.get_concrete_function()  # a graph all the same
    got = texts(translate(tf.constant(lines))["translations"].numpy())
    assert got == [w.texts for w in python_translations(ensemble, lines)]
    assert got != [w.texts for w in python_translations(model, lines)]
    saved = {id(variable) for variable in module.variables}
    needed = translate.variables
    assert len(needed) > len(model.weights)
    assert {id(variable) for variable in needed} <= saved
