"""The benchmarks run, and check what they compare."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "lines.txt"
    path.write_bytes((ROOT / "LICENSE").read_bytes() + (ROOT / "README.md").read_bytes())
    return path


def run(name, *args):
    command = [sys.executable, ROOT / "benchmarks" / f"{name}.py", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_vocabularies_equal_those_of_plain_python(text):
    done = run("vocabulary", text, "--lines=150", "--target_size=200", "--repeats=1")
    assert done.returncode == 0, done.stderr
    assert "Same subtokens" in done.stdout


def test_ids_equal_those_of_plain_python(text):
    done = run("encode", text, "--lines=150", "--target_size=200", "--repeats=1")
    assert done.returncode == 0, done.stderr
    assert "T2T in plain Python" in done.stdout


def test_says_how_few_lines_there_are(text):
    done = run("encode", text, text, "--lines=1000000")
    assert done.returncode == 1
    assert "different lines; --lines=1000000 wants more" in done.stderr
