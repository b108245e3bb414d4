"""The command t2t-keras-inspect, run as users run it."""

import pytest

from t2t_keras import data, registry
from tests import toy

SETTINGS = toy.hparams(min_length_bucket=4)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return toy.generate(tmp_path_factory.mktemp("toy"))


def inspect(data_dir, *arguments):
    return toy.command(
        "inspect",
        "data",
        f"--problem={toy.PROBLEM}",
        f"--data_dir={data_dir}",
        f"--hparams={SETTINGS}",
        *arguments,
    )


def test_tells_what_batches_look_like(data_dir):
    done = inspect(data_dir, "--num_examples=2")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"problem {toy.PROBLEM}, hparams transformer_tiny"
    assert lines[1].startswith("  train: 3,000 examples in text2text_tmpdir-train-00000-of-00100")
    shapes = data.bucket_shapes(registry.hparams(SETTINGS))
    (rows, shortest), _, (last_rows, longest) = shapes
    assert f"3 batch shapes, from {rows} x {shortest} to {last_rows} x {longest};" in done.stdout
    table = lines.index("rows x ids, pairs, padding:")
    told = [line.split() for line in lines[table + 1 : table + 4]]
    assert [(int(words[0]), int(words[2])) for words in told] == shapes
    assert sum(int(words[3].replace(",", "")) for words in told) == 3000
    shown = [line.split(": ")[1] for line in lines if line.startswith(("  inputs:", "  targets:"))]
    assert len(shown) == 4
    for inputs, targets in zip(shown[::2], shown[1::2], strict=True):
        inputs, targets = (text.removesuffix("<EOS>") for text in (inputs, targets))
        assert targets == inputs[::-1] and len(inputs) > 2


def test_the_padding_it_tells_is_that_of_the_batches(data_dir):
    """Counted in a whole epoch of dev, whose batches come once."""
    problem, hp = registry.problem(toy.PROBLEM), registry.hparams(SETTINGS)
    real = positions = 0
    for batch in data.dataset(problem, "dev", data_dir, hp):
        for ids in batch.values():
            real += int((ids.numpy() != 0).sum())
            positions += ids.numpy().size
    done = inspect(data_dir, "--split=dev")
    assert f"all: {1 - real / positions:.1%} padding; a batch has" in done.stdout


def test_draws_the_lengths(data_dir, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "lengths.svg"
    done = inspect(data_dir, f"--plot={picture}")
    assert done.returncode == 0, done.stderr
    assert "text2text_tmpdir, train" in picture.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dta",), "cannot inspect 'dta'. Did you mean 'data'? Write one of data, "),
        ((), "cannot inspect ''"),
        (("data", "x"), "unexpected argument 'x'"),
        (("data",), "--data_dir is missing"),
    ],
)
def test_mistakes_end_in_one_line(arguments, message):
    assert message in toy.complaint(toy.command("inspect", *arguments))
