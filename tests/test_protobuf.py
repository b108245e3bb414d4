"""The wire format, by the examples of its specification (protobuf.dev, "Encoding")."""

import pytest

from t2t_keras import protobuf


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
