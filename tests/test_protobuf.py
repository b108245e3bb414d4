"""The wire format, by the examples of its specification (protobuf.dev, "Encoding")."""

import numpy as np
import pytest

from t2t_keras import protobuf


def test_fields_are_those_of_the_specification():
    assert protobuf.number(1, 150) == bytes.fromhex("089601")
    assert protobuf.message(2, b"testing") == bytes.fromhex("120774657374696e67")
    assert protobuf.message(3, protobuf.number(1, 150)) == bytes.fromhex("1a03089601")
    assert protobuf.double(1, 1.0) == bytes.fromhex("09000000000000f03f")
    encoded, sizes = protobuf.varints(np.array([3, 270, 86942, -2]))
    assert encoded.tobytes() == bytes.fromhex("03" + "8e02" + "9ea705" + "feffffffffffffffff01")
    assert sizes.tolist() == [1, 2, 3, 10]


def test_fields_are_read():
    content = bytes.fromhex("089601" + "120774657374696e67" + "09000000000000f03f" + "150000803f")
    assert [
        (key, value if isinstance(value, int) else bytes(value))
        for key, value in (protobuf.fields(memoryview(content)))
    ] == [(1, 150), (2, b"testing"), (1, bytes.fromhex("000000000000f03f")), (2, b"\0\0\x80\x3f")]


@pytest.mark.parametrize("content", ["08", "0896", "1207", "12ff", "0b", "0900"])
def test_what_is_cut_off_or_none_is_an_error(content):
    with pytest.raises(IndexError):
        list(protobuf.fields(memoryview(bytes.fromhex(content))))
