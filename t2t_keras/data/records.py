"""Examples on their way to shards: packed into rows, serialised without TensorFlow, kept in pieces."""

from __future__ import annotations

import functools
import itertools
import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t2t_keras.errors import UserError
from t2t_keras.files import atomic_write, parse_json

HEADER_BYTES = 12
"""Bytes before each record in a TFRecord file: its length and a checksum of the length."""

FOOTER_BYTES = 4
"""Bytes after each record: its checksum."""

_CHECKSUMS_AT_ONCE = 2048
_LENGTHS = np.dtype("<u4")
_HEADER = {"types": {str: str}, "rows": [range(2**32)], "bytes": [range(2**48)]}  # of a piece


# Packing: joins several examples into one row to reduce padding (T2T's packed examples)

Example = Mapping[str, Sequence[int]]

OPEN_ROWS = 10
"""How many rows are open for more pairs; if none has room, the oldest is closed."""


def pack(
    examples: Iterable[Example], packed_length: int, spacing: int = 0
) -> Iterator[dict[str, list[int]]]:
    """Joins pairs into rows of at most `packed_length` ids per side: T2T's `pack_examples`.

    A pair goes to the oldest open row that has room for both of its sides. If there is none, it opens a
    new row; if 10 are open already, the oldest is yielded first. At the end the open rows are yielded,
    oldest first. A pair longer than `packed_length` makes an overlong row by itself, which training drops.
    Memory does not grow with the number of examples.

    Examples with only targets (language models) are cut: each full `packed_length` ids make a row, and
    the rest is packed.

    Args:
        examples: {"inputs": ids, "targets": ids}, or targets only; no side may be empty.
        packed_length: ids of a row's longer side, spacing included.
        spacing: the number of 0s between two pairs of a row.

    Yields:
        "inputs", "targets": the concatenated ids of a row's pairs. For each side also
        "<side>_segmentation", the pair's number within the row, from 1, and "<side>_position",
        the position within the pair, from 0. Both are 0 in the spacing. Rows are not padded.
    """
    if packed_length < 1 or spacing < 0:
        raise UserError(
            "packed_length must be 1 or more and packed_spacing 0 or more, "
            f"got {packed_length} and {spacing}."
        )
    rows: list[list[Example]] = []
    for example in examples:
        ids = example["targets"]
        if len(example) == 1 and len(ids) > packed_length:
            whole = len(ids) - len(ids) % packed_length
            for start in range(0, whole, packed_length):
                yield _joined_row([{"targets": ids[start : start + packed_length]}], spacing)
            example = {"targets": ids[whole:]}
        if not example["targets"]:
            continue
        for row in rows:
            ids_of_sides = (sum(len(one[side]) for one in [*row, example]) for side in example)
            if max(ids_of_sides) + spacing * len(row) <= packed_length:
                row.append(example)
                break
        else:
            if len(rows) == OPEN_ROWS:
                yield _joined_row(rows.pop(0), spacing)
            rows.append([example])
    for row in rows:
        yield _joined_row(row, spacing)


def _joined_row(examples: Sequence[Example], spacing: int) -> dict[str, list[int]]:
    features: dict[str, list[int]] = {}
    for side in examples[0]:
        names = (side, f"{side}_segmentation", f"{side}_position")
        rows = [features.setdefault(name, []) for name in names]
        for number, example in enumerate(examples, 1):
            ids = example[side]
            added = (ids, [number] * len(ids), range(len(ids)))
            for row, values in zip(rows, added, strict=True):
                row += [0] * spacing * (number > 1)
                row += values
    return features


# Serialising


class Lists(NamedTuple):
    """N lists of integers, or N byte strings, in two arrays."""

    values: np.ndarray  # all lists concatenated: [sum of lengths], int64, or uint8 for byte strings
    lengths: np.ndarray  # [N] int64

    @property
    def starts(self) -> np.ndarray:
        """The start of each list in `values`, and the end of the last list: [N + 1] int64."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    def take(self, rows: np.ndarray) -> Lists:
        """Returns the lists of the given rows, in that order."""
        lengths = self.lengths[rows]
        ends = np.cumsum(lengths)
        shifts = self.starts[rows] - (ends - lengths)
        return Lists(self.values[np.arange(lengths.sum()) + np.repeat(shifts, lengths)], lengths)


def columns(
    fields: Mapping[str, Sequence[Sequence[int]]], first_number: int = 1
) -> dict[str, Lists]:
    """Converts the lists of each field; `first_number` numbers the first example in messages.

    Raises:
        UserError: a list is empty or contains anything but 64-bit integers.
    """
    return {field: _lists(field, lists, first_number) for field, lists in fields.items()}


def _lists(field: str, lists: Sequence[Sequence[int]], first_number: int) -> Lists:
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    if not lengths.all():
        number = first_number + int(np.argmin(lengths))
        raise UserError(
            f"Example {number} has an empty field {field!r}; every field needs at least one id."
        )
    try:
        values = array("q", itertools.chain.from_iterable(lists))
    except (TypeError, OverflowError):
        for number, ids in enumerate(lists, start=first_number):
            try:
                array("q", ids)
            except (TypeError, OverflowError) as error:
                raise UserError(
                    f"Example {number} contains something other than 64-bit integers "
                    f"in {field!r}: {error}."
                ) from error
        raise
    return Lists(np.frombuffer(values, np.int64) if values else np.zeros(0, np.int64), lengths)


def serialize(fields: Mapping[str, Lists]) -> Lists:
    """Returns a serialised `tf.train.Example` for each row of the fields."""
    entries: list[Lists | bytes] = []
    for name in sorted(fields):
        key = name.encode()
        # Wire format: Example.features.feature[name].int64_list.value, packed.
        value = _sized(0x1A, _sized(0x0A, [_varints(fields[name])]))
        entries += _sized(0x0A, [bytes([0x0A, len(key)]) + key, *_sized(0x12, value)])
    return _joined(_sized(0x0A, entries))


def frame(records: Lists) -> Lists:
    """Adds the lengths and checksums that surround each record in a TFRecord file."""
    lengths = _rows(records.lengths.astype("<u8"))
    return _joined([lengths, _checksums(lengths), records, _checksums(records)])


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


def message(key: int, content: bytes) -> bytes:
    """Returns a protobuf field that holds a string or another message."""
    return varints(np.array([key << 3 | 2, len(content)]))[0].tobytes() + content


def _varints(lists: Lists) -> Lists:
    """Returns the values of each list as varints."""
    encoded, sizes = varints(lists.values)
    ends = np.concatenate([[0], np.cumsum(sizes)])[lists.starts]
    return Lists(encoded, np.diff(ends))


def _sized(tag: int, content: Sequence[Lists | bytes]) -> list[Lists | bytes]:
    """A length-delimited protobuf field in each row: tag, length, and the parts of its content."""
    lengths = _total_lengths(content)
    return [bytes([tag]), _varints(Lists(lengths, np.ones_like(lengths))), *content]


def _rows(numbers: np.ndarray) -> Lists:
    """The bytes of each number."""
    return Lists(numbers.view(np.uint8), np.full(len(numbers), numbers.itemsize))


def _joined(parts: Sequence[Lists | bytes]) -> Lists:
    """Concatenates the parts within each row; a `bytes` part is the same in every row."""
    lengths = _total_lengths(parts)
    joined = np.empty(lengths.sum(), np.uint8)
    places = np.cumsum(lengths) - lengths
    for part in parts:
        if isinstance(part, bytes):
            joined[places[:, None] + np.arange(len(part))] = np.frombuffer(part, np.uint8)
            places = places + len(part)
        else:
            shifts = places - part.starts[:-1]
            joined[np.arange(len(part.values)) + np.repeat(shifts, part.lengths)] = part.values
            places = places + part.lengths
    return Lists(joined, lengths)


def _total_lengths(parts: Sequence[Lists | bytes]) -> np.ndarray:
    return sum(len(part) if isinstance(part, bytes) else part.lengths for part in parts)  # type: ignore


def _checksums(records: Lists) -> Lists:
    """The masked CRC-32C of each record, as in TFRecord files."""
    sums = np.empty(len(records.lengths), np.uint32)
    by_length = np.argsort(records.lengths, kind="stable")
    for start in range(0, len(sums), _CHECKSUMS_AT_ONCE):
        rows = by_length[start : start + _CHECKSUMS_AT_ONCE]
        sums[rows] = _crc32c(records.take(rows))
    masked = (sums >> np.uint32(15) | sums << np.uint32(17)) + np.uint32(0xA282EAD8)
    return _rows(masked.astype("<u4"))


def _crc32c(records: Lists) -> np.ndarray:
    """The CRC-32C of all records, computed in parallel: [N] uint32.

    If the register starts at zero, leading zeros have no effect, so records are right-aligned. The real
    start, all ones, contributes a term that depends only on the length.
    """
    width = -(-int(records.lengths.max(initial=0)) // 4) * 4
    aligned = np.zeros((len(records.lengths), width), np.uint8)
    aligned[np.arange(width) >= width - records.lengths[:, None]] = records.values
    low, high = _crc_tables()
    register = np.zeros(len(aligned), np.uint32)
    for word in np.ascontiguousarray(aligned.view("<u4").T):
        register ^= word
        register = low[register & np.uint32(0xFFFF)] ^ high[register >> np.uint32(16)]
    return ~(register ^ _crc_starts(1 << width.bit_length())[records.lengths])


@functools.cache
def _crc_tables() -> tuple[np.ndarray, np.ndarray]:
    """The register after four bytes, by its lower and by its upper half: [65536] uint32 each."""
    halves = np.arange(1 << 16, dtype=np.uint32)
    return _after_bits(halves, 32), _after_bits(halves << np.uint32(16), 32)


@functools.cache
def _crc_starts(size: int) -> np.ndarray:
    """Returns the register, initially all ones, after n zero bytes, for n < size: [size] uint32."""
    table = [int(entry) for entry in _after_bits(np.arange(256, dtype=np.uint32), 8)]
    registers = [0xFFFFFFFF]
    while len(registers) < size:
        registers.append(table[registers[-1] & 0xFF] ^ registers[-1] >> 8)
    return np.array(registers[:size], np.uint32)


def _after_bits(registers: np.ndarray, bits: int) -> np.ndarray:
    for _ in range(bits):
        last = np.where(registers & np.uint32(1), np.uint32(0x82F63B78), np.uint32(0))
        registers = registers >> np.uint32(1) ^ last
    return registers


# Pieces: encoded examples on their way to shards


def write_piece(path: Path, fields: Mapping[str, Lists], shard_of_row: np.ndarray, shards: int):
    """Writes a piece: encoded examples, grouped by the shard that they will go to.

    A piece is a header (one line of JSON), then the examples of each shard: for each field all lengths,
    then all values.
    """
    order = np.argsort(shard_of_row, kind="stable")
    bounds = np.searchsorted(shard_of_row[order], np.arange(shards + 1)).tolist()
    types = {name: _smallest_type(lists.values) for name, lists in fields.items()}
    fields = {name: lists.take(order) for name, lists in fields.items()}
    segments = []
    for first, last in itertools.pairwise(bounds):
        parts = []
        for name, lists in fields.items():
            start, end = lists.starts[[first, last]]
            parts.append(lists.lengths[first:last].astype(_LENGTHS).tobytes())
            parts.append(lists.values[start:end].astype(types[name]).tobytes())
        segments.append(b"".join(parts))
    header = {
        "types": {name: dtype.str for name, dtype in types.items()},
        "rows": np.diff(bounds).tolist(),
        "bytes": [len(segment) for segment in segments],
    }
    with atomic_write(path) as partial, partial.open("wb") as file:
        file.write(json.dumps(header).encode() + b"\n")
        file.writelines(segments)


def read_segment(paths: Sequence[Path], shard: int) -> dict[str, Lists]:
    """Returns the examples of one shard from all pieces, in the order of the pieces."""
    parts: dict[str, list[Lists]] = {}
    for path in paths:
        try:
            for name, lists in _segment(path, shard):
                parts.setdefault(name, []).append(lists)
        except (ValueError, TypeError, LookupError, MemoryError) as error:
            raise UserError(f"{path} is damaged: delete {path.parent} and run again.") from error
    return {
        name: Lists(
            np.concatenate([lists.values for lists in pieces]),
            np.concatenate([lists.lengths for lists in pieces]).astype(np.int64),
        )
        for name, pieces in parts.items()
    }


def _segment(path: Path, shard: int) -> Iterator[tuple[str, Lists]]:
    with path.open("rb") as file:
        header = parse_json(
            file.readline(), _HEADER, str(path), f"delete {path.parent} and run again"
        )
        file.seek(sum(header["bytes"][:shard]), 1)
        for name, dtype in header["types"].items():
            lengths = _read(file, _LENGTHS, header["rows"][shard])
            values = _read(file, np.dtype(dtype), int(lengths.sum()))
            yield name, Lists(values, lengths)


def _read(file, dtype: np.dtype, count: int) -> np.ndarray:
    return np.frombuffer(file.read(dtype.itemsize * count), dtype, count)


def _smallest_type(values: np.ndarray) -> np.dtype:
    if values.min(initial=0) < 0:
        return np.dtype("<i8")
    return np.dtype(np.min_scalar_type(int(values.max(initial=0)))).newbyteorder("<")
