"""A whole run in small: learning, going on where it stopped, what it writes."""

import json

import numpy as np
import pytest
import tensorflow as tf
import toy

from t2t_keras import checkpoints, registry
from t2t_keras.decoding import DecodeSettings, Translator
from t2t_keras.errors import UserError
from t2t_keras.training import Trainer, TrainSettings

DECODE = DecodeSettings(beam_size=1, extra_length=2)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return str(toy.generate(tmp_path_factory.mktemp("toy")))


def trainer(data_dir, output_dir, steps, hparams="", **settings):
    settings = {"local_eval_frequency": 1000, "eval_steps": 0, "decode": DECODE, **settings}
    return Trainer(
        registry.problem(toy.PROBLEM),
        registry.hparams(hparams or toy.hparams(num_hidden_layers=1)),
        data_dir,
        str(output_dir),
        TrainSettings(train_steps=steps, **settings),
    )


def test_learns_to_turn_rows_round(data_dir, tmp_path):
    figures = trainer(data_dir, tmp_path / "run", 1100, toy.hparams()).run()
    assert figures["accuracy"] > 0.98
    assert figures["bleu"] > 90
    assert figures["loss"] < 0.1
    model = checkpoints.load_model(str(tmp_path / "run"))
    encoders = registry.problem(toy.PROBLEM).get_feature_encoders(data_dir)
    for beam_size in (1, 4):
        settings = DecodeSettings(beam_size=beam_size, extra_length=2, batch_size=2)
        translated = Translator(model, encoders, settings).translate(["a b c", "h g", "d e f d"])
        assert [t.texts[0] for t in translated] == ["c b a", "g h", "d f e d"]


def test_going_on_equals_never_having_stopped(data_dir, tmp_path):
    whole = trainer(data_dir, tmp_path / "whole", 12)
    whole.run()
    trainer(data_dir, tmp_path / "parts", 5).run()
    parts = trainer(data_dir, tmp_path / "parts", 12)
    parts.run()
    one, other = (
        checkpoints.read(str(tmp_path / name / "model.ckpt-12")) for name in ("whole", "parts")
    )
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    assert int(one["global_step"]) == 12
    assert any(name.endswith("/shared/Adam_1") for name in one)


def test_text_on_the_fly_goes_on_exactly_too(data_dir, tmp_path):
    """Without shards; the vocabulary is built where there is none."""
    text = toy.write_text(tmp_path / "text")
    empty = tmp_path / "data"

    def run(name, steps):
        going = Trainer(
            registry.problem(toy.PROBLEM),
            registry.hparams(toy.hparams(num_hidden_layers=1)),
            str(empty),
            str(tmp_path / name),
            TrainSettings(train_steps=steps, eval_steps=1, decode=DECODE),
            str(text),
        )
        return going.run()

    whole = run("whole", 7)
    run("parts", 4)
    assert run("parts", 7) == whole
    assert [path.name[:5] for path in empty.iterdir()] == ["vocab"]
    one, other = (
        checkpoints.read(str(tmp_path / name / "model.ckpt-7")) for name in ("whole", "parts")
    )
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    with pytest.raises(UserError, match="on_the_fly was True and is now False"):
        trainer(data_dir, tmp_path / "parts", 8)


def test_files_of_older_runs_beside_a_checkpoint_are_left_out_of_account(data_dir, tmp_path):
    """They held the data's place, as `model.ckpt-STEP.input`."""
    trainer(data_dir, tmp_path / "run", 2).run()
    for suffix in ("index", "data-00000-of-00001"):
        (tmp_path / "run" / f"model.ckpt-2.input.{suffix}").write_bytes(b"old")
    going_on = trainer(data_dir, tmp_path / "run", 3, keep_checkpoint_max=1)
    going_on.run()
    kept = sorted(path.name for path in (tmp_path / "run").glob("model.ckpt-*"))
    assert kept == ["model.ckpt-3.data-00000-of-00001", "model.ckpt-3.index"]


def test_keeps_so_many_checkpoints(data_dir, tmp_path):
    trainer(data_dir, tmp_path / "run", 8, local_eval_frequency=2, keep_checkpoint_max=2).run()
    kept = sorted(path.name for path in (tmp_path / "run").glob("model.ckpt-*"))
    assert kept == [
        f"model.ckpt-{step}{suffix}"
        for step in (6, 8)
        for suffix in (".data-00000-of-00001", ".index")
    ]
    assert checkpoints.resolve(str(tmp_path / "run")).endswith("model.ckpt-8")


def test_writes_settings_and_scalars(data_dir, tmp_path):
    trainer(data_dir, tmp_path / "run", 2).run()
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["problem"] == toy.PROBLEM
    assert run["hparams_set"] == "transformer_tiny"
    hp = json.loads((tmp_path / "run" / "hparams.json").read_text())
    assert hp["hidden_size"] == 64
    for folder, tags in ((".", [b"loss", b"learning_rate"]), ("eval", [b"bleu", b"accuracy"])):
        [events] = (tmp_path / "run" / folder).glob("events.*")
        written = b"".join(tf.data.TFRecordDataset(str(events)).as_numpy_iterator())
        for tag in [*tags, b"scalars"]:
            assert tag in written


def test_other_settings_are_refused_with_the_difference(data_dir, tmp_path):
    trainer(data_dir, tmp_path / "run", 1)
    with pytest.raises(UserError, match="filter_size was 128 and is now 256"):
        trainer(data_dir, tmp_path / "run", 1, toy.hparams(filter_size=256))
    with pytest.raises(UserError, match="random_seed was 0 and is now 5"):
        trainer(data_dir, tmp_path / "run", 1, random_seed=5)


def test_a_loss_that_is_no_number_stops_the_run_with_advice(data_dir, tmp_path):
    broken = trainer(data_dir, tmp_path / "run", 3)
    broken.model.softmax.table.assign(broken.model.softmax.table * np.nan)
    with pytest.raises(UserError, match="learning_rate_warmup_steps"):
        broken.run()


def test_xla_and_no_xla_train_alike(data_dir, tmp_path):
    for name, xla in (("plain", False), ("xla", True)):
        trainer(data_dir, tmp_path / name, 3, xla=xla, eval_steps=1).run()
    one, other = (
        checkpoints.read(str(tmp_path / name / "model.ckpt-3")) for name in ("plain", "xla")
    )
    for name, value in one.items():
        if "/Adam" not in name and name.startswith("transformer/"):
            np.testing.assert_allclose(other[name], value, atol=1e-5, err_msg=name)
