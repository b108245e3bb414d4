"""Every kind of model with everything that uses models: what it gives, or what it says instead."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from networks import ENCODER as WORDS, SOURCE, UNSHARED, small_model

import t2t_keras as t2t
from t2t_keras import checkpoints, decoding, model_kinds
from t2t_keras.data import Text2SelfProblem
from t2t_keras.decoding import DecodeSettings, Ensemble
from t2t_keras.decoding.constraints import Phrases
from t2t_keras.decoding.translator import Line
from t2t_keras.errors import UserError
from t2t_keras.export.ctranslate2 import export_ctranslate2
from t2t_keras.export.served import served_class
from t2t_keras.inspection import attention_data
from t2t_keras.inspection.alignment import PairAligner
from t2t_keras.precision import has_int8, in_precision
from t2t_keras.text import ClassLabelEncoder
from t2t_keras.training.evaluation import Evaluation

LINES = ["w3 w9", "w5"]
PAIRS = ["w3 w9\tw4", "w5\tw6 w7"]
OPTIONS = DecodeSettings(beam_size=2, extra_length=1)
TARGETS = np.array([[7, 3, 1], [9, 1, 0], [1, 0, 0], [4, 4, 1]])


def translation(overrides="", seed=0):
    return small_model(f"{UNSHARED},{overrides}", seed=seed)


def language_model():
    return small_model(UNSHARED, source_vocab=None)


def classifier():
    return t2t.TransformerClassifier(translation().hp, source_vocab_size=23, num_classes=3)


KINDS = {
    "translation": translation,
    "prepended": lambda: translation("prepend_mode=prepend_inputs_masked_attention"),
    "language model": language_model,
    "classifier": classifier,
    "ensemble": lambda: Ensemble([translation(), translation(seed=1)]),
    "ensemble of one": lambda: Ensemble([translation()]),
    "ensemble of language models": lambda: Ensemble([language_model(), language_model()]),
    "ensemble of classifiers": lambda: Ensemble([classifier(), classifier()]),
    "8 bits": lambda: in_precision(translation(), "int8"),
    "8-bit classifier": lambda: in_precision(classifier(), "int8"),
}


@functools.cache
def made(name):
    """A model of a kind, which no consumer changes."""
    return KINDS[name]()


def encoders(model):
    labels = ClassLabelEncoder(["a", "b", "c"])
    both = {"inputs": WORDS, "targets": labels if model.kind == "classification" else WORDS}
    return {"targets": WORDS} if model.kind == "language_model" else both


def searched(model, tmp_path):
    found = decoding.search(model, SOURCE, OPTIONS)
    batch = {"targets": found.ids[:, 0]} | ({"inputs": SOURCE} if model.source_vocab_size else {})
    assert found.ids.shape[:2] == found.lengths.shape == found.scores.shape == (4, 1)
    assert found.token_scores.shape == found.ids.shape
    if model.kind != "language_model":
        assert np.isfinite(decoding.score(model, SOURCE, batch["targets"])).all()


def sampled(model, tmp_path):
    ids, _ = decoding.sample(model, SOURCE, seed=1, extra_length=2)
    assert ids.shape[0] == 4


def with_phrases(model, tmp_path):
    source = SOURCE if model.kind == "translation" else np.full([4, 2], 5)
    found = decoding.search(model, source, OPTIONS, strategy=Phrases.of([[[7]]] * 4))
    assert np.any(found.ids[:, 0] == 7, -1).all()


def scored(model, tmp_path):
    inputs = SOURCE if model.kind == "translation" else None
    assert np.all(decoding.score(model, inputs, TARGETS) < 0)


def texts(model, tmp_path):
    kind = decoding.Classifier if model.kind == "classification" else decoding.Translator
    assert len(kind(model, encoders(model), OPTIONS).translate(LINES)) == 2


def lines_scored(model, tmp_path):
    lines = LINES if model.kind == "language_model" else PAIRS
    scorer = decoding.PairScorer(model, encoders(model))
    found = scorer.score_lines(Line(*x) for x in enumerate(lines, 1))
    assert all(each.loss > 0 for each in found)


def evaluated(model, tmp_path):
    problem = Text2SelfProblem()  # a user may give it inputs
    problem.has_inputs = model.kind != "language_model"
    problem.num_classes = 3 if model.kind == "classification" else None
    assert problem.kind == model.kind
    targets = np.array([[0], [1], [2], [1]]) if problem.num_classes else TARGETS
    batch = {"inputs": SOURCE, "targets": targets}
    if not problem.has_inputs:
        del batch["inputs"]
    batches = tf.data.Dataset.from_tensors({k: np.int32(v) for k, v in batch.items()})
    wanted = {"translation": "bleu", "language_model": "perplexity", "classification": "f1"}
    for each in (problem, None):
        figures = Evaluation(model, batches, encoders(model), OPTIONS, problem=each)()
        assert {"loss", "accuracy", wanted[model.kind]} <= {*figures}


def served(model, tmp_path):
    module = served_class(model)(model, encoders(model), OPTIONS)
    found = getattr(module, module.names[0])(tf.constant(LINES))
    assert all(len(value) == 2 for value in found.values())


def to_ctranslate2(model, tmp_path):
    pytest.importorskip("ctranslate2")
    export_ctranslate2(model, encoders(model), tmp_path / "out")


def attended(model, tmp_path):
    assert attention_data(model, encoders(model), "w3 w9", "w4").encdec.shape[-1] == 3


def aligned(model, tmp_path):
    assert PairAligner(model, encoders(model), "mean").align(["w3 w9"], ["w4"])


def saved(model, tmp_path):
    checkpoints.save_t2t(model, str(tmp_path / "model.ckpt-1"))
    again = type(model).from_config(model.get_config())
    checkpoints.load_t2t(again, str(tmp_path / "model.ckpt-1"))
    for one, other in zip(again.weights, model.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def rounded(model, tmp_path):
    copy = in_precision(model, "bfloat16")
    assert {weight.dtype for each in copy.members for weight in each.weights} == {"bfloat16"}


NEEDS_BOTH = dict.fromkeys(
    ("language model", "classifier"), "needs a model with an encoder and a decoder"
)
OF_ONE = {
    "ensemble": "an ensemble has no attention of its own",
    "prepended": "without prepend_mode",
}
NO_CTRANSLATE2 = {
    "ensemble": "does not support ensembles",
    "prepended": "does not support prepend_mode",
}
NO_OUTPUTS = {"classifier": "no outputs to search"}
NO_TOKENS = {"classifier": "a classifier has no target tokens"}
CONSUMERS = {
    "search": (searched, NO_OUTPUTS),
    "sample": (sampled, NO_OUTPUTS),
    "phrases": (with_phrases, NO_OUTPUTS),
    "score": (scored, NO_TOKENS),
    "texts": (texts, {}),
    "scored lines": (lines_scored, NO_TOKENS),
    "evaluation": (evaluated, {}),
    "SavedModel": (served, {}),
    "CTranslate2": (to_ctranslate2, {**NO_CTRANSLATE2, **NEEDS_BOTH}),
    "attention": (attended, {**OF_ONE, **NEEDS_BOTH}),
    "alignment": (aligned, {**OF_ONE, **NEEDS_BOTH}),
    "checkpoint": (saved, {"ensemble": "a checkpoint holds one model"}),
    "half precision": (rounded, {}),
}


@pytest.fixture(params=KINDS)
def name(request):
    if "8" in request.param and not has_int8():
        pytest.skip("TensorFlow has no product in 8 bits here: it needs oneDNN")
    return request.param


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_every_kind_with_every_consumer(name, consumer, tmp_path, eagerly):
    model, (use, refusals) = made(name), CONSUMERS[consumer]
    # An ensemble's message comes first, and else what its members say.
    if message := next((message for key, message in refusals.items() if key in name), None):
        with pytest.raises(UserError, match=message):
            use(model, tmp_path)
    else:
        use(model, tmp_path)


def test_a_model_has_what_the_protocol_lists(name):
    model = made(name)
    listed = [each for each in vars(model_kinds.Model) if not each.startswith("_")]
    names = [*listed, *model_kinds.Model.__annotations__]
    steps = {"encode_source", "empty_caches", "step_kernels", "decode_step", "keys_need_positions"}
    for each in set(names) - (steps if model.kind == "classification" else set()):
        getattr(model, each)
    assert list(model.members) == [model] or isinstance(model, Ensemble)
