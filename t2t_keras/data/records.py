"""Examples on their way to shards: packed into rows, serialised without TensorFlow, kept in pieces."""

from __future__ import annotations

import functools
import io
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t2t_keras.errors import UserError
from t2t_keras.files import atomic_write

HEADER_BYTES = 12  # before each record in a TFRecord file: its length and a checksum of the length
FOOTER_BYTES = 4  # after each record: its checksum
_CHECKSUMS_AT_ONCE = 2048
_TO_ONES = np.array([0x641F6454], "<u4").view(np.uint8)  # after them the register is all ones

# Packing: joins several examples into one row to reduce padding (T2T's packed examples)

Example = Mapping[str, Sequence[int]]


def pack(
    examples: Iterable[Example],
    packed_length: int,
    spacing: int = 0,
    open_rows: int = 10,
    chop: bool = True,
) -> Iterator[dict[str, list[int]]]:
    """Joins pairs into rows of at most `packed_length` ids per side: T2T's `pack_examples`.

    A pair goes to the oldest open row that has room for both of its sides, else to a new one; if
    `open_rows` are open already, the oldest is yielded first. A longer pair makes an overlong row by
    itself, which training drops. With `chop`, examples with only targets (language models) are cut:
    each full `packed_length` ids make a row, and the rest is packed.

    Yields "inputs", "targets", the concatenated ids of a row's pairs with `spacing` 0s between two,
    not padded, and for each side "<side>_segmentation", the pair's number within the row, from 1,
    and "<side>_position", the position within the pair, from 0; both are 0 in the spacing. Rows of
    targets only have the "inputs" [0], as T2T's.
    """
    if packed_length < 1 or spacing < 0:
        raise UserError(
            "packed_length must be 1 or more and packed_spacing 0 or more, "
            f"got {packed_length} and {spacing}."
        )
    rows: list[list[Example]] = []
    for example in examples:
        ids = example["targets"]
        if chop and len(example) == 1 and len(ids) > packed_length:
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
            if len(rows) == open_rows:
                yield _joined_row(rows.pop(0), spacing)
            rows.append([example])
    yield from (_joined_row(row, spacing) for row in rows)


def _joined_row(examples: Sequence[Example], spacing: int) -> dict[str, list[int]]:
    features: dict[str, list[int]] = {"inputs": [0]}
    for side in examples[0]:
        rows: list[list[int]] = [[], [], []]
        for number, example in enumerate(examples, 1):
            ids = example[side]
            for row, values in zip(rows, (ids, [number] * len(ids), range(len(ids))), strict=True):
                row += [*[0] * spacing * (number > 1), *values]
        names = (side, f"{side}_segmentation", f"{side}_position")
        features.update(zip(names, rows, strict=True))
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
        shifts = self.starts[rows] - (np.cumsum(lengths) - lengths)
        return Lists(self.values[np.arange(lengths.sum()) + np.repeat(shifts, lengths)], lengths)


def columns(
    fields: Mapping[str, Sequence[Sequence[int]]], first_number: int = 1
) -> dict[str, Lists]:
    """Converts the lists of each field. The `UserError` of an empty list, or of anything but 64-bit
    integers, counts examples from `first_number`."""
    converted = {}
    for field, lists in fields.items():
        values = array("q")
        for number, ids in enumerate(lists, first_number):
            try:
                if not len(ids):
                    raise UserError(
                        f"Example {number} has an empty field {field!r}; every field needs at least one id."
                    )
                values.extend(iter(ids))  # of an array itself it would take this type alone
            except (TypeError, OverflowError) as error:
                raise UserError(
                    f"Example {number} contains something other than 64-bit integers "
                    f"in {field!r}: {error}."
                ) from error
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        converted[field] = Lists(np.array(values, np.int64), lengths)
    return converted


def smallest(values: np.ndarray) -> np.ndarray:
    """Casts integers to the narrowest unsigned type; negative and larger ones stay int64."""
    # Not uint64, which NumPy would join with int64 to floats.
    kind = np.min_scalar_type(int(values.max(initial=0)))
    return values if kind.itemsize == 8 or values.min(initial=0) < 0 else values.astype(kind)


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
    """Encodes [N] integers of 64 bits in base 128, the lowest seven bits first.

    Returns all varints concatenated, as uint8, and the size of each in bytes: [N] int64.
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
    """The CRC-32C of all records, computed in parallel: [N] uint32."""
    # If the register starts at zero, leading zeros have no effect, so records are right-aligned.
    # Four bytes before each record bring the register to its real start, all ones.
    width = -(-int(records.lengths.max(initial=0) + len(_TO_ONES)) // 4) * 4
    starts = width - records.lengths[:, None]
    aligned = np.zeros((len(starts), width), np.uint8)
    aligned[np.arange(width) >= starts] = records.values
    np.put_along_axis(aligned, starts - np.arange(4, 0, -1), _TO_ONES, axis=1)
    low, high = _crc_tables()
    register = np.zeros(len(aligned), np.uint32)
    for word in np.ascontiguousarray(aligned.view("<u4").T):
        register ^= word
        register = low[register & np.uint32(0xFFFF)] ^ high[register >> np.uint32(16)]
    return ~register


@functools.cache
def _crc_tables() -> tuple[np.ndarray, np.ndarray]:
    """The register after four bytes, by its lower and by its upper half: [65536] uint32 each."""
    halves = np.arange(1 << 16, dtype=np.uint32)
    registers = np.stack([halves, halves << np.uint32(16)])
    for _ in range(32):
        last = np.where(registers & np.uint32(1), np.uint32(0x82F63B78), np.uint32(0))
        registers = registers >> np.uint32(1) ^ last
    return registers[0], registers[1]


# Pieces: encoded examples on their way to shards


def write_piece(path: Path, fields: Mapping[str, Lists], shard_of: Sequence, shards: int) -> None:
    """Writes examples, each for the shard with its number in `shard_of`."""
    # NumPy arrays: the names of the fields, the offset of each shard's arrays after these two, and
    # for each shard the values and the lengths of each field.
    content, offsets = io.BytesIO(), []
    for shard in range(shards):
        offsets.append(content.tell())
        for lists in fields.values():
            for part in lists.take(np.flatnonzero(np.equal(shard_of, shard))):
                np.save(content, smallest(part))
    with atomic_write(path) as partial, partial.open("wb") as file:
        np.save(file, [*fields])
        np.save(file, offsets)
        file.write(content.getbuffer())


def read_segment(paths: Sequence[Path], shard: int) -> dict[str, Lists]:
    """Returns the examples of one shard from all pieces, in the order of the pieces."""
    parts: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for path in paths:
        try:
            with path.open("rb") as file:
                names, offsets = np.load(file), np.load(file)
                file.seek(offsets[shard], os.SEEK_CUR)
                for name in names.tolist():
                    values, lengths = np.load(file), np.load(file).astype(np.int64)
                    if lengths.sum() != len(values):
                        raise ValueError("lengths of other values")
                    parts.setdefault(name, []).append((values, lengths))
        except Exception as error:  # NumPy raises a dozen types for files of another kind
            raise UserError(f"{path} is damaged: delete {path.parent} and run again.") from error
    return {
        name: Lists(*map(np.concatenate, zip(*arrays, strict=True)))
        for name, arrays in parts.items()
    }
