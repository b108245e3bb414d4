"""A SavedModel in a numbered directory, as TensorFlow Serving wants it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from t2t_keras.decoding import DecodeSettings, Ensemble
from t2t_keras.errors import UserError, nearest
from t2t_keras.export import warm_up as warming
from t2t_keras.export.served import SIGNATURES, ServedTransformer

PRECISIONS = ("float32", "bfloat16", "float16")

PathLike = str | os.PathLike


def export_saved_model(
    model,
    encoders,
    directory: PathLike,
    settings: DecodeSettings | None = None,
    *,
    version: int | None = None,
    precision: str | None = None,
    default_signature: str = "translate",
    warm_up: bool = True,
) -> str:
    """Writes `directory/<version>`, which loads with TensorFlow alone (T2T: `t2t-exporter`).

    The directory appears under its name when it is complete, so a server may watch.

    Args:
        model: a `Transformer` or an `Ensemble`.
        encoders: "inputs" and "targets" text encoders, as `Problem.get_feature_encoders` gives.
        directory: holds the versions; made if absent.
        settings: how to decode; see `ServedTransformer`.
        version: its number, 0 or more; by default one more than the highest there, or 1.
        precision: type of the weights stored and of what is computed with them, one of
            `PRECISIONS`; by default those of the model.
        default_signature: which of `SIGNATURES` is called where a client names none.
        warm_up: whether to add requests for TensorFlow Serving to try at the start.

    Returns:
        The path of the version.

    Raises:
        UserError: a version that is there, a name or number that is none of those allowed, or a
            directory that cannot be written.
    """
    if default_signature not in SIGNATURES:
        raise UserError(
            f"default_signature {default_signature!r} does not exist; allowed: "
            f"{', '.join(SIGNATURES)}.{nearest(default_signature, SIGNATURES)}"
        )
    target = _new_version(Path(directory), version)
    if precision is not None:
        model = in_precision(model, precision)
    module = ServedTransformer(model, encoders, settings)
    partial = target.with_name(f".{target.name}.{os.getpid()}.incomplete")
    try:
        partial.mkdir(parents=True)
        _save(module, partial, default_signature)
        if warm_up:
            requests = warming.warm_up_requests(encoders, default_signature)
            warming.write_warm_up(partial / warming.FILE, requests)
        partial.rename(target)
    except (OSError, tf.errors.OpError) as error:
        reason = getattr(error, "strerror", None) or str(error).split("\n", 1)[0]
        raise UserError(f"{target} cannot be written: {reason}.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return str(target)


def _new_version(directory: Path, version: int | None) -> Path:
    if version is None:
        numbers = [int(n) for n in _names(directory) if n.isascii() and n.isdigit()]
        version = max(numbers, default=0) + 1
    if version < 0:
        raise UserError(f"version must be 0 or more, got {version}.")
    target = directory / str(version)
    if target.exists():
        raise UserError(f"{target} is there: name another version, or none for the next free one.")
    return target


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"{directory} cannot be read: {error.strerror}.") from error


def _save(module: ServedTransformer, path: Path, default_signature: str) -> None:
    signatures: dict[str, Any] = module.signatures()
    signatures["serving_default"] = signatures[default_signature]
    tf.saved_model.save(module, str(path), signatures)


def in_precision(model, precision: str):
    """A copy of a `Transformer`, or `Ensemble`, whose weights and activations are of another type.

    In half precision, softmax, normalisation and positions remain in float32; logits are computed
    in that precision and compared in float32.

    Raises:
        UserError: none of `PRECISIONS`.
    """
    if precision not in PRECISIONS:
        raise UserError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}.")
    if isinstance(model, Ensemble):
        return Ensemble([in_precision(each, precision) for each in model.models])
    policy = keras.dtype_policies.serialize(keras.DTypePolicy(precision))
    copy = type(model).from_config({**model.get_config(), "dtype": policy})
    for ours, theirs in zip(copy.weights, model.weights, strict=True):
        ours.assign(keras.ops.cast(theirs, precision))
    return copy
