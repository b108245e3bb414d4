"""Progress of long jobs on a terminal and elsewhere, and the signals that ask them to stop."""

import fcntl
import io
import itertools
import os
import pty
import re
import signal
import struct
import sys
import termios

import pytest

from t2t_keras import progress
from t2t_keras.decoding.text_files import LineProgress
from t2t_keras.decoding.translator import BatchDone
from t2t_keras.errors import for_terminal
from t2t_keras.progress import CountProgress, StopRequests
from t2t_keras.training.reporting import TrainingProgress
from t2t_keras.training.train_step import StepSums


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass one at a time, at every batch."""
    monkeypatch.setattr(progress.time, "monotonic", itertools.count(100.0).__next__)


def test_on_a_terminal_one_line_is_rewritten(clock):
    shown = LineProgress(stream=Terminal())
    shown.expect(lines=40, text_bytes=4000)
    shown.skip(10, 1000)
    shown.update(BatchDone(10, 1000, 300, []))  # of unknown speed: it made the graph
    shown.update(BatchDone(10, 1500, 250, []))
    shown.say("warning: line 3 is odd")
    shown.update(BatchDone(10, 500, 150, []))
    shown.end()
    lines = shown.stream.getvalue().replace("\033[K", "").split("\r")
    assert lines == [
        "",
        "[##########          ] 20/40 sentences",
        "[###############     ] 0:00 left  30/40 sentences  250 tokens/s",
        "warning: line 3 is odd\n",
        "[####################] 0:00 left  40/40 sentences  200 tokens/s\n",
    ]


def test_escapes_of_others_are_shown_and_not_obeyed(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", for_terminal(stream))
    print("file \033[2J", file=sys.stderr)
    shown = LineProgress()
    shown.say("name \r\033]0;x\a\x9b1m")
    shown.show("a", 0.0)
    assert stream.getvalue() == "file \\x1b[2J\nname \\r\\x1b]0;x\\x07\\x9b1m\n\ra\033[K"
    assert for_terminal(io.StringIO()).write("\033") == 1


LINE = "1:02:05 left  step 12300/250000  mean loss 3.217  4,033 tokens/s  epoch 1.25  lr 1.40e-03  5,120 padded"


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (132, "[##########          ] " + LINE),
        (80, "1:02:05 left  step 12300/250000  mean loss 3.217  4,033 tokens/s  epoch 1.25"),
        (40, "1:02:05 left  step 12300/250000"),
        (0, "1:02:05 left  step 12300/250000  mean loss 3.217  4,033 tokens/s  epoch 1.25"),
        (10, "1:02:05 l"),
    ],
)
def test_the_line_fits_the_terminal(columns, shown):
    """A real one: a longer line would go on to the next row, which nothing rewrites."""
    ours, terminal = pty.openpty()
    with open(ours, "rb", 0) as screen, open(terminal, "w") as stream:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
        progress.Progress(stream=stream).show(LINE, now=0.0, share=0.5)
        written = screen.read(1000).decode()
    assert written == f"\r{shown}\033[K"
    assert len(shown) < (columns or 80)


def test_time_left_is_that_of_the_text_left(clock):
    shown = LineProgress(stream=Terminal())
    shown.expect(lines=100, text_bytes=7000)
    for _ in range(2):
        shown.update(BatchDone(10, 500, 50, []))
    assert shown.stream.getvalue().endswith("0:12 left  20/100 sentences  50 tokens/s\033[K")


def test_elsewhere_a_line_comes_now_and_then(clock):
    shown = LineProgress(every=3.0, stream=io.StringIO())
    for _ in range(7):
        shown.update(BatchDone(10, 500, 50, []))
    shown.end()
    lines = shown.stream.getvalue().splitlines()
    assert lines == ["30 sentences  50 tokens/s", "60 sentences  50 tokens/s"]


def test_a_count_says_its_rate_now_and_then(monkeypatch, capsys):
    clock = iter([0.0, 1.0, 6.0, 8.0, 12.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    shown = CountProgress("corpus.tgz", "MB", 80, done=10)
    for done in (15, 40, 50, 70):
        shown.update(done)
    assert capsys.readouterr().err == (
        "corpus.tgz: 40 of 80 MB, 5.0 MB/s\ncorpus.tgz: 70 of 80 MB, 5.0 MB/s\n"
    )


SUMS = StepSums(8.0, 8.0, 16.0, 40.0, 1.0)


def test_training_says_its_first_and_last_step(clock):
    shown = TrainingProgress(9, steps_per_epoch=6, stream=io.StringIO())
    for step in (1, 5, 9):
        shown.update(step, SUMS, 2.0, 1e-3)
    shown.warn("odd")
    assert shown.stream.getvalue() == (
        "step 1/9  mean loss 1.000  epoch 0.17  lr 1.00e-03\n"
        "0:00 left  step 9/9  mean loss 1.000  12 tokens/s  epoch 1.50  lr 1.00e-03  20 padded tokens/s\n"
        "warning: odd\n"
    )
    rates = {"steps_per_second": 2, "tokens_per_second": 12, "padded_tokens_per_second": 20}
    assert shown.speed == rates


def test_the_loss_shown_is_the_mean_of_about_the_last_hundred_steps(clock):
    """Of tokens: each step counts 1 % less than the next, half as much as the one 69 steps later."""
    shown = TrainingProgress(70, stream=io.StringIO())
    for step, loss, tokens in ((1, 4.0, 10.0), (70, 2.0, 30.0)):
        shown.update(step, SUMS._replace(loss=loss * tokens, tokens=tokens), 2.0, 1e-3)
    said = re.findall(r"  mean loss (\S+)  ", shown.stream.getvalue())
    assert [*map(float, said)] == [4.0, pytest.approx((4 * 5 + 2 * 30) / (5 + 30), abs=1e-3)]


def test_a_terminal_that_is_gone_ends_no_run():
    with open(os.devnull) as unwritable:
        shown = TrainingProgress(9, stream=unwritable)
        shown.update(9, SUMS, 2.0, 1e-3)
        shown.say("done")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_signals_that_ask_to_stop(name):
    number = getattr(signal, name)
    before = signal.signal(number, signal.SIG_DFL)  # as if not run by `nohup`
    try:
        with StopRequests() as stop:
            os.kill(os.getpid(), number)
            assert stop.name == name
        with stop:
            assert stop.name == ""
    finally:
        signal.signal(number, before)
