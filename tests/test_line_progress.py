"""How far a file is: on a terminal and elsewhere."""

import io

import pytest

from t2t_keras.decoding import text_files
from t2t_keras.decoding.by_length import Done
from t2t_keras.decoding.text_files import LineProgress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass one at a time, at every batch."""
    now = [100.0]

    def tick():
        now[0] += 1
        return now[0]

    monkeypatch.setattr(text_files.time, "monotonic", tick)


def test_on_a_terminal_one_line_is_rewritten(clock):
    progress = LineProgress(stream=Terminal())
    progress.expect(lines=40, text_bytes=4000)
    progress.skip(10, 1000)
    progress.update(Done(10, 1000, 300, []))  # of unknown speed: it made the graph
    progress.update(Done(10, 1500, 250, []))
    progress.say("warning: line 3 is odd")
    progress.update(Done(10, 500, 150, []))
    progress.end()
    lines = progress.stream.getvalue().replace("\033[K", "").split("\r")
    assert lines == [
        "",
        "[##########          ] 20/40 sentences",
        "[###############     ] 30/40 sentences  250 tokens/s  0:00 left",
        "warning: line 3 is odd\n",
        "[####################] 40/40 sentences  200 tokens/s  0:00 left\n",
    ]


def test_time_left_is_that_of_the_text_left(clock):
    progress = LineProgress(stream=Terminal())
    progress.expect(lines=100, text_bytes=7000)
    for _ in range(2):
        progress.update(Done(10, 500, 50, []))
    assert progress.stream.getvalue().endswith("20/100 sentences  50 tokens/s  0:12 left\033[K")


def test_elsewhere_a_line_comes_now_and_then(clock):
    progress = LineProgress(every=3.0, stream=io.StringIO())
    for _ in range(7):
        progress.update(Done(10, 500, 50, []))
    progress.end()
    assert progress.stream.getvalue().split("\n") == [
        "30 sentences  50 tokens/s",
        "60 sentences  50 tokens/s",
        "",
    ]
