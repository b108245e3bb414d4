"""Files that are there whole or not at all."""

import os
import platform

import pytest

from t2t_keras.files import whole_file


def test_an_error_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyError), whole_file(path) as partial:
        partial.write_text("new")
        raise KeyError
    assert [(there.name, there.read_text()) for there in tmp_path.iterdir()] == [("file", "old")]


def test_it_is_on_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    """Two machines may share a directory, and their processes a number."""
    path = tmp_path / "file"
    path.write_text("old")
    synced = []
    sync = os.fsync

    def recorded(descriptor):
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), path.read_text()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    with whole_file(path) as partial:
        partial.write_text("new")
    assert synced == [(str(partial), "old")]
    assert partial.name == f"file.{platform.node()}.{os.getpid()}.incomplete"
    assert [(there.name, there.read_text()) for there in tmp_path.iterdir()] == [("file", "new")]
