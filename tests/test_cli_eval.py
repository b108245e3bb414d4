"""t2t-keras-eval on a run: all of its checkpoints, one of them, test, and those that come."""

import math
import re
import shutil

import pytest
import tensorflow as tf
import toy

from t2t_keras import checkpoints
from t2t_keras.checkpoints.t2t import write
from t2t_keras.cli import eval as command

DECODE = "--decode_hparams=beam_size=1,extra_length=2"
DATA = ".data-00000-of-00001"
LINE = re.compile(
    r"step (\d+): (dev|test) loss (\S+)  accuracy (\S+)  perplexity (\S+)  BLEU (\S+)"
)


@pytest.fixture(scope="module")
def toy_dir(tmp_path_factory):
    """A run of 6 steps in `run`, with checkpoints of the steps 2, 4 and 6."""
    directory = tmp_path_factory.mktemp("toy")
    toy.generate(directory)
    toy.train(directory, 6, "--eval_steps=0", DECODE)
    shutil.move(directory / "run" / "eval", directory / "eval_of_training")
    return directory


def evaluate(toy_dir, *flags, data_dir=None):
    return toy.command("eval", f"--data_dir={data_dir or toy_dir / 'data'}", DECODE, *flags)


def figures(done):
    """(step, split, loss, accuracy, perplexity, BLEU) of each line."""
    assert done.returncode == 0, done.stderr
    lines = [LINE.fullmatch(line) for line in done.stdout.splitlines()]
    return [(int(m[1]), m[2], *map(float, m.groups()[2:])) for m in lines]


def fields(message, kind, **types):
    """Fields of a protocol buffer, each a list; what it lacks is one empty value."""
    decoded = tf.io.decode_proto(message, f"tensorflow.{kind}", list(types), list(types.values()))
    return [values.numpy().tolist() for values in decoded.values]


def scalars(directory):
    """{step: {tag: value}} of an event file."""
    written = {}
    [path] = directory.glob("events.*")
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        [step], summaries = fields(record, "Event", step=tf.int64, summary=tf.string)
        for summary in summaries:
            for value in fields(summary, "Summary", value=tf.string)[0]:
                [tag], [tensor] = fields(value, "Summary.Value", tag=tf.string, tensor=tf.string)
                if tag:
                    number = float(tf.io.parse_tensor(tensor, tf.float32))
                    written.setdefault(step, {})[tag.decode()] = number
    return written


@pytest.fixture(scope="module")
def done(toy_dir):
    """All checkpoints, after that of step 4 has lost its last byte."""
    run = toy_dir / "damaged"
    shutil.copytree(toy_dir / "run", run)
    path = run / f"model.ckpt-4{DATA}"
    path.write_bytes(path.read_bytes()[:-1])
    done = evaluate(toy_dir, f"--output_dir={run}", "--eval_steps=0")
    assert f"warning: checkpoint {run}/model.ckpt-4 cannot be read: " in done.stderr
    return done


def test_every_checkpoint_as_the_training_evaluated_it(toy_dir, done):
    trained = scalars(toy_dir / "eval_of_training")
    lines = figures(done)
    assert [line[:2] for line in lines] == [(2, "dev"), (6, "dev")]
    for step, _, loss, accuracy, perplexity, bleu in lines:
        assert loss == pytest.approx(trained[step]["loss"], abs=6e-5)
        assert accuracy == pytest.approx(trained[step]["accuracy"], abs=6e-5)
        assert bleu == pytest.approx(trained[step]["bleu"], abs=6e-3)
        assert perplexity == pytest.approx(math.exp(loss), rel=1e-4)
    assert lines[0][2] > lines[1][2]
    written = scalars(toy_dir / "damaged" / "eval")
    assert written.keys() == {2, 6}
    for step, values in written.items():
        assert values == pytest.approx(trained[step], rel=1e-5)


def test_one_checkpoint_on_test(toy_dir, tmp_path):
    """An average, as the paper evaluates; on the half of dev that lies where test is looked for."""
    averaged = tmp_path / "averaged" / "model.ckpt"
    checkpoints.average(
        [str(toy_dir / "run" / f"model.ckpt-{step}") for step in (2, 6)], str(averaged)
    )
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    for path in (toy_dir / "data").iterdir():
        if "vocab" in path.name:
            shutil.copy(path, data_dir)
    dev = tf.data.TFRecordDataset(sorted(map(str, (toy_dir / "data").glob(f"{toy.PROBLEM}-dev-*"))))
    half = list(dev.take(40).as_numpy_iterator())
    with tf.io.TFRecordWriter(str(data_dir / f"{toy.PROBLEM}-test-00000-of-00001")) as writer:
        for record in half:
            writer.write(record)
    flags = [f"--checkpoint_path={averaged}", "--eval_use_test_set"]
    done = evaluate(toy_dir, *flags, data_dir=data_dir)
    [(step, split, loss, *_)] = figures(done)
    assert (step, split) == (6, "test")
    written = scalars(tmp_path / "averaged" / "eval_test")[6]
    assert written["loss"] == pytest.approx(loss, abs=6e-5)
    assert not (tmp_path / "averaged" / "eval").exists()


def test_those_that_come_are_waited_for(tmp_path, monkeypatch):
    def prefix(step):
        return str(tmp_path / "run" / f"model.ckpt-{step}")

    coming = iter([10, 20, 30])

    def sleep(_):
        step = next(coming, None)
        if step:
            write(prefix(step), {"global_step": step})

    monkeypatch.setattr(command.time, "sleep", sleep)
    found = list(command.checkpoints_of_run(str(tmp_path / "run"), 15, 0.005))
    assert found == [prefix(20), prefix(30)]


def test_steps_of_all_are_sorted_as_numbers(tmp_path):
    for step in (9, 100, 20):
        write(str(tmp_path / f"model.ckpt-{step}"), {"global_step": step})
    found = list(command.checkpoints_of_run(str(tmp_path), 10, 0.0))
    assert found == [str(tmp_path / f"model.ckpt-{step}") for step in (20, 100)]


def test_without_bleu_and_beyond_all_numbers():
    """A packed problem is not decoded, and a network that diverged has any loss."""
    line = command.line({"loss": 800.0, "accuracy": 0.0})
    assert line == "loss 800.0000  accuracy 0.0000  perplexity inf"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", "--output_dir is missing"),
        ("--checkpoint_path=a --min_steps=3", "leave out --output_dir, --min_steps"),
        ("--output_dir={}/run --min_steps=7", "has no checkpoint of 7 or more steps"),
        ("--output_dir={}/run --eval_use_test_set", "test"),
        ("--checkpoint_path={}/damaged/model.ckpt-4", "cannot be read: "),
        ("--output_dir={}/run --decode_hparams=beam_size=two", "beam_size"),
        ("--eval_step=3", "Did you mean 'eval_steps'?"),
    ],
)
def test_complains_in_one_line(toy_dir, done, flags, expected):
    assert expected in toy.complaint(evaluate(toy_dir, *flags.format(toy_dir).split()))
