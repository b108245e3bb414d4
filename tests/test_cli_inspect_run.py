"""The command t2t-keras-inspect run, as users run it."""

import pytest
from run_files import write_run

from tests import toy


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs")
    write_run(directory / "small")
    write_run(directory / "large", "transformer_tiny,hidden_size=32", factor=0.5)
    return directory


def test_compares_runs_as_text_and_as_a_page(runs):
    done = toy.command("inspect", "run", "small", "large/", "--html=runs.html", cwd=runs)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["small", "large"]
    assert ["hidden_size", "64", "32"] in lines
    assert lines[-1] == ["page:", "runs.html"]
    page = (runs / "runs.html").read_text("utf-8")
    assert page.startswith("<!doctype html>") and "<h1>Runs small, large</h1>" in page
    assert sorted(path.name for path in runs.iterdir()) == ["large", "runs.html", "small"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no run is named: write t2t-keras-inspect run DIR, or several directories."),
        (("small", "./small"), "./small and small are the same run: name it once."),
        (("small", "--text=x"), "--text is for t2t-keras-inspect attention"),
        (("small", "--html=large"), "--html=large is a directory: name a file."),
        (("small", "--html=absent/run.html"), "--html=absent/run.html: there is no directory"),
    ],
)
def test_mistakes_end_in_one_line(runs, arguments, message):
    assert message in toy.complaint(toy.command("inspect", "run", *arguments, cwd=runs))
