"""Scalars in TensorBoard's event files, read without TensorFlow or TensorBoard."""

from __future__ import annotations

import contextlib
import operator
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from t2t_keras import protobuf
from t2t_keras.data.generation.records import FOOTER_BYTES, HEADER_BYTES
from t2t_keras.errors import UserError

_FLOAT = 1  # DT_FLOAT


class Point(NamedTuple):
    """Point of a curve."""

    step: int
    value: float


def read_events(directory: str | os.PathLike) -> dict[str, list[Point]]:
    """Reads the scalars in the event files of a directory: those of T2T, Keras and ours.

    Where a run was resumed from an earlier step, the points after it of the start before are left
    out. A truncated file, such as that of a run in progress, is read as far as it goes.

    Returns:
        Curves by tag, steps rising; empty if there are no event files.

    Raises:
        UserError: a file cannot be opened.
    """
    curves: dict[str, list[Point]] = {}
    for path in sorted(Path(directory).glob("events.out.tfevents.*"), key=_creation_time):
        for tag, point in _scalars(path):
            curve = curves.setdefault(tag, [])
            while curve and curve[-1].step >= point.step:
                curve.pop()
            curve.append(point)
    return curves


def _creation_time(path: Path) -> tuple[int, str]:
    """Returns the seconds in the name of an event file, and the name."""
    seconds = path.name.split(".")[3]
    return int(seconds) if seconds.isdigit() else 0, path.name


def _scalars(path: Path) -> Iterator[tuple[str, Point]]:
    # The rest of a damaged file cannot be found.
    with contextlib.suppress(IndexError, TypeError, struct.error, UnicodeDecodeError):
        for record in _records(path):
            step, values = 0, []
            for number, value in protobuf.fields(record):  # of an Event
                if number == 2:
                    step = operator.index(value)
                elif number == 5:
                    values = [_scalar(v) for n, v in protobuf.fields(value) if n == 1]
            for tag, scalar in values:
                if scalar is not None:
                    yield tag, Point(step, scalar)


def _records(path: Path) -> Iterator[memoryview]:
    """Yields the records of a TFRecord file up to the first that is truncated."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            while len(header := file.read(HEADER_BYTES)) == HEADER_BYTES:
                (length,) = struct.unpack_from("<Q", header)
                if length + FOOTER_BYTES > size - file.tell():
                    return
                yield memoryview(file.read(length + FOOTER_BYTES))[:length]
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error


def _scalar(message: memoryview) -> tuple[str, float | None]:
    """Returns the tag and scalar of a `Summary.Value`; None if it holds no float32 scalar."""
    tag, scalar = "", None
    for number, value in protobuf.fields(message):
        if number == 1:
            tag = bytes(value).decode("utf-8")
        elif number == 2:  # simple_value, as T2T writes it
            (scalar,) = struct.unpack("<f", value)
        elif number == 8:
            tensor = dict(protobuf.fields(value))
            content = tensor.get(4) or tensor.get(5) or b""  # tensor_content or float_val
            if tensor.get(1) == _FLOAT and len(content) == 4:
                (scalar,) = struct.unpack("<f", content)
    return tag, scalar
