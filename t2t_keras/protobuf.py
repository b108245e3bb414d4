"""The wire format of protocol buffers, to read and write messages without generated classes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

_FIXED_SIZES = {1: 8, 5: 4}  # bytes, by wire type


def varints(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Encodes integers in base 128, the lowest seven bits first.

    Args:
        values: [N] of 64 bits; negative ones take ten bytes.

    Returns:
        All varints concatenated, as uint8, and the size of each in bytes: [N] int64.
    """
    unsigned = values.astype(np.int64, copy=False).view(np.uint64)
    sizes = np.ones(len(unsigned), np.int64)
    for bits in range(7, int(unsigned.max(initial=0)).bit_length(), 7):
        sizes += unsigned >> np.uint64(bits) > 0
    place = np.arange(sizes.max(initial=1))
    septets = (unsigned[:, None] >> (7 * place).astype(np.uint64)).astype(np.uint8) & 0x7F
    septets[place < sizes[:, None] - 1] |= 0x80  # another byte follows
    return septets[place < sizes[:, None]], sizes


def number(key: int, value: int) -> bytes:
    """Returns a field that holds an integer, a boolean or an enum."""
    return varints(np.array([key << 3, value]))[0].tobytes()


def double(key: int, value: float) -> bytes:
    """Returns a field that holds a 64-bit float."""
    return varints(np.array([key << 3 | 1]))[0].tobytes() + struct.pack("<d", value)


def message(key: int, content: bytes) -> bytes:
    """Returns a field that holds a string or another message."""
    return varints(np.array([key << 3 | 2, len(content)]))[0].tobytes() + content


def fields(content: memoryview) -> Iterator[tuple[int, Any]]:
    """Yields the number and value of each field: an integer, or undecoded bytes.

    Raises:
        IndexError: the message is cut off or is not a protocol buffer.
    """
    place = 0
    while place < len(content):
        key, place = _read_varint(content, place)
        wire_type = key & 7
        if wire_type == 0:
            value, place = _read_varint(content, place)
            yield key >> 3, value
            continue
        size = _FIXED_SIZES.get(wire_type)
        if size is None:
            if wire_type != 2:
                raise IndexError(f"not a protocol buffer: a field of wire type {wire_type}")
            size, place = _read_varint(content, place)
        if place + size > len(content):
            raise IndexError("a field is cut off")
        yield key >> 3, content[place : place + size]
        place += size


def _read_varint(content: memoryview, place: int) -> tuple[int, int]:
    """Returns the varint at a place, and the place after it."""
    value = shift = 0
    while True:
        byte = content[place]
        value |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            return value, place
        shift += 7
