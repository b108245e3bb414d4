"""A whole run in small: learning, going on where it stopped, ending, what it writes."""

import datetime
import json
import os
import re
import shutil
import signal
import sys

import numpy as np
import pytest
import tensorflow as tf
import toy
from corpus_files import write_shards

from t2t_keras import checkpoints, load, registry
from t2t_keras.checkpoints import write_settings
from t2t_keras.decoding import DecodeSettings, Translator
from t2t_keras.errors import UserError
from t2t_keras.files import locked_directory
from t2t_keras.inspection import batch_page
from t2t_keras.training import EarlyStopping, EngineSettings, Trainer, TrainSettings
from t2t_keras.training.train_step import StepSums

sys.path.append(str(toy.ROOT / "benchmarks"))
from restarts import losses

pytestmark = pytest.mark.usefixtures("one_engine")
DECODE = DecodeSettings(beam_size=1, extra_length=2)
SMALL = toy.hparams(num_hidden_layers=1, hidden_size=32, filter_size=32)


def trainer(data_dir, output_dir, steps, hparams=SMALL, tmp_dir=None, engine=None, **settings):
    settings = {"eval_steps": 1, "log_step_count_steps": 3, "decode": DECODE, **settings}
    return Trainer(
        registry.problem(toy.PROBLEM),
        registry.hparams(hparams),
        str(data_dir),
        str(output_dir),
        TrainSettings(train_steps=steps, engine=EngineSettings(**(engine or {})), **settings),
        tmp_dir,
    ).prepare()


def after(going, steps, act):
    """Makes a trainer call `act` when so many steps are done."""
    train = going.engine.train

    def train_and_act(iterator, count):
        totals = train(iterator, count)
        if going.engine.step >= steps:
            act()
        return totals

    going.engine.train = train_and_act
    return going


def interrupt():
    os.kill(os.getpid(), signal.SIGTERM)


def starts(directory):
    return json.loads((directory / "run.json").read_text())["starts"]


def ending(directory):
    return starts(directory)[-1]["ended"]


def assert_same(one, other, step, every=3):
    """The same run, bit for bit: variables, curve of the loss, evaluations."""
    arrays, others = (checkpoints.read(str(run / f"model.ckpt-{step}")) for run in (one, other))
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)
    assert losses(one) == losses(other)
    assert len(losses(one)) == step // every
    for file in ("evaluations.jsonl", "best"):
        assert (one / file).read_text() == (other / file).read_text()
    return arrays


@pytest.fixture(scope="module")
def whole(data_dir, tmp_path_factory):
    """A run of 12 steps that nothing stopped; its record as each evaluation began."""
    directory = tmp_path_factory.mktemp("whole")
    going = trainer(data_dir, directory, 12, local_eval_frequency=5, attention_page=batch_page)
    measure, seen = going.evaluation, []

    def evaluate(done):
        seen.append(starts(directory)[0])
        return measure(done)

    evaluate.batches, evaluate.translator = measure.batches, measure.translator
    going.evaluation = evaluate
    return directory, going.run(), seen


def test_learns_to_turn_rows_round(data_dir, tmp_path):
    """Worst of five seeds, with oneDNN and without: 0.003, 0.998, BLEU 100."""
    schedule = "constant*linear_warmup*rsqrt_decay*linear_decay*rsqrt_hidden_size"
    steps = {"learning_rate_warmup_steps": 100, "learning_rate_decay_steps": 200}
    dropout = {"label_smoothing": 0.0, "layer_prepostprocess_dropout": 0.0}
    hparams = toy.hparams(num_hidden_layers=1, learning_rate_schedule=schedule, **steps, **dropout)
    figures = trainer(data_dir, tmp_path / "run", 400, hparams, eval_steps=0).run()
    assert figures["accuracy"] > 0.98 and figures["bleu"] > 90 and figures["loss"] < 0.1
    model = checkpoints.load_model(str(tmp_path / "run"))
    encoders = registry.problem(toy.PROBLEM).get_feature_encoders(data_dir)
    settings = DecodeSettings(beam_size=4, extra_length=2, batch_size=2)  # BLEU is by a beam of one
    translated = Translator(model, encoders, settings).translate(["a b c", "h g", "d e f d"])
    assert [t.texts[0] for t in translated] == ["c b a", "g h", "d f e d"]


def test_a_run_that_was_told_to_stop_goes_on_as_if_it_had_not(data_dir, tmp_path, whole, capsys):
    """It is stopped within a mean of the loss, in an evaluation, and after one."""
    going = after(trainer(data_dir, tmp_path, 12, local_eval_frequency=5), 4, interrupt)
    assert going.run() == {}
    first = going.engine.step  # steps are bundled by the time they take
    assert first in (4, 5)
    line = f"stopped by SIGTERM after step {first}, which is saved"
    assert capsys.readouterr().err.strip().split("\n")[-1] == ending(tmp_path) == line

    going = trainer(data_dir, tmp_path, 12, local_eval_frequency=5)
    evaluation = going.evaluation

    def evaluate(done):
        interrupt()
        return evaluation(done)

    going.evaluation = evaluate
    assert going.run() == {}
    assert "after step 5" in ending(tmp_path)

    after(trainer(data_dir, tmp_path, 12, local_eval_frequency=5), 7, interrupt).run()
    assert not (tmp_path / "model.ckpt-12.index").exists()
    going = trainer(data_dir, tmp_path, 12, local_eval_frequency=5, compile_ahead=True)
    assert going.run() == whole[1]
    assert_same(whole[0], tmp_path, 12)
    third = starts(tmp_path)[2]["step"]
    assert [start["from_step"] for start in starts(tmp_path)] == [0, first, 5, third]
    assert third < 10  # not only in an evaluation


def test_a_finished_run_is_not_evaluated_again(data_dir, whole):
    again = trainer(data_dir, whole[0], 12, local_eval_frequency=5)
    again.evaluation = None
    assert again.run() == whole[1]


def test_stops_early_and_names_the_best(data_dir, tmp_path):
    stopping = EarlyStopping(steps=2, metric="accuracy", delta=1.0)
    settings = {"best_metric": "accuracy", "keep_checkpoint_max": 1, "early_stopping": stopping}
    figures = trainer(data_dir, tmp_path, 20, local_eval_frequency=2, **settings).run()
    assert figures.keys() == {"loss", "accuracy", "bleu"}
    assert "accuracy of dev has not improved by 1.0 for 2 steps" in ending(tmp_path)
    rows = [json.loads(row) for row in (tmp_path / "evaluations.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [2, 4]
    best = max(rows, key=lambda row: row["accuracy"])["step"]
    assert (tmp_path / "best").read_text() == f"model.ckpt-{best}\n"
    assert (tmp_path / f"model.ckpt-{best}.index").exists()


def test_saves_by_seconds_too(data_dir, tmp_path):
    trainer(data_dir, tmp_path, 9, save_checkpoints_secs=1e-9).run()
    steps = {int(path.stem.split("-")[1]) for path in tmp_path.glob("model.ckpt-*.index")}
    assert {1, 3, 6, 9} <= steps  # at the ends of all bundles of steps


def test_begins_with_the_weights_of_another_run(data_dir, tmp_path, whole):
    warm = trainer(data_dir, tmp_path, 0, warm_start_from=str(whole[0]))
    assert warm.run() == whole[1]
    assert warm.engine.step == 0
    arrays = checkpoints.read(str(tmp_path / "model.ckpt-0"))
    assert not np.any(arrays[next(name for name in arrays if name.endswith("/Adam"))])


def test_writes_settings_scalars_and_what_ran(whole):
    run = json.loads((whole[0] / "run.json").read_text())
    assert (run["problem"], run["hparams_set"]) == (toy.PROBLEM, "transformer_tiny")
    start = run["starts"][0]
    assert start["versions"]["t2t_keras"]
    assert (start["replicas"], start["devices"], start["from_step"]) == (1, ["CPU"], 0)
    assert (start["ended"], start["train_steps"]) == ("done: step 12", 12)
    assert start["process"] == os.getpid()
    assert json.loads((whole[0] / "hparams.json").read_text())["hidden_size"] == 32
    for folder, found in (
        (".", ("loss", "learning_rate", "gradient_norm", "tokens_per_second", "scalars")),
        (".", ("_hparams_/session_start_info", f"| problem | `{toy.PROBLEM}` |")),
        ("eval", ("bleu", "accuracy")),
    ):
        written = b"".join(path.read_bytes() for path in (whole[0] / folder).glob("events.*"))
        assert [text for text in found if text.encode() not in written] == []
    page = (whole[0] / "eval" / "attention-12.html").read_text()
    assert f"<title>Attention: {toy.PROBLEM}, step 12</title>" in page


def test_records_how_far_it_is_and_what_took_how_long_while_it_trains(whole):
    """`run.json` is read during the evaluations of steps 5, 10 and 12."""
    last, (first, *others) = starts(whole[0])[0], whole[2]
    assert "seconds" not in first and "step" not in first
    assert [start["step"] for start in (*others, last)] == [5, 10, 12]
    assert [start["ended"] for start in others] == ["", ""]
    second, third, seconds = (start["seconds"] for start in (*others, last))
    assert {*seconds} == {"restoring", "compilation", "training", "evaluation", "saving"}
    for earlier, later in ((second, third), (third, seconds)):
        for phase in ("training", "evaluation", "saving"):
            assert later[phase] > earlier[phase] > 0
        for phase in ("compilation", "restoring"):
            assert later[phase] == earlier[phase] >= 0
    times = [datetime.datetime.fromisoformat(last[key]) for key in ("started", "noted")]
    assert sum(seconds.values()) < (times[1] - times[0]).total_seconds() + 1


HOST_ENDED = r"another host of this run has ended.*start all hosts again to resume from the newest"
DAMAGED = "UserError: Example 7 is damaged.\n\nin a graph"


@pytest.mark.parametrize(
    ("error", "said", "message"),
    [
        (tf.errors.UnavailableError, "Socket closed", HOST_ENDED),
        (tf.errors.AbortedError, "Socket closed", HOST_ENDED),
        (tf.errors.UnknownError, DAMAGED, r"^Example 7 is damaged\.$"),
    ],
)
def test_why_a_run_ended_is_reported_and_recorded(data_dir, tmp_path, error, said, message):
    def fail():
        raise error(None, None, said)

    with pytest.raises(UserError, match=message) as raised:
        after(trainer(data_dir, tmp_path, 12), 1, fail).run()
    assert ending(tmp_path).rstrip(".") == str(raised.value).rstrip(".")
    assert (tmp_path / "model.ckpt-1.index").exists() == (error is tf.errors.UnknownError)


def test_what_a_killed_start_left_is_put_right(data_dir, tmp_path, whole, capsys):
    directory = tmp_path / "run"
    shutil.copytree(whole[0], directory)
    (directory / "best").unlink()
    trainer(data_dir, directory, 12, warm_start_from="gone/model.ckpt-1").run()
    assert f"{directory}, not starting from gone/model.ckpt-1\n" in capsys.readouterr().err
    assert (directory / "best").read_text() == (whole[0] / "best").read_text()
    with pytest.raises(UserError, match="gone"):
        trainer(data_dir, tmp_path / "new", 12, warm_start_from="gone/model.ckpt-1")


def test_other_settings_are_refused_with_the_difference(data_dir, whole):
    for settings, message in (
        ({"hparams": SMALL.replace("filter_size=32", "filter_size=64")}, "filter_size was 32 and is now 64"),
        ({"engine": {"random_seed": 5}}, "random_seed was 0 and is now 5"),
        ({"engine": {"random_seed": -1}}, r"random_seed must be from 0 to 2\*\*32 - 1, got -1"),
        ({"engine": {"ema": 0.9}}, r"ema was 0\.0 and is now 0\.9"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=message):
            trainer(data_dir, whole[0], 1, **settings)


def test_a_run_knows_its_vocabulary_by_its_pieces(data_dir, tmp_path, whole, refused):
    """With another of the same size it is neither resumed nor decoded."""
    other = shutil.copytree(data_dir, tmp_path / "data")
    [vocabulary] = other.glob("vocab.*")
    reserved, pieces = (lines := vocabulary.read_text().splitlines())[:2], lines[2:]
    vocabulary.write_text("\n".join([*reserved, *reversed(pieces)]) + "\n")
    with refused(f"the vocabulary of the inputs in {other} is not that of "):
        load(whole[0], data_dir=other)
    with refused("were made with another vocabulary"):
        trainer(other, whole[0], 13)
    [index] = other.glob("index.*-train.npz")
    index.unlink()  # so that the vocabulary of the shards is not known
    with refused(r"holds a run with other settings \(vocabulary was "):
        trainer(other, whole[0], 13)


OTHER = SMALL.replace("constant=1.0", "constant=2.0")


def test_two_starts_at_once_in_a_new_directory(data_dir, tmp_path):
    """Both found it empty; the second waits for the lock, and then sees what the first wrote."""
    first, second = (trainer(data_dir, tmp_path, steps) for steps in (3, 6))
    other = trainer(data_dir, tmp_path, 3, OTHER)
    first.run()
    with pytest.raises(UserError, match=r"learning_rate_constant was 1\.0 and is now 2\.0"):
        other.run()
    second.run()
    assert [start["ended"] for start in starts(tmp_path)] == ["done: step 3", "done: step 6"]


def test_a_start_with_other_settings_does_not_wait_for_a_run(data_dir, tmp_path, capsys):
    other = trainer(data_dir, tmp_path, 3, OTHER)
    write_settings(str(tmp_path), registry.hparams(SMALL), {})
    with locked_directory(tmp_path), pytest.raises(UserError, match="learning_rate_constant was"):
        other.run()
    assert "waiting" not in capsys.readouterr().err


def test_a_host_needs_the_directory_of_the_first(data_dir, tmp_path, monkeypatch, refused):
    second = trainer(data_dir, tmp_path, 1)
    monkeypatch.setattr(second.engine, "is_chief", False)
    monkeypatch.setattr(second._hosts, "agree", lambda chief, any_host: chief)
    with refused("all hosts must see the same --output_dir"):
        second.run()


def test_a_run_of_t2t_goes_on_with_a_line_on_what_it_had_besides(data_dir, tmp_path, whole, capsys):
    for path in whole[0].glob("model.ckpt-12.*"):
        shutil.copy(path, tmp_path)
    hp = json.loads((whole[0] / "hparams.json").read_text())
    (tmp_path / "hparams.json").write_text(json.dumps({**hp, "weight_noise": 0.1}))
    (tmp_path / "flags.txt").write_text("--worker_gpu=2")
    line = (
        "warning: the run that tensor2tensor started here is resumed without its weight_noise=0.1 "
        "(noise on gradients and weights is not supported), --worker_gpu=2 --worker_replicas=1 "
        "(batches of a step now: 1)"
    )
    for times in (1, 0):  # after the first start it is a run of ours
        trainer(data_dir, tmp_path, 12).run()
        said = capsys.readouterr().err.splitlines()
        assert [each for each in said if "tensor2tensor" in each] == times * [line]


def test_a_loss_that_is_no_number_stops_the_run_with_advice(data_dir, tmp_path):
    broken = trainer(data_dir, tmp_path, 6, local_eval_frequency=2)
    table = broken.model.softmax.table
    after(broken, 3, lambda: table.assign(table * np.nan))
    with pytest.raises(UserError, match=r"learning_rate_warmup_steps.*warm_start_from=.*ckpt-2"):
        broken.run()
    assert "the loss became nan before step" in ending(tmp_path)
    assert checkpoints.resolve(str(tmp_path)).endswith("model.ckpt-2")
    with pytest.raises(UserError, match="the norm of the gradient became inf before step 7"):
        broken._report(7, StepSums(2.0, 1.0, 1.0, 2.0, np.inf), 1.0)


def test_xla_and_no_xla_train_alike(data_dir, tmp_path, whole):
    settings = {"local_eval_frequency": 5, "engine": {"xla": True}, "compile_ahead": True}
    after(trainer(data_dir, tmp_path, 12, **settings), 5, interrupt).run()
    one, other = (checkpoints.read(str(path / "model.ckpt-5")) for path in (whole[0], tmp_path))
    for name, value in one.items():
        if name.startswith("transformer/"):
            np.testing.assert_allclose(other[name], value, atol=1e-5, err_msg=name)


def test_figures_of_other_settings_get_a_line(data_dir, tmp_path, capsys):
    decay = {"learning_rate_schedule": "constant*linear_decay", "learning_rate_decay_steps": 2}
    hparams = toy.hparams(num_hidden_layers=1, hidden_size=32, filter_size=32, **decay)
    other = {"eval_steps": 2, "decode": DecodeSettings(beam_size=3, extra_length=2)}
    data = shutil.copytree(data_dir, tmp_path / "data")
    (data / f"index.{toy.PROBLEM}-dev.npz").unlink()
    write_shards(data, toy.PROBLEM, "dev", [{"inputs": [5, 1], "targets": [6, 1]}])
    starts = [(4, {}, data_dir), (4, {}, data_dir), (4, other, data_dir), (6, other, data_dir)]
    for steps, settings, read in (*starts, (6, other, data)):
        going = trainer(read, tmp_path, steps, hparams, **settings)
        going._begin_record()
        going.record.note()
    going.record.note(replicas=2)
    going._begin_record()
    *said, of_replicas = capsys.readouterr().err.splitlines()
    assert "replicas of this run were 2 and are now 1: its batch size changes" in of_replicas
    *said, of_data = [line.removeprefix("warning: ").split(": from here on")[0] for line in said]
    assert said == [
        "eval_steps was 1 and is now 2, beam_size was 1 and is now 3",
        "train_steps was 4 and is now 6",
    ]
    assert re.fullmatch("dev_shards was [0-9a-f]{16} and is now [0-9a-f]{16}", of_data)
