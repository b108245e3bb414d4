"""Lines in and out: files resumed or started over, streams, and sources."""

import gzip
import json
import os
import threading

import pytest

from t2t_keras.decoding.text_files import ResumableFile, SourceLines, Stream, line_output, numbered
from t2t_keras.errors import UserError

MADE_FROM = {"source": "3 lines abc", "beam_size": 4}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out"


def begun(path, *lines, made_from=MADE_FROM, messages=None):
    """A file with some lines more; without `messages`, there may be none."""
    report = pytest.fail if messages is None else messages.append
    output = ResumableFile(str(path), made_from, report)
    for line in lines:
        output.write(line)
    output.flush()
    return output


def kept(output, *numbered_lines):
    """The file closed, after lines out of turn."""
    for number, line in numbered_lines:
        output.keep(number, line)
    output.flush()
    output.close()


def complete(output, path, text):
    """Nothing is left beside the complete file."""
    output.complete()
    assert path.read_text("utf-8") == text
    assert os.listdir(path.parent) == ["out"]


def test_a_file_is_there_when_it_is_complete(path):
    output = begun(path, "ä\nb", "")
    assert not path.exists()
    complete(output, path, "ä b\n\n")
    assert output.lines == 2


def test_resumes_after_the_whole_lines(path):
    begun(path, "a", "b").close()
    with open(f"{path}.unfinished", "ab") as file:
        file.write(b"half a li")
    messages = []
    output = begun(path, "c", messages=messages)
    assert messages == [f"resuming after line 2 of {path}.unfinished"]
    assert output.lines == 3
    complete(output, path, "a\nb\nc\n")


def test_lines_out_of_turn_are_kept(path):
    messages = []
    kept(begun(path, "a"), (1, "a"), (4, "d\nd"), (3, "c"))
    with open(f"{path}.unfinished.ahead", "ab") as file:
        file.write(b'[5, "half a li')
    again = begun(path, messages=messages)
    assert messages == [f"resuming after line 1 of {path}.unfinished, with 2 later ones"]
    assert again.ahead == {4: "d\nd", 3: "c"}
    kept(again, (6, "f"))
    assert begun(path, messages=messages).ahead == {4: "d\nd", 3: "c", 6: "f"}
    last = begun(path, "b", "c", "d\nd", "e", "f", messages=messages)
    assert os.path.getsize(f"{path}.unfinished.ahead") == 0
    complete(last, path, "a\nb\nc\nd d\ne\nf\n")


def test_only_lines_out_of_turn_are_kept_too(path):
    kept(begun(path), (2, "b"))
    assert begun(path, messages=[]).ahead == {2: "b"}
    assert begun(path, made_from={"source": "other"}, messages=[]).ahead == {}
    assert os.path.getsize(f"{path}.unfinished.ahead") == 0


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        (MADE_FROM, {**MADE_FROM, "beam_size": 1}, "beam_size was 4 and is now 1"),
        (MADE_FROM, None, "standard input may have changed"),
        (None, MADE_FROM, "it has no record of what it was made from"),
        ({**MADE_FROM, "old": 1}, MADE_FROM, "old was 1 and is now None"),
    ],
)
def test_starts_over_for_something_else(path, before, now, why):
    begun(path, "a", "b", made_from=before).close()
    messages = []
    output = begun(path, "c", made_from=now, messages=messages)
    assert messages == [f"starting {path}.unfinished over: {why}"]
    complete(output, path, "c\n")


def test_a_second_process_waits_and_begins_a_new_file(path, capsys):
    first, found = begun(path, "a"), []

    def start_again():
        second = begun(path, "b", messages=found)
        found.append(path.read_text())
        second.complete()

    thread = threading.Thread(target=start_again)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive() and not found
    first.write("c")
    first.complete()
    thread.join()
    assert found == ["a\nc\n"]
    assert path.read_text() == "b\n"
    assert "out: waiting for another process to write it" in capsys.readouterr().err
    assert os.listdir(path.parent) == ["out"]


@pytest.mark.parametrize("record", ["", "{", "[]", "\udcff"])
def test_starts_over_when_the_record_is_damaged(path, record):
    begun(path, "a").close()
    stored, messages = path.with_name("out.unfinished.json"), []
    stored.write_bytes(record.encode("utf-8", "surrogateescape"))
    assert begun(path, messages=messages).lines == 0
    assert "no record" in messages[0]
    assert json.loads(stored.read_text("utf-8")) == MADE_FROM


def test_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(UserError, match="out cannot be written: No such file or directory"):
        ResumableFile(str(tmp_path / "absent" / "out"), MADE_FROM, pytest.fail)
    with pytest.raises(UserError, match="is a directory: name a file in it"):
        line_output(str(tmp_path), MADE_FROM, pytest.fail)


def test_pipes_are_written_at_once():
    reading, writing = os.pipe()
    stream = line_output(f"/dev/fd/{writing}", MADE_FROM, pytest.fail)
    assert isinstance(stream, Stream)
    stream.write("a\nb")
    stream.flush()
    assert os.read(reading, 99) == b"a b\n"
    os.close(reading)
    stream.write("c")
    with pytest.raises(BrokenPipeError):
        stream.flush()
    with pytest.raises(BrokenPipeError):
        stream.complete()


def test_standard_output_by_its_name_is_no_file_to_replace(path):
    path.write_text("a\n")
    with path.open("ab") as file:
        output = line_output(f"/dev/fd/{file.fileno()}", MADE_FROM, pytest.fail)
        assert isinstance(output, Stream)
        output.write("b")
        complete(output, path, "a\nb\n")


# The lines of a source


def test_bytes_that_are_not_utf_8_are_left_out_and_reported(tmp_path):
    (tmp_path / "source").write_bytes(b"a\n\nna\xefve\r\n\xff\nlast")
    messages = []
    source = SourceLines(str(tmp_path / "source"), messages.append)
    assert list(source) == ["a", "", "nave", "", "last"]
    assert messages == [
        f"line {n} of {tmp_path / 'source'} is not UTF-8: invalid bytes are dropped" for n in (3, 4)
    ]


def test_content_is_the_same_in_gzip(tmp_path):
    def content(name, raw):
        (tmp_path / name).write_bytes(raw)
        return SourceLines(str(tmp_path / name), pytest.fail).content

    plain = content("source", b"a\nbc\n")
    assert plain == content("source.gz", gzip.compress(b"a\nbc"))
    assert plain[:2] == (2, 3)
    assert str(plain).startswith("2 lines ")
    assert content("other", b"ab\nc\n") != plain


@pytest.mark.parametrize(("lines", "fewer"), [("a\nb\n", "prefixes"), ("", "source")])
def test_as_many_prefixes_as_lines(tmp_path, lines, fewer):
    (tmp_path / "source").write_text(lines)
    (tmp_path / "prefixes").write_text("c\n")
    both = [SourceLines(str(tmp_path / name), pytest.fail) for name in ("source", "prefixes")]
    with pytest.raises(UserError, match=f"{fewer} ends after {len(lines) // 4:,} lines"):
        list(numbered(*both))
    (tmp_path / "source").write_text("a\n")
    assert [line[:3] for line in numbered(*both)] == [(1, "a", "c")]
