"""Reports of a run: the mean of the loss, a loss that diverges, curves and texts for TensorBoard."""

import math
import resource

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import struct_pb2
from tensorflow.core.util import event_pb2

from t2t_keras import registry
from t2t_keras.data.records import message
from t2t_keras.training.reporting import EventLog, LossRecord
from t2t_keras.training.train_step import StepSums


def totals(loss, tokens=10.0):
    return StepSums(loss * tokens, tokens, 9.0, 30.0, 1.0)


def test_gives_the_mean_over_tokens_at_multiples():
    record = LossRecord(4)
    assert record.add(2, totals(3.0, tokens=30)) is None
    assert record.add(4, totals(1.0, tokens=10)) == pytest.approx((90 + 10) / 40)
    assert record.add(8, totals(7.0)) == pytest.approx(7.0)


def test_goes_on_in_between():
    losses = np.random.default_rng(0).uniform(1, 9, 12).astype(np.float32)
    whole, parts = LossRecord(6), LossRecord(6)
    expected = [whole.add(step, totals(loss)) for step, loss in enumerate(losses, 1)]
    found = [parts.add(step, totals(loss)) for step, loss in enumerate(losses[:9], 1)]
    restored = LossRecord(6)
    restored.restore(parts.state())
    found += [restored.add(step, totals(loss)) for step, loss in enumerate(losses[9:], 10)]
    assert found == expected


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_trouble(value):
    record = LossRecord(10)
    assert "the loss became" in record.divergence(3, value, 1.0)
    assert "norm of the gradient became" in record.divergence(3, 2.0, value)
    assert record.divergence(250_001, 2.0, 1.0) == ""


@pytest.mark.parametrize(
    ("loss", "uniform", "ends", "message"),
    [
        # far above the first for long
        (lambda step: 4.0 if step <= 300 else 6.5, 0.0, 1400, "the first steps (4.00) since step 300"),
        # begun with good weights, it may be worse at the height of its learning rate
        (lambda step: 0.02 if step == 100 else 8.9 if step < 6000 else 9.1, 6.0, 7000, "a uniform prediction (6.00) since step 5900"),
        # it comes down again
        (lambda step: 4.0 if step % 1000 == 0 or step == 100 else 9.0, 0.0, None, ""),
    ],
)  # fmt: skip
def test_a_loss_that_is_far_above_for_long_diverges(loss, uniform, ends, message):
    record, said = LossRecord(100, uniform), {}
    for step in range(100, 7200, 100):
        record.add(step, totals(loss(step)))
        said[step] = record.divergence(step, loss(step), 1.0)
    first = next((step for step, text in said.items() if text), None)
    assert first == ends
    assert first is None or f"above 1.5 times that of {message}" in said[first]


def events(log, directory):
    log.flush()
    [path] = directory.iterdir()
    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    _, *written = map(event_pb2.Event.FromString, records)
    return written


def test_tensorboard_finds_settings_and_facts_of_a_run(tmp_path):
    """The hparams plugin's `SessionStartInfo` begins with the one field of a protobuf `Struct`."""
    facts = {"problem": "p", "starts": [{"host": "old"}, {"host": "new", "command": "a*b"}]}
    log = EventLog(str(tmp_path))
    log.write_run(7, registry.hparams("transformer_tiny"), facts)
    written = events(log, tmp_path)
    settings, run, hparams = (value for event in written for value in event.summary.value)
    assert {event.step for event in written} == {7}
    for value, row in ((settings, "| num_heads | `4` |"), (run, "| command | `a*b` |")):
        assert value.metadata.plugin_data.plugin_name == "text"
        lines = tf.make_ndarray(value.tensor).item().decode().splitlines()
        assert lines[:2] == ["| | |", "|---|---|"] and row in lines
    assert "| host | `new` |" in lines and "| problem | `p` |" in lines
    assert hparams.tag == "_hparams_/session_start_info"
    assert hparams.metadata.plugin_data.plugin_name == "hparams"
    content = hparams.metadata.plugin_data.content
    assert content == message(3, content[3:])  # session_start_info
    fields = struct_pb2.Struct.FromString(content[3:]).fields
    assert fields["num_heads"].number_value == 4
    assert fields["learning_rate_schedule"].string_value.startswith("constant*")
    assert fields["use_pad_remover"].bool_value is True
    assert len(fields) == len(registry.hparams("transformer_tiny").to_dict())


@pytest.mark.parametrize("size", [0, 30, 2000])
def test_a_full_disk_is_one_line(tmp_path, size, refused):
    """As a limit on the size of files: it is met when the file is made, flushed, or flushed again."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        with refused(f"events in {tmp_path} cannot be written: "):
            log = EventLog(str(tmp_path))
            for step in range(100):
                log.write(step, {"loss": 1.0})
                log.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def test_a_resumed_run_marks_the_steps_that_come_again(tmp_path):
    EventLog(str(tmp_path / "eval"), resumed_from=7).flush()
    first, second = sorted((tmp_path / "eval").iterdir())  # in this order TensorBoard reads them
    assert (first.suffix, second.suffix) == (".start", ".v2")
    records = tf.data.TFRecordDataset(str(first)).as_numpy_iterator()
    version, mark = map(event_pb2.Event.FromString, records)
    assert version.file_version == "brain.Event:2"
    assert (mark.session_log.status, mark.step) == (event_pb2.SessionLog.START, 8)


def test_tensorboard_finds_curves(tmp_path):
    """A point of a curve is a scalar of TensorBoard's, at its step."""
    log = EventLog(str(tmp_path))
    log.write(7, {"loss": 1.5})
    [curve] = events(log, tmp_path)
    assert curve.step == 7
    [value] = curve.summary.value
    assert value.metadata.plugin_data.plugin_name == "scalars"
    assert value.metadata.data_class == 1
    assert tf.make_ndarray(value.tensor) == 1.5
