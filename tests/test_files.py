"""Files that are there whole or not at all, and that one process at a time writes."""

import os
import platform
import re
import threading

import pytest
from test_checkpoints import killed_after

from t2t_keras import files
from t2t_keras.errors import UserError
from t2t_keras.files import atomic_write, locked_directory, read_json


def content(directory):
    return {path.name: path.is_file() and path.read_text() for path in directory.iterdir()}


def test_an_error_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyError), atomic_write(path) as partial:
        partial.write_text("new")
        raise KeyError
    with pytest.raises(KeyError), atomic_write(tmp_path / "new") as partial:
        (partial / "half").mkdir(parents=True)
        raise KeyError
    assert content(tmp_path) == {"file": "old"}


def test_what_killed_writers_have_left_is_removed_under_a_lock(tmp_path):
    mine = {"v.txt", "v.incomplete", "vv.host.77.incomplete", "v.host.77.incomplete.zip"}
    for name in ("v.host.77.incomplete", "v.a.b.8.incomplete", *mine):
        (tmp_path / name).touch()
    (tmp_path / "v.host.9.incomplete" / "inner").mkdir(parents=True)
    with atomic_write(tmp_path / "v") as partial:
        partial.touch()
    assert len(content(tmp_path).keys() - mine) == 3 + 1
    with atomic_write(tmp_path / "v", locked=True) as partial:
        partial.touch()
    assert content(tmp_path).keys() == {"v", *mine}


@pytest.mark.parametrize("call", range(12))
def test_files_that_belong_together_are_all_old_or_all_new(tmp_path, monkeypatch, call):
    """Wherever the process is killed: at each of its calls that change files."""
    old, new = {"a": "1", "b": "1", "c": "1"}, {"a": "2", "b": "2", "d": "2"}
    for name, text in old.items():
        (tmp_path / name).write_text(text)
    for name, text in new.items():
        (tmp_path / f".{name}.unfinished").write_text(text)
    names = {**{name: f".{name}.unfinished" for name in new}, "c": ""}
    killed = killed_after(monkeypatch, call, lambda: files.publish_together(tmp_path, names))
    assert killed == (call < 11)
    files.finish_publishing(tmp_path)  # as a reader does
    assert not files.is_publishing(tmp_path)
    there = {name: text for name, text in content(tmp_path).items() if name in "abcd"}
    assert there == (old if call < 5 else new)


@pytest.mark.parametrize("text", ["[]", '{"a": 5}', "{", '{"../a": ""}', '{"a": "b\\u0000"}'])
def test_a_damaged_record_of_files_that_belong_together(tmp_path, text):
    (tmp_path / ".together.json").write_text(text)
    with pytest.raises(UserError, match=r"\.together\.json"):
        files.finish_publishing(tmp_path)


def test_of_a_flush_that_fails_only_a_directorys_is_passed_over(tmp_path, monkeypatch):
    kinds = [os.path.isdir]
    monkeypatch.setattr(os, "fsync", lambda f: kinds[0](f"/dev/fd/{f}") and os.lseek(-1, 0, 0))
    files.write_text(tmp_path / "file", "old")
    kinds[0] = os.path.isfile
    with pytest.raises(UserError, match="file cannot be written: Bad file descriptor"):
        files.write_text(tmp_path / "file", "new")
    assert content(tmp_path) == {"file": "old"}


@pytest.fixture
def recorded(monkeypatch):
    """Records what is synchronised and renamed, in order."""
    events, rename = [], os.replace

    def fsync(descriptor):
        events.append(os.readlink(f"/dev/fd/{descriptor}"))

    def replace(old, new):
        events.append((str(old), str(new)))
        rename(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    return events


def test_a_file_is_on_disk_before_and_after_it_gets_its_name(tmp_path, recorded):
    """Two machines may share a directory, and their processes a number."""
    path, opened = tmp_path / "file", os.listdir("/dev/fd")
    path.write_text("old")
    with atomic_write(path, suffix=".keras") as partial:
        partial.write_text("new")
    assert os.listdir("/dev/fd") == opened
    assert partial.name == f"file.{platform.node()}.{os.getpid()}.incomplete.keras"
    assert recorded == [str(partial), (str(partial), str(path)), str(tmp_path)]
    assert content(tmp_path) == {"file": "new"}


def test_a_directory_is_on_disk_with_all_that_is_in_it(tmp_path, recorded):
    with atomic_write(tmp_path / "model") as partial:
        (partial / "inner").mkdir(parents=True)
        (partial / "inner" / "file").touch()
    synced = set(recorded[: recorded.index((str(partial), f"{tmp_path}/model"))])
    assert {str(partial), f"{partial}/inner", f"{partial}/inner/file"} <= synced
    assert recorded[-1] == str(tmp_path)


def test_of_a_set_the_last_is_renamed_when_the_others_are_on_disk(tmp_path, recorded):
    for name in ("a", "b", "c"):
        (tmp_path / f".{name}").write_text(name)
    files.publish({tmp_path / f".{name}": tmp_path / name for name in ("a", "b", "c")})
    renamed = [(f"{tmp_path}/.{name}", f"{tmp_path}/{name}") for name in ("a", "b", "c")]
    assert recorded[3:] == [*renamed[:2], str(tmp_path), renamed[2], str(tmp_path)]
    assert content(tmp_path) == {"a": "a", "b": "b", "c": "c"}


# Locks: another open file of this process waits as another process does.


def waiting(target, capsys, text):
    """Starts what must wait; returns its thread once it has said that it waits."""
    thread = threading.Thread(target=target)
    thread.start()
    shown = ""
    while "waiting for another process" not in shown:
        shown += capsys.readouterr().err
        thread.join(0.01)
    assert shown == f"{text}: waiting for another process to write it\n"
    return thread


def test_one_process_at_a_time_writes_into_a_directory(tmp_path, capsys):
    order = []

    def second():
        with locked_directory(tmp_path):
            order.append("second")

    with locked_directory(tmp_path):
        thread = waiting(second, capsys, tmp_path)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    with locked_directory(tmp_path), open(tmp_path / "file", "wb") as file:
        assert files.lock(file, "file")
        with pytest.raises(KeyError), locked_directory(tmp_path, before_waiting={}.popitem):
            pass


KIND = {"steps": int, "loss?": float, "name?": (str, None), "ids?": {str: [range(4)]}}
KIND["starts?"] = [{"began": int, "host?": str}]


def test_json_of_the_expected_kinds():
    rest = '"name": null, "more": [{}], "ids": {"a": [0, 3], "b": []}, "starts": [{"began": 7}]}'
    for loss in ("1", "0.5", "NaN"):
        assert files.parse_json(f'{{"steps": 5, "loss": {loss}, {rest}', KIND, "it")["steps"] == 5
    assert files.parse_json(b'\xef\xbb\xbf{"steps": 5}', KIND, "it") == {"steps": 5}  # Windows's


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", " is not JSON: Expecting value"),
        ('{"a": 1, "steps": 1, "steps": 2}', " is not JSON: 'steps' is there twice"),
        ("[" * 101 + "]" * 101, " is not JSON: objects or lists are nested more than 100 deep"),
        (b'{"steps": "\xff"}', " is not JSON: 'utf-8' codec can't decode byte 0xff"),
        ('{"steps": "\\udc00"}', " is not JSON: 'utf-8' codec can't encode character '\\udc00'"),
        ("[1]", " must be an object, got [1]: remove it."),
        ("{}", " has no steps: remove it."),
        ('{"steps": true}', ": steps must be an integer, got true"),
        ('{"steps": 9223372036854775808}', ": steps must be an integer, got 9223372036854775808"),
        ('{"steps": 1, "loss": 1' + "0" * 99 + "}", ": loss must be a number, got 1" + "0" * 59),
        ('{"steps": 1, "ids": [2]}', ": ids must be an object, got [2]"),
        ('{"steps": 1, "ids": {"a": [1, 4]}}', ": ids.a[1] must be an integer from 0 to 3, got 4"),
        ('{"steps": 1, "starts": [{"host": "a"}]}', ": starts[0] has no began"),
    ],
)
def test_json_of_another_shape_is_one_line(content, message, tmp_path, refused):
    path = tmp_path / "f"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with refused(re.escape(f"{path}{message}")) as error:
        read_json(path, KIND, "remove it")
    assert len(str(error.value)) < len(str(path)) + 200


def test_json_that_cannot_be_read(tmp_path):
    for path, reason in ((tmp_path, "Is a directory"), ("a\0b", "embedded null byte")):
        with pytest.raises(UserError, match=rf"cannot be read: {reason}\."):
            read_json(path)
    with pytest.raises(UserError, match=r"^the answer must be a list, got null\.$"):
        files.parse_json("null", [str], "the answer")
