"""Source files of a corpus: every form of pairs, archives that come out whole, broken connections."""

import bz2
import gzip
import hashlib
import http.server
import lzma
import multiprocessing
import os
import platform
import re
import tarfile
import threading
import time
import tracemalloc
import zipfile
from collections import Counter
from types import SimpleNamespace

import pytest
from corpus_files import FullDisk, write_archive, write_content

from t2t_keras.data import sources
from t2t_keras.data.sources import LocalSource, fetch, read_sources, text_size, unpack
from t2t_keras.errors import UserError
from t2t_keras.problems import language_models


def write(path, content):
    return write_content(path, content if isinstance(content, bytes) else content.encode())


def everything_in(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(params=["", ".gz"])
def suffix(request):
    return request.param


@pytest.mark.parametrize("block", [1, 3, 7, 1 << 20])
@pytest.mark.parametrize(
    ("content", "lines"),
    [
        *(("", 0), ("\n", 1), ("a", 1), ("a\nb\n", 2), ("a\n\nb", 3)),
        *(("a\u2028b\x0cc\rd\n", 1), ("größe 😀\nẞ\n", 2), (("x" * 999 + "\n") * 3, 3)),
    ],
)
def test_sizes(tmp_path, suffix, monkeypatch, content, lines, block):
    monkeypatch.setattr(sources, "_BLOCK", block)
    monkeypatch.setattr(sources, "LINE_BYTES", 1000)
    assert text_size(write(tmp_path / f"a{suffix}", content)) == (lines, len(content.encode()))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("größe\nwörter\n".encode() + b"zw\xc3\nvier\n", ", line 3: not UTF-8 .*0xc3 at column 3"),
        (b"eins\nzwei\xc3", ", line 2: not UTF-8"),
        ("x\n" + "x" * 1200, ", line 2: longer than"),
        (None, "not a whole gzip file|No such file"),
    ],
)
def test_files_that_are_no_text(tmp_path, suffix, monkeypatch, content, message):
    monkeypatch.setattr(sources, "LINE_BYTES", 1000)
    path = tmp_path / f"a{suffix}"
    if content is not None:
        write(path, content)
    elif suffix:
        path.write_bytes(gzip.compress(b"text" * 100)[:-9])
    for block in (1, 3, 7, 1 << 20):
        monkeypatch.setattr(sources, "_BLOCK", block)
        with pytest.raises(UserError, match=message):
            text_size(path)


def test_a_byte_order_mark_is_no_text(tmp_path, suffix):
    first = write(tmp_path / f"a{suffix}", "\ufeffeins\nzwei\n")
    second = write(tmp_path / f"b{suffix}", "\ufeffone\ntwo\n")
    assert text_size(first) == (2, 10)
    assert list(sources.read_pairs(first, second)) == [("eins", "one"), ("zwei", "two")]
    assert text_size(write(tmp_path / f"c{suffix}", "\ufeff")) == (0, 0)


def test_a_file_is_read_again_only_when_it_has_changed(tmp_path):
    path = write(tmp_path / "a", "one\n")
    before = sources._text_size.cache_info().misses
    assert [text_size(path).lines for _ in "123"] == [1, 1, 1]
    assert sources._text_size.cache_info().misses == before + 1
    write(path, "one\ntwo\n")
    assert text_size(path).lines == 2
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="is a pipe, but text is read several times"):
        text_size(tmp_path / "pipe")


# Pairs

SOURCE_SGM = """<srcset setid="newstest" srclang="any"><doc sysid="ref" genre="news"><hl>
<seg id="1"> Profit &amp; loss </seg>
</hl><p>
<seg id="2">A cat.</seg>
<seg id="3">Unfinished
</seg>
</p></doc></srcset>
"""
TARGET_SGM = """<refset setid="newstest" srclang="any" trglang="de">
<seg id="1">Gewinn &lt; Verlust</seg>
  <seg id="2"></seg>
<seg id="3">Drei.</seg>
"""
TMX = """<tmx version="1.4"><body>
  <tu tuid="1" datatype="Text">
   <prop type="score">0.9</prop>
   <tuv xml:lang="en">
    <seg>Tom &amp; Jerry &lt;3 &quot;cheese&quot;</seg>
   </tuv>
   <tuv xml:lang="de">
    <seg> Tom &amp;amp; Jerry &amp;lt; 3 & quot;Käse& apos; </seg>
   </tuv>
  </tu>
  <tu><tuv xml:lang="en"><seg>one</seg></tuv><tuv xml:lang="de"><seg>eins</seg></tuv></tu>
  <tu><tuv xml:lang="en"><seg>alone</seg></tuv></tu>
  <tu><tuv xml:lang="en"><seg>two</seg></tuv><tuv xml:lang="de"><seg></seg></tuv></tu>
</body></tmx>
"""

TEXT = [" one \r\n\ntwo\u2028lines\rhere\n\u00a0four", "\teins\nzwei\ndrei\nvier\n"]
TABLE = 'x\ty\teins\t one \nno tab\nx\ty\tz\nx\ty\t\tquo"te\n'


@pytest.mark.parametrize(
    ("kind", "contents", "pairs"),
    [
        ("text", TEXT, [("one", "eins"), ("", "zwei"), ("two\u2028lineshere", "drei"), ("four", "vier")]),
        # T2T's `_preprocess_sgm` leaves entities alone, and a segment that goes on is nothing.
        ("sgm", [SOURCE_SGM, TARGET_SGM], [("Profit &amp; loss", "Gewinn &lt; Verlust"), ("A cat.", ""), ("", "Drei.")]),
        # Entities as in T2T's `_raw_sentences`: "&" first, so that some are replaced twice.
        ("tmx", [TMX], [('Tom & Jerry <3 "cheese"', "Tom & Jerry < 3 \"Käse'"), ("one", "eins"), None, ("two", "")]),
        ("tsv", [TABLE], [("one", "eins"), None, None, ('quo"te', "")]),
    ],
)  # fmt: skip
def test_pairs(tmp_path, suffix, kind, contents, pairs):
    names = [write(tmp_path / f"{n}{suffix}", part).name for n, part in enumerate(contents)]
    assert list(LocalSource(kind, tmp_path, names, (3, 2)).pairs()) == pairs


@pytest.mark.parametrize(
    ("kind", "contents", "message"),
    [
        ("text", ("1\n2\n", "1\n2\n3"), "0 has 2 lines and .*1 has 3: "),
        ("text", ("1\n2\n", ""), "1 is empty"),
        ("sgm", (SOURCE_SGM, '<seg id="1">eins</seg>\n'), "0 has 3 segments and .*1 has 1: "),
        ("sgm", ("one\n", "one\n"), "0 has 0 segments and .*1 has 0: "),
    ],
)
def test_files_that_are_not_parallel(tmp_path, monkeypatch, kind, contents, message):
    names = [write(tmp_path / str(n), content).name for n, content in enumerate(contents)]
    with pytest.raises(UserError, match=message):
        next(LocalSource(kind, tmp_path, names).pairs())
    if kind == "text":  # found before the first pair of an earlier source
        write(tmp_path / "first", "1\n")
        two = [["", ("first", "first")], ["", ("0", "1")]]
        with pytest.raises(UserError, match=message):
            next(read_sources(tmp_path, two, Counter()))
        monkeypatch.setattr(sources, "require_parallel", lambda *_, **__: 2)  # as they were then
        with pytest.raises(UserError, match=r"has changed meanwhile .*: run again"):
            list(sources.read_pairs(tmp_path / "0", tmp_path / "1"))


def test_what_is_left_out_is_counted(tmp_path):
    write(tmp_path / "a", "one\n\nthree\n")
    write(tmp_path / "b", "eins\nzwei\n \n")
    write(tmp_path / "c.tsv", "vier\tfour\nfünf\n\tsix\n")
    write(tmp_path / "d.tmx", "<tu><seg>x</seg></tu>\n<tu><seg>y</seg><seg>z</seg></tu>\n")
    dropped, tables = Counter(), ("tsv", 1, 0, "*.tsv")
    given = [["", ("a", "b")], ["", tables], ["", ("tmx", "d.tmx")]]
    found = list(read_sources(tmp_path, given, dropped))
    assert found == [("one", "eins"), ("four", "vier"), ("y", "z")]
    assert dropped == {"empty": 3, "malformed": 2}


def test_sources_that_are_none(tmp_path):
    names = [("a.en",), ("tsv", 1, "*"), ("tsv", "1", "2", "*"), ("a.en", "a.de", "a.fr")]
    assert not sources.LocalSource("tsv", tmp_path, ("*.tsv",)).is_wanted("other/a.tsv")
    for source in ("a.en", *(["", part] for part in names)):
        with pytest.raises(UserError, match=r"is not a source: give \[url, \(source file, "):
            sources.local_sources(tmp_path, [source])
    alone = write(tmp_path / "a.en", "one\n")
    [found] = sources.local_sources(tmp_path, [["", ("a.en",) * 3]], any_text=True)
    assert found.paths == [alone] * 3


def test_memory_does_not_grow_with_the_corpus(tmp_path):
    line = "Die Größe des Korpus ist gleichgültig, wenn man ihn nie im Ganzen hält. " * 2
    for name in ("a", "b"):
        write(tmp_path / name, (line + "\n") * 50_000)  # 7 MB
    tracemalloc.start()
    count = sum(1 for _ in read_sources(tmp_path, [["", ("a", "b")]], Counter()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 50_000
    assert peak < 5e6


# Archives

FILES = {
    "training/europarl-v7.de-en.de": b"eins\nzwei\n" * 5000,
    "training/europarl-v7.de-en.en": b"one\ntwo\n" * 5000,
    "training/europarl-v7.fr-en.fr": bytes(range(256)) * 500,
}
WANTED = {name: FILES[name] for name in FILES if "de-en" in name}
NAMES = ["a.tar", "a.tgz", "a.tar.bz2", "a.tar.xz", "a.zip"]


def unpacked(archive, is_wanted=lambda name: True):
    unpack(archive, archive.parent / "out", is_wanted)
    return everything_in(archive.parent / "out")


def refused(archive, message):
    """Checks that unpacking is refused in one line and gives nothing."""
    with pytest.raises(UserError, match=f"^{re.escape(str(archive))}.*{message}.*$"):
        unpack(archive, archive.parent / "out", lambda name: True)
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
def test_only_what_is_wanted_is_unpacked_and_what_is_there_stays(tmp_path, name, prefix):
    members = {prefix + name: content for name, content in FILES.items()}
    archive = write_archive(tmp_path / name, members)
    assert unpacked(archive, WANTED.__contains__) == WANTED
    changed = WANTED | {"training/europarl-v7.de-en.de": b"mine"}
    (tmp_path / "out/training/europarl-v7.de-en.de").write_bytes(b"mine")
    assert unpacked(archive) == FILES | changed


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
    folder, pipe = member("training", kind=tarfile.DIRTYPE), member("pipe", kind=tarfile.FIFOTYPE)
    unnamed = (member(""), member("."), member("x", path="a\0b"), member("x", path="a\nb"))
    others = (
        *((made, b"") for made in (link, folder, pipe, *unnamed)),
        (member("sparse", 1, **sparse), b"1"),
        (member("text", 3), b"one"),
        (member("text", 3), b"two"),
        (member("not \udcff UTF-8", 1), b"1"),
    )
    assert unpacked(tar(tmp_path / "a.tgz", *others)) == {"text": b"one", "not \udcff UTF-8": b"1"}


@pytest.mark.parametrize(
    ("name", "end", "flipped"),
    [
        *(("a.tgz", -1, None), ("a.tgz", None, -6)),  # the checksum
        *(("a.tar", 90_000, None), ("a.zip", None, -87)),  # the method of a member
    ],
)
def test_a_damaged_archive_gives_nothing(tmp_path, name, end, flipped):
    archive = write_archive(tmp_path / name, FILES)
    content = bytearray(archive.read_bytes()[:end])
    if flipped:
        content[flipped] ^= 0x55
    archive.write_bytes(content)
    refused(archive, r" cannot be read to its end \(.+\): if it .* delete it and run again\.")


def test_a_damaged_dump_of_wikipedia(tmp_path):
    (tmp_path / "dump").write_bytes(bz2.compress(b"<page>" * 100)[:-9])
    with pytest.raises(UserError, match=r"dump cannot be read to its end \(.+\): if it is damaged"):
        list(language_models._parts(tmp_path / "dump"))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_archive_is_deflated(tmp_path, method):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as archive:
        archive.writestr("text", b"one")
    refused(tmp_path / "a.zip", " holds 'text' compressed by bzip2 or LZMA, only deflated .*hand")


@pytest.mark.parametrize("content", [b"", b"<html>Please log in</html>", b"one\tuno\n" * 100])
@pytest.mark.parametrize("compressed", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_text_is_no_archive(tmp_path, compressed, content):
    (tmp_path / "a.tgz").write_bytes(compressed(content))
    assert unpacked(tmp_path / "a.tgz") == {}


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress, None])
@pytest.mark.parametrize("size", [2**21, 0], ids=["member", "zeros after the end"])
def test_a_bomb_is_left_off(tmp_path, monkeypatch, compress, size):
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
    with pytest.raises(UserError, match="x cannot be written: File name too long"):
        unpacked(write_archive(tmp_path / "a.tgz", {"x" * 300: b"1"}))
    archive = write_archive(tmp_path / "a.tgz", FILES)
    (tmp_path / "out").mkdir(exist_ok=True)
    (tmp_path / "out" / "training").write_text("")  # a file where a directory should be
    with pytest.raises(UserError, match=r"out/training/europarl-v7\S* cannot be written: "):
        unpacked(archive)
    (tmp_path / "out" / "training").unlink()
    new_file = sources._new_file
    full = lambda part: (FullDisk if "de-en.en" in part.name else new_file)(part)  # noqa: E731
    monkeypatch.setattr(sources, "_new_file", full)
    with pytest.raises(UserError, match="en cannot be written: No space left on device"):
        unpacked(archive)  # the disk fills up in the second file: the first gets no name either
    assert everything_in(tmp_path / "out") == {}


# Downloads, from a server on this machine

CONTENT = bytes(range(256)) * 4096  # 1 MiB


class Server(http.server.ThreadingHTTPServer):
    """Serves `content` at any path; what it does wrong is set by the test."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.etag, self.delay = CONTENT, '"first"', 0.0
        self.parts, self.announces = True, True  # whether it honours Range; has a Content-Length
        self.cuts = []  # after how many bytes each of the next answers breaks off
        self.statuses = []  # the next answers
        self.requests = []  # the Range of each request, or None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/corpus.tgz"

    def handle_error(self, request, client_address):
        pass  # a client that was killed


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        server.requests.append(self.headers.get("Range"))
        if server.statuses:
            self.send_error(server.statuses.pop(0))
            return
        start, size = 0, len(server.content)
        same = self.headers.get("If-Range") in (None, server.etag)
        if server.parts and same and self.headers.get("Range"):
            start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        if server.etag:
            self.send_header("ETag", server.etag)
        if server.announces:
            self.send_header("Content-Length", str(size - start))
        # Before the client has an answer, after which a test may ask for other cuts.
        stop = start + server.cuts.pop(0) if server.cuts else size
        self.end_headers()
        for begin in range(start, min(stop, size), 1 << 16):
            self.wfile.write(server.content[begin : min(begin + (1 << 16), stop)])
            time.sleep(server.delay)
        self.close_connection = True

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(sources, "_WAITS", (0, 0, 0, 0))
    monkeypatch.setenv("no_proxy", "*")
    with Server() as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "corpus.tgz"


def assert_fetched(path, content=CONTENT):
    assert everything_in(path.parent) == {"corpus.tgz": content}


def test_a_file_is_fetched_once(server, tmp_path, capsys):
    path = tmp_path / "new/corpus.tgz"
    assert fetch(server.url, path) == path
    assert_fetched(path)
    fetch(server.url, path)
    assert server.requests == [None]
    assert capsys.readouterr().err == ""  # quick work is silent


@pytest.mark.parametrize(
    ("etag", "parts", "requests"),
    [
        ('"first"', True, [None, "bytes=300000-", "bytes=500000-"]),
        ('"first"', False, [None, "bytes=300000-", "bytes=200000-"]),  # all is sent again
        ('W/"first"', True, [None, None, None]),  # does not promise the same bytes
    ],
)
def test_a_broken_connection_is_opened_again(server, path, capsys, etag, parts, requests):
    server.etag, server.parts, server.cuts = etag, parts, [300_000, 200_000]
    fetch(server.url, path)
    assert server.requests == requests
    assert_fetched(path)
    assert "the connection broke after 300000 bytes of 1048576" in capsys.readouterr().err


@pytest.mark.parametrize("content", [CONTENT[::-1], CONTENT[::-1] + b"more", b"short"])
def test_a_file_that_changes_is_fetched_anew(server, path, monkeypatch, content):
    def change(seconds):
        server.content, server.etag = content, '"second"'

    monkeypatch.setattr(sources, "time", SimpleNamespace(sleep=change))
    server.cuts = [300_000]
    fetch(server.url, path)
    assert_fetched(path, content)
    assert server.requests == [None, "bytes=300000-"]


def test_attempts_end_but_not_while_something_arrives(server, path):
    for parts, cuts in ((True, [1000] + [0] * 9), (False, [1000] * 9)):
        server.parts, server.cuts, server.requests = parts, cuts, []
        with pytest.raises(UserError, match="the connection broke after 1000 bytes of 1048576"):
            fetch(server.url, path)
        assert len(server.requests) == 5
        assert everything_in(path.parent) == {}
    # Errors of a server that may pass are tried again.
    server.statuses, server.parts, server.cuts = [503, 500, 429], True, [100_000] * 10
    fetch(server.url, path)
    assert len(server.requests) == 5 + 3 + 11


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("{}/absent", "HTTP Error 404: Not Found"),
        ("http://127.0.0.1:1/corpus.tgz", "Connection refused"),
        ("file:///absent/corpus.tgz", "No such file"),
        ("http://a b/", "can't contain control characters"),
    ],
)
def test_what_is_not_there_is_asked_for_once(server, path, url, message):
    server.statuses = [404]
    with pytest.raises(UserError, match=message) as raised:
        fetch(url.format(server.url), path)
    assert f"): place it by hand as {path}, then run again." in str(raised.value)
    assert len(server.requests) <= 1
    assert everything_in(path.parent) == {}


DIGEST = hashlib.sha256(CONTENT).hexdigest()
SIZE = len(CONTENT)


@pytest.mark.parametrize("announces", [True, False])
@pytest.mark.parametrize("known", [(7, DIGEST), (SIZE, "0" * 64), (SIZE, DIGEST)])
def test_size_and_checksum_are_verified(server, path, monkeypatch, known, announces):
    monkeypatch.setitem(sources.KNOWN_FILES, server.url, known)
    server.announces, server.cuts = announces, [300_000] * announces
    if known == (SIZE, DIGEST):
        fetch(server.url, path)
        assert_fetched(path)
    else:
        expected = f"are 1048576 and {DIGEST}, not {known[0]} and {known[1]}"
        with pytest.raises(UserError, match=expected):
            fetch(server.url, path)
        assert everything_in(path.parent) == {}


def test_a_file_that_cannot_be_written_is_not_tried_again(server, path, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="could not be downloaded"):
        fetch(server.url, tmp_path / "file" / "corpus.tgz")
    assert everything_in(tmp_path) == {"file": b""}
    monkeypatch.setattr(sources, "_new_file", FullDisk)
    with pytest.raises(UserError, match=r"corpus\.tgz cannot be written: No space left on device"):
        fetch(server.url, path)
    assert len(server.requests) == 1


def test_two_processes_do_not_disturb_each_other_or_follow_links(server, tmp_path):
    """Each fetches and unpacks the same, and finds links to a file where it would write."""
    archive, out = tmp_path / "a.tar", tmp_path / "out"
    theirs = write(tmp_path / "theirs", "theirs")
    server.content = write_archive(tmp_path / "b.tar", FILES).read_bytes()
    server.delay = 0.02  # 0.1 s for all of it
    fork = multiprocessing.get_context("fork")
    together = fork.Barrier(2)

    def process():
        for path in (archive, out / "training/europarl-v7.de-en.de"):
            path.parent.mkdir(parents=True, exist_ok=True)
            part = f"{path.name}.{platform.node()}.{os.getpid()}.incomplete"
            path.with_name(part).symlink_to(theirs)
        together.wait(30)
        fetch(server.url, archive)
        unpack(archive, out, lambda name: not together.wait(30) or True)

    both = [fork.Process(target=process) for _ in "12"]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert [one.exitcode for one in both] == [0, 0]
    assert len(server.requests) == 2
    assert (archive.read_bytes(), everything_in(out)) == (server.content, FILES)
    assert theirs.read_text() == "theirs"
