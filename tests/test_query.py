"""t2t-keras-query against TensorFlow Serving's protocol, gRPC and REST, and a SavedModel."""

import contextlib
import http.server
import io
import json
import os
import re
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import tensorflow as tf
import toy
from networks import small_model

from t2t_keras.cli.query import answer_lines
from t2t_keras.decoding import DecodeSettings, Translator
from t2t_keras.errors import UserError
from t2t_keras.export import export_saved_model
from t2t_keras.serving import SavedModel, TextClient, connect
from t2t_keras.text import SubwordTextEncoder

pytest.importorskip("tensorflow_serving", reason="tensorflow-serving-api is not installed")

import grpc
from prediction_service import ServedModel, grpc_server, http_server, rest_server
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2

SETTINGS = DecodeSettings(beam_size=2, extra_length=5, return_beams=True)
TEXTS = ["the cat sat on the mat", "a cat_and\\dog, Grüße!"]
ENCODER = SubwordTextEncoder.build_from_generator(TEXTS * 50, 60)
ENCODERS = {"inputs": ENCODER, "targets": ENCODER}
LINES = ["the mat", "", "a dog sat", "Grüße, \u4f60_!", "  cat\t"]

STRINGS = tf.TensorSpec([None], tf.string)


class Turner(tf.Module):
    """Signatures like those of an export: texts are turned round, ids, too; two hypotheses."""

    @tf.function(input_signature=[STRINGS])
    def translate(self, text):
        letters = tf.strings.unicode_split(text, "UTF-8").to_tensor("")
        turned = tf.strings.reduce_join(tf.reverse(letters, [1]), 1)
        lengths = tf.cast(tf.strings.length(text), tf.float32)
        return {
            "translation": turned,
            "translations": tf.stack([turned, text], 1),
            "scores": tf.stack([-lengths, -2 * lengths], 1),
            "truncated": lengths > 100,
        }

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="input")])
    def serialized_example(self, examples):
        parsed = tf.io.parse_example(examples, {"inputs": tf.io.RaggedFeature(tf.int64)})
        ids = tf.cast(parsed["inputs"], tf.int32)[:, :-1]
        ends = tf.ones([ids.nrows(), 1], tf.int32)
        return {
            "outputs": tf.concat([ids[:, ::-1], ends], 1).to_tensor(),
            "scores": -tf.cast(ids.row_lengths(), tf.float32),
        }

    @tf.function(input_signature=[STRINGS, STRINGS])
    def score(self, source, target):
        return {"log_probability": tf.zeros(tf.shape(source))}

    @tf.function(input_signature=[STRINGS])
    def choosy(self, text):
        allowed = tf.debugging.Assert(tf.reduce_all(text != "no"), ["Not no."])
        with tf.control_dependencies([allowed]):
            text = tf.identity(text)
        return {"translations": text[:, None], "scores": tf.zeros([tf.size(text), 1])}


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """A directory of versions, of which 10 is the highest that holds a model."""
    directory = tmp_path_factory.mktemp("models") / "turner"
    module = Turner()
    names = ("translate", "serialized_example", "score", "choosy")
    signatures = {name: getattr(module, name) for name in names}
    for version, default in (("9", "serialized_example"), ("10", "translate")):
        signatures["serving_default"] = signatures[default]
        tf.saved_model.save(module, str(directory / version), signatures)
    (directory / "11").mkdir()
    return directory


@pytest.fixture(scope="module")
def small():
    """A model that is exported by us."""
    size = ENCODER.vocab_size
    return small_model("", size, size, spread=3.0, ending=1.0)


@pytest.fixture(scope="module")
def directories(versions, small, tmp_path_factory):
    """The directory of each model that is served."""
    directory = str(tmp_path_factory.mktemp("export"))
    exported = export_saved_model(small, ENCODERS, directory, SETTINGS, warm_up=False)
    return {"turner": str(versions / "10"), "of t2t": str(versions / "9"), "small": exported}


@pytest.fixture(scope="module")
def models(directories):
    return {name: ServedModel(directory) for name, directory in directories.items()}


@pytest.fixture(scope="module")
def grpc_address(models):
    with grpc_server(models, threads=2) as address:
        yield address


@pytest.fixture(scope="module")
def rest_address(models):
    with rest_server(models) as address:
        yield address


@pytest.fixture(params=["gRPC", "REST"])
def address(request):
    return request.getfixturevalue("grpc_address" if request.param == "gRPC" else "rest_address")


# Text in, text out, whatever is between.


@pytest.fixture(scope="module")
def ways(directories, grpc_address, rest_address):
    """The model of a name over gRPC, over REST, and in this process."""
    return lambda name="turner": [
        *(connect(address, name) for address in (grpc_address, rest_address)),
        SavedModel(directories[name]),
    ]


def test_texts_and_scores_of_an_export_are_those_without_a_server(ways, small):
    ours = list(Translator(small, ENCODERS, SETTINGS).translate(LINES))
    for way in ways("small"):
        for signature in ("serving_default", "serialized_example"):
            found = TextClient(way, signature, ENCODERS).translate([*LINES[:4], b"  cat\t\xff"])
            assert [answer.texts for answer in found] == [answer.texts for answer in ours]
            scores = [pytest.approx(answer.scores, abs=1e-4) for answer in ours]
            assert [answer.scores for answer in found] == scores
            assert not any(answer.truncated for answer in found)
        long, short = TextClient(way).translate([b"cat " * 10_000, b"cat \xff\xfe"])
        assert (long.truncated, short.truncated, len(short.texts)) == (True, False, 2)


def test_translates_over_grpc_and_rest_and_in_process(ways):
    texts = ["abc", "Grüße 你", "", b"\x00\x01\t\r", b"x" * 1_500_000, "\u2028\U0001f600"]
    strings = [text.decode() if isinstance(text, bytes) else text for text in texts]
    for model in ways():
        found = TextClient(model).translate(texts)
        assert [answer.texts for answer in found] == [[text[::-1], text] for text in strings]
        assert [answer.truncated for answer in found] == [len(text) > 100 for text in strings]
        assert found[0].scores == [-3, -6] and TextClient(model).translate([]) == []


# What goes wrong ends in one line.


@pytest.mark.parametrize(
    ("name", "signature", "message"),
    [
        ("half", "translate", r"'half' at .*Servable not found.*Latest\(half\)"),
        ("turner", "translat", "no signature 'translat'; it has: choosy, score.*'translate'"),
        ("turner", "score", "takes source, target and returns log_probability: name one"),
        ("of t2t", "serving_default", "takes input .* or give --problem and --data_dir"),
    ],
)
def test_signatures_that_cannot_be_called(address, name, signature, message):
    with pytest.raises(UserError, match=message):
        TextClient(connect(address, name), signature)


def test_what_the_model_refuses(ways):
    for model in ways():
        client = TextClient(model, "choosy")
        with pytest.raises(UserError, match=r"Not no\.") as caught:
            client.translate(["no"])
        assert len(str(caught.value)) < 500
        assert client.translate(["yes"])[0].texts == ["yes"]


def refused(server, message, **options):
    """Checks that a server's answer about signatures is refused in one line."""
    with pytest.raises(UserError, match=message) as caught:
        TextClient(connect(server, "turner", **options))
    assert "\n" not in str(caught.value)


def test_addresses_without_such_a_server(grpc_address, rest_address):
    for server in ("localhost", "localhost:8500/v1", "ftp://localhost:8500", "http://[::1:80", ""):
        refused(server, "is HOST:PORT for gRPC, http://HOST:PORT for REST")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound, not listened at
        address = f"127.0.0.1:{free.getsockname()[1]}"
        refused(address, r"TensorFlow Serving .* is this its gRPC port\?.*refused")
        refused(f"http://{address}", r"its --rest_api_port\? .*refused")
    refused(f"http://{grpc_address}/", f"^http://{grpc_address} sent no TensorFlow Serving answer")
    refused("http://[::zz]:80", r"its --rest_api_port\?")
    refused(rest_address[7:], f"^{rest_address[7:]}.*gRPC port")


def test_server_that_takes_too_long():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        flags = (f"--server=http://{address}", "--servable_name=x", "--timeout_secs=1")
        assert "within 1 seconds" in toy.complaint(toy.command("query", *flags))
        start = time.perf_counter()
        message = r"sent no TensorFlow Serving answer within 0\.3 seconds \(--timeout_secs"
        for server in (address, f"http://{address}"):
            refused(server, message, timeout=0.3)
    with rest_server_that_answers({"metadata"[i:]: b"{" for i in range(8)}, pause=0.2) as dripping:
        refused(dripping, f"{message}.*timed out", timeout=0.3)
    assert time.perf_counter() - start < 5


def rest_server_that_answers(answers, pause=0):
    """An address at which requests of a path that ends in a key get its value: JSON, or bytes."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            found = [answers[end] for end in answers if self.path.endswith(end)]
            self.send_response(200 if found else 403)
            self.end_headers()
            with contextlib.suppress(OSError):  # the client may have left
                for answer in found or [{}]:
                    time.sleep(pause)
                    is_raw = isinstance(answer, bytes)
                    self.wfile.write(answer if is_raw else json.dumps(answer).encode())

        def log_message(self, *args):
            pass

    return http_server(Handler)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({}, r"Its answer is 403 Forbidden\.$"),
        ({"metadata": b"<html>"}, "Its answer is 200 OK, no JSON"),
        ({"metadata": {"metadata": 5}}, "not subscriptable"),
        ({"metadata": b"{" + b" " * 2**24}, "The answer is longer than 16,777,216 bytes"),
    ],
)
def test_metadata_of_another_shape(answers, message):
    before = r"sent no TensorFlow Serving answer.* its --rest_api_port\? "
    with rest_server_that_answers(answers) as address:
        refused(address, f"{before}.*{message}")


def answering(outputs, takes="text", returns="translations"):
    """A model that gives this answer to every request."""
    signatures = {"serving_default": ([takes], [returns, "scores"])}
    return SimpleNamespace(signatures=lambda: signatures, predict=lambda *arguments: outputs)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (None, "translations and scores for 1 texts"),
        ({"translations": [["\ud800"]], "scores": [[1.0]]}, "surrogates"),
        ({"translations": [["a"]], "scores": [[1, 2]]}, "reshape"),
        ({"translations": [[]], "scores": [[]]}, "it is empty"),
        ({"translations": [["a"], ["b"]], "scores": [[1], [2]]}, "it has 2 rows"),
        ({"translations": [["a"]], "scores": [[1]], "truncated": []}, "is shorter than"),
    ],
)
def test_an_answer_of_another_shape(outputs, message, refused):
    client = TextClient(answering(outputs))
    with refused(message):
        client.translate(["x"])


@pytest.mark.parametrize("wrong", [-3, 1.5, 2**64, "5", None])
def test_ids_that_are_none_are_not_answered(wrong):
    encoder = SimpleNamespace(encode=lambda text: [5], decode=str, vocab_size=10)
    outputs = {"outputs": [[[wrong]]], "scores": [[1]]}
    client = TextClient(answering(outputs, "input", "outputs"), encoders={"targets": encoder})
    assert b"targets" in client._examples(["x"])[0]  # a language model has no inputs
    with pytest.raises(UserError, match="the answer lacks outputs and scores for 1 texts: "):
        client.translate(["x"])
    outputs["outputs"] = [[[5, 12, 1]]]  # 12: of `vocab_divisor`
    assert client.translate(["x"])[0].texts == ["[5]"]


def grpc_answer(answer):
    """A model whose server gives this answer to every request."""
    model = connect("localhost:1", "turner")
    answers = dict.fromkeys(("GetModelMetadata", "Predict"), lambda request, timeout: answer)
    model._service = SimpleNamespace(**answers)
    return model


def packed(url, value):
    answer = get_model_metadata_pb2.GetModelMetadataResponse()
    answer.metadata["signature_def"].type_url = f"type.googleapis.com/{url}"
    answer.metadata["signature_def"].value = value
    return answer


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (get_model_metadata_pb2.GetModelMetadataResponse(), "'metadata'"),
        (packed("unknown", b""), "unknown"),
        (packed("tensorflow.serving.SignatureDefMap", b"\xff"), "parsing"),
    ],
)
def test_metadata_of_another_shape_over_grpc(answer, message):
    model = grpc_answer(answer)
    with pytest.raises(UserError, match=rf"sent no TensorFlow Serving answer .*{message}"):
        model.signatures()


@pytest.mark.parametrize(
    ("tensor", "shape"),
    [
        ({"dtype": 7, "string_val": [b"a", b"b"]}, [1]),
        ({"dtype": 1, "tensor_content": b"abc"}, [1]),
        ({"dtype": 1, "float_val": [1.0]}, [2**20, 2**20]),
        ({"dtype": 1, "float_val": [1.0]}, [-1]),
        *(({"dtype": kind, "tensor_content": b"12345678"}, [1]) for kind in (*range(40), 101, 999)),
    ],
)
def test_an_answer_of_another_shape_over_grpc(tensor, shape, refused):
    answer = predict_pb2.PredictResponse()
    answer.outputs["translations"].MergeFrom(tf.make_tensor_proto([["a"]]))
    answer.outputs["scores"].MergeFrom(tensor_pb2.TensorProto(**tensor))
    for size in shape:
        answer.outputs["scores"].tensor_shape.dim.add(size=size)
    model = grpc_answer(answer)
    model.signatures = answering(None).signatures
    if tensor["dtype"] in (2, 9, 23) and shape == [1]:  # numbers of eight bytes
        (found,) = TextClient(model).translate(["x"])
        assert isinstance(found.scores[0], float)
        return
    with refused():
        TextClient(model).translate(["x"])


def test_server_that_offers_no_predictions():
    from concurrent import futures

    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        refused(f"127.0.0.1:{port}", "sent no TensorFlow Serving answer .*Method not found")
    finally:
        server.stop(None).wait()


def test_directory_without_a_model(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"broken")
    for directory, reason in ((tmp_path, "parse"), (tmp_path / "none", "No such file")):
        with pytest.raises(UserError, match=f"cannot be loaded as an export .*{reason}"):
            SavedModel(str(directory))


def test_missing_package_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_serving.apis", None)
    refused("localhost:8500", r"pip install 't2t-keras\[serving\]', or .*http://HOST:8501")


# The command.


def test_command_translates_once_and_each_line_of_standard_input(grpc_address, rest_address):
    def output(address, *flags, **options):
        flags = (f"--server={address}", "--servable_name=turner", *flags)
        return toy.ran("query", *flags, **options)

    assert output(grpc_address, "--inputs_once=abc").stdout == "cba\t-3.000\tabc\t-6.000\n"
    done = output(rest_address, input="ab\n\nGrüße\n" + "x" * 101 + "\n")
    lines = done.stdout.split("\n")
    assert [line.split("\t")[0] for line in lines] == ["ba", "", "eßürG", "x" * 101, ""]
    assert done.stderr == "too long: only the first part is translated\n"
    done = output(rest_address, "--signature_name=choosy", "--inputs_once=a\nb")
    assert done.stdout == "a b\t0.000\n"


def test_rest_needs_no_tensorflow(rest_address):
    code = (
        "import sys; from t2t_keras.serving import TextClient, connect; "
        f"print(TextClient(connect({rest_address!r}, 'turner')).translate(['ab'])[0].texts[0], "
        "'tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "ba False\n"


def test_command_takes_t2ts_flags_for_t2ts_signature(versions, tmp_path):
    data = (f"--problem={toy.PROBLEM}", f"--data_dir={toy.generate(tmp_path)}")
    model = (f"--saved_model={versions / '9'}", "--timeout_secs=5", "--inputs_once=a")
    done = toy.ran("query", *model, *data)
    assert done.stdout.startswith("a\t-")
    assert done.stderr == "ignoring --timeout_secs: a SavedModel is called in this process\n"
    home = {**os.environ, "HOME": str(versions)}
    done = toy.ran("query", "--saved_model=~/10", "--inputs_once=", *data, env=home, input="a\n")
    assert done.stdout.startswith("\t-0") and "ignoring --problem, --data_dir: " in done.stderr


class Lines(io.TextIOWrapper):
    """Standard input, typed or not."""

    def __init__(self, text, typed):
        super().__init__(io.BytesIO(text))
        self.typed = typed

    def isatty(self):
        return self.typed


def test_what_is_typed_goes_on_after_a_mistake(versions, monkeypatch, capsys):
    client = TextClient(SavedModel(str(versions / "10")), "choosy")
    monkeypatch.setattr(sys, "stdin", Lines(b"a\tc\nno\nb\n", typed=True))
    answer_lines(client)
    out, err = capsys.readouterr()
    assert out.replace("> ", "") == "a c\t0.000\nb\t0.000\n"
    assert "Not no." in err
    monkeypatch.setattr(sys, "stdin", Lines(b"a\nno\nb\n", typed=False))
    with pytest.raises(UserError, match="Not no"):
        answer_lines(client)


def test_escapes_of_a_translation_do_not_reach_a_terminal(versions):
    leader, follower = os.openpty()
    command = [toy.programs() / "t2t-keras-query", f"--saved_model={versions}"]
    text = "\x1b]0;title\x07\u009b31m\r"
    done = subprocess.run([*command, f"--inputs_once={text}"], stdout=follower, check=False)
    os.close(follower)
    shown = os.read(leader, 10_000).decode()
    os.close(leader)
    assert done.returncode == 0
    assert shown.split("\t")[2] == r"\x1b]0;title\x07\x9b31m\r"
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", shown)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give --server=HOST:PORT and --servable_name=NAME, or --saved_model=DIR."),
        (["--server=localhost:1"], "--servable_name is missing"),
        (["--server=localhost:1", "--saved_model=x"], "give one"),
        (["--server=localhost:1", "--servable_name=x", "--timeout_secs=0"], "timeout_secs"),
        (["--server=localhost:1", "--servable_name=x", "--data_dir=d"], "--problem is missing"),
        (["--server=localhost:1", "--servable_name=x", f"--problem={toy.PROBLEM}"], "--data_dir is missing"),
    ],
)  # fmt: skip
def test_command_says_what_is_wrong(arguments, words):
    assert words in toy.complaint(toy.command("query", *arguments))


# The measurement.


def test_load_and_hostile_input_leave_the_server_alive(versions):
    script = toy.ROOT / "benchmarks" / "serving.py"
    flags = (f"--saved_model={versions / '10'}", "--requests=20", "--threads=4")
    done = toy.succeeded(toy.python(script, *flags))
    for line in (
        "20 requests from 4 threads",
        "errors: 0; answers that changed: 0",
        "1 MB of text: 1050000 characters, cut",
        "empty: 0 characters",
    ):
        assert line in done.stdout
