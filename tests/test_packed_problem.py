"""A packed problem from text to a trained model and its translations, by the commands."""

import pytest

from t2t_keras import data
from t2t_keras.settings import HParams
from tests import toy

MODULE = """
from t2t_keras.problems.translate_files import Text2textTmpdir
from t2t_keras.registry import register_problem


@register_problem
class ReversedPacked(Text2textTmpdir):
    dataset_splits = [{"split": "train", "shards": 2}, {"split": "dev", "shards": 1}]
    packed_length = 32
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Text, data and a directory with the problem."""
    base = tmp_path_factory.mktemp("packed")
    text = toy.write_text(base / "text")
    (base / "mine").mkdir()
    (base / "mine" / "__init__.py").write_text(MODULE)
    done = command(base, "datagen", f"--tmp_dir={text}")
    assert done.returncode == 0, done.stderr
    return base


def command(base, name, *arguments):
    flags = (f"--data_dir={base / 'data'}", f"--t2t_usr_dir={base / 'mine'}")
    return toy.command(name, "--problem=reversed_packed", *flags, *arguments)


def test_batches_have_one_static_shape(folders):
    class ReversedPacked(data.Text2TextProblem):
        packed_length = 32

    hp = HParams(batch_size=128, max_length=16)
    batches = data.dataset(ReversedPacked(), "train", folders / "data", hp)
    fields = ("inputs", "targets")
    names = {field + kind for field in fields for kind in ("", "_segmentation", "_position")}
    assert {name: spec.shape.as_list() for name, spec in batches.element_spec.items()} == {
        name: [4, 32] for name in names
    }
    (batch,) = batches.take(1).as_numpy_iterator()
    real = sum(int((batch[field] != 0).sum()) for field in fields)
    assert real / (2 * 4 * 32) > 0.8
    assert batch["inputs_segmentation"].max() > 3


def test_trains_and_translates(folders):
    settings = f"--hparams={toy.hparams(max_length=32)}"
    run = f"--output_dir={folders / 'run'}"
    done = command(folders, "train", settings, run, "--train_steps=2", "--eval_steps=1")
    assert done.returncode == 0, done.stderr
    assert "loss" in done.stdout and "bleu" not in done.stdout
    (folders / "source").write_text("a b c\nd e\n")
    done = command(
        folders,
        "decode",
        run,
        f"--decode_from_file={folders / 'source'}",
        f"--decode_to_file={folders / 'translated'}",
        "--decode_hparams=extra_length=4,beam_size=1",
    )
    assert done.returncode == 0, done.stderr
    assert len((folders / "translated").read_text().splitlines()) == 2
