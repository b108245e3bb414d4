"""Files that are there whole or not at all, and that one process at a time writes."""

import os
import platform
import threading

import pytest

from t2t_keras import files
from t2t_keras.errors import UserError
from t2t_keras.files import atomic_write, changes, lock, locked_directory, open_locked, publish


def content(directory):
    return {path.name: path.read_text() for path in directory.iterdir()}


def test_an_error_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyError), atomic_write(path) as partial:
        partial.write_text("new")
        raise KeyError
    with pytest.raises(KeyError), atomic_write(tmp_path / "new") as partial:
        partial.mkdir()
        (partial / "half").touch()
        raise KeyError
    assert content(tmp_path) == {"file": "old"}


@pytest.fixture
def recorded(monkeypatch):
    """Records what is synchronised and renamed, in order."""
    events = []
    sync, rename = os.fsync, os.replace

    def fsync(descriptor):
        events.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    def replace(old, new):
        events.append((str(old), str(new)))
        rename(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    return events


def test_a_file_is_on_disk_before_and_after_it_gets_its_name(tmp_path, recorded):
    """Two machines may share a directory, and their processes a number."""
    path = tmp_path / "file"
    path.write_text("old")
    with atomic_write(path, suffix=".keras") as partial:
        partial.write_text("new")
    assert partial.name == f"file.{platform.node()}.{os.getpid()}.incomplete.keras"
    assert recorded == [str(partial), (str(partial), str(path)), str(tmp_path)]
    assert content(tmp_path) == {"file": "new"}


def test_a_directory_is_on_disk_with_all_that_is_in_it(tmp_path, recorded):
    with atomic_write(tmp_path / "model") as partial:
        (partial / "inner").mkdir(parents=True)
        (partial / "inner" / "file").touch()
    synced = set(recorded[: recorded.index((str(partial), f"{tmp_path}/model"))])
    assert {f"{partial}/inner/file"} < {event.rstrip("/") for event in synced}
    assert {str(partial), f"{partial}/inner"} <= synced
    assert recorded[-1] == str(tmp_path)


def test_of_a_set_the_last_is_renamed_when_the_others_are_on_disk(tmp_path, recorded):
    for name in ("a", "b", "c"):
        (tmp_path / f".{name}").write_text(name)
    publish({tmp_path / f".{name}": tmp_path / name for name in ("a", "b", "c")})
    renamed = [(f"{tmp_path}/.{name}", f"{tmp_path}/{name}") for name in ("a", "b", "c")]
    assert recorded[3:] == [*renamed[:2], str(tmp_path), renamed[2], str(tmp_path)]
    assert content(tmp_path) == {"a": "a", "b": "b", "c": "c"}


def test_a_file_that_cannot_be_written_is_one_line(tmp_path):
    with pytest.raises(UserError, match=r"absent/file cannot be written: No such file"):
        files.write_json(tmp_path / "absent" / "file", {})
    with pytest.raises(BrokenPipeError), files.writing("standard output"):
        raise BrokenPipeError


def test_names_what_has_changed():
    told = ["a was 1 and is now 4", "old was 3 and is now None"]
    assert changes({"a": 1, "b": 2, "old": 3}, {"b": 2, "a": 4}) == told


# Locks: another open file of this process waits as another process does.


def waiting(capsys, text):
    """Starts what must wait; returns its thread once it has said that it waits."""

    def start(target):
        thread = threading.Thread(target=target)
        thread.start()
        told = ""
        while "waiting for another process" not in told:
            told += capsys.readouterr().err
            thread.join(0.01)
        assert told == f"{text}: waiting for another process that writes it\n"
        return thread

    return start


def test_one_process_at_a_time_writes_into_a_directory(tmp_path, capsys):
    order = []

    def second():
        with locked_directory(tmp_path):
            order.append("second")

    with locked_directory(tmp_path):
        thread = waiting(capsys, tmp_path)(second)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    with locked_directory(tmp_path), open(tmp_path / "file", "wb") as file:
        assert lock(file, "file")
        with pytest.raises(KeyError), locked_directory(tmp_path, before_waiting={}.popitem):
            pass


def test_a_file_that_was_renamed_meanwhile_is_made_again(tmp_path, capsys):
    opened = []
    first = open_locked(tmp_path / "part", "whole")
    start = waiting(capsys, "whole")
    thread = start(lambda: opened.append(open_locked(tmp_path / "part", "whole")))
    first.write(b"first")
    first.flush()
    os.replace(tmp_path / "part", tmp_path / "whole")
    first.close()
    thread.join()
    with opened[0] as second:
        second.write(b"second")
    assert content(tmp_path) == {"whole": "first", "part": "second"}
