"""A trained model and what belongs to it, found from where it is. (Texts: tests/test_cli_run.py.)"""

import json
import re
import shutil

import golden
import keras
import networks
import numpy as np
import pytest
import t2t_release
import toy

import t2t_keras as t2t
from t2t_keras import checkpoints
from t2t_keras.checkpoints.t2t import trained_spaces
from t2t_keras.errors import UserError
from t2t_keras.precision import has_int8, in_precision
from t2t_keras.text import ByteTextEncoder
from t2t_keras.trained_model import TrainedModel

BYTES = "translate_encs_wmt_characters"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose problem needs no vocabulary file."""
    size = ByteTextEncoder().vocab_size
    model = networks.small_model("", size, size)
    directory = tmp_path_factory.mktemp("run")
    checkpoints.write_settings(str(directory), model.hp, {**model.description(), "problem": BYTES})
    checkpoints.save_t2t(model, str(directory / "model.ckpt-7"))
    return directory


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_load_of_several_is_an_ensemble_in_another_precision(run, precision):
    if precision == "int8" and not has_int8():
        pytest.skip("int8 needs oneDNN, which TensorFlow has on x86 processors")
    both = [run, f"{run}/model.ckpt-7"]
    found = t2t.load(both, precision=precision)
    wanted = in_precision(t2t.load(both).model, precision)
    assert found.description()["precision"] == precision
    for one, other in zip(found.model.members, wanted.members, strict=True):
        assert one.hp.set_name == "transformer_base"
        assert type(one.dtype_policy) is type(other.dtype_policy)
        assert one.dtype_policy.name == other.dtype_policy.name
        for ours, theirs in zip(one.weights, other.weights, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (ours, theirs)))


def test_a_run_of_t2t_has_its_set_from_its_flags(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "run.json").unlink()
    (tmp_path / "run" / "flags.txt").write_text(f"--problem={BYTES}\n--hparams_set=my_set\n")
    assert t2t.load(tmp_path / "run", data_dir=tmp_path).set_name == "my_set"


def test_load_of_a_keras_file_is_the_model_as_it_was_compiled(tmp_path):
    hp = t2t.registry.hparams("transformer_tiny", networks.SMALL)
    model = t2t.TransformerClassifier(hp, source_vocab_size=9, num_classes=4)
    model.compile(t2t.optimizers.create(hp))
    model.save(tmp_path / "model.keras")
    program = f"""
import numpy
import t2t_keras
model = t2t_keras.load({str(tmp_path / "model.keras")!r})
print(*model({{"inputs": numpy.array([[2, 3, 1]])}})[0].numpy(), type(model.optimizer).__module__)
"""
    *logits, module = toy.succeeded(toy.python("-c", program)).stdout.split()
    wanted = model({"inputs": np.array([[2, 3, 1]])})[0]
    np.testing.assert_allclose(np.array(logits, float), wanted, atol=1e-6)
    assert module == "t2t_keras.optimizers"
    message = "is a Keras model with its own settings: leave out target_space_id"
    with pytest.raises(UserError, match=message):
        t2t.load(tmp_path / "model.keras", target_space_id=0)
    (tmp_path / "model.keras").write_bytes(b"no archive")
    with pytest.raises(UserError, match=r"model\.keras cannot be read: "):
        t2t.load(tmp_path / "model.keras")


@pytest.fixture
def of_t2t(tmp_path):
    """T2T's checkpoint and data, with the flags that its trainer writes."""
    t2t_release.write(tmp_path, made_up=True)
    flags = {"problem": t2t_release.PROBLEM, "data_dir": tmp_path / "t2t_data", "worker_id": 0}
    lines = (f"--{name}={value}\n" for name, value in flags.items())
    (tmp_path / "t2t_train/flags.txt").write_text("".join(lines))
    return tmp_path


def test_the_row_of_the_target_space_that_was_trained_is_named(of_t2t, capsys, monkeypatch):
    """T2T's released checkpoint is one of space 8, and its problem now says 0."""
    path, case = of_t2t / "t2t_train", golden.load("t2t_release")
    t2t.load(path)
    said = capsys.readouterr().err
    assert "model.ckpt-1 was trained with target_space_id=8, but 0 is used: give that" in said
    loaded = t2t.load(path, target_space_id=8)
    assert capsys.readouterr().err == ""
    error = golden.relative_error(loaded.model(case.batch), case.arrays["logits"])
    assert error < golden.RELATIVE and loaded.made_from()["target_space_id"] == "8"
    monkeypatch.setattr(type(loaded.problem), "space_ids", (8, 8))
    assert t2t.load(path).model.target_space_id == 8  # nothing else is recorded
    flags = (f"--checkpoint_path={path}", "--target_space_id=40", "--decode_from_file=-")
    said = toy.complaint(toy.command("decode", *flags, input="a\n"))
    assert "target_space_id must be from 0 to 31, got 40" in said


def test_without_slots_the_trained_row_is_the_one_of_large_values():
    table = np.random.default_rng(0).uniform(-0.1, 0.1, (32, 64))
    name = "transformer/body/target_space_embedding/kernel"
    assert trained_spaces({name: table}) == trained_spaces({}) == []
    table[8] *= 5
    assert trained_spaces({name: table}) == [8]
    slots = {f"{name}/Adafactor": abs(table).max(1), f"{name}/Adafactor_1": table[0, :32]}
    assert trained_spaces(slots) == [8]


def test_outputs_are_made_from_settings_and_vocabulary(of_t2t):
    path = str(of_t2t / "t2t_train")
    before = TrainedModel([path]).made_from()
    [vocabulary] = (of_t2t / "t2t_data").glob("vocab.*")
    vocabulary.write_bytes(vocabulary.read_bytes().replace(b"'H'\n'e'", b"'e'\n'H'"))
    after = TrainedModel([path]).made_from()
    assert {name for name in after if after[name] != before[name]} == {"vocabulary"}
    assert before["num_heads"] == str(TrainedModel([path]).model.hp.num_heads)


def test_a_run_of_t2t_is_found_by_its_flags(of_t2t):
    loaded = TrainedModel([str(of_t2t / "t2t_train")])
    assert loaded.problem.name == t2t_release.PROBLEM
    assert loaded.data_dir == str(of_t2t / "t2t_data")
    (of_t2t / "t2t_train/hparams.json").unlink()  # of T2T's first versions
    with open(of_t2t / "t2t_train/flags.txt", "a") as flags:
        flags.write("--hparams_set=transformer_tiny\n--hparams=num_heads=2\n")
    with pytest.raises(UserError, match="does not fit"):  # it is the set that is asked
        TrainedModel([str(of_t2t / "t2t_train")])


def test_so_is_an_average_of_it_or_the_vocabulary_beside_it(of_t2t):
    output = str(of_t2t / "averaged" / "model.ckpt")
    checkpoints.average([checkpoints.resolve(str(of_t2t / "t2t_train"))], output)
    assert TrainedModel([output]).data_dir == str(of_t2t / "t2t_data")
    shutil.move(of_t2t / "t2t_data" / t2t_release.VOCABULARY, of_t2t / "t2t_train")
    assert TrainedModel([str(of_t2t / "t2t_train")]).data_dir == str(of_t2t / "t2t_train")


def test_the_directory_of_the_newest_start_comes_first(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    record = json.loads((run / "run.json").read_text())
    started = {"started_seconds": 0, "replicas": 1}
    starts = [{"data_dir": "/before"}, {}, {"data_dir": "/now"}]
    record["starts"] = [started | start for start in starts]
    (tmp_path / "run/run.json").write_text(json.dumps(record))
    assert t2t.load(tmp_path / "run").data_dir == "/now"
    assert t2t.load(tmp_path / "run", data_dir="/given").data_dir == "/given"


def test_says_what_is_missing(of_t2t, tmp_path):
    with pytest.raises(UserError, match="there is nothing to load"):
        t2t.load([])
    (of_t2t / "t2t_data" / t2t_release.VOCABULARY).unlink()
    train, data = of_t2t / "t2t_train", of_t2t / "t2t_data"
    message = f"no vocabulary of {t2t_release.PROBLEM} in {data} or {train}: give its directory"
    with pytest.raises(UserError, match=re.escape(message)):
        t2t.load(train)
    (train / "flags.txt").unlink()
    with pytest.raises(UserError, match="problem is missing"):
        t2t.load(train)
    with pytest.raises(UserError, match="no checkpoint"):
        t2t.load(tmp_path / "absent")
    (tmp_path / "export" / "3").mkdir(parents=True)
    (tmp_path / "export" / "3" / "saved_model.pb").touch()
    with pytest.raises(UserError, match="is an export with its own"):
        t2t.load(tmp_path / "export", decode_hparams="beam_size=1")
