"""Archives: what is wanted comes out whole, or nothing does."""

import gzip
import io
import multiprocessing
import os
import tarfile
from pathlib import Path

import pytest
from corpus_files import write_archive

from t2t_keras.data.sources import data_files
from t2t_keras.data.sources.data_files import is_archive, unpack
from t2t_keras.errors import UserError

FILES = {
    "training/europarl-v7.de-en.de": b"eins\nzwei\n" * 5000,
    "training/europarl-v7.de-en.en": b"one\ntwo\n" * 5000,
    "training/europarl-v7.fr-en.fr": bytes(range(256)) * 500,
}
WANTED = {"training/europarl-v7.de-en.de", "training/europarl-v7.de-en.en"}


def everything_in(folder):
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


@pytest.mark.parametrize("prefix", ["", "./"])
@pytest.mark.parametrize("name", ["a.tar", "a.tgz", "a.tar.bz2", "a.tar.xz", "a.zip"])
def test_only_what_is_wanted_is_unpacked(tmp_path, name, prefix):
    members = {prefix + name: content for name, content in FILES.items()}
    found = unpack(write_archive(tmp_path / name, members), tmp_path / "out", WANTED.__contains__)
    assert {path.relative_to(tmp_path / "out").as_posix() for path in found} == WANTED
    assert everything_in(tmp_path / "out") == {name: FILES[name] for name in WANTED}


def test_what_is_there_stays(tmp_path):
    archive = write_archive(tmp_path / "a.tgz", FILES)
    mine = tmp_path / "training" / "europarl-v7.de-en.de"
    mine.parent.mkdir()
    mine.write_bytes(b"mine")
    assert len(unpack(archive, tmp_path, WANTED.__contains__)) == 2
    assert mine.read_bytes() == b"mine"
    assert (tmp_path / "training" / "europarl-v7.de-en.en").exists()


@pytest.mark.parametrize("name", ["a.tgz", "a.zip"])
def test_nothing_lands_outside(tmp_path, name):
    bad = {"../out.txt": b"1", "/tmp/t2t_keras_out.txt": b"2", "x/../../out.txt": b"3", "in": b"4"}
    archive = write_archive(tmp_path / name, bad)
    found = unpack(archive, tmp_path / "out", lambda name: True)
    assert [path.name for path in found] == ["in"]
    assert everything_in(tmp_path) == {name: archive.read_bytes(), "out/in": b"4"}


def test_links_and_directories_are_no_files(tmp_path):
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as archive:
        link, folder = tarfile.TarInfo("secret"), tarfile.TarInfo("training")
        link.type, link.linkname, folder.type = tarfile.SYMTYPE, "/etc/passwd", tarfile.DIRTYPE
        archive.addfile(link)
        archive.addfile(folder)
    assert unpack(tmp_path / "a.tgz", tmp_path / "out", lambda name: True) == []


@pytest.mark.parametrize(
    ("name", "start", "end", "flipped"),
    [
        ("a.tgz", 0, -1, None),
        ("a.tgz", 0, 300, None),
        ("a.tgz", 0, None, -6),  # the checksum
        ("a.tgz", 0, None, 300),
        ("a.tar.bz2", 0, -20, None),
        ("a.tar", 0, 90_000, None),
        ("a.zip", 0, -30, None),
        ("a.zip", 0, None, 100),
        ("a.tgz", 20, None, None),  # no archive
    ],
)
def test_a_damaged_archive_gives_nothing(tmp_path, name, start, end, flipped):
    archive = write_archive(tmp_path / name, FILES)
    content = bytearray(archive.read_bytes()[start:end])
    if flipped:
        content[flipped] ^= 0x55
    archive.write_bytes(content)
    with pytest.raises(UserError) as raised:
        unpack(archive, tmp_path / "out", WANTED.__contains__)
    assert str(raised.value).startswith(f"{archive} cannot be read to its end (")
    assert "delete it and run again" in str(raised.value)
    assert not (tmp_path / "out").exists() or everything_in(tmp_path / "out") == {}


def test_no_room(tmp_path, monkeypatch):
    """The disk fills up in the second file: the first gets no name either."""

    class Full(io.FileIO):
        def write(self, block):
            if "de-en.en" in self.name:
                raise OSError(28, "No space left on device")
            return super().write(block)

    archive = write_archive(tmp_path / "a.tgz", FILES)
    original = Path.open
    monkeypatch.setattr(
        Path,
        "open",
        lambda path, mode: Full(str(path), mode) if mode == "xb" else original(path, mode),
    )
    with pytest.raises(UserError, match=r"cannot be written \(No space left on device\)"):
        unpack(archive, tmp_path / "out", WANTED.__contains__)
    monkeypatch.undo()
    assert everything_in(tmp_path / "out") == {}


def test_a_link_and_what_a_killed_process_left_in_the_place_of_a_part(tmp_path):
    """The link is not followed."""
    archive = write_archive(tmp_path / "a.tgz", FILES)
    (tmp_path / "theirs").write_bytes(b"theirs")
    stem = tmp_path / "out" / "training/europarl-v7.de-en.de"
    stem.parent.mkdir(parents=True)
    stem.with_name(f"{stem.name}.{os.getpid()}.part").symlink_to(tmp_path / "theirs")
    stem.with_name(f"{stem.name}.4711.part").write_bytes(b"eins\nzw")
    unpack(archive, tmp_path / "out", WANTED.__contains__)
    assert (tmp_path / "theirs").read_bytes() == b"theirs"
    assert everything_in(tmp_path / "out") == {name: FILES[name] for name in WANTED}


def test_a_bomb_is_left_off(tmp_path, monkeypatch):
    """10 GB of zeros in 10 MB; the zip archive is a small one."""
    zeros = 2**26
    member = tarfile.TarInfo("bomb")
    member.size = 160 * zeros
    content = gzip.compress(member.tobuf()) + gzip.compress(bytes(zeros)) * 160
    (tmp_path / "a.tgz").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.tgz unpacks to more than 66[\d,]{9} bytes"):
        unpack(tmp_path / "a.tgz", tmp_path / "out", lambda name: True)
    for kind in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME):  # read into memory, as a name
        member.type = kind
        (tmp_path / "b.tgz").write_bytes(gzip.compress(member.tobuf(tarfile.GNU_FORMAT)))
        assert not is_archive(tmp_path / "b.tgz")
        with pytest.raises(UserError, match="a header of 10,737,418,240 bytes"):
            unpack(tmp_path / "b.tgz", tmp_path / "out", lambda name: True)
    archive = write_archive(tmp_path / "a.zip", {"1": bytes(60_000), "2": bytes(60_000)})
    monkeypatch.setattr(data_files, "most_unpacked", lambda stored_bytes: 100_000)
    with pytest.raises(UserError, match=r"a\.zip unpacks to more than 100,000 bytes"):
        unpack(archive, tmp_path / "out", lambda name: True)
    assert everything_in(tmp_path / "out") == {}


def test_names_that_cannot_be_written(tmp_path):
    archive = write_archive(tmp_path / "a.tgz", {"x" * 300: b"1"})
    with pytest.raises(UserError, match=r"cannot be written \(File name too long\)"):
        unpack(archive, tmp_path / "out", lambda name: True)
    (tmp_path / "training").write_text("")  # a file where a directory should be
    with pytest.raises(UserError, match=r"training/europarl-v7.*cannot be written \("):
        unpack(write_archive(tmp_path / "b.tgz", FILES), tmp_path, WANTED.__contains__)


def test_what_is_an_archive(tmp_path):
    assert is_archive(write_archive(tmp_path / "a.tgz", FILES))
    assert is_archive(write_archive(tmp_path / "b.zip", FILES))
    (tmp_path / "c.tgz").write_bytes(b"no archive at all" * 100)
    assert not is_archive(tmp_path / "c.tgz")


def test_two_processes_unpack_one_after_the_other(tmp_path):
    archive = write_archive(tmp_path / "a.tgz", FILES)
    context = multiprocessing.get_context("fork")
    started, may_go_on = context.Event(), context.Event()

    def slow(name):
        started.set()
        may_go_on.wait()
        return name in WANTED

    first = context.Process(target=unpack, args=(archive, tmp_path / "out", slow))
    second = context.Process(target=unpack, args=(archive, tmp_path / "out", WANTED.__contains__))
    first.start()
    started.wait()
    second.start()
    second.join(0.3)
    assert second.is_alive()
    may_go_on.set()
    first.join()
    second.join()
    assert (first.exitcode, second.exitcode) == (0, 0)
    assert everything_in(tmp_path / "out") == {name: FILES[name] for name in WANTED}
