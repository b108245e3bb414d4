"""Fetching: whole or not at all, over connections that break, from a server on this machine."""

import contextlib
import hashlib
import http.server
import json
import multiprocessing
import os
import threading
import time

import pytest

from t2t_keras.data.sources import download
from t2t_keras.data.sources.download import fetch
from t2t_keras.errors import UserError

CONTENT = bytes(range(256)) * 4096  # 1 MiB


class Server(http.server.ThreadingHTTPServer):
    """Serves `content` at any path; what it does wrong is set by the test."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.etag = '"first"'
        self.parts = True  # whether it honours Range
        self.cuts = []  # after how many bytes each of the next answers breaks off
        self.statuses = []  # the next answers
        self.announces = True  # Content-Length
        self.delay = 0.0
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
        start = 0
        same = self.headers.get("If-Range") in (None, server.etag)
        if server.parts and same and self.headers.get("Range"):
            start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
        size = len(server.content)
        if start >= size:
            self.send_error(416)
            return
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
    monkeypatch.setattr(download, "_WAITS", (0, 0, 0, 0))
    monkeypatch.setenv("no_proxy", "*")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "corpus.tgz"


def assert_fetched(path, content=CONTENT):
    """The file is there, and nothing beside it."""
    assert path.read_bytes() == content
    assert names(path.parent) == ["corpus.tgz"]


def test_a_file_is_fetched_once(server, tmp_path, capsys):
    path = tmp_path / "new" / "corpus.tgz"
    assert fetch(server.url, path) == path
    assert_fetched(path)
    fetch(server.url, path)
    assert server.requests == [None]
    assert capsys.readouterr().err == ""  # quick work is silent


def test_a_file_that_is_there_is_used_as_it_is(server, path):
    path.write_bytes(b"mine")
    fetch(server.url, path, size=len(CONTENT), sha256="0" * 64)
    assert path.read_bytes() == b"mine"
    assert server.requests == []


@pytest.mark.parametrize(("parts", "cuts"), [(True, [300_000, 200_000]), (False, [300_000])])
def test_a_broken_connection_is_resumed(server, path, capsys, parts, cuts):
    """A server without parts sends all again."""
    server.parts, server.cuts = parts, list(cuts)
    fetch(server.url, path)
    assert server.requests == [None, "bytes=300000-", "bytes=500000-"][: len(cuts) + 1]
    assert_fetched(path)
    assert "the connection broke after 300000 bytes of 1048576" in capsys.readouterr().err


def interrupt(server, path, monkeypatch):
    """Leaves 300,000 bytes in the part of `path`, as a process that ends does."""
    server.cuts = [300_000, 0, 0, 0, 0]
    with monkeypatch.context() as patch:
        patch.setattr(download, "_WAITS", (0,))
        with pytest.raises(UserError, match="run again to resume, or place it by hand as"):
            fetch(server.url, path)
    server.cuts = []
    server.requests.clear()
    assert not path.exists()
    assert path.with_name(path.name + ".part").stat().st_size == 300_000


@pytest.mark.parametrize("etag", ['"first"', 'W/"first"', ""])
def test_a_later_call_goes_on(server, path, monkeypatch, etag):
    server.etag = etag
    interrupt(server, path, monkeypatch)
    fetch(server.url, path)
    assert server.requests == ["bytes=300000-"]
    assert_fetched(path)


@pytest.mark.parametrize(
    ("etag", "content"),
    [('"second"', CONTENT[::-1]), ("", CONTENT[::-1] + b"more"), ("", b"short")],
)
def test_a_file_that_has_changed_is_fetched_anew(server, path, monkeypatch, etag, content):
    """The mark that the server gives tells, or else the size."""
    server.etag = etag and server.etag
    interrupt(server, path, monkeypatch)
    server.content, server.etag = content, etag
    fetch(server.url, path)
    assert_fetched(path, content)
    assert server.requests[0] == "bytes=300000-"


def test_the_part_of_another_url_is_not_used(server, path, monkeypatch):
    interrupt(server, path, monkeypatch)
    fetch(server.url + "?mirror", path)
    assert server.requests == [None]
    assert_fetched(path)


def test_a_part_of_unknown_origin_is_not_used(server, path):
    path.with_name("corpus.tgz.part").write_bytes(b"something else")
    path.with_name("corpus.tgz.part.json").write_text('["half written')
    fetch(server.url, path)
    assert_fetched(path)


@pytest.mark.parametrize(
    "facts", ['{"a": 1}', "[1, 2]", '["URL", "12", null]', '["URL", 1048576, 5]', "[" * 10**5, "5"]
)
def test_a_note_of_another_shape_is_not_used(server, path, facts):
    path.with_name("corpus.tgz.part").write_bytes(b"other")
    path.with_name("corpus.tgz.part.json").write_text(facts.replace("URL", server.url))
    fetch(server.url, path)
    assert_fetched(path)


def test_a_part_that_is_whole_needs_no_server(server, path):
    facts = [server.url, len(CONTENT), '"first"']
    path.with_name("corpus.tgz.part").write_bytes(CONTENT)
    path.with_name("corpus.tgz.part.json").write_text(json.dumps(facts))
    fetch(server.url, path)
    assert_fetched(path)
    assert server.requests == []


def test_errors_that_may_pass_are_tried_again(server, tmp_path):
    server.statuses = [503, 500, 429]
    fetch(server.url, tmp_path / "corpus.tgz")
    assert len(server.requests) == 4


def test_attempts_end_but_not_while_something_arrives(server, tmp_path):
    server.cuts = [0] * 9
    with pytest.raises(UserError, match="the connection broke after 0 bytes of 1048576"):
        fetch(server.url, tmp_path / "corpus.tgz")
    assert len(server.requests) == 5
    assert names(tmp_path) == []
    server.cuts = [100_000] * 10
    fetch(server.url, tmp_path / "corpus.tgz")
    assert len(server.requests) == 5 + 11


def test_what_is_not_there_is_asked_for_once(server, path):
    server.statuses = [404]
    with pytest.raises(UserError) as raised:
        fetch(server.url, path)
    assert "Not Found" in str(raised.value)
    assert f"place it by hand as {path}" in str(raised.value)
    assert "go on" not in str(raised.value)
    assert (len(server.requests), names(path.parent)) == (1, [])


def test_lengths_that_are_not_announced_or_not_expected(server, path):
    with pytest.raises(UserError, match="it has 1048576 bytes, expected 7"):
        fetch(server.url, path, size=7)
    server.announces, server.cuts = False, [1000]
    with pytest.raises(UserError, match="it has 1000 bytes, expected 1048576"):
        fetch(server.url, path, size=len(CONTENT))
    assert names(path.parent) == []
    fetch(server.url, path)
    assert_fetched(path)


def test_checksums(server, tmp_path):
    digest = hashlib.sha256(CONTENT).hexdigest()
    fetch(server.url, tmp_path / "good.tgz", sha256=digest)
    with pytest.raises(UserError, match=f"its SHA-256 is {digest}, expected 00"):
        fetch(server.url, tmp_path / "bad.tgz", sha256="0" * 64)
    assert names(tmp_path) == ["good.tgz"]


def test_a_full_disk_is_reported_and_not_tried_again(server, tmp_path, monkeypatch):
    class Full:
        def __init__(self, file):
            self.file = file

        def __getattr__(self, name):
            return getattr(self.file, name)

        def write(self, block):
            raise OSError(28, "No space left on device")

    original = download._open_part

    @contextlib.contextmanager
    def full(path):
        with original(path) as file:
            yield Full(file)

    monkeypatch.setattr(download, "_open_part", full)
    with pytest.raises(UserError, match=r"\.part cannot be written \(No space left on device\)"):
        fetch(server.url, tmp_path / "corpus.tgz")
    assert len(server.requests) == 1


def fetch_in_process(url, path, results):
    try:
        fetch(url, path)
        results.put(hashlib.sha256(path.read_bytes()).hexdigest())
    except Exception as error:
        results.put(repr(error))


def test_two_processes_fetch_it_once(server, path):
    server.delay = 0.02  # 0.3 s for all of it
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    arguments = (server.url, path, results)
    both = [context.Process(target=fetch_in_process, args=arguments) for _ in "12"]
    for process in both:
        process.start()
    digests = [results.get(timeout=30) for _ in both]
    for process in both:
        process.join()
    assert digests == [hashlib.sha256(CONTENT).hexdigest()] * 2
    assert server.requests == [None]
    assert_fetched(path)


def test_a_killed_process_leaves_its_part_to_the_next(server, tmp_path):
    server.delay = 0.05
    context = multiprocessing.get_context("fork")
    path, part = tmp_path / "corpus.tgz", tmp_path / "corpus.tgz.part"
    first = context.Process(target=fetch_in_process, args=(server.url, path, context.Queue()))
    first.start()

    while not (part.exists() and part.stat().st_size):
        time.sleep(0.01)
    first.kill()
    first.join()
    assert not path.exists()
    server.delay = 0.0
    fetch(server.url, path)
    assert path.read_bytes() == CONTENT
    assert server.requests[1].startswith("bytes=")


def test_no_directory_can_be_made(server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="could not be downloaded"):
        fetch(server.url, tmp_path / "file" / "corpus.tgz")
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_in_the_place_of_the_part_is_not_followed(tmp_path, server):
    (tmp_path / "theirs").write_bytes(b"theirs")
    (tmp_path / "corpus.tgz.part").symlink_to(tmp_path / "theirs")
    with pytest.raises(UserError, match="Too many levels of symbolic links"):
        fetch(server.url, tmp_path / "corpus.tgz")
    assert (tmp_path / "theirs").read_bytes() == b"theirs"
