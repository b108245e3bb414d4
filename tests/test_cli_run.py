"""Commands on a run of three checkpoints: t2t-keras-avg, t2t-keras-eval and t2t-keras-export."""

import json
import math
import os
import re
import shutil

import pytest
import tensorflow as tf
import toy

import t2t_keras
from t2t_keras.checkpoints.t2t import write
from t2t_keras.cli import eval as eval_command

DECODE = "--decode_hparams=beam_size=2,extra_length=2,alpha=0.7"
LINES = ["a b c", "h g f e d", "", "b b  a", "c"]
FIGURES = r"step (\d+): (dev|test) loss (\S+)  accuracy (\S+)  perplexity (\S+)  BLEU (\S+)"


@pytest.fixture(scope="module")
def toy_dir(tmp_path_factory):
    """A run of 6 steps in `run`, with checkpoints of the steps 2, 4 and 6 ten minutes apart."""
    directory = tmp_path_factory.mktemp("toy")
    toy.generate(directory)
    toy.train(directory, 6, "--eval_steps=0", DECODE, eagerly=False)  # its searches are long
    shutil.move(directory / "run" / "eval", directory / "eval_of_training")
    for step in (2, 4, 6):
        os.utime(directory / "run" / f"model.ckpt-{step}.index", (300 * step, 300 * step))
    return directory


@pytest.fixture(scope="module")
def damaged(toy_dir):
    """The run after its checkpoint of step 4 has lost its last byte."""
    run = shutil.copytree(toy_dir / "run", toy_dir / "damaged")
    path = run / "model.ckpt-4.data-00000-of-00001"
    path.write_bytes(path.read_bytes()[:-1])
    return run


@pytest.fixture(scope="module")
def averaged(toy_dir):
    run, prefix = toy_dir / "run", toy_dir / "averaged" / "model.ckpt"
    flags = (f"--prefix={run}", "--num_last_checkpoints=2", "--minutes=20")
    done = toy.ran("avg", *flags, f"--output_path={prefix}")
    paths = ", ".join(f"{run}/model.ckpt-{step}" for step in (2, 6))
    assert done.stdout == f"wrote the mean of {paths} to {prefix}, at step 6\n"
    return prefix


@pytest.fixture(scope="module")
def exported(toy_dir):
    done = toy.ran("export", f"--output_dir={toy_dir / 'run'}", DECODE)
    path = toy_dir / "run" / "export" / "1"
    assert done.stdout == (
        f"{path} has the signatures translate (serving_default), translate_with_options, "
        "translate_ids, score, serialized_example\n"
    )
    return path


def test_average_of_those_between_two_steps_without_a_damaged_one(damaged, tmp_path):
    flags = [f"--prefix={damaged}", f"--output_path={tmp_path}/mean", "--min_steps=2"]
    done = toy.ran("avg", *flags, "--max_steps=4")
    assert f"warning: checkpoint {damaged}/model.ckpt-4 cannot be read: " in done.stderr
    recorded = json.loads((tmp_path / "run.json").read_text())
    assert recorded["averages"] == {"mean": [f"{damaged}/model.ckpt-2"]}


# t2t-keras-eval


def figures(done):
    """(step, split, loss, accuracy, perplexity, BLEU) of each line."""
    lines = [re.fullmatch(FIGURES, line) for line in done.stdout.splitlines()]
    return [(int(m[1]), m[2], *map(float, m.groups()[2:])) for m in lines]


def scalars(directory):
    """{step: {tag: value}} of an event file."""
    written = {}
    [path] = directory.glob("events.*")
    for event in tf.compat.v1.train.summary_iterator(str(path)):
        for value in event.summary.value:
            written.setdefault(event.step, {})[value.tag] = float(tf.make_ndarray(value.tensor))
    return written


def test_every_checkpoint_is_evaluated_as_in_training(toy_dir, damaged):
    done = toy.ran("eval", f"--output_dir={damaged}", "--eval_steps=0", DECODE, eagerly=True)
    assert f"warning: checkpoint {damaged}/model.ckpt-4 cannot be read: " in done.stderr
    trained = scalars(toy_dir / "eval_of_training")
    lines = figures(done)
    assert [line[:2] for line in lines] == [(2, "dev"), (6, "dev")]
    for step, _, loss, accuracy, perplexity, bleu in lines:
        assert loss == pytest.approx(trained[step]["loss"], abs=6e-5)
        assert accuracy == pytest.approx(trained[step]["accuracy"], abs=6e-5)
        assert bleu == pytest.approx(trained[step]["bleu"], abs=6e-3)
        assert perplexity == pytest.approx(math.exp(loss), rel=1e-4)
    assert lines[0][2] > lines[1][2]
    written = scalars(damaged / "eval")
    assert written.keys() == {2, 6}
    for step, values in written.items():
        assert values == pytest.approx(trained[step], rel=1e-5)


def test_an_average_is_evaluated_on_test(toy_dir, averaged, tmp_path):
    """As the paper evaluates; on dev's shards under the name of test."""
    for path in (toy_dir / "data").iterdir():
        shutil.copy(path, tmp_path / path.name.replace("-dev-", "-test-"))
    flags = [f"--checkpoint_path={averaged}", f"--data_dir={tmp_path}", "--eval_use_test_set"]
    [(step, split, loss, *_)] = figures(toy.ran("eval", *flags, DECODE, eagerly=True))
    assert (step, split) == (6, "test")
    assert scalars(averaged.parent / "eval_test")[6]["loss"] == pytest.approx(loss, abs=6e-5)
    assert not (averaged.parent / "eval").exists()


def test_checkpoints_come_in_the_order_of_steps_and_new_ones_are_waited_for(tmp_path, monkeypatch):
    def come(step):
        if step:
            write(str(tmp_path / f"model.ckpt-{step}"), {"global_step": step})

    coming = iter([200, 300])
    monkeypatch.setattr(eval_command.time, "sleep", lambda _: come(next(coming, None)))
    for step in (9, 100, 20):
        come(step)
    found = list(eval_command.checkpoints_of_run(str(tmp_path), 20, 0.005))
    assert found == [str(tmp_path / f"model.ckpt-{step}") for step in (20, 100, 200, 300)]


def test_without_bleu_and_beyond_all_numbers():
    """A packed problem is not decoded, and a network that diverged has any loss."""
    line = eval_command.line({"loss": 800.0, "accuracy": 0.0})
    assert line == "loss 800.0000  accuracy 0.0000  perplexity inf"


# t2t-keras-export


def test_a_run_and_its_export_give_the_text_of_the_decode_command(toy_dir, exported):
    run = toy_dir / "run"
    given = ("--decode_from_file=-", DECODE)  # data_dir is found in run.json
    done = toy.ran("decode", f"--output_dir={run}", *given, input="\n".join(LINES))
    wanted = done.stdout.split("\n")[:-1]
    settings = DECODE.removeprefix("--decode_hparams=")
    assert t2t_keras.load(run, decode_hparams=settings).translate(LINES) == wanted
    assert t2t_keras.load(run / "export").translate(LINES) == wanted
    files = "assets assets.extra fingerprint.pb saved_model.pb variables"
    assert sorted(path.name for path in exported.iterdir()) == files.split()


def test_an_average_is_exported_in_half_precision(averaged, exported, tmp_path):
    flags = "--version=20 --precision=bfloat16 --default_signature=serialized_example --nowarm_up"
    places = (f"--checkpoint_path={averaged}", f"--export_dir={tmp_path}")
    done = toy.ran("export", *places, *flags.split())
    path = tmp_path / "20"
    assert done.stdout.startswith(f"{path} has the signatures serialized_example (serving_default)")
    assert not (path / "assets.extra").exists()
    variables = "variables/variables.data-00000-of-00001"
    size, half = ((p / variables).stat().st_size for p in (exported, path))
    assert half < 0.6 * size


def test_ctranslate2(toy_dir, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2")
    flags = [f"--output_dir={toy_dir / 'run'}", "--format=ctranslate2", f"--export_dir={tmp_path}"]
    assert toy.ran("export", *flags).stdout == f"{tmp_path} is a CTranslate2 model\n"
    assert ctranslate2.contains_model(str(tmp_path))
    assert len(t2t_keras.load(tmp_path).translate(LINES)) == len(LINES)


@pytest.mark.parametrize(
    ("command", "flags", "expected"),
    [
        ("avg", "", "give --checkpoints=A,B,... or --num_last_checkpoints=N"),
        ("avg", "--checkpoints=a --minutes=5", "got both --checkpoints and --minutes"),
        ("avg", "--max_steps=5", "--max_steps needs --prefix=DIRECTORY"),
        ("avg", "--num_last_checkpoints=0", "--num_last_checkpoints needs --prefix=DIRECTORY"),
        ("avg", "--checkpoints=/nowhere/model.ckpt-1", "no checkpoint at /nowhere/model.ckpt-1"),
        ("avg", "--prefix={}/damaged --checkpoints=model.ckpt-4,model.ckpt-6", "damaged/model.ckpt-4 cannot be read: "),
        ("avg", "--prefix={}/damaged/model.ckpt- --checkpoints=4,6", "damaged/model.ckpt-4 cannot be read: "),
        ("avg", "--checkpoints=a --output_path=mean/", "=mean/ is a directory: add a name, such as mean/model.ckpt."),
        ("avg", "--checkpoints=a --output_path=/tmp", "--output_path=/tmp is a directory"),
        ("eval", "--checkpoint_path=a --min_steps=3", "leave out --output_dir, --min_steps"),
        ("eval", "--output_dir={}/run --min_steps=7", "has no checkpoint of 7 or more steps"),
        ("eval", "--output_dir={}/none --eval_timeout_mins=1e-9", "/none has no checkpoint that can be read"),
        ("eval", "--output_dir={}/run --eval_use_test_set", "test"),
        ("eval", "--checkpoint_path={}/damaged/model.ckpt-4", "cannot be read: "),
        ("eval", "--output_dir={}/run --decode_hparams=beam_size=two", "beam_size"),
        ("export", "--output_dir={}/run --version=1", "/1 exists: give another version"),
        ("export", "--output_dir={}/run --precision=int4", "--precision=int4: value should be one of"),
        ("export", "--output_dir={}/run --format=onnx", "--format=onnx: value should be one of"),
        ("export", "--output_dir={}/run --format=ctranslate2 --version=3", "--version needs --format=saved_model, got --format=ctranslate2"),
    ],
)  # fmt: skip
def test_complains_in_one_line(toy_dir, damaged, exported, command, flags, expected):
    assert expected in toy.complaint(toy.command(command, *flags.format(toy_dir).split()))
