"""The wire format of protocol buffers, to read messages without generated classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_FIXED_SIZES = {1: 8, 5: 4}  # bytes, by wire type


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
