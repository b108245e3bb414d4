"""Fetching: whole or not at all, over connections that break, from a server on this machine."""

import hashlib
import http.server
import multiprocessing
import os
import platform
import threading
import time
from types import SimpleNamespace

import pytest
from corpus_files import FullDisk

from t2t_keras.data import sources
from t2t_keras.data.sources import fetch
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


def test_errors_that_may_pass_are_tried_again(server, tmp_path):
    server.statuses = [503, 500, 429]
    fetch(server.url, tmp_path / "corpus.tgz")
    assert len(server.requests) == 4


def test_attempts_end_but_not_while_something_arrives(server, path):
    server.cuts = [1000] + [0] * 9
    with pytest.raises(UserError, match="the connection broke after 1000 bytes of 1048576"):
        fetch(server.url, path)
    assert len(server.requests) == 5
    assert names(path.parent) == []
    server.parts, server.cuts = False, [1000] * 9
    with pytest.raises(UserError, match="the connection broke after 1000 bytes of 1048576"):
        fetch(server.url, path)
    assert len(server.requests) == 10
    server.parts, server.cuts = True, [100_000] * 10
    fetch(server.url, path)
    assert len(server.requests) == 21


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("{}/absent", "HTTP Error 404: Not Found"),
        ("http://127.0.0.1:1/corpus.tgz", "Connection refused"),
        ("file:///absent/corpus.tgz", "No such file"),
        ("gopher://a/b", "unknown url type"),
        ("http://a b/", "can't contain control characters"),
    ],
)
def test_what_is_not_there_is_asked_for_once(server, path, url, message):
    server.statuses = [404]
    with pytest.raises(UserError, match=message) as raised:
        fetch(url.format(server.url), path)
    assert f"): place it by hand as {path}, then run again." in str(raised.value)
    assert len(server.requests) <= 1
    assert names(path.parent) == []


DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.mark.parametrize("announces", [True, False])
@pytest.mark.parametrize("known", [(7, DIGEST), (len(CONTENT), "0" * 64), (len(CONTENT), DIGEST)])
def test_size_and_checksum_are_verified(server, path, monkeypatch, known, announces):
    monkeypatch.setitem(sources.KNOWN_FILES, server.url, known)
    server.announces, server.cuts = announces, [300_000] * announces
    if known == (len(CONTENT), DIGEST):
        fetch(server.url, path)
        assert_fetched(path)
    else:
        expected = f"are 1048576 and {DIGEST}, expected {known[0]} and {known[1]}"
        with pytest.raises(UserError, match=expected):
            fetch(server.url, path)
        assert names(path.parent) == []


def test_a_full_disk_is_reported_and_not_tried_again(server, path, monkeypatch):
    monkeypatch.setattr(sources, "_new_file", FullDisk)
    with pytest.raises(UserError, match=r"corpus\.tgz cannot be written: No space left on device"):
        fetch(server.url, path)
    assert len(server.requests) == 1


def test_no_directory_can_be_made(server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="could not be downloaded"):
        fetch(server.url, tmp_path / "file" / "corpus.tgz")
    assert names(tmp_path) == ["file"]


def test_two_processes_do_not_disturb_each_other_or_follow_links(server, path):
    """One of them finds a link where it would write."""
    server.delay = 0.02  # 0.3 s for all of it
    theirs = path.with_name("theirs")
    theirs.write_bytes(b"theirs")

    def process():
        part = path.with_name(f"{path.name}.{platform.node()}.{os.getpid()}.incomplete")
        part.symlink_to(theirs)
        fetch(server.url, path)

    both = [multiprocessing.get_context("fork").Process(target=process) for _ in "12"]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert [one.exitcode for one in both] == [0, 0]
    assert (path.read_bytes(), theirs.read_bytes()) == (CONTENT, b"theirs")
    assert names(path.parent) == ["corpus.tgz", "theirs"]
