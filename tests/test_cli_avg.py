"""t2t-keras-avg on a run, and what the other commands make of its result."""

import json
import os

import golden
import numpy as np
import pytest
import toy

from t2t_keras import checkpoints
from t2t_keras.cli.convert import load_keras

DECODE = "--decode_hparams=beam_size=1,extra_length=1"


@pytest.fixture(scope="module")
def toy_dir(tmp_path_factory):
    """A run of 6 steps in `run`, its checkpoints of the steps 2, 4 and 6 ten minutes apart."""
    directory = tmp_path_factory.mktemp("toy")
    toy.generate(directory)
    toy.train(directory, 6, "--eval_steps=1", DECODE)
    for step in (2, 4, 6):
        os.utime(directory / "run" / f"model.ckpt-{step}.index", (300 * step, 300 * step))
    return directory


@pytest.fixture(scope="module")
def averaged(toy_dir):
    prefix = toy_dir / "averaged" / "model.ckpt"
    done = toy.ran(
        "avg",
        f"--prefix={toy_dir / 'run'}",
        "--num_last_checkpoints=2",
        "--minutes=20",
        f"--output_path={prefix}",
    )
    paths = ", ".join(f"{toy_dir}/run/model.ckpt-{step}" for step in (2, 6))
    assert done.stdout == f"the mean of {paths} is in {prefix}, at step 6\n"
    return prefix


def test_result_is_the_mean_without_slots(toy_dir, averaged):
    mean = golden.stored(str(averaged))
    first, last = (golden.stored(str(toy_dir / "run" / f"model.ckpt-{s}")) for s in (2, 6))
    assert int(mean.pop("global_step")) == 6
    assert set(mean) == {name for name in first if name.startswith("transformer/")}
    changed = 0
    for name, array in mean.items():
        exact = (first[name].astype(np.float64) + last[name]) / 2
        np.testing.assert_array_equal(array, exact.astype(np.float32), err_msg=name)
        changed += bool((first[name] != last[name]).any())
    assert changed > 10


def test_decoding_and_conversion_take_it(toy_dir, averaged):
    source = toy_dir / "source.txt"
    source.write_text("a b c\nh\n")
    toy.ran(
        "decode",
        f"--output_dir={averaged.parent}",
        f"--data_dir={toy_dir / 'data'}",
        f"--decode_from_file={source}",
        f"--decode_to_file={toy_dir / 'target.txt'}",
        DECODE,
    )
    assert (toy_dir / "target.txt").read_text().count("\n") == 2
    keras_file = toy_dir / "model.keras"
    toy.ran("convert", f"--checkpoint_path={averaged}", f"--output_path={keras_file}")
    ours = checkpoints.load_model(str(averaged)).get_weights()
    for one, other in zip(ours, load_keras(str(keras_file)).get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_those_between_two_steps_without_a_damaged_one(toy_dir, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for path in (toy_dir / "run").iterdir():
        if path.is_file():
            (run / path.name).write_bytes(path.read_bytes())
    data = run / "model.ckpt-4.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-1])
    output = tmp_path / "averaged.ckpt"
    flags = [f"--prefix={run}", f"--output_path={output}"]
    done = toy.ran("avg", *flags, "--min_steps=2", "--max_steps=4")
    assert f"warning: checkpoint {run}/model.ckpt-4 cannot be read: " in done.stderr
    recorded = json.loads((tmp_path / "run.json").read_text())
    assert recorded["averages"] == {"averaged.ckpt": [f"{run}/model.ckpt-2"]}
    done = toy.command("avg", *flags, "--checkpoints=model.ckpt-4,model.ckpt-6")
    assert f"checkpoint {run}/model.ckpt-4 cannot be read: " in toy.complaint(done)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", "give --checkpoints=A,B,... or --num_last_checkpoints=N"),
        ("--checkpoints=a --minutes=5", "not both --checkpoints and --minutes"),
        ("--max_steps=5", "--max_steps needs --prefix=DIRECTORY"),
        ("--num_last_checkpoints=-1", "num_last_checkpoints"),
        ("--num_last_checkpoint=1", "Did you mean 'num_last_checkpoints'?"),
        ("--checkpoints=/nowhere/model.ckpt-1", "no checkpoint at /nowhere/model.ckpt-1"),
        ("--checkpoints=a --output_path=mean/", "=mean/ is a directory: add a name, such as mean/model.ckpt."),
        ("--checkpoints=a --output_path=/tmp", "--output_path=/tmp is a directory"),
    ],
)  # fmt: skip
def test_complains_in_one_line(flags, expected):
    assert expected in toy.complaint(toy.command("avg", *flags.split()))
