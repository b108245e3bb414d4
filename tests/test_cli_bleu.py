"""The command t2t-keras-bleu, run as users run it."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
import toy


def run(*arguments):
    return toy.command("bleu", *arguments)


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


def test_rouge_of_each_translation(files):
    pytest.importorskip("rouge_score")
    both = [f"--translation={files / name}" for name in ("translation", "reference")]
    done = run(*both, f"--reference={files / 'reference'}", "--metrics=rouge")
    figures = ["rouge1 = 100.00", "rouge2 = 100.00", "rougeL = 100.00"]  # without case
    assert done.stdout.splitlines() == [
        str(files / "translation"),
        *figures,
        str(files / "reference"),
        *figures,
    ]
    done = run(*both[:1], f"--reference={files / 'reference'}", "--metrics=rouge,bleu")
    assert "--metrics=rouge cannot be combined" in done.stderr


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
        (["--translation=x", "--translations_dir=y"], "are both given: leave one out"),
        (["--event_dir=x"], "--event_dir is for --translations_dir=DIRECTORY"),
    ],
)
def test_one_line_for_a_bad_command(arguments, message):
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.fixture
def systems(tmp_path):
    """Two systems' translations, the first the better, and two references, of 40 lines."""
    random = np.random.default_rng(0)
    lines = random.integers(0, 30, (40, 8))
    for name, share in (("one", 0.1), ("two", 0.3), ("reference", 0), ("other", 0.2)):
        noisy = np.where(random.random(lines.shape) < share, lines + 7, lines)
        text = "".join(" ".join(f"word{n}" for n in row) + "\n" for row in noisy)
        (tmp_path / name).write_text(text)
    return tmp_path


def sacrebleu(*arguments):
    """What the command of sacreBLEU itself prints."""
    flags = ("-w", "2", "-m", "bleu", "chrf", "ter")
    command = [sys.executable, "-m", "sacrebleu", *map(str, arguments), *flags]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_scores_and_intervals_are_those_of_sacrebleu(systems):
    references = [systems / name for name in ("reference", "other")]
    given = [f"--reference={path}" for path in references]
    flags = ("--metrics=bleu,chrf,ter", "--confidence")
    done = run(f"--translation={systems / 'one'}", *given, *flags)
    assert done.returncode == 0, done.stderr
    theirs = json.loads(sacrebleu(*references, "-i", systems / "one", "--confidence"))
    for line, score in zip(done.stdout.splitlines(), theirs, strict=True):
        assert line.startswith(f"{score['name']}|nrefs:2|bs:1000|seed:12345|")
        assert f" = {score['score']:.2f} ({score['confidence']})" in line


def test_translations_are_compared_as_by_sacrebleu(systems):
    names = [systems / "one", systems / "two"]
    given = [f"--translation={name}" for name in names]
    done = run(*given, f"--reference={systems / 'reference'}", "--metrics=bleu,chrf,ter")
    assert done.returncode == 0, done.stderr
    assert "the last counts" not in done.stderr
    theirs = sacrebleu(systems / "reference", "-i", *names, "--paired-bs", "-f", "latex")
    figure = r"([\d.]+) +\([\d.]+ ± ([\d.]+)\)(?: \(p = ([\d.]+)\))?"
    figures = iter(re.findall(figure, theirs))
    lines = iter(done.stdout.splitlines())
    for path in names:
        assert next(lines) == str(path)
        for name in ("BLEU", "chrF2", "TER"):
            score, interval, p_value = next(figures)
            compared = f"  p = {p_value}" if path == names[1] else ""
            assert next(lines) == f"  {name} = {score:>6} ± {interval}{compared}"
    assert next(lines) == f"p: of the difference from {names[0]}, by paired bootstrap"
    for line, name in zip(lines, ("BLEU", "chrF2", "TER"), strict=True):
        assert re.search(rf"{name} +{re.escape(line.split()[1])}\n", theirs)


def test_a_directory_of_translations_is_scored_by_step(systems):
    (systems / "all").mkdir()
    for name, file in (("one", "x.de-900"), ("two", "x.de-1000"), ("one", "x.de-20.txt")):
        (systems / "all" / file).hardlink_to(systems / name)
    flags = (f"--reference={systems / 'reference'}", "--bleu_variant=cased", "--min_steps=21")
    done = run(f"--translations_dir={systems / 'all'}", *flags)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for line, name, file in zip(lines, ("one", "two"), ("x.de-900", "x.de-1000"), strict=True):
        alone = run(f"--translation={systems / name}", *flags[:2]).stdout.split("\n")
        sacre = alone[1].split(" (")[0]
        assert line == f"{systems / 'all' / file}: {alone[0]}  {sacre}"


@pytest.mark.parametrize(
    ("flags", "unused"),
    [
        (["--translation={}/one", "--metrics=chrf"], "--bleu_variant, --language: neither T2T's"),
        (["--translation={}/one", "--confidence"], "--bleu_variant, --language: neither T2T's"),
        (["--translation={}/one", "--translation={}/two"], "--bleu_variant, --language: neither"),
        (["--translation={}/one", "--reference={}/other"], "--bleu_variant, --language: neither"),
        (["--translations_dir={}"], "--language: the paper's BLEU is not printed"),
    ],
)
def test_a_flag_without_effect_gets_a_line(systems, flags, unused):
    (systems / "one-1").write_text((systems / "one").read_text())
    given = [flag.format(systems) for flag in flags]
    done = run(
        f"--reference={systems / 'reference'}", "--bleu_variant=cased", "--language=fr", *given
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"no effect of {unused}")
    assert done.stderr.count("\n") == 1
