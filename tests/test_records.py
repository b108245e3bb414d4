"""Examples and TFRecord files as bytes: those that TensorFlow writes."""

import numpy as np
import pytest
from corpus_files import write_records

from t2t_keras.data.records import (
    Lists,
    columns,
    frame,
    message,
    read_segment,
    serialize,
    varints,
    write_piece,
)
from t2t_keras.errors import UserError


def written(examples):
    fields = {field: [example[field] for example in examples] for field in examples[0]}
    return frame(serialize(columns(fields))).values.tobytes()


def random_examples(count, longest, largest):
    random = np.random.RandomState(count)
    return [
        {
            field: random.randint(0, largest, size=random.randint(1, longest + 1)).tolist()
            for field in ("targets", "inputs", "a_third")
        }
        for _ in range(count)
    ]


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
    assert written(examples) == (tmp_path / "records").read_bytes()


def test_the_wire_format_by_the_examples_of_its_specification():
    """protobuf.dev, "Encoding"."""
    encoded, sizes = varints(np.array([3, 270, 86942, -2]))
    assert encoded.tobytes() == bytes.fromhex("03" + "8e02" + "9ea705" + "feffffffffffffffff01")
    assert sizes.tolist() == [1, 2, 3, 10]
    assert message(2, b"testing") == bytes.fromhex("120774657374696e67")


def test_rows_can_be_taken_in_any_order():
    lists = columns({"ids": [[1], [2, 3], [4, 5, 6]]})["ids"]
    taken = lists.take(np.array([2, 0, 2]))
    assert taken.values.tolist() == [4, 5, 6, 1, 4, 5, 6]
    assert taken.lengths.tolist() == [3, 1, 3]
    assert lists.take(np.zeros(0, np.int64)).values.tolist() == []


def test_nothing_at_all():
    empty = Lists(np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert frame(serialize({"inputs": empty})).values.tolist() == []


def test_an_empty_field_is_refused_with_the_number_of_its_example():
    with pytest.raises(UserError, match=r"^Example 13 has an empty field 'inputs'"):
        columns({"inputs": [[1], [2], []], "targets": [[1], [1], [1]]}, first_number=11)


@pytest.mark.parametrize("ids", [["word"], [1.5], [2**63]])
def test_only_integers_are_stored(ids):
    with pytest.raises(
        UserError, match=r"^Example 5 contains something other than 64-bit integers"
    ):
        columns({"inputs": [[1], ids]}, first_number=4)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: b"[" * 10**5 + b"\n",
        lambda content: content.replace(b'"rows": [2]', b'"rows": "x"'),
        lambda content: content.replace(b'"|u1"', b'"object"'),
        lambda content: content.replace(b'"rows": [2]', b'"rows": [10000000000000000000]'),
    ],
)
def test_a_damaged_piece_is_named(tmp_path, damage):
    path = tmp_path / "000000000000-digest"
    write_piece(path, columns({"ids": [[1], [2, 3]]}), np.zeros(2, int), 1)
    assert read_segment([path], 0)["ids"].values.tolist() == [1, 2, 3]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=f"^{path}.*: delete {tmp_path} and run again"):
        read_segment([path], 0)
