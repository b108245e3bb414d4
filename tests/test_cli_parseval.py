"""The command t2t-keras-parseval, run as users run it."""

import gzip
import json

import pytest
import toy
from evalb_figures import SENTENCES, SUMMARY, TABLE

TEA = "(TOP (NP (NN tea)))"


def run(*arguments):
    return toy.command("parseval", *arguments)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of EVALB's sentences and of others; returns their folder."""
    folder = tmp_path_factory.mktemp("trees")
    gold, predicted = zip(*SENTENCES.values(), strict=True)
    (folder / "gold").write_text("".join(f"{line}\n" for line in gold))
    with gzip.open(folder / "predicted.gz", "wt") as file:
        file.writelines(f"{line}\n" for line in predicted)
    (folder / "one").write_text(f"{TEA}\n")
    (folder / "two").write_text(f"{TEA}\n\n")
    (folder / "empty").write_text("")
    (folder / "treebank").write_text("\n( (NP\n    (NN tea)))\n\n")
    (folder / "other").write_text("(TOP (NP (NN milk)))\n" * 12)
    (folder / "twelve").write_text(f"{TEA}\n" * 12)
    return folder


def test_prints_evalbs_summary(files):
    done = run(f"--gold={files / 'gold'}", f"--predicted={files / 'predicted.gz'}")
    assert done.returncode == 0
    assert done.stdout.splitlines() == SUMMARY.splitlines()


def test_prints_evalbs_table(files):
    done = run(
        "--per_sentence", f"--gold={files / 'gold'}", f"--predicted={files / 'predicted.gz'}"
    )
    assert done.stdout.splitlines() == [*TABLE.splitlines(), "", *SUMMARY.splitlines()]


def test_prints_json(files):
    arguments = ["--json", f"--gold={files / 'one'}", f"--predicted={files / 'one'}"]
    printed = json.loads(run(*arguments).stdout)
    assert (printed["f1"], printed["up_to_40"]["sentences"]) == (100.0, 1)
    assert "by_sentence" not in printed
    (sentence,) = json.loads(run("--per_sentence", *arguments).stdout)["by_sentence"]
    assert (sentence["status"], sentence["matched"]) == ("valid", 1)


def test_reads_trees_of_several_lines_and_points_out_their_root(files):
    done = run(f"--gold={files / 'treebank'}", f"--predicted={files / 'one'}")
    assert "Bracketing Recall         =  50.00" in done.stdout
    assert done.stderr == (
        "note: 1 trees of --gold have the root '', which counts as a bracket; only TOP does not\n"
    )


def test_names_the_first_errors(files):
    done = run(f"--gold={files / 'twelve'}", f"--predicted={files / 'other'}")
    lines = [f"{number} : Words unmatch (tea|milk)" for number in range(1, 11)]
    assert done.stderr.splitlines() == [*lines, "and 2 more errors"]
    assert done.returncode == 0


@pytest.mark.parametrize(
    "predicted, message",
    [
        ("absent", "Cannot read {}: No such file or directory."),
        ("empty", "{} is empty: --predicted needs one tree for each sentence."),
        ("two", "{gold} has 1 trees but {} has 2; F1 needs the same sentences in both."),
    ],
)
def test_one_line_for_a_bad_file(files, predicted, message):
    done = run(f"--gold={files / 'one'}", f"--predicted={files / predicted}")
    assert done.returncode == 2
    assert message.format(files / predicted, gold=files / "one") in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "--gold is missing"),
        (["--gold=x"], "Cannot read x"),
        (["--predicated=x"], "Did you mean 'predicted'?"),
        (["x"], "unexpected argument 'x'"),
    ],
)
def test_one_line_for_a_bad_command(arguments, message):
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
