"""What all commands share: TensorFlow is silent when it is well, an error of a file is one line."""

import os
import subprocess
import sys

import pytest
import toy

import t2t_keras

NOISE = """\
import os, types
os.write(2, b"E0000 no GPU\\n")
config = types.SimpleNamespace(list_physical_devices=lambda: os.write(2, b"cuInit\\n"))
"""
USE = """\
import sys
from t2t_keras.cli import options
options.import_tensorflow()
import tensorflow
print("ours", file=sys.stderr)
"""
ECHO = """\
import sys
from t2t_keras.cli import app, options

def main(rest):
    options.import_tensorflow()
    print([*sys.stdin])

app.start(main, ["x"])
"""


def with_noisy(directory, after=""):
    """An environment with a module that stands for TensorFlow, by the name of TensorFlow."""
    (directory / "tensorflow.py").write_text(NOISE + after)
    paths = os.pathsep.join([str(directory), os.path.dirname(os.path.dirname(t2t_keras.__file__))])
    inherited = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    return {**inherited, "PYTHONPATH": paths, "PYTHONUNBUFFERED": ""}


def import_noisy(directory, after="", **environment):
    return subprocess.run(
        [sys.executable, "-c", USE],
        env={**with_noisy(directory, after), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_tensorflow_writes_while_imported_is_dropped(tmp_path):
    done = import_noisy(tmp_path)
    assert (done.returncode, done.stderr) == (0, "ours\n")


def test_it_is_shown_if_the_import_fails(tmp_path):
    done = import_noisy(tmp_path, "raise ImportError('no such library')")
    assert done.returncode != 0
    assert done.stderr.startswith("E0000 no GPU\n")
    assert "no such library" in done.stderr


def test_a_log_level_of_the_users_own_is_respected(tmp_path):
    done = import_noisy(tmp_path, TF_CPP_MIN_LOG_LEVEL="0")
    assert done.stderr == "E0000 no GPU\nours\n"


@pytest.mark.parametrize(
    ("line", "heavy", "shown"),
    [
        ("bleu --help", ["tensorflow", "keras", "sacrebleu", "numpy"], "--translation: "),
        ("parseval --gold={0} --predicted={0}", ["tensorflow", "keras", "sacrebleu"], "= 100.00"),
        ("datagen --help", ["tensorflow"], "--tmp_dir: "),
        ("datagen --list", ["tensorflow"], "Numbers, dates, times and prices"),
        ("train --problem=translate_ende_numbers", ["tensorflow"], "--data_dir is missing"),
        ("decode --output_dir=x", ["tensorflow"], "give one of --decode_from_file=FILE"),
    ],
)
def test_what_is_quick_imports_nothing_heavy(tmp_path, line, heavy, shown):
    (tmp_path / "trees").write_text("(TOP (NP (NN tea)))\n")
    name, *flags = line.format(tmp_path / "trees").split(" ")
    command = [sys.executable, "-X", "importtime", "-m", f"t2t_keras.cli.{name}", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert shown in done.stdout + done.stderr
    assert "t2t_keras.cli.app" in imported
    assert not imported.intersection(heavy)


def test_version_of_every_command():
    command = [sys.executable, "-m", "t2t_keras.cli.export", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["export.py", t2t_keras.__version__]


@pytest.mark.parametrize(
    ("redirections", "code", "output", "said"),
    [
        (">/dev/full", 2, "", "x: standard output cannot be written: No space left on device.\n"),
        (">&-", 0, "", ""),
        ("<&-", 0, "[]\n", ""),
        (">&- 2>&- <&-", 0, "", ""),
    ],
)
def test_output_that_cannot_be_written_and_streams_that_are_closed(
    tmp_path, redirections, code, output, said
):
    command = ["sh", "-c", f'exec "$0" -c "$1" {redirections}', sys.executable, ECHO]
    environment = with_noisy(tmp_path)
    done = subprocess.run(
        command, env=environment, input="", capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, output, said)


def test_an_error_of_a_file_that_nothing_has_foreseen_is_one_line():
    code = (
        "from t2t_keras.cli import app, datagen\n"
        "def main(rest):\n"
        "    raise OSError(28, 'No space left on device', '/data/vocab')\n"
        "datagen.define_flags()\n"
        "app.start(main)"
    )
    assert toy.complaint(toy.python("-c", code)).endswith("/data/vocab: No space left on device.")
