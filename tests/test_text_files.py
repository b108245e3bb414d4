"""Lines of text in and out: where they end, what is no text, files resumed or started over, streams."""

import gzip
import io
import json
import os
import threading

import pytest

from t2t_keras.cli import options
from t2t_keras.decoding import text_files
from t2t_keras.decoding.text_files import ResumableFile, SourceLines, Stream, line_output, numbered
from t2t_keras.errors import UserError
from t2t_keras.files import atomic_write
from t2t_keras.text import iterate_lines, lines as text_lines, read_lines

MADE_FROM = {"source": "3 lines abc", "beam_size": 4}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out"


def begun(path, *lines, made_from=MADE_FROM, report=pytest.fail):
    """A file with some lines more."""
    output = ResumableFile(str(path), made_from, report)
    for line in lines:
        output.write(line)
    output.flush()
    written = path.resolve().with_name(f"{path.resolve().name}.unfinished").read_bytes()
    assert written.count(b"\n") == output.lines  # a kill loses none
    return output


def kept(output, numbered_lines):
    """The file closed, after lines out of turn."""
    for number, line in numbered_lines.items():
        output.keep(number, line)
    output.flush()
    output.close()


def complete(output, path, text):
    """Nothing is left beside the complete file."""
    output.complete()
    assert path.read_text("utf-8") == text
    assert os.listdir(path.parent) == ["out"]


def test_is_there_when_complete_and_resumes_after_the_whole_lines(path):
    begun(path, "ä\nb", "").close()
    assert not path.exists()
    with open(f"{path}.unfinished", "ab") as file:
        file.write(b"half a li")
    messages = []
    output = begun(path, "c", report=messages.append)
    assert messages == [f"resuming after line 2 of {path}.unfinished"]
    assert output.lines == 3
    complete(output, path, "ä b\n\nc\n")


def test_lines_out_of_turn_are_kept(path):
    ahead, messages = path.with_name("out.unfinished.ahead"), []
    kept(begun(path, "a"), {1: "a", 4: "d\nd", 3: "c"})
    with ahead.open("ab") as file:
        file.write(b'[5, "half a li')
    again = begun(path, report=messages.append)
    assert messages == [f"resuming after line 1 of {path}.unfinished, with 2 later ones"]
    assert again.ahead == {4: "d\nd", 3: "c"}
    kept(again, {6: "f"})
    assert begun(path, report=messages.append).ahead == {4: "d\nd", 3: "c", 6: "f"}
    last = begun(path, "b", "c", "d\nd", "e", "f", report=messages.append)
    assert ahead.read_bytes() == b""
    complete(last, path, "a\nb\nc\nd d\ne\nf\n")
    kept(begun(path), {2: "b"})  # nothing but such lines
    assert begun(path, report=messages.append).ahead == {2: "b"}
    assert begun(path, made_from={"source": "other"}, report=messages.append).ahead == {}
    assert ahead.read_bytes() == b""


@pytest.mark.parametrize("damaged", ["[1, 2]", '["a", "b"]', "5", '{"a": "b"}', "[" * 9999, "\xff"])
def test_damaged_lines_out_of_turn_are_not_in_the_way_of_others(path, damaged):
    kept(begun(path), {})
    path.with_name("out.unfinished.ahead").write_bytes(f"{damaged}\n".encode("latin-1"))
    kept(begun(path), {3: "c"})
    assert begun(path, report=str).ahead == {3: "c"}


def test_a_link_stays_and_its_target_is_written(path):
    (target := path.with_name("target")).write_text("old")
    path.symlink_to("target")
    begun(path, "a").close()
    begun(path, "b", report=str).complete()
    assert (path.is_symlink(), target.read_text()) == (True, "a\nb\n")
    with atomic_write(path) as partial:
        partial.write_text("c")
    assert (path.is_symlink(), target.read_text()) == (True, "c")
    assert sorted(os.listdir(path.parent)) == ["out", "target"]


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
    output = begun(path, "c", made_from=now, report=messages.append)
    assert messages == [f"starting {path}.unfinished over: {why}"]
    complete(output, path, "c\n")


def test_a_second_process_waits_and_begins_a_new_file(path, capsys):
    first, found = begun(path, "a"), []

    def start_again():
        second = begun(path, "b", report=found.append)
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


def test_a_file_without_a_record_is_left_alone(path):
    mine = path.with_name("out.unfinished")
    mine.write_text("mine\n")
    with pytest.raises(UserError, match=r"out\.unfinished exists, but no earlier run wrote it"):
        begun(path)
    assert mine.read_text() == "mine\n" and os.listdir(path.parent) == ["out.unfinished"]


@pytest.mark.parametrize("record", [b"", b"{", b"[]", b"\xff", b"[" * 9999])
def test_starts_over_when_the_record_is_damaged(path, record):
    begun(path, "a").close()
    stored, messages = path.with_name("out.unfinished.json"), []
    stored.write_bytes(record)
    assert begun(path, report=messages.append).lines == 0
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
    for finish in (stream.flush, stream.complete):
        with pytest.raises(BrokenPipeError):
            finish()


def test_standard_output_by_its_name_is_no_file_to_replace(path):
    path.write_text("a\n")
    with path.open("ab") as file:
        output = line_output(f"/dev/fd/{file.fileno()}", MADE_FROM, pytest.fail)
        assert isinstance(output, Stream)
        output.write("b")
        complete(output, path, "a\nb\n")


# The lines of a source


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\nb\r\r\n", ["a", "b\r"]),
        ("a\u2028b\x0c\x85\rc\n".encode(), ["a\u2028b\x0c\x85\rc"]),
        (b" a \t\n", [" a \t"]),
        ("\ufeffa\n\ufeffb\n".encode(), ["a", "\ufeffb"]),  # a byte order mark, and a character
        ("\ufeff".encode(), [""]),
    ],
)
def test_only_newlines_end_lines(tmp_path, monkeypatch, content, lines):
    (tmp_path / "text").write_bytes(content)
    (tmp_path / "text.gz").write_bytes(gzip.compress(content))
    assert read_lines(tmp_path / "text") == read_lines(str(tmp_path / "text.gz")) == lines
    assert [*iterate_lines(tmp_path / "text")] == [line.replace("\r", "") for line in lines]
    for read in (SourceLines("-", pytest.fail), options.typed_lines()):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert list(read) == lines


def test_a_line_of_standard_input_may_be_too_long(monkeypatch):
    monkeypatch.setattr(text_lines, "LINE_BYTES", 3)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"abc\nabcd")))
    with pytest.raises(UserError, match="standard input, line 1: longer than 3 bytes"):
        list(SourceLines("-", pytest.fail))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent", None, "Cannot read .*absent: No such file"),
        ("", None, "Cannot read .*: Is a directory"),
        ("a\0b", None, "Cannot read .*: embedded null byte"),
        ("none.gz", b"no gzip at all", r"none\.gz is not a whole gzip file"),
    ],
)
def test_names_the_file_that_cannot_be_read(tmp_path, name, content, message):
    if content:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_lines(tmp_path / name)


def test_a_bomb_is_left_off(tmp_path, monkeypatch):
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(bytes(2**27)) * 80)  # 10 GB of zeros in 10 MB
    with pytest.raises(UserError, match=r"text\.gz, line 1: longer than 67,108,864 bytes"):
        read_lines(path)
    monkeypatch.setattr(text_lines, "most_unpacked", lambda stored_bytes: 100_000)
    path.write_bytes(gzip.compress(b"a\n" * 50_000))
    assert len(read_lines(path)) == 50_000
    path.write_bytes(gzip.compress(b"a\n" * 80_000))
    with pytest.raises(UserError, match=r"text\.gz unpacks to more than 100,000 bytes"):
        read_lines(path)


def test_text_may_be_64_times_as_large_as_its_file():
    assert [text_lines.most_unpacked(size) for size in (10, 10**9)] == [2**28, 64 * 10**9]


def test_bytes_that_are_not_utf_8_are_left_out_and_reported(tmp_path):
    (tmp_path / "source").write_bytes(b"a\n\nna\xefve\r\n\xff\nlast")
    messages = []
    source = SourceLines(str(tmp_path / "source"), messages.append)
    assert list(source) == ["a", "", "nave", "", "last"]
    assert messages == [
        f"line {n} of {tmp_path / 'source'} is not UTF-8: invalid bytes are dropped" for n in (3, 4)
    ]


def test_what_has_changed_meanwhile_makes_no_complete_file(path, tmp_path):
    text = tmp_path / "in"
    text.write_text("one\n")
    source, output = SourceLines(str(text), pytest.fail), begun(path)
    assert source.content.lines == 1
    of_line, progress = lambda *_: [text.write_text("other\n")], text_files.LineProgress()
    with pytest.raises(UserError, match="in has changed while it was read"):
        text_files.write_results(of_line, str, abs, source, None, None, output, progress, bool)
    assert not path.exists()


def test_content_is_the_same_in_gzip(tmp_path):
    raw = {"a": b"a\nbc\n", "b.gz": gzip.compress(b"a\nbc"), "c": b"ab\nc\n"}
    for name, content in raw.items():
        (tmp_path / name).write_bytes(content)
    plain, same, other = (SourceLines(str(tmp_path / n), pytest.fail).content for n in raw)
    assert plain == same != other
    assert plain[:2] == (2, 3)
    assert str(plain).startswith("2 lines ")


@pytest.mark.parametrize(("lines", "fewer"), [("a\nb\n", "prefixes"), ("", "source")])
def test_as_many_prefixes_as_lines(tmp_path, lines, fewer):
    (tmp_path / "source").write_text(lines)
    (tmp_path / "prefixes").write_text("c\n")
    both = [SourceLines(str(tmp_path / name), pytest.fail) for name in ("source", "prefixes")]
    with pytest.raises(UserError, match=f"{fewer} ends after {len(lines) // 4:,} lines"):
        list(numbered(*both))
    (tmp_path / "source").write_text("a\n")
    assert [line[:3] for line in numbered(*both)] == [(1, "a", "c")]
