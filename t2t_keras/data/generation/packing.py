"""Packing: joins several examples into one row to reduce padding (T2T's packed examples)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from t2t_keras.errors import UserError

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
    available = packed_length - spacing
    rows: list[_Row] = []
    for example in examples:
        whole, example = _without_full_rows(example, packed_length)
        yield from (_Row(full).features(spacing) for full in whole)
        if not example["targets"]:
            continue
        for row in rows:
            if all(row.length(side, spacing) + len(example[side]) <= available for side in example):
                row.examples.append(example)
                break
        else:
            if len(rows) == OPEN_ROWS:
                yield rows.pop(0).features(spacing)
            rows.append(_Row(example))
    for row in rows:
        yield row.features(spacing)


def _without_full_rows(example: Example, packed_length: int) -> tuple[list[Example], Example]:
    """Cuts an example with only targets into full rows; returns them and the rest."""
    if len(example) > 1 or len(example["targets"]) <= packed_length:
        return [], example
    ids = example["targets"]
    ends = range(packed_length, len(ids) + 1, packed_length)
    return [{"targets": ids[end - packed_length : end]} for end in ends], {
        "targets": ids[ends[-1] :]
    }


class _Row:
    """An open row: the examples in it so far."""

    def __init__(self, example: Example):
        self.examples = [example]

    def length(self, side: str, spacing: int) -> int:
        """Returns the number of ids of a side, including the spacing between examples."""
        ids = sum(len(example[side]) for example in self.examples)
        return ids + spacing * (len(self.examples) - 1)

    def features(self, spacing: int) -> dict[str, list[int]]:
        features: dict[str, list[int]] = {}
        for side in self.examples[0]:
            names = (side, f"{side}_segmentation", f"{side}_position")
            rows = [features.setdefault(name, []) for name in names]
            for number, example in enumerate(self.examples, 1):
                ids = example[side]
                added = (ids, [number] * len(ids), range(len(ids)))
                for row, values in zip(rows, added, strict=True):
                    row += [0] * spacing * (number > 1)
                    row += values
        return features
