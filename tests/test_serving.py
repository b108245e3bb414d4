"""An exported model behind TensorFlow Serving's protocol: the same text as without a server."""

import pytest
from networks import small_model

from t2t_keras.decoding import DecodeSettings, Translator
from t2t_keras.export import export_saved_model
from t2t_keras.serving import SavedModel, TextClient, connect
from t2t_keras.text import SubwordTextEncoder

pytest.importorskip("tensorflow_serving", reason="tensorflow-serving-api is not installed")

from prediction_service import ServedModel, grpc_server, rest_server

SETTINGS = DecodeSettings(beam_size=2, extra_length=5, return_beams=True)
ENCODER = SubwordTextEncoder.build_from_generator(
    ["the cat sat on the mat", "a cat_and\\dog, Grüße!"] * 50, 60
)
ENCODERS = {"inputs": ENCODER, "targets": ENCODER}
LINES = ["the mat", "", "a dog sat", "Grüße, \u4f60_!", "  cat\t"]


@pytest.fixture(scope="module")
def model():
    size = ENCODER.vocab_size
    return small_model(
        "num_hidden_layers=1", source_vocab=size, target_vocab=size, spread=3.0, ending=1.0
    )


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    directory = str(tmp_path_factory.mktemp("export"))
    return export_saved_model(model, ENCODERS, directory, SETTINGS, warm_up=False)


@pytest.fixture(scope="module")
def ways(path):
    """The exported model over gRPC, over REST, and in this process."""
    models = {"small": ServedModel(path)}
    with grpc_server(models) as grpc_address, rest_server(models) as rest_address:
        yield [connect(grpc_address, "small"), connect(rest_address, "small"), SavedModel(path)]


@pytest.fixture(scope="module")
def ours(model):
    """Texts and scores of the lines, without an export."""
    found = Translator(model, ENCODERS, SETTINGS).translate(LINES)
    return [answer.texts for answer in found], [pytest.approx(a.scores, abs=1e-4) for a in found]


@pytest.mark.parametrize("signature", ["serving_default", "serialized_example"])
def test_texts_and_scores_are_those_without_a_server(ways, ours, signature):
    for way in ways:
        found = TextClient(way, signature, ENCODERS).translate(LINES)
        assert ([answer.texts for answer in found], [answer.scores for answer in found]) == ours
        assert not any(answer.truncated for answer in found)


def test_a_long_text_is_cut_and_said_to_be(ways):
    for way in ways:
        long, short = TextClient(way).translate([b"cat " * 10_000, b"cat \xff\xfe"])
        assert long.truncated
        assert not short.truncated
        assert len(short.texts) == 2
