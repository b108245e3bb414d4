"""Archives: what is wanted comes out whole, or nothing does."""

import bz2
import gzip
import lzma
import multiprocessing
import os
import platform
import random
import tarfile

import pytest
from corpus_files import FullDisk, write_archive
from mutations import NUMBER, mutated

from t2t_keras.data import sources
from t2t_keras.data.sources import unpack
from t2t_keras.errors import UserError

FILES = {
    "training/europarl-v7.de-en.de": b"eins\nzwei\n" * 5000,
    "training/europarl-v7.de-en.en": b"one\ntwo\n" * 5000,
    "training/europarl-v7.fr-en.fr": bytes(range(256)) * 500,
}
WANTED = {name: FILES[name] for name in FILES if "de-en" in name}
NAMES = ["a.tar", "a.tgz", "a.tar.bz2", "a.tar.xz", "a.zip"]


def everything_in(folder):
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def unpacked(archive, is_wanted=lambda name: True):
    """The files that come out of an archive, by name."""
    unpack(archive, archive.parent / "out", is_wanted)
    return everything_in(archive.parent / "out")


def refused(archive, message):
    """Checks that unpacking is refused in one line that begins with this, and gives nothing."""
    with pytest.raises(UserError, match=message) as raised:
        unpack(archive, archive.parent / "out", lambda name: True)
    assert str(raised.value).startswith(str(archive))
    assert "\n" not in str(raised.value)
    assert everything_in(archive.parent / "out") == {}


def tar(path, *members):
    """Writes a tar archive of `(TarInfo, content)`, whatever they claim."""
    content = b"".join(
        member.tobuf(tarfile.PAX_FORMAT) + data + bytes(-len(data) % 512)
        for member, data in members
    )
    path.write_bytes(gzip.compress(content + bytes(1024)))
    return path


def member(name, size=0, kind=tarfile.REGTYPE, **attributes):
    made = tarfile.TarInfo(name)
    made.size, made.type, made.pax_headers = size, kind, attributes
    return made


@pytest.mark.parametrize("prefix", ["", "./"])
@pytest.mark.parametrize("name", NAMES)
def test_only_what_is_wanted_is_unpacked(tmp_path, name, prefix):
    members = {prefix + name: content for name, content in FILES.items()}
    archive = write_archive(tmp_path / name, members)
    assert unpacked(archive, WANTED.__contains__) == WANTED


def test_what_is_there_stays(tmp_path):
    archive = write_archive(tmp_path / "a.tgz", FILES)
    mine = tmp_path / "out" / "training" / "europarl-v7.de-en.de"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"mine")
    assert unpacked(archive) == FILES | {"training/europarl-v7.de-en.de": b"mine"}


@pytest.mark.parametrize("name", ["a.tgz", "a.zip"])
def test_nothing_lands_outside(tmp_path, name):
    bad = {"../out.txt": b"1", "/tmp/t2t_keras_out.txt": b"2", "x/../../out.txt": b"3", "in": b"4"}
    archive = write_archive(tmp_path / name, bad)
    assert unpacked(archive) == {"in": b"4"}
    assert everything_in(tmp_path) == {name: archive.read_bytes(), "out/in": b"4"}


def test_only_plain_files_with_names_are_files(tmp_path):
    link = member("link", kind=tarfile.SYMTYPE)
    link.linkname = "/etc/passwd"
    sparse = {"GNU.sparse.size": str(2**40), "GNU.sparse.map": "0,1", "GNU.sparse.name": "zeros"}
    others = (
        (link, b""),
        (member("training", kind=tarfile.DIRTYPE), b""),
        (member("pipe", kind=tarfile.FIFOTYPE), b""),
        (member(""), b""),
        (member("."), b""),
        (member("x", path="a\0b"), b""),
        (member("sparse", 1, **sparse), b"1"),
        (member("text", 3), b"one"),
        (member("text", 3), b"two"),
        (member("not \udcff UTF-8", 1), b"1"),
    )
    found = unpacked(tar(tmp_path / "a.tgz", *others))
    assert found == {"text": b"one", "not \udcff UTF-8": b"1"}


@pytest.mark.parametrize(
    ("name", "start", "end", "flipped"),
    [
        ("a.tgz", 0, -1, None),
        ("a.tgz", 0, 300, None),
        ("a.tgz", 0, 15, None),
        ("a.tgz", 0, None, -6),  # the checksum
        ("a.tgz", 0, None, 300),
        ("a.tar.bz2", 0, -20, None),
        ("a.tar.xz", 0, -20, None),
        ("a.tar.xz", 0, None, 300),
        ("a.tar", 0, 90_000, None),
        ("a.zip", 0, -30, None),
        ("a.zip", 0, None, 100),
        ("a.zip", 0, None, -87),  # the method of a member
    ],
)
def test_a_damaged_archive_gives_nothing(tmp_path, name, start, end, flipped):
    archive = write_archive(tmp_path / name, FILES)
    content = bytearray(archive.read_bytes()[start:end])
    if flipped:
        content[flipped] ^= 0x55
    archive.write_bytes(content)
    refused(archive, r" cannot be read to its end \(.+\): if it .* delete it and run again\.$")


@pytest.mark.parametrize("name", NAMES[1:])
def test_archives_damaged_by_chance(tmp_path, name):
    """All of the right files come out, or none; a tar archive that is not compressed may hold any."""
    files = {"in/a": b"eins\nzwei\n" * 30, "in/b": random.Random(0).randbytes(400)}
    content = write_archive(tmp_path / name, files).read_bytes()
    outcomes = set()
    for number in range(NUMBER):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / name).write_bytes(mutated(content, random.Random(number)))
        try:
            found = unpacked(folder / name, files.__contains__)
        except UserError:
            found = everything_in(folder / "out")
            assert found == {}
        assert found.items() <= files.items()
        outcomes.add(len(found))
    assert outcomes >= {0, 2}


@pytest.mark.parametrize("content", [b"", b"<html>Please log in</html>", b"one\tuno\n" * 100])
@pytest.mark.parametrize("compressed", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_text_is_no_archive(tmp_path, compressed, content):
    (tmp_path / "a.tgz").write_bytes(compressed(content))
    assert unpacked(tmp_path / "a.tgz") == {}


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress, None])
@pytest.mark.parametrize("size", [2**21, 0], ids=["member", "zeros after the end"])
def test_a_bomb_is_left_off(tmp_path, monkeypatch, compress, size):
    """The limit is the same for every kind of archive."""
    monkeypatch.setattr(sources, "most_unpacked", lambda stored_bytes: 2**20)
    archive = tmp_path / "archive"
    if compress:
        archive.write_bytes(compress(member("bomb", size).tobuf() + bytes(2**21)))
    else:
        write_archive(tmp_path / "a.zip", {"1": bytes(2**19), "2": bytes(2**20)}).rename(archive)
    refused(archive, " unpacks to more than 1,048,576 bytes, too much for text")


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_that_is_too_large(tmp_path, kind):
    """Python would read it into memory."""
    archive = tar(tmp_path / "a.tgz", (member("text", 3), b"one"), (member("x", 10**9, kind), b""))
    refused(archive, r"\(a header of 1,000,000,000 bytes\)")


def test_files_that_cannot_be_written(tmp_path, monkeypatch):
    archive = write_archive(tmp_path / "a.tgz", {"x" * 300: b"1"})
    with pytest.raises(UserError, match="x cannot be written: File name too long"):
        unpacked(archive)
    archive = write_archive(tmp_path / "a.tgz", FILES)
    (tmp_path / "out").mkdir(exist_ok=True)
    (tmp_path / "out" / "training").write_text("")  # a file where a directory should be
    with pytest.raises(UserError, match=r"out/training/europarl-v7\S* cannot be written: "):
        unpacked(archive)
    (tmp_path / "out" / "training").unlink()
    original = sources._new_file
    monkeypatch.setattr(
        sources,
        "_new_file",
        lambda part: FullDisk(part) if "de-en.en" in part.name else original(part),
    )
    with pytest.raises(UserError, match="en cannot be written: No space left on device"):
        unpacked(archive)  # the disk fills up in the second file: the first gets no name either
    assert everything_in(tmp_path / "out") == {}


def test_two_processes_do_not_disturb_each_other_or_follow_links(tmp_path):
    """One of them finds a link where it would write."""
    archive = write_archive(tmp_path / "a.tgz", FILES)
    (tmp_path / "theirs").write_bytes(b"theirs")
    (tmp_path / "out" / "training").mkdir(parents=True)
    context = multiprocessing.get_context("fork")
    both_write = context.Barrier(2)

    def process():
        part = f"training/europarl-v7.de-en.de.{platform.node()}.{os.getpid()}.incomplete"
        (tmp_path / "out" / part).symlink_to(tmp_path / "theirs")
        unpack(archive, tmp_path / "out", lambda name: not both_write.wait(30) or True)

    both = [context.Process(target=process) for _ in "12"]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert [one.exitcode for one in both] == [0, 0]
    assert (tmp_path / "theirs").read_bytes() == b"theirs"
    assert everything_in(tmp_path / "out") == FILES
