"""A kill or a full disk at any change of a file leaves what was there, or the whole result."""

import json
import shutil
from pathlib import Path

import pytest
import toy

SCRIPT = Path(__file__).with_name("fault_injection.py")


@pytest.mark.skipif(not shutil.which("cc"), reason="fault_points.c needs a compiler of C")
def test_a_kill_or_a_full_disk_leaves_the_old_or_the_new(tmp_path):
    """Some points of each command; `python fault_injection.py FOLDER 0` takes all of them."""
    done = toy.python(SCRIPT, tmp_path, "2")
    assert done.returncode == 0, done.stderr
    faults = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(faults) > 30
    assert not [fault for fault in faults if fault["wrong"]]
