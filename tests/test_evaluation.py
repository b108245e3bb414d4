"""Early stopping and dev metrics; the rule is that of T2T's `has_metric_plateaued`."""

import json
import math

import golden
import numpy as np
import pytest
import tensorflow as tf
from networks import small_model

import t2t_keras as t2t
from t2t_keras import Transformer
from t2t_keras.data import Problem
from t2t_keras.decoding import DecodeSettings
from t2t_keras.errors import UserError
from t2t_keras.metrics.teacher_forced import TeacherForced
from t2t_keras.text import ByteTextEncoder
from t2t_keras.training import EarlyStopping
from t2t_keras.training.evaluation import Evaluation, EvaluationHistory, format_metrics
from t2t_keras.transformer import PACKING


@pytest.mark.parametrize(
    ("settings", "values", "reached"),
    [
        # The loss of 200 steps ago is that of step 300: 0.1 less since then is enough to go on.
        ({}, [5.0, 4.0, 3.0, 2.95, 2.91], True),
        ({}, [], False),
        ({}, [3.0, 3.0], False),  # not enough has been seen
        ({}, [5.0, 4.0, 3.0, 2.95, 2.89], False),
        ({}, [5.0, 4.0, 3.0, 2.80, 3.50], False),  # it was better in between
        ({}, [3.0, 3.0, 3.5, 4.0, 4.5], True),
        ({"delta": 0.05}, [5.0, 4.0, 3.0, 2.95, 2.94], False),
        ({"steps": 400}, [3.0, 3.0, 3.0, 3.0, 2.95], True),
        ({"steps": 401}, [3.0, 3.0, 3.0, 3.0, 3.0], False),  # no evaluation is so long ago
        ({"steps": None}, [3.0, 3.0, 3.0, 3.0, 3.0], False),
        ({"metric": "bleu"}, [5.0, 9.0, 20.0, 20.05, 20.0], True),
        ({"metric": "bleu"}, [5.0, 9.0, 20.0, 20.2, 20.0], False),
        ({"metric": "bleu", "minimize": True}, [5.0, 9.0, 20.0, 20.2, 21.0], True),
        ({"minimize": False}, [5.0, 4.0, 3.0, 2.0, 1.0], True),
        ({"delta": 0}, [5.0, 4.0, 3.0, 3.0, 3.1], True),
        ({"delta": 0}, [5.0, 4.0, 3.0, 2.999, 3.1], False),
    ],
)
def test_stops_when_nothing_was_better_for_so_many_steps(settings, values, reached):
    rule = EarlyStopping(**{"steps": 200, **settings})
    assert rule.reached([100, 200, 300, 400, 500][: len(values)], values) is reached


def test_a_quality_of_numpy_s_is_written(tmp_path, eagerly):
    class Scored(Problem):
        def quality(self, inputs, references, outputs):
            return np.float32(50)

    ids = np.array([[100, 101, 1]], np.int32)
    batches = tf.data.Dataset.from_tensors({"inputs": ids, "targets": ids})
    encoders = dict.fromkeys(("inputs", "targets"), ByteTextEncoder())
    model = small_model("", 258, 258)
    settings = DecodeSettings(beam_size=1, extra_length=1)
    figures = Evaluation(model, batches, encoders, settings, problem=Scored())()
    EvaluationHistory(str(tmp_path), 0).add(1, figures)
    assert EvaluationHistory(str(tmp_path), 1).of("bleu") == ([1], [50])


GOLDEN = dict(np.load(golden.FOLDER / "metrics" / "metrics.npz"))


class Given(Transformer):
    """Its logits are those that T2T's `metrics.py` was called with, and three columns of padding."""

    def call(self, inputs, training=False):
        return tf.pad(GOLDEN["logits"], [[0, 0], [0, 3], [0, 0]])


class Theirs(Problem):
    feature_info = None

    def eval_metrics(self):
        return [*super().eval_metrics(), "rmse", "image_summary"]


def test_metrics_of_tensor2tensor_have_its_numbers(capsys, eagerly):
    """Two equal batches; packed, since these are not decoded."""
    names = ("inputs", "targets", *PACKING)
    batch = dict.fromkeys(names, np.pad(GOLDEN["metric_labels"], [(0, 0), (0, 3)]))
    batches = tf.data.Dataset.from_tensors(batch).repeat(2)
    model = small_model("", 14, 14, model_class=Given)
    encoders = dict.fromkeys(("inputs", "targets"), ByteTextEncoder())
    assert {*Evaluation(model, batches, encoders, DecodeSettings())()} == {"loss", "accuracy"}
    assert capsys.readouterr().err == ""
    found = Evaluation(model, batches, encoders, DecodeSettings(), problem=Theirs())()
    expected = {name: float(GOLDEN[name]) for name in Problem().eval_metrics()}
    assert found == pytest.approx({"loss": -GOLDEN["neg_log_perplexity"], **expected}, rel=1e-5)
    assert "  approx_bleu_score 0.4709  rouge_2_fscore 0.5022  " in format_metrics(found)
    assert capsys.readouterr().err.splitlines() == [
        "warning: theirs defines hooks of T2T that only your code calls here: feature_info (every "
        "example has the ids of inputs and targets)",
        "warning: eval_metrics of theirs: rmse, image_summary are not computed",
    ]
    counts = TeacherForced(["accuracy_top5", "accuracy_per_sequence"])
    best = np.array([[[7] * 5, [1] * 5], [[1] * 5, [9, 0, 2, 3, 4]]])
    counts.add(best, np.array([[7, 1], [1, 0]]))  # but for padding all is right
    assert [*counts.metrics().values()] == [1, 1]


def test_settings_that_mean_nothing():
    with pytest.raises(UserError, match="Did you mean 'bleu'"):
        EarlyStopping(metric="blue")
    with pytest.raises(UserError, match="1 or more, got 0"):
        EarlyStopping(steps=0)


def test_history_is_read_up_to_the_step_that_a_run_goes_on_from(tmp_path):
    history = EvaluationHistory(str(tmp_path), 0)
    for step, loss, bleu in ((10, 3.0, 1.0), (20, 2.0, 3.0), (30, 2.0, 3.0), (40, 1.0, 2.0)):
        history.add(step, {"loss": loss, "bleu": bleu})
    history.add(50, {"loss": -math.inf, "bleu": math.inf})  # never the best
    assert (history.best("loss"), history.best("bleu")) == (40, 20)
    assert history.best("accuracy") is history.best("loss", steps=[]) is None
    assert history.best("loss", steps=[10, 30]) == 30
    again = EvaluationHistory(str(tmp_path), 30)
    assert again.of("loss") == ([10, 20, 30], [3.0, 2.0, 2.0])
    again.add(40, {"loss": 5.0})
    assert EvaluationHistory(str(tmp_path), 99).of("loss")[1] == [3.0, 2.0, 2.0, 5.0]
    assert EvaluationHistory(str(tmp_path), 99).of("bleu")[0] == [10, 20, 30]


def test_history_is_json_whatever_the_metrics(tmp_path):
    EvaluationHistory(str(tmp_path), 9).add(3, {"loss": 900.0, "perplexity": np.inf})
    (line,) = (tmp_path / "evaluations.jsonl").read_text().splitlines()
    assert json.loads(line) == {"step": 3, "loss": 900.0, "perplexity": None}
    again = EvaluationHistory(str(tmp_path), 9)
    assert again.of("loss") == ([3], [900.0])
    assert np.isnan(again.metrics[3]["perplexity"])


@pytest.mark.parametrize("columns", [0, 4])
def test_padding_of_the_batches_does_not_change_the_metrics_of_a_classifier(columns):
    hp = t2t.registry.hparams("transformer_tiny").replace(hidden_size=8, num_heads=2)
    model = t2t.TransformerClassifier(hp, source_vocab_size=9, num_classes=3)
    problem, encoders = Theirs(), {}
    problem.num_classes = 3
    ids = np.array([[3, 4, 1], [5, 1, 0]], np.int32)
    batch = {"inputs": ids, "targets": np.array([[columns // 2], [columns // 4]], np.int32)}
    padded = {
        "inputs": np.pad(ids, [[0, 3], [0, columns]]),
        "targets": np.pad(batch["targets"], [[0, 3], [0, 0]]),
    }
    found, wanted = (
        Evaluation(model, tf.data.Dataset.from_tensors(each), encoders, None, problem=problem)()
        for each in (padded, batch)
    )
    assert found == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"step 3", " is not JSON"),
        (b'{"step": 3, "loss": "\xff"}', " is not JSON"),
        (b"[3]", r" must be an object, got \[3\]"),
        (b'{"loss": 1.0}', " has no step"),
        (b'{"step": "3"}', ': step must be an integer .*, got "3"'),
        (b'{"step": 3, "loss": "low"}', ': loss must be a number, got "low"'),
    ],
)
def test_history_that_somebody_has_edited(line, message, tmp_path):
    (tmp_path / "evaluations.jsonl").write_bytes(b'{"step": 1, "loss": NaN}\n' + line + b"\n")
    with pytest.raises(UserError, match=rf"evaluations\.jsonl, line 2{message}.*: remove it"):
        EvaluationHistory(str(tmp_path), 9)
