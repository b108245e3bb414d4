"""Packing: several pairs in one row, so that batches have little padding (T2T's packed examples)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from t2t_keras.errors import UserError

OPEN_ROWS = 10
"""The number of rows that wait for more pairs; if none has room, the oldest is completed."""


def pack(
    examples: Iterable[Mapping[str, Sequence[int]]], packed_length: int, spacing: int = 0
) -> Iterator[dict[str, list[int]]]:
    """Joins pairs into rows of at most `packed_length` ids a side: T2T's `pack_examples`.

    A pair goes to the oldest open row that has room for both of its sides. If there is none, it opens a
    row; if 10 are open already, the oldest is yielded first. At the end the open rows are yielded, oldest
    first. A pair longer than `packed_length` is a row by itself, longer than the others (training drops
    it). Memory does not grow with the number of examples.

    Args:
        examples: {"inputs": ids, "targets": ids}, no side empty.
        packed_length: ids of a row's longer side, spacing included.
        spacing: the number of 0s between two pairs of a row.

    Yields:
        "inputs", "targets": the concatenated ids of a row's pairs; and for each side
        "<side>_segmentation": the pair's number within the row, from 1, and "<side>_position":
        the position within the pair, from 0. Both are 0 in the spacing. Rows are not padded.

    Raises:
        UserError: packed_length is below 1 or spacing below 0.
    """
    if packed_length < 1 or spacing < 0:
        raise UserError(
            "packed_length must be 1 or more and packed_spacing 0 or more, "
            f"got {packed_length} and {spacing}."
        )
    available = packed_length - spacing
    rows: list[_Row] = []
    for example in examples:
        inputs, targets = example["inputs"], example["targets"]
        for row in rows:
            if (
                row.inputs_length + len(inputs) <= available
                and row.targets_length + len(targets) <= available
            ):
                break
        else:
            if len(rows) == OPEN_ROWS:
                yield rows.pop(0).features(spacing)
            row = _Row()
            rows.append(row)
        row.add(inputs, targets, spacing)
    for row in rows:
        yield row.features(spacing)


class _Row:
    """The pairs of one row so far, and the lengths of its sides including spacing."""

    def __init__(self):
        self.inputs: list[Sequence[int]] = []
        self.targets: list[Sequence[int]] = []
        self.inputs_length = self.targets_length = 0

    def add(self, inputs: Sequence[int], targets: Sequence[int], spacing: int) -> None:
        gap = spacing if self.inputs else 0
        self.inputs.append(inputs)
        self.targets.append(targets)
        self.inputs_length += gap + len(inputs)
        self.targets_length += gap + len(targets)

    def features(self, spacing: int) -> dict[str, list[int]]:
        features: dict[str, list[int]] = {}
        gap = [0] * spacing
        for side, sequences in (("inputs", self.inputs), ("targets", self.targets)):
            row: list[int] = []
            segmentation: list[int] = []
            position: list[int] = []
            for number, ids in enumerate(sequences, 1):
                if number > 1 and spacing:
                    row += gap
                    segmentation += gap
                    position += gap
                row += ids
                segmentation += [number] * len(ids)
                position += range(len(ids))
            features[side] = row
            features[f"{side}_segmentation"] = segmentation
            features[f"{side}_position"] = position
        return features
