"""Examples and TFRecord files as the bytes that TensorFlow writes; packed rows as T2T packs them."""

import random

import numpy as np
import pytest
from corpus_files import write_records

from t2t_keras.data import records
from t2t_keras.data.records import columns, frame, pack, serialize
from t2t_keras.errors import UserError


def random_examples(count, longest, largest):
    state = np.random.RandomState(count)

    def ids():
        return state.randint(0, largest, size=state.randint(1, longest + 1)).tolist()

    return [{field: ids() for field in ("targets", "inputs", "third")} for _ in range(count)]


@pytest.mark.parametrize(
    "examples",
    [
        [{"inputs": [1], "targets": [1]}],
        [{"inputs": [5, 2**63 - 1, 0], "targets": [-1, -(2**63), 127, 128, 16383, 16384]}],
        [{"inputs": [3] * 100}, {"inputs": [200] * 300}, {"inputs": [70000] * 40_000}],
        random_examples(1000, longest=60, largest=40_000),
        random_examples(50, longest=3000, largest=2**40),
    ],
    ids=["one", "extremes", "lengths", "sentences", "long"],
)
def test_bytes_are_those_of_tensorflow(tmp_path, examples):
    write_records(tmp_path / "records", examples)
    fields = {field: [example[field] for example in examples] for field in examples[0]}
    ours = frame(serialize(columns(fields))).values.tobytes()
    assert ours == (tmp_path / "records").read_bytes()


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "has an empty field 'inputs'; every field needs at least one id"),
        *((ids, "contains something other") for ids in (None, ["word"], [1.5], [2**63])),
    ],
)
def test_only_integers_are_stored(ids, message):
    with pytest.raises(UserError, match=f"^Example 5 {message}"):
        columns({"targets": [[1], [1]], "inputs": [[1], ids]}, first_number=4)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: b"[" * 10**5 + b"\n",
        lambda content: content.replace(b"'|u1'", b"'|O' "),
        lambda content: content.replace(b"(3,), }         ", b"(3000000000,), }"),
    ],
)
def test_a_damaged_piece_is_named(tmp_path, damage):
    path = tmp_path / "000000000000-digest"
    records.write_piece(path, columns({"ids": [[1], [2, 3]]}), [0, 0], 1)
    assert records.read_segment([path], 0)["ids"].values.tolist() == [1, 2, 3]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=f"^{path}.*: delete {tmp_path} and run again"):
        records.read_segment([path], 0)


# Packing: order by hand and by T2T's own packer; no pair is lost or cut

SIDES = ("inputs", "targets")


def pair(inputs, targets):
    return {"inputs": inputs, "targets": targets}


def of_lengths(lengths):
    """Pairs whose every id names the pair: 2 for the first, 3 for the second, ..."""
    return [pair([i] * a, [i] * b) for i, (a, b) in enumerate(lengths, 2)]


def pairs_of_rows(rows):
    """The pairs, counted from 0, of each row."""
    return [[i - 2 for i in dict.fromkeys(row["inputs"]) if i] for row in rows]


def row(*columns):
    """A row of inputs, their segments and positions, and the same of targets."""
    names = (f"{side}{kind}" for side in SIDES for kind in ("", "_segmentation", "_position"))
    return dict(zip(names, columns, strict=True))


def test_two_pairs_in_a_row_by_hand():
    examples = [pair([8, 7, 1], [4, 1]), pair([2, 3, 4, 1], [5, 6, 1])]
    inputs = [8, 7, 1, 2, 3, 4, 1], [1, 1, 1, 2, 2, 2, 2], [0, 1, 2, 0, 1, 2, 3]
    targets = [4, 1, 5, 6, 1], [1, 1, 2, 2, 2], [0, 1, 0, 1, 2]
    assert list(pack(examples, 7)) == [row(*inputs, *targets)]
    assert examples == [pair([8, 7, 1], [4, 1]), pair([2, 3, 4, 1], [5, 6, 1])]  # not changed
    assert pairs_of_rows(pack(of_lengths([(3, 2), (4, 3)]), 6)) == [[0], [1]]
    assert list(pack([], 10)) == []


def test_spacing_by_hand():
    examples = [pair([5, 1], [6, 7, 1]), pair([8, 1], [1]), pair([9, 1], [3, 1])]
    expected = row(
        *([5, 1, 0, 0, 8, 1, 0, 0, 9, 1], [1, 1, 0, 0, 2, 2, 0, 0, 3, 3]),
        *([0, 1, 0, 0, 0, 1, 0, 0, 0, 1], [6, 7, 1, 0, 0, 1, 0, 0, 3, 1]),
        *([1, 1, 1, 0, 0, 2, 0, 0, 3, 3], [0, 1, 2, 0, 0, 0, 0, 0, 0, 1]),
    )
    assert list(pack(examples, 10, spacing=2)) == [expected]
    # Inputs of 2 + 2 + 2 + 2 + 2 are one too many for nine.
    assert [row["inputs"] for row in pack(examples, 9, 2)] == [[5, 1, 0, 0, 8, 1], [9, 1]]


def test_rows_are_yielded_while_pairs_are_read():
    read = []
    rows = pack((read.append(i) or pair([i], [i]) for i in range(2, 100)), 1)
    assert next(rows)["inputs"] == [2]  # the oldest
    assert len(read) == 11  # ten open rows and the pair that found no place


def test_a_pair_that_is_too_long_is_a_row_by_itself():
    rows = list(pack(of_lengths([(2, 1), (3, 12), (2, 1), (1, 1)]), 10))
    assert pairs_of_rows(rows) == [[0, 2, 3], [1]]
    inputs, targets = ([3] * 3, [1] * 3, [0, 1, 2]), ([3] * 12, [1] * 12, list(range(12)))
    assert rows[1] == row(*inputs, *targets)


# What tensor2tensor 1.15.7's pack_examples makes of the 60 pairs below, rows of 24.
T2T_ROWS = {
    0: [
        *([0, 1, 8], [2, 4], [3, 7, 23], [5, 9, 12], [6, 11, 13], [10, 15, 16]),
        *([14, 18, 20, 22, 26], [17, 21], [19, 28, 31], [24, 25, 29], [27, 33, 34, 37]),
        *([30, 32, 49], [35, 36, 38, 42], [39, 40, 46, 52], [41, 43, 54], [44, 45]),
        *([47, 48, 50], [51, 55], [53, 56], [57, 58], [59]),
    ],
    2: [
        *([0, 1], [2, 8, 16], [3, 9, 23], [4, 6], [5, 11], [7, 12, 15], [10, 13]),
        *([14, 18, 20], [17, 22], [19, 26], [21, 28, 31], [24, 25, 34], [27, 29, 37]),
        *([30, 33], [32, 35, 40], [36, 38, 52], [39, 41], [42, 43, 45], [44, 46]),
        *([47, 48], [49, 50, 56], [51, 54], [53, 57], [55, 58], [59]),
    ],
}


@pytest.mark.parametrize("spacing", T2T_ROWS)
def test_rows_are_those_of_t2t(spacing):
    generator = random.Random(5)
    lengths = [(generator.randint(1, 14), generator.randint(1, 14)) for _ in range(60)]
    assert lengths[:3] == [(10, 5), (12, 6), (13, 12)]
    assert pairs_of_rows(pack(of_lengths(lengths), 24, spacing)) == T2T_ROWS[spacing]


@pytest.mark.parametrize(("length", "spacing"), [(32, 0), (32, 1), (17, 3), (1, 0), (256, 0)])
def test_every_pair_is_there_once_and_whole(length, spacing):
    generator = random.Random(length + spacing)

    def ids():
        return [generator.randint(2, 99) for _ in range(generator.randint(0, length))] + [1]

    examples = [pair(ids(), ids()) for _ in range(400)]
    found = []
    for row in pack(examples, length, spacing):
        pairs = [pair([], []) for _ in range(max(row["inputs_segmentation"]))]
        for side in SIDES:
            for i, number in zip(row[side], row[f"{side}_segmentation"], strict=True):
                if number:
                    pairs[number - 1][side].append(i)
        assert list(pack(pairs, 10**6, spacing)) == [row]
        assert len(pairs) == 1 or max(len(row[side]) for side in SIDES) <= length
        found += pairs
    assert sorted(map(repr, found)) == sorted(map(repr, examples))


@pytest.mark.parametrize(("length", "spacing"), [(0, 0), (-3, 0), (10, -1)])
def test_lengths_that_make_no_sense(length, spacing):
    with pytest.raises(UserError, match=f"length must be 1 or more .* got {length} and {spacing}"):
        list(pack([], length, spacing))
