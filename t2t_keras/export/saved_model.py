"""Writing a SavedModel: numbered versions for TensorFlow Serving, precision, warm-up requests."""

import os
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_keras.data.records import columns, message, serialize
from t2t_keras.decoding import DecodeSettings
from t2t_keras.errors import UserError, explained, require_one_of
from t2t_keras.export.served import ALIGN, WITH_PHRASES, served_class
from t2t_keras.files import PathLike, atomic_write, locked_directory
from t2t_keras.ids import EOS_ID
from t2t_keras.precision import in_precision


def export_saved_model(
    model,
    encoders,
    directory: PathLike,
    settings: DecodeSettings | None = None,
    *,
    version: int | None = None,
    precision: str | None = None,
    default_signature: str | None = None,
    warm_up: bool = True,
    align_heads: str = "",
    phrases: bool = False,
) -> str:
    """Writes `directory/<version>`, which loads with TensorFlow only (T2T: `t2t-exporter`).

    It returns that path, which gets its name once it is complete, so a server can watch the parent. If
    another process is exporting there, this one waits.

    Args:
        model: a `Transformer` or an `Ensemble`.
        encoders: "inputs" and "targets" text encoders; see `Problem.get_feature_encoders`.
        directory: the parent of the versions; created if missing.
        settings: the decode settings; see `ServedTransformer`.
        version: the version number, 0 or more; default: one more than the highest existing one, or 1.
        precision: dtype of weights and computation, one of `precision.PRECISIONS`; default: the model's.
        default_signature: the signature for clients that name none; default: the model's first,
            "translate", "complete" or "classify".
        warm_up: True: add requests that TensorFlow Serving runs when it starts.
        align_heads: adds the signature `align`; see `ServedTransformer`.
        phrases: adds `translate_with_phrases`, for words that must appear.

    Raises:
        UserError: the version exists, a name or number is wrong, or nothing can be written there.
    """
    path = os.path.abspath(directory)
    if "\\" in path or not fnmatchcase(path, path):
        raise UserError(
            f"TensorFlow would read {path} as a glob pattern and not load an export from it: "
            "name a directory without [ and \\."
        )
    if precision is not None:
        model = in_precision(model, precision)
    module = served_class(model)(model, encoders, settings, align_heads, phrases)
    default_signature = default_signature or module.names[0]
    require_one_of("default_signature", default_signature, module.names)
    target = _new_version(Path(directory), version)
    with explained(f"{target} cannot be written", OSError, tf.errors.OpError):
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked_directory(target.parent):
            target = _new_version(target.parent, version)
            with atomic_write(target, locked=True) as partial:
                partial.mkdir()
                signatures = module.signatures()
                signatures["serving_default"] = signatures[default_signature]
                tf.saved_model.save(module, str(partial), signatures)
                if warm_up:
                    file = partial / WARM_UP_FILE
                    file.parent.mkdir()
                    with tf.io.TFRecordWriter(str(file)) as writer:
                        for name, rows in _warm_up_rows(encoders, default_signature, module.names):
                            writer.write(_prediction_log(name, _inputs(name, encoders, rows)))
    return str(target)


def _new_version(directory: Path, version: int | None) -> Path:
    if version is None:
        with explained(f"{directory} cannot be read", OSError):
            names = os.listdir(directory) if directory.exists() else []
        version = max((int(n) for n in names if n.isascii() and n.isdigit()), default=0) + 1
    if version < 0:
        raise UserError(f"version must be 0 or more, got {version}.")
    target = directory / str(version)
    if target.exists():
        raise UserError(f"{target} exists: give another version, or none for the next free one.")
    return target


# Warm-up requests: TensorFlow Serving runs them before it reports a model as ready.

WARM_UP_FILE = "assets.extra/tf_serving_warmup_requests"
"""The file with warm-up requests in a version's directory: a TFRecord file of `PredictionLog`s."""

_LENGTHS = (4, 24)  # subtokens
_BATCH_SIZES = (1, 4)


def _warm_up_rows(encoders, signature: str, names: Sequence[str]) -> Iterator[tuple[str, list]]:
    """Yields names of signatures with rows of random ids: short and long, one and several.

    Every other signature than the given one gets a single request, except `serialized_example`, which
    shares its search with `translate_ids`.
    """
    random = np.random.default_rng(0)
    size = next(iter(encoders.values())).vocab_size
    kinds = [(signature, length, count) for length in _LENGTHS for count in _BATCH_SIZES]
    others = [name for name in names if name not in (signature, "serialized_example")]
    for name, length, count in [*kinds, *((other, _LENGTHS[0], 1) for other in others)]:
        yield name, random.integers(EOS_ID + 1, size, (count, length)).tolist()


def _inputs(signature: str, encoders, rows: list[list[int]]) -> dict[str, Any]:
    if signature == "translate_ids":
        return {"source_ids": np.array([[*row, EOS_ID] for row in rows], np.int32)}
    if signature == "serialized_example":
        examples = serialize(columns({"inputs": [[*row, EOS_ID] for row in rows]}))
        return {"input": [examples.values[a:b].tobytes() for a, b in pairwise(examples.starts)]}
    texts = [next(iter(encoders.values())).decode(row).encode() for row in rows]
    if signature == ALIGN or (signature == "score" and "inputs" in encoders):
        return {"source": texts, "target": [encoders["targets"].decode([]).encode()] * len(texts)}
    if signature == WITH_PHRASES:
        return {"text": texts, "phrases": [""] * len(texts)}
    if signature.endswith("_with_options"):
        return {"text": texts, "alpha": np.float32(0.6), "extra_length": np.int32(0)}
    return {"text": texts}


def _prediction_log(signature: str, inputs: Mapping[str, Any]) -> bytes:
    """Returns a serialized `tensorflow.serving.PredictionLog` of a `Predict` call.

    Its fields are written by number to avoid depending on tensorflow-serving-api.
    """
    request = message(1, message(3, signature.encode()))  # model_spec.signature_name
    for name in sorted(inputs):
        tensor = tf.make_tensor_proto(inputs[name]).SerializeToString()
        request += message(2, message(1, name.encode()) + message(2, tensor))
    return message(6, message(1, request))  # predict_log.request
