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
import threading
import time
import urllib.request
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import toy

from t2t_keras.cli.query import answer_lines
from t2t_keras.errors import UserError
from t2t_keras.serving import SavedModel, TextClient, connect
from t2t_keras.serving.models import Signature

pytest.importorskip("tensorflow_serving", reason="tensorflow-serving-api is not installed")

import grpc
from prediction_service import ServedModel, grpc_server, rest_server
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2

STRINGS = tf.TensorSpec([None], tf.string)


class Turner(tf.Module):
    """Signatures like those of an export: texts are turned round, ids, too; two hypotheses."""

    @tf.function(input_signature=[STRINGS])
    def translate(self, text):
        turned = tf.strings.reduce_join(
            tf.reverse(tf.strings.unicode_split(text, "UTF-8").to_tensor(""), [1]), 1
        )
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
        with tf.control_dependencies(
            [tf.debugging.Assert(tf.reduce_all(text != "no"), ["Not no."])]
        ):
            text = tf.identity(text)
        return {"translations": text[:, None], "scores": tf.zeros([tf.size(text), 1])}


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """A directory of versions, of which 10 is the highest that holds a model."""
    directory = tmp_path_factory.mktemp("models") / "turner"
    module = Turner()
    signatures = {
        name: getattr(module, name)
        for name in ("translate", "serialized_example", "score", "choosy")
    }
    for version, default in (("9", "serialized_example"), ("10", "translate")):
        signatures["serving_default"] = signatures[default]
        tf.saved_model.save(module, str(directory / version), signatures)
    (directory / "11").mkdir()
    return directory


@pytest.fixture(scope="module")
def models(versions):
    return {
        "turner": ServedModel(str(versions / "10")),
        "of t2t": ServedModel(str(versions / "9")),
    }


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


@pytest.fixture(scope="module")
def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield free.getsockname()[1]  # bound, not listened at


# Text in, text out, whatever is between.


def every_way(versions, grpc_address, rest_address, name="turner"):
    version = {"turner": "10", "of t2t": "9"}[name]
    return [
        connect(grpc_address, name),
        connect(rest_address, name),
        SavedModel(str(versions / version)),
    ]


def test_translates_over_grpc_and_rest_and_in_process(versions, grpc_address, rest_address):
    for model in every_way(versions, grpc_address, rest_address):
        found = TextClient(model).translate(["abc", "Grüße 你", ""])
        assert [answer.texts for answer in found] == [
            ["cba", "abc"],
            ["你 eßürG", "Grüße 你"],
            ["", ""],
        ]
        assert found[0].scores == [-3, -6]
        model.close()


def test_any_bytes_and_any_length_arrive(versions, grpc_address, rest_address):
    texts = [b"\x00\x01\t\r", b"x" * 1_000_000, "\u2028\U0001f600"]
    for model in every_way(versions, grpc_address, rest_address):
        found = TextClient(model).translate(texts)
        assert [answer.texts[0] for answer in found] == [
            t.decode()[::-1] if isinstance(t, bytes) else t[::-1] for t in texts
        ]
        assert [answer.truncated for answer in found] == [False, True, False]


def test_encodes_for_t2ts_signature(versions, grpc_address, rest_address):
    class Letters:
        vocab_size = 0x110000

        def encode(self, text):
            return [ord(letter) for letter in text]

        def decode(self, ids):
            return "".join(map(chr, ids))

    encoders = {"inputs": Letters(), "targets": Letters()}
    for model in every_way(versions, grpc_address, rest_address, "of t2t"):
        found = TextClient(model, encoders=encoders).translate([" abc ", "de", "你"])
        assert [answer.texts for answer in found] == [["cba"], ["ed"], ["你"]]
        assert [answer.scores for answer in found] == [[-3], [-2], [-1]]


def test_reads_several_hypotheses_of_t2ts_signature():
    class Beams:
        def signature(self, name):
            return Signature({"input": True}, ("outputs", "scores"))

        def predict(self, name, signature, inputs):
            return {"outputs": np.array([[[5, 1, 0], [6, 7, 1]]]), "scores": np.array([[-1.0, -2]])}

    class Numbers:
        vocab_size = 10
        encode = staticmethod(lambda text: [5])
        decode = staticmethod(lambda ids: " ".join(map(str, ids)))

    encoders = {"inputs": Numbers(), "targets": Numbers()}
    (found,) = TextClient(Beams(), encoders=encoders).translate(["x"])
    assert found.texts == ["5", "6 7"]
    assert found.scores == [-1, -2]


def test_rest_server_of_these_tests_speaks_as_tensorflow_serving_documents(rest_address):
    """Rows in, rows out, and the message for a model that is not served."""

    def post(path, body):
        request = urllib.request.Request(rest_address + path, json.dumps(body).encode())
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    found = post("/v1/models/turner:predict", {"instances": ["ab", "c"]})
    assert found["predictions"][0] == {
        "translation": "ba",
        "translations": ["ba", "ab"],
        "scores": [-2.0, -4.0],
        "truncated": False,
    }
    with pytest.raises(urllib.error.HTTPError) as caught:
        post("/v1/models/half:predict", {"instances": ["ab"]})
    assert caught.value.code == 404
    assert json.load(caught.value) == {"error": "Servable not found for request: Latest(half)"}


# What goes wrong ends in one line.


def test_unknown_model(address):
    with pytest.raises(UserError, match=r"'half' at .*Servable not found.*Latest\(half\)"):
        TextClient(connect(address, "half"))


def test_unknown_signature(address, versions):
    for model in (connect(address, "turner"), SavedModel(str(versions))):
        with pytest.raises(
            UserError, match=r"no signature 'translat'; it has: choosy, score.*'translate'"
        ):
            TextClient(model, "translat")


def test_signature_that_takes_no_text(address):
    with pytest.raises(UserError, match="takes source, target and returns log_probability"):
        TextClient(connect(address, "turner"), "score")


def test_t2ts_signature_without_a_vocabulary(address):
    with pytest.raises(
        UserError, match="give --problem and --data_dir, or --signature_name=transl"
    ):
        TextClient(connect(address, "of t2t"))


def test_what_the_model_refuses(address, versions):
    for model in (connect(address, "turner"), SavedModel(str(versions))):
        client = TextClient(model, "choosy")
        with pytest.raises(UserError, match=r"Not no\.") as caught:
            client.translate(["no"])
        assert len(str(caught.value)) < 500
        assert client.translate(["yes"])[0].texts == ["yes"]


def test_no_server(free_port):
    with pytest.raises(
        UserError, match=rf"no connection to 127\.0\.0\.1:{free_port} .*gRPC port\?"
    ):
        TextClient(connect(f"127.0.0.1:{free_port}", "turner"))
    with pytest.raises(
        UserError, match=rf"no connection to http://127\.0\.0\.1:{free_port} .*refused"
    ):
        TextClient(connect(f"http://127.0.0.1:{free_port}", "turner"))


def test_server_that_takes_too_long():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        start = time.perf_counter()
        for server in (f"127.0.0.1:{port}", f"http://127.0.0.1:{port}"):
            with pytest.raises(
                UserError, match=r"has not answered within 0\.3 seconds: raise --timeout"
            ):
                TextClient(connect(server, "turner", timeout=0.3))
    assert time.perf_counter() - start < 5


METADATA = {
    "metadata": {
        "signature_def": {
            "signature_def": {
                "serving_default": {
                    "inputs": {"text": {"dtype": "DT_STRING"}},
                    "outputs": {"translations": {}, "scores": {}},
                }
            }
        }
    }
}


@contextlib.contextmanager
def rest_server_that_answers(answers):
    """An address at which requests of a path that ends in a key get its value: JSON, or a function."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            found = [answers[end] for end in answers if self.path.endswith(end)]
            self.send_response(200 if found else 403)
            self.end_headers()
            with contextlib.suppress(OSError):  # the client may have left
                for answer in found:
                    if callable(answer):
                        answer(self.wfile)
                    else:
                        self.wfile.write(json.dumps(answer).encode())

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda file: file.write(b"<html>"), "its answer is not JSON: Expecting value"),
        (lambda file: file.write(b"[" * 100_000), "its answer is not JSON: maximum recursion"),
        ([], "its answer must be an object, got []"),
        ({"metadata": 5}, "its answer: metadata must be an object, got 5"),
        (
            {"metadata": {"signature_def": {"signature_def": {"a": {"inputs": {"text": 3}}}}}},
            "its answer: metadata.signature_def.signature_def.a.inputs.text must be an object",
        ),
    ],
)
def test_metadata_of_another_shape_are_one_line(answer, message):
    answers = {"metadata": answer}
    with rest_server_that_answers(answers) as address, pytest.raises(UserError) as caught:
        TextClient(connect(address, "turner"))
    assert f"does not answer like TensorFlow Serving: {message}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (None, "its answer: outputs must be an object, got null"),
        ({"scores": [[1.0]]}, "the answer has no translations"),
        ({"translations": "ab", "scores": [[1.0]]}, 'translations must be a list, got "ab"'),
        ({"translations": ["ab"], "scores": [[1.0]]}, 'translations[0] must be a list, got "ab"'),
        ({"translations": [[5]], "scores": [[1.0]]}, "translations[0][0] must be a string, got 5"),
        ({"translations": [["a"]], "scores": [["1"]]}, "scores[0][0] must be a number"),
        ({"translations": [["a"]], "scores": [[10**400]]}, "scores[0][0] must be a number"),
        ({"translations": [["a"]], "scores": [1]}, "scores[0] must be a list, got 1"),
        ({"translations": [["a"]], "scores": [[1], [2]]}, "1 translations, 2 scores and 1 trunc"),
        ({"translations": [["a"]], "scores": [[1, 2]]}, "not a score for each hypothesis"),
        ({"translations": [], "scores": []}, "0 translations, 0 scores and 1 truncated, or"),
        (
            {"translations": [["a"]], "scores": [[1]], "truncated": ["no"]},
            'truncated[0] must be true or false, got "no"',
        ),
    ],
)
def test_an_answer_of_another_shape_is_one_line(outputs, message):
    answers = {"metadata": METADATA, ":predict": {"outputs": outputs}}
    with rest_server_that_answers(answers) as address, pytest.raises(UserError) as caught:
        TextClient(connect(address, "turner")).translate(["x"])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ([[[2**32 + 7]]], "outputs[0][0][0] must be an integer from 0 to 2147483647"),
        ([[[-3]]], "outputs[0][0][0] must be an integer from 0 to 2147483647, got -3"),
        ([[[1.5]]], "outputs[0][0][0] must be an integer from 0 to 2147483647, got 1.5"),
    ],
)
def test_ids_that_are_none_are_not_answered(outputs, message):
    metadata = json.loads(json.dumps(METADATA).replace("translations", "outputs"))
    metadata = json.loads(json.dumps(metadata).replace('"text"', '"input"'))
    encoder = SimpleNamespace(encode=lambda text: [5], decode=str, vocab_size=10)
    answers = {"metadata": metadata, ":predict": {"outputs": {"outputs": outputs, "scores": [[1]]}}}
    with rest_server_that_answers(answers) as address:
        client = TextClient(
            connect(address, "turner"), encoders={"inputs": encoder, "targets": encoder}
        )
        with pytest.raises(UserError, match=re.escape(message)):
            client.translate(["x"])
        answers[":predict"]["outputs"]["outputs"] = [[[5, 12, 1]]]  # 12: of `vocab_divisor`
        assert client.translate(["x"])[0].texts == ["[5]"]


def definitions(**fields):
    """The metadata of a model with one signature, whose definition is packed as TensorFlow Serving does."""
    found = get_model_metadata_pb2.SignatureDefMap()
    found.signature_def["a"].inputs["text"].dtype = fields["dtype"]
    answer = get_model_metadata_pb2.GetModelMetadataResponse()
    answer.metadata["signature_def"].Pack(found)
    return answer


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (get_model_metadata_pb2.GetModelMetadataResponse(), "has no metadata.signature_def"),
        (definitions(dtype=999), "metadata.signature_def: "),
    ],
)
def test_metadata_of_another_shape_over_grpc(monkeypatch, answer, message):
    model = connect("localhost:1", "turner")
    monkeypatch.setattr(model, "_call", lambda method, request: answer)
    with pytest.raises(UserError, match=rf"not answer like TensorFlow Serving: .*{message}"):
        model.types()


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        ({"dtype": 7, "string_val": [b"a", b"b"], "shape": [1]}, "outputs.scores: "),
        ({"dtype": 1, "tensor_content": b"abc", "shape": [1]}, "outputs.scores: "),
        ({"dtype": 1, "float_val": [1.0], "shape": [2**20, 2**20]}, "has the shape"),
        ({"dtype": 1, "float_val": [1.0], "shape": [-1]}, r"has the shape \[-1\]"),
        ({"dtype": 999, "shape": [1]}, "outputs.scores: "),
    ],
)
def test_an_answer_of_another_shape_over_grpc(monkeypatch, tensor, message):
    answer = predict_pb2.PredictResponse()
    shape = tensor.pop("shape")
    answer.outputs["scores"].MergeFrom(tensor_pb2.TensorProto(**tensor))
    for size in shape:
        answer.outputs["scores"].tensor_shape.dim.add(size=size)
    model = connect("localhost:1", "turner")
    monkeypatch.setattr(model, "_call", lambda method, request: answer)
    with pytest.raises(UserError, match=message):
        model.predict("translate", Signature({"text": True}, ("scores",)), {"text": [b"x"]})


def test_an_answer_that_trickles_ends_in_time():
    def trickle(file):
        for _ in range(100):
            file.write(b" ")
            file.flush()
            time.sleep(0.1)

    start = time.perf_counter()
    with rest_server_that_answers({"metadata": trickle}) as address:
        with pytest.raises(UserError, match=r"has not answered within 0\.4 seconds"):
            TextClient(connect(address, "turner", timeout=0.4))
        assert time.perf_counter() - start < 2


def test_an_answer_without_end_is_not_kept():
    def endless(file):
        while True:
            file.write(b" " * 2**20)

    said = pytest.raises(UserError, match="the answer is longer than 16,777,216 bytes")
    with rest_server_that_answers({"metadata": endless}) as address, said:
        TextClient(connect(address, "turner"))


def test_server_of_another_kind():
    """A page, and an error that is none of TensorFlow Serving's."""
    with rest_server_that_answers({"page/metadata": lambda file: file.write(b"<html>")}) as address:
        with pytest.raises(UserError, match="does not answer like TensorFlow Serving"):
            TextClient(connect(address, "page"))
        with pytest.raises(UserError, match="answers with 403 Forbidden, unlike TensorFlow Serv"):
            TextClient(connect(address, "forbidden"))


def test_ports_taken_for_one_another(grpc_address, rest_address):
    with pytest.raises(UserError, match=f"http://{grpc_address} does not answer like TensorFlow"):
        TextClient(connect(f"http://{grpc_address}", "turner"))
    with pytest.raises(UserError, match=f"{rest_address[7:]}.*gRPC port"):
        TextClient(connect(rest_address[7:], "turner"))


def test_server_that_offers_no_predictions():
    from concurrent import futures

    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(UserError, match="does not answer like TensorFlow Serving"):
            TextClient(connect(f"127.0.0.1:{port}", "turner"))
    finally:
        server.stop(None).wait()


@pytest.mark.parametrize("server", ["localhost", "localhost:8500/v1", "ftp://localhost:8500", ""])
def test_address_of_no_known_form(server):
    with pytest.raises(UserError, match="must be HOST:PORT for gRPC or http://HOST:PORT for REST"):
        connect(server, "turner")


def test_directory_without_a_model(tmp_path):
    with pytest.raises(UserError, match="contains neither a SavedModel nor numbered versions"):
        SavedModel(str(tmp_path))
    with pytest.raises(UserError, match="cannot be read: No such file"):
        SavedModel(str(tmp_path / "none"))
    (tmp_path / "saved_model.pb").write_bytes(b"broken")
    with pytest.raises(UserError, match="cannot be loaded"):
        SavedModel(str(tmp_path))


def test_missing_package_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_serving.apis", None)
    with pytest.raises(
        UserError, match=r"pip install 't2t-keras\[serving\]', or .*http://HOST:8501"
    ):
        connect("localhost:8500", "turner")


# The command.


def test_command_translates_once(grpc_address):
    done = toy.command(
        "query", f"--server={grpc_address}", "--servable_name=turner", "--inputs_once=abc"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "cba\t-3.000\tabc\t-6.000\n"


def test_command_translates_each_line_of_standard_input(rest_address):
    done = toy.command(
        *("query", f"--server={rest_address}", "--servable_name=turner"),
        input="ab\n\nGrüße\n" + "x" * 101 + "\n",
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")
    assert [line.split("\t")[0] for line in lines] == ["ba", "", "eßürG", "x" * 101, ""]
    assert done.stderr == "too long: only the first part is translated\n"


def test_rest_needs_no_tensorflow(rest_address):
    code = (
        "import sys; from t2t_keras.serving import TextClient, connect; "
        f"print(TextClient(connect({rest_address!r}, 'turner')).translate(['ab'])[0].texts[0], "
        "'tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "ba False\n"


def test_command_takes_t2ts_flags_for_t2ts_signature(versions, tmp_path):
    data_dir = toy.generate(tmp_path)
    done = toy.command(
        "query",
        f"--saved_model={versions / '9'}",
        f"--problem={toy.PROBLEM}",
        f"--data_dir={data_dir}",
        "--timeout_secs=5",
        "--inputs_once=a",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("a\t-")


class Lines(io.StringIO):
    """Standard input, typed or not."""

    def __init__(self, text, typed):
        super().__init__(text)
        self.typed = typed

    def isatty(self):
        return self.typed


def test_what_is_typed_goes_on_after_a_mistake(versions, monkeypatch, capsys):
    client = TextClient(SavedModel(str(versions / "10")), "choosy")
    monkeypatch.setattr(sys, "stdin", Lines("a\nno\nb\n", typed=True))
    answer_lines(client)
    out, err = capsys.readouterr()
    assert out.replace("> ", "") == "a\t0.000\nb\t0.000\n"
    assert "Not no." in err
    monkeypatch.setattr(sys, "stdin", Lines("a\nno\nb\n", typed=False))
    with pytest.raises(UserError, match="Not no"):
        answer_lines(client)


def test_escapes_of_a_translation_do_not_reach_a_terminal(versions):
    """U+009B begins a terminal's command as ESC [ does."""
    leader, follower = os.openpty()
    command = [toy.programs() / "t2t-keras-query", f"--saved_model={versions / '10'}"]
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
        (["--saved_model=/nowhere"], "/nowhere cannot be read: No such file or directory."),
        (["--server=localhost", "--servable_name=x"], "must be HOST:PORT"),
        (["--server=localhost:1", "--servable_name=x", "--timeout_secs=0"], "timeout_secs"),
        (["--server=localhost:1", "--servable_name=x", "--data_dir=d"], "--problem is missing"),
    ],
)
def test_command_says_what_is_wrong(arguments, words):
    assert words in toy.complaint(toy.command("query", *arguments))


# The measurement.


def test_load_and_hostile_input_leave_the_server_alive(versions):
    script = toy.ROOT / "benchmarks" / "serving.py"
    done = subprocess.run(
        [
            toy.programs() / "python",
            script,
            f"--saved_model={versions / '10'}",
            "--requests=60",
            "--threads=4",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "60 requests from 4 threads" in done.stdout
    assert "errors: 0; answers that changed: 0" in done.stdout
    assert "1 MB of text: 1050000 characters, cut" in done.stdout
    assert "empty: 0 characters" in done.stdout
