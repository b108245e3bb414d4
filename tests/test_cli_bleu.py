"""The command t2t-keras-bleu, run as users run it."""

import subprocess
import sys

import pytest


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "t2t_keras.cli.bleu", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def files(tmp_path):
    contents = {
        "reference": b"A b c d\n",
        "translation": b"a b c d\n",
        "two": b"a\nb\n",
        "empty": b"",
        "latin1": b"fine\nna\xefve\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_says_nothing_when_nobody_reads_on():
    command = [sys.executable, "-m", "t2t_keras.cli.bleu", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_home(files, monkeypatch):
    monkeypatch.setenv("HOME", str(files))
    done = run("--translation=~/translation", "--reference=~/reference")
    assert done.returncode == 0, done.stderr


def test_prints_every_figure(files):
    done = run("--translation", files / "translation", "--reference", files / "reference")
    # By hand: precisions 3/4, 2/3, 1/2 and half a match of 1, so (1/8)^(1/4); unsmoothed 0.
    assert done.stdout.splitlines()[:2] == ["BLEU_uncased = 100.00", "BLEU_cased =  59.46"]
    assert done.stdout.splitlines()[2].startswith("sacreBLEU =  59.46 (nrefs:1|case:mixed|")
    assert done.stdout.splitlines()[3].startswith("BLEU_paper_style =   0.00")
    assert done.returncode == 0


def test_french(files):
    for name, last in (("reference", "ici"), ("translation", "là")):
        (files / name).write_text(f"l'eau est bien vue {last}\n")
    arguments = ("--translation", files / "translation", "--reference", files / "reference")
    # 5 of 6 tokens (l' eau est bien vue ici), and by German rules 6 of 7
    for language, figure, how in (
        ("fr", 75.98, "tokenised as French"),
        ("de", 80.91, "tokenised, compounds split"),
    ):
        done = run(*arguments, f"--language={language}")
        assert done.stdout.splitlines()[3] == f"BLEU_paper_style =  {figure} ({how})"


@pytest.mark.parametrize("variant", ["cased", "uncased"])
def test_prints_the_wanted_variant(files, variant):
    done = run(
        f"--translation={files / 'translation'}",
        f"--reference={files / 'reference'}",
        f"--bleu_variant={variant}",
    )
    t2t_lines = [
        line for line in done.stdout.splitlines() if line.startswith("BLEU_") and "cased" in line
    ]
    assert [line.split()[0] for line in t2t_lines] == [f"BLEU_{variant}"]


@pytest.mark.parametrize(
    ("translation", "message"),
    [
        ("absent", "Cannot read {}: No such file or directory."),
        ("empty", "{} is empty: --translation needs one sentence per line."),
        ("latin1", "{}, line 2: not UTF-8 (byte 0xef at column 3); convert the file to UTF-8."),
        ("two", "{} has 2 lines but {reference} has 1; BLEU needs the same"),
    ],
)
def test_one_line_for_a_bad_file(files, translation, message):
    done = run("--translation", files / translation, "--reference", files / "reference")
    expected = message.format(files / translation, reference=files / "reference")
    assert done.returncode == 2
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--translation is missing"),
        (["--translaton=x"], "Did you mean 'translation'?"),
        (["x"], "unexpected argument 'x'"),
        (["--bleu_variant=x"], "<both|cased|uncased>"),
        (["--language=en"], "<de|fr>"),
    ],
)
def test_one_line_for_a_bad_command(arguments, message):
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_imports_nothing_heavy():
    script = """
import sys
from t2t_keras.cli import bleu
sys.argv = ["t2t-keras-bleu", "--help"]
try:
    bleu.run()
finally:
    heavy = {"tensorflow", "keras", "sacrebleu", "numpy"} & set(sys.modules)
    print("heavy:", sorted(heavy))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "heavy: []" in done.stdout


def test_help_lists_the_flags():
    done = run("--help")
    assert all(
        f"--{flag}:" in done.stdout
        for flag in ("translation", "reference", "bleu_variant", "language")
    )
