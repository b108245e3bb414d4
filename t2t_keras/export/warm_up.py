"""Requests with which TensorFlow Serving tries a model before it says that it is ready."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_keras.ids import EOS_ID

FILE = "assets.extra/tf_serving_warmup_requests"
"""Where TensorFlow Serving looks, below the directory of a version."""

_LENGTHS = (4, 24)  # subtokens
_BATCH_SIZES = (1, 4)


def write_warm_up(path: Path, requests: Iterator[tuple[str, Mapping[str, Any]]]) -> None:
    """Writes a TFRecord file of `PredictionLog`s.

    Args:
        path: of the file; its directory is made.
        requests: name of a signature, and its inputs by name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, inputs in requests:
            writer.write(prediction_log(signature, inputs))


def warm_up_requests(encoders, signature: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Requests for each signature: texts of random subtokens, short and long, one and several.

    Args:
        encoders: "inputs" and "targets" text encoders.
        signature: the one that gets a request of each kind; every other gets one, save
            `serialized_example`, whose search is that of `translate_ids`.
    """
    random = np.random.default_rng(0)
    encoder = encoders["inputs"]

    def ids(length):
        return random.integers(EOS_ID + 1, encoder.vocab_size, length).tolist()

    for length in _LENGTHS:
        for size in _BATCH_SIZES:
            rows = [ids(length) for _ in range(size)]
            yield signature, _inputs(signature, encoders, rows)
    for other in ("translate", "translate_ids", "score", "translate_with_options"):
        if other != signature:
            yield other, _inputs(other, encoders, [ids(_LENGTHS[0])])


def _inputs(signature: str, encoders, rows: list[list[int]]) -> dict[str, Any]:
    if signature == "translate_ids":
        return {"source_ids": np.array([[*row, EOS_ID] for row in rows], np.int32)}
    if signature == "serialized_example":
        return {"input": [serialized_example([*row, EOS_ID]) for row in rows]}
    texts = [encoders["inputs"].decode(row).encode() for row in rows]
    if signature == "score":
        return {"source": texts, "target": [encoders["targets"].decode([]).encode()] * len(texts)}
    if signature == "translate_with_options":
        return {"text": texts, "alpha": np.float32(0.6), "extra_length": np.int32(0)}
    return {"text": texts}


def serialized_example(ids: list[int]) -> bytes:
    """The ids of a text as T2T's clients send them."""
    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=ids))
    features = tf.train.Features(feature={"inputs": feature})
    return tf.train.Example(features=features).SerializeToString()


def prediction_log(signature: str, inputs: Mapping[str, Any]) -> bytes:
    """A serialised `tensorflow.serving.PredictionLog` of a call of `Predict`.

    Its fields are written by their numbers, which spares the package tensorflow-serving-api.
    """
    model_spec = _field(3, signature.encode())
    request = _field(1, model_spec)
    for name in sorted(inputs):
        tensor = tf.make_tensor_proto(inputs[name]).SerializeToString()
        request += _field(2, _field(1, name.encode()) + _field(2, tensor))
    predict_log = _field(1, request)
    return _field(6, predict_log)


def _field(number: int, content: bytes) -> bytes:
    """A field of a protocol buffer that holds a string or a message."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    septets = bytearray()
    while value > 0x7F:
        septets.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*septets, value])
