"""The command t2t-keras-bleu, run as users run it."""

import functools
import gzip
import json
import re

import numpy as np
import pytest
import toy
from evalb_figures import SENTENCES, SUMMARY, TABLE

TEA, MILK = "(TOP (NP (NN tea)))\n", "(TOP (NP (NN milk)))\n"


run = functools.partial(toy.ran, "bleu")


@pytest.fixture
def files(tmp_path):
    gold, predicted = ("\n".join(each).encode() for each in zip(*SENTENCES.values(), strict=True))
    contents = {
        "reference": b"A b c d\n",
        "translation": b"a b c d\n",
        "two": b"a\nb\n",
        "empty": b"",
        "latin1": b"fine\nna\xefve\n",
        "gold": gold,
        "parsed.gz": gzip.compress(predicted),
        "tea": TEA.encode(),
        "treebank": b"\n( (NP\n    (NN tea)))\n\n",
        "teas": 12 * TEA.encode(),
        "milks": 12 * MILK.encode(),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_prints_every_figure(files, monkeypatch):
    monkeypatch.setenv("HOME", str(files))
    lines = run("--translation=~/translation", "--reference=~/reference").stdout.splitlines()
    # By hand: precisions 3/4, 2/3, 1/2 and half a match of 1, so (1/8)^(1/4); unsmoothed 0.
    assert lines[:2] == ["BLEU_uncased = 100.00", "BLEU_cased =  59.46"]
    assert lines[2].startswith("sacreBLEU =  59.46 (nrefs:1|case:mixed|")
    assert lines[3].startswith("BLEU_paper_style =   0.00")


@pytest.mark.parametrize(
    ("language", "variant", "figure", "how"),
    [
        # 5 of 6 tokens (l' eau est bien vue ici), and by German rules 6 of 7
        ("fr", "cased", 75.98, "tokenised as French"),
        ("de", "uncased", 80.91, "tokenised, compounds split"),
    ],
)
def test_languages_and_variants(files, language, variant, figure, how):
    for name, last in (("reference", "ici"), ("translation", "là")):
        (files / name).write_text(f"l'eau est bien vue {last}\n")
    given = [f"--{name}={files / name}" for name in ("translation", "reference")]
    done = run(*given, f"--language={language}", f"--bleu_variant={variant}")
    t2t, _, paper = done.stdout.splitlines()
    assert t2t.startswith(f"BLEU_{variant} = ")
    assert paper == f"BLEU_paper_style =  {figure} ({how})"


def test_rouge_of_each_translation(files):
    pytest.importorskip("rouge_score")
    paths = [str(files / name) for name in ("translation", "reference")]
    both = [f"--translation={path}" for path in paths]
    done = run(*both, f"--reference={paths[1]}", "--metrics=rouge")
    figures = ["rouge1 = 100.00", "rouge2 = 100.00", "rougeL = 100.00"]  # without case
    assert done.stdout.splitlines() == [paths[0], *figures, paths[1], *figures]


def parsing_f1(files, gold, predicted, *flags):
    given = (f"--reference={files / gold}", f"--translation={files / predicted}")
    return run("--metrics=parsing_f1", *given, *flags)


def test_parse_trees_get_evalbs_summary_and_table_or_json(files):
    assert parsing_f1(files, "gold", "parsed.gz").stdout.splitlines() == SUMMARY.splitlines()
    table = parsing_f1(files, "gold", "parsed.gz", "--per_sentence").stdout
    assert table.splitlines() == f"{TABLE}\n{SUMMARY}".splitlines()
    brief, full = (
        json.loads(parsing_f1(files, "tea", "tea", "--json", *flags).stdout)
        for flags in ([], ["--per_sentence"])
    )
    [sentence] = full.pop("by_sentence")
    assert full == brief
    assert (brief["f1"], brief["up_to_40"]["sentences"]) == (100.0, 1)
    assert (sentence["status"], sentence["matched"]) == ("valid", 1)


def test_errors_and_other_roots_of_parse_trees_are_noted(files):
    done = parsing_f1(files, "treebank", "tea")
    assert "Bracketing Recall         =  50.00" in done.stdout
    root = "the root '', which counts as a bracket; only TOP does not"
    assert done.stderr == f"note: 1 trees of --reference have {root}\n"
    lines = [f"{number} : Words unmatch (tea|milk)" for number in range(1, 11)]
    done = parsing_f1(files, "teas", "milks")
    assert done.stderr.splitlines() == [*lines, "and 2 more errors"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--translation={0}/absent", "Cannot read {0}/absent: No such file or directory."),
        ("--translation={0}/empty", "{0}/empty is empty: --translation needs one sentence per line."),
        ("--translation={0}/latin1", "{0}/latin1, line 2: not UTF-8 (byte 0xef at column 3); convert the file to UTF-8."),
        ("--translation={0}/two", "{0}/two has 2 lines but {0}/reference has 1; BLEU needs the same"),
        ("--translation={0}/translation --metrics=rouge,bleu", "--metrics=rouge cannot be combined"),
        ("--translation={0}/translation --metrics=chr", "each of --metrics must be one of bleu, chrf, chrf++, ter, rouge, parsing_f1, got 'chr'. Did you mean 'chrf'?"),
        ("--metrics=parsing_f1 --translation={0}/empty", "{0}/empty is empty: --translation needs one tree for each sentence."),
        ("--metrics=parsing_f1 --translation={0}/teas", "{0}/reference has 1 trees but {0}/teas has 12; F1 needs the same sentences in both."),
        ("--metrics=parsing_f1 --translation=x --reference={0}/tea", "--metrics=parsing_f1 takes one --reference"),
        ("--translation=x --json", "--json is for --metrics=parsing_f1, which is missing"),
        ("", "--translation is missing"),
        ("--translation=x --metrics=", "--metrics is empty: name one"),
        ("--translaton=x", "Did you mean 'translation'?"),
        ("--bleu_variant=x", "<both|cased|uncased>"),
        ("--language=en", "<de|fr>"),
        ("--translation=x --translations_dir=y", "are both given: leave one out"),
        ("--event_dir=x", "--event_dir is for --translations_dir=DIR"),
    ],
)  # fmt: skip
def test_mistakes_end_in_one_line(files, flags, message):
    done = toy.command("bleu", f"--reference={files / 'reference'}", *flags.format(files).split())
    assert message.format(files) in toy.complaint(done)
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)


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
    return toy.python("-m", "sacrebleu", *arguments, *flags).stdout


def test_scores_and_intervals_are_those_of_sacrebleu(systems):
    references = [systems / name for name in ("reference", "other")]
    given = [f"--reference={path}" for path in references]
    given += [f"--translation={systems / 'one'}", "--metrics=bleu,chrf,ter", "--confidence"]
    theirs = json.loads(sacrebleu(*references, "-i", systems / "one", "--confidence"))
    for line, score in zip(run(*given).stdout.splitlines(), theirs, strict=True):
        assert line.startswith(f"{score['name']}|nrefs:2|bs:1000|seed:12345|")
        assert f" = {score['score']:.2f} ({score['confidence']})" in line


def test_translations_are_compared_as_by_sacrebleu(systems):
    names = [systems / "one", systems / "two"]
    given = [f"--translation={name}" for name in names]
    done = run(*given, f"--reference={systems / 'reference'}", "--metrics=bleu,chrf,ter")
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
    (systems / "all" / "x.de-1100.unfinished").write_text("half")
    (systems / "all" / "x.de-5").mkdir()
    lines = run(f"--translations_dir={systems / 'all'}", *flags).stdout.splitlines()
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
    given += [f"--reference={systems / 'reference'}", "--bleu_variant=cased", "--language=fr"]
    done = run(*given)
    assert done.stderr.startswith(f"ignoring {unused}")
    assert done.stderr.count("\n") == 1
