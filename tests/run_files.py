"""Directories of runs that were never trained: files with chosen figures and times."""

import datetime
import json
import os

import numpy as np
import tensorflow as tf
from tensorflow.core.util import event_pb2

from t2t_keras import checkpoints, registry
from t2t_keras.checkpoints.t2t import write
from t2t_keras.training.evaluation import EvaluationHistory

BEGUN = 1_800_000_000
"""Seconds since 1970 when the run of `write_run` is first started."""

HOST = os.uname().nodename


def write_events(path, points):
    """An event file as TensorFlow's protocol buffers write it: (step, time, {tag: value}) points."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(event_pb2.Event(file_version="brain.Event:2").SerializeToString())
        for step, time, values in points:
            event = event_pb2.Event(step=step, wall_time=time)
            for tag, value in values.items():
                if isinstance(value, str):  # no scalar
                    event.summary.value.add(tag=tag, tensor=tf.make_tensor_proto(value))
                elif tag.startswith("metrics-"):  # as T2T writes it
                    event.summary.value.add(tag=tag, simple_value=value)
                else:
                    event.summary.value.add(tag=tag, tensor=tf.make_tensor_proto(np.float32(value)))
            writer.write(event.SerializeToString())


def events_file(directory, begun):
    return directory / f"events.out.tfevents.{begun}.{HOST}.1.0.v2"


def start(begun, length, **facts):
    """An entry of `starts` in `run.json`, of so many seconds."""
    times = (
        datetime.datetime.fromtimestamp(t, datetime.timezone.utc) for t in (begun, begun + length)
    )
    began, noted = (time.isoformat(timespec="seconds") for time in times)
    return {
        "started": began,
        "started_seconds": begun,
        "noted": noted,
        "command": "t2t-keras-train --train_steps=400",
        "versions": {"keras": "3.15.1"},
        "host": HOST,
        "from_step": 0,
        "replicas": 1,
        "devices": ["CPU"],
        "parameters": 12345,
        "train_steps": 400,
        **facts,
    }


def write_run(directory, hparams="transformer_tiny,hidden_size=64", starts=None, factor=1.0):
    """A run of 400 steps, evaluated and saved at 200 and 400.

    Args:
        starts: of `run.json`; by default one of 1000 seconds, which ended.
        factor: of its losses: 8 at step 100, then 4, 2 and 1.
    """
    if starts is None:
        seconds = {"training": 600.0, "evaluation": 250.0, "compilation": 50.0}
        starts = [start(BEGUN, 1000, ended="done: step 400", step=400, seconds=seconds)]
    run = {"problem": "translate_ende_multi30k", "precision": "float32", "source_vocab_size": 11}
    checkpoints.write_settings(
        str(directory),
        registry.hparams(hparams),
        {**run, "hparams_set": registry.hparams(hparams).set_name, "starts": starts},
    )
    points = [
        (step, BEGUN + 2.5 * step, {"loss": factor * 8 / 2**i, "learning_rate": 1e-3, "x": "text"})
        for i, step in enumerate((100, 200, 300, 400))
    ]
    points[-1][2]["steps_per_second"] = 2.0
    write_events(events_file(directory, BEGUN), points)
    history = EvaluationHistory(str(directory), until=0)
    for step, loss, bleu in ((200, 3.0, 10.0), (400, 2.0, 30.0)):
        history.add(step, {"loss": factor * loss, "accuracy": 0.5, "bleu": bleu})
        write(str(directory / f"model.ckpt-{step}"), {"transformer/body/x": np.zeros([3, 5])})
    (directory / "best").write_text("model.ckpt-400\n")
    return directory


def change_start(directory, **facts):
    """Changes the last start in `run.json`."""
    path = directory / "run.json"
    run = json.loads(path.read_text())
    run["starts"][-1].update(facts)
    path.write_text(json.dumps(run))
