"""Reading text files: where lines end, and what is no text."""

import gzip

import pytest

from t2t_keras.errors import UserError
from t2t_keras.text import iterate_lines, lines, read_lines


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\nb", ["a", "b"]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"a\r\nb\r\r\n", ["a", "b\r"]),
        ("a\u2028b\x0c\x85\rc\n".encode(), ["a\u2028b\x0c\x85\rc"]),
        (b" a \t\n", [" a \t"]),
        ("\ufeffa\n\ufeffb\n".encode(), ["a", "\ufeffb"]),  # a byte order mark, and a character
        ("\ufeff".encode(), [""]),
    ],
)
def test_only_newlines_end_lines(tmp_path, content, lines):
    (tmp_path / "text").write_bytes(content)
    (tmp_path / "text.gz").write_bytes(gzip.compress(content))
    assert read_lines(tmp_path / "text") == lines
    assert read_lines(str(tmp_path / "text.gz")) == lines


def test_names_the_line_that_is_not_utf_8(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"fine\nna\xefve\n")
    lines = iterate_lines(path)
    assert next(lines) == "fine"
    with pytest.raises(UserError, match=r"text, line 2: not UTF-8 \(byte 0xef at column 3\)"):
        next(lines)


def test_names_the_file_that_cannot_be_read(tmp_path):
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"a\n" * 999)[:-9])
    (tmp_path / "none.gz").write_bytes(b"no gzip at all")
    for path, message in (
        (tmp_path / "absent", r"Cannot read .*absent: No such file"),
        (tmp_path, r"Cannot read .*: Is a directory"),
        (tmp_path / "cut.gz", r"cut\.gz is not a whole gzip file"),
        (tmp_path / "none.gz", r"none\.gz is not a whole gzip file"),
    ):
        with pytest.raises(UserError, match=message):
            read_lines(path)


def test_a_bomb_of_one_line_is_left_off(tmp_path):
    """10 GB of zeros in 10 MB."""
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(bytes(2**27)) * 80)
    with pytest.raises(UserError, match=r"text\.gz, line 1: longer than 67,108,864 bytes"):
        read_lines(path)


def test_a_bomb_of_many_lines_is_left_off(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "most_unpacked", lambda stored_bytes: 100_000)
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"a\n" * 50_000))
    assert len(read_lines(path)) == 50_000
    path.write_bytes(gzip.compress(b"a\n" * 80_000))
    with pytest.raises(UserError, match=r"text\.gz decompresses to more than 100,000 bytes"):
        read_lines(path)


def test_text_may_be_64_times_as_large_as_its_file():
    assert lines.most_unpacked(10) == 2**28
    assert lines.most_unpacked(10**9) == 64 * 10**9
