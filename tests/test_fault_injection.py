"""A kill or a full disk at any change of a file leaves what was there, or the whole result."""

import json
import shutil
from pathlib import Path

import pytest
import toy

SCRIPT = Path(__file__).with_name("fault_injection.py")


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory):
    return tmp_path_factory.mktemp("faults")


def found(*arguments):
    done = toy.python(SCRIPT, *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.skipif(not shutil.which("cc"), reason="fault_points.c needs a compiler of C")
def test_a_kill_or_a_full_disk_leaves_the_old_or_the_new(folder):
    """Some points of some commands; with 0 in place of 2 the script takes all of all."""
    faults = found("faults", folder, 2, "avg", "convert", "decode")
    assert len(faults) == 6
    assert not [fault for fault in faults if fault["wrong"]]


def test_two_that_begin_at_once_leave_what_one_of_them_makes(folder):
    pairs = found("pairs", folder, 1, "avg", "decode")
    assert len(pairs) == 2
    assert not [pair for pair in pairs if pair["wrong"]]


def test_an_error_of_a_file_that_nothing_has_foreseen_is_one_line():
    code = (
        "from t2t_keras.cli import app, datagen\n"
        "def main(rest):\n"
        "    raise OSError(28, 'No space left on device', '/data/vocab')\n"
        "datagen.define_flags()\n"
        "app.start(main)"
    )
    assert toy.complaint(toy.python("-c", code)).endswith("/data/vocab: No space left on device.")
