"""Curves in TensorBoard's event files, read without TensorFlow or TensorBoard."""

from __future__ import annotations

import contextlib
import operator
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from t2t_keras.data.generation.records import FOOTER_BYTES, HEADER_BYTES
from t2t_keras.errors import UserError

_FLOAT = 1  # of TensorFlow's DataType


class Event(NamedTuple):
    """One point of a curve."""

    step: int
    time: float
    """When it was written, seconds since 1970."""
    value: float


def read_events(directory: str | os.PathLike) -> dict[str, list[Event]]:
    """Reads the scalars in the event files of a directory: those of T2T, Keras and ours.

    Where a run went on from an earlier step, what the start before had written of later steps is
    left out, for it came again. A file that is cut off, as that of a run in progress may be, is read
    as far as it goes.

    Returns:
        The points of each curve by its tag, steps rising; empty if there are no event files.

    Raises:
        UserError: a file cannot be opened.
    """
    curves: dict[str, list[Event]] = {}
    for path in sorted(Path(directory).glob("events.out.tfevents.*"), key=_begun):
        for tag, event in _scalars(path):
            curve = curves.setdefault(tag, [])
            while curve and curve[-1].step >= event.step:
                curve.pop()
            curve.append(event)
    return curves


def _begun(path: Path) -> tuple[int, str]:
    """When a file was begun, which its name says, then the name."""
    seconds = path.name.split(".")[3]
    return int(seconds) if seconds.isdigit() else 0, path.name


def _scalars(path: Path) -> Iterator[tuple[str, Event]]:
    # Where a file is damaged, there is no further way.
    with contextlib.suppress(IndexError, TypeError, struct.error, UnicodeDecodeError):
        for record in _records(path):
            step, time, values = 0, 0.0, []
            for number, value in _fields(record):
                if number == 1:
                    (time,) = struct.unpack("<d", value)
                elif number == 2:
                    step = operator.index(value)
                elif number == 5:
                    values = [_tag_and_scalar(v) for n, v in _fields(value) if n == 1]
            for tag, scalar in values:
                if scalar is not None:
                    yield tag, Event(step, time, scalar)


def _records(path: Path) -> Iterator[memoryview]:
    """The records of a TFRecord file, up to the first that is cut off."""
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


def _tag_and_scalar(message: memoryview) -> tuple[str, float | None]:
    """Of a `Summary.Value`; None if it is no scalar but a picture or the like."""
    tag, scalar = "", None
    for number, value in _fields(message):
        if number == 1:
            tag = bytes(value).decode("utf-8")
        elif number == 2:  # simple_value, as T2T writes it
            (scalar,) = struct.unpack("<f", value)
        elif number == 8:
            scalar = _scalar_tensor(value)
    return tag, scalar


def _scalar_tensor(message: memoryview) -> float | None:
    """Of a `TensorProto`; None if it is no float32 scalar."""
    fields = dict(_fields(message))
    content = fields.get(4) or fields.get(5) or b""  # tensor_content or float_val
    if fields.get(1) != _FLOAT or len(content) != 4:
        return None
    return struct.unpack("<f", content)[0]


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a protocol buffer: an int, or bytes as they stand."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint(message, place)
            yield key >> 3, value
            continue
        length = {1: 8, 5: 4}.get(kind)
        if length is None:
            if kind != 2:
                raise IndexError(f"no protocol buffer: a field of kind {kind}")
            length, place = _varint(message, place)
        if place + length > len(message):
            raise IndexError("a field is cut off")
        yield key >> 3, message[place : place + length]
        place += length


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """A base-128 number at a place, and the place behind it."""
    number = shift = 0
    while True:
        byte = message[place]
        number |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            return number, place
        shift += 7
