"""tensor2tensor's checkpoints: names, shards, slots, and every way in which one may not fit."""

import itertools
import os
import re
from pathlib import Path

import golden
import numpy as np
import pytest
import tensorflow as tf
from networks import KERNEL, TABLE, small_model

import t2t_keras as t2t
from t2t_keras.checkpoints.names import split_table
from t2t_keras.checkpoints.t2t import STATE_FILE, state_text, write
from t2t_keras.errors import UserError

BIAS = "transformer/body/decoder/layer_1/ffn/conv2/bias"
LAYERS = "num_hidden_layers=2"


@pytest.fixture(name="model", scope="module")
def _model():
    return small_model(LAYERS)


@pytest.fixture(name="path")
def _path(tmp_path):
    return str(tmp_path / "model.ckpt-7")


def changed(model, path, to):
    """Saves `model`, then, as T2T would, with some arrays replaced, added, or (None) taken away."""
    t2t.checkpoints.save_t2t(model, path)
    arrays = {**golden.stored(path), **to}
    names = sorted(name for name in arrays if arrays[name] is not None)
    tensors = [tf.convert_to_tensor(arrays[name]) for name in names]
    tf.raw_ops.SaveV2(
        prefix=path, tensor_names=names, shape_and_slices=[""] * len(names), tensors=tensors
    )


def assert_loads(path, model):
    fresh = small_model(LAYERS, seed=1)
    step = t2t.checkpoints.load_t2t(fresh, path)
    for ours, theirs in zip(fresh.trainable_variables, model.trainable_variables, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    return step


def test_round_trip_by_prefix_index_and_directory(model, path, monkeypatch, capsys):
    t2t.checkpoints.save_t2t(model, Path(path), extra={"global_step": np.int64(7)})
    directory = os.path.dirname(path)
    for name in (path, path + ".index", directory):
        assert assert_loads(name, model) == 7
    files = ["model.ckpt-7.data-00000-of-00001", "model.ckpt-7.index"]
    assert sorted(os.listdir(directory)) == files
    monkeypatch.chdir(directory)
    t2t.checkpoints.save_t2t(model, "model.ckpt-10")
    Path("checkpoint").write_text('model_checkpoint_path: "model.ckpt-9"')
    for name in ("model.ckpt-10", "."):
        assert assert_loads(name, model) == 0  # it has no `global_step`
    assert "model.ckpt-9, which ./checkpoint names, is not there" in capsys.readouterr().err
    Path("checkpoint").write_text('model_checkpoint_path: "/gone/model.ckpt-10"')
    Path("zmean-10.index").touch()  # an average
    assert (t2t.checkpoints.resolve("."), capsys.readouterr().err) == ("./model.ckpt-10", "")


@pytest.mark.parametrize(
    ("rows", "shards", "sizes"),
    [(23, 3, [8, 8, 7]), (7, 3, [3, 2, 2]), (4, 4, [1] * 4), (2, 3, [1, 1, 0]), (5, 1, [5])],
)
def test_shard_sizes(rows, shards, sizes):
    """V // n rows each, one more for the first V % n."""
    table = np.arange(rows * 2).reshape(rows, 2)
    pieces = split_table("t", table, shards)
    assert list(pieces) == [f"t/weights_{i}" for i in range(shards)]
    assert [len(piece) for piece in pieces.values()] == sizes
    np.testing.assert_array_equal(np.concatenate(list(pieces.values())), table)


@pytest.mark.parametrize("shards", [1, 2, 16, 23])
def test_any_number_of_shards_is_read(model, path, shards):
    table = np.asarray(model.softmax.table)
    pieces = {f"{TABLE}/weights_{i}": None for i in range(3)}
    pieces.update(split_table(TABLE, table, shards))
    changed(model, path, to=pieces)
    assert_loads(path, model)


def test_what_training_left_behind_is_tolerated(model, path):
    slots = {
        f"training/{KERNEL}/Adam": np.zeros((16, 24), "float32"),
        f"training/{TABLE}/weights_0/Adam_1": np.zeros((8, 16), "float32"),
        f"{KERNEL}/Adam": np.zeros((16, 24), "float32"),
        "training/beta1_power": np.float32(0.9),
        "global_step": np.int64(250000),
        "losses_avg/problem_0/total_loss": np.float32(1.0),
        "train_stats/problem_0_steps": np.int32(5),
    }
    changed(model, path, to=slots)
    assert assert_loads(path, model) == 250000


def test_everything_that_does_not_fit_is_in_one_message(model, path, refused):
    changes = {
        KERNEL: None,
        BIAS: np.zeros(5, "float32"),
        "transformer/body/encoder/layer_9/ffn/conv1/bias": np.zeros(24, "float32"),
        "transformer/body/other": np.zeros(1, "float32"),
    }
    changed(model, path, to=changes)
    before = model.get_weights()
    with refused() as error:
        t2t.checkpoints.load_t2t(model, path)
    message = str(error.value)
    assert f"checkpoint {path} does not fit" in message and "vocabulary" in message
    assert f"missing: {KERNEL};" in message
    extra = "transformer/body/encoder/layer_9/ffn/conv1/bias, transformer/body/other;"
    assert f"not in this model: {extra}" in message
    assert f"of another shape: {BIAS} is [5] there and [16] here" in message
    for ours, theirs in zip(model.get_weights(), before, strict=True):  # not loaded in part
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("damage", ["gap", "other_depth"])
def test_shards_that_make_no_table(model, path, damage):
    wrong = None if damage == "gap" else np.zeros((8, 5), "float32")
    changed(model, path, to={f"{TABLE}/weights_1": wrong, BIAS: None})
    with pytest.raises(UserError) as error:
        t2t.checkpoints.load_t2t(model, path)
    message = str(error.value)
    assert f"missing: {BIAS}, {TABLE};" in message
    assert f"not in this model: {TABLE}/weights_0, " in message


def test_no_checkpoint_there(model, tmp_path):
    """A kill leaves parts, which TensorFlow writes as `...-0`."""
    t2t.checkpoints.save_t2t(model, str(tmp_path / ".averaged.ckpt.unfinished-0"))
    for name, place in ((".", f"in directory {tmp_path}"), ("a-3", f"at {tmp_path}/a-3")):
        with pytest.raises(UserError, match=f"no checkpoint {place}"):
            t2t.checkpoints.load_t2t(model, str(tmp_path / name))


@pytest.mark.parametrize("place", ["file", "/proc/nowhere"])
def test_a_place_that_cannot_be_written(model, tmp_path, place, refused):
    (tmp_path / "file").write_text("in the way")
    path = str(tmp_path / place / "model.ckpt-0")
    with refused(f"checkpoint {path} cannot be written: "):
        t2t.checkpoints.save_t2t(model, path)


class Killed(BaseException):
    """Ends the process's work as SIGKILL would: nothing is done after it."""


def killed_after(monkeypatch, calls, do):
    """Ends `do` at the call after so many that change files; returns True if it ended before."""
    left = [calls]

    def or_die(function):
        def call(*arguments):
            if not left[0]:
                raise Killed
            left[0] -= 1
            return function(*arguments)

        return call

    with monkeypatch.context() as patch:
        for name in ("replace", "remove", "fsync"):
            patch.setattr(os, name, or_die(getattr(os, name)))
        try:
            do()
        except Killed:
            return True
    return False


def test_saving_replaces_a_checkpoint_by_old_or_new_wherever_it_is_killed(path, monkeypatch):
    """Three times over what killed ones left."""
    values = [{name: np.full(3, i) for name in ("a", "b", "global_step")} for i in range(4)]
    write(path, values[0])
    for old, new in itertools.pairwise(values):
        calls, found = 0, []
        while killed_after(monkeypatch, calls, lambda new=new: write(path, new)):
            stored = t2t.checkpoints.read(path)
            found.append(next(i for i, v in enumerate((old, new)) if (v["a"] == stored["a"]).all()))
            assert all((stored[name] == (old, new)[found[-1]][name]).all() for name in stored)
            calls += 1
        assert found == sorted(found)  # once new, always new
        assert calls > 5
        assert (t2t.checkpoints.read(path)["b"] == new["b"]).all()
    write(path, values[0])
    names = sorted(os.listdir(os.path.dirname(path)))
    assert len({name.rpartition("-of-")[2] for name in names if ".data-" in name}) == 1
    assert not [name for name in names if name.startswith(".")]


def test_any_character_in_a_path(model, tmp_path):
    """TensorFlow's reader takes some of them for a pattern, and a name for that of a directory."""
    t2t.checkpoints.save_t2t(model, plain := str(tmp_path / "mean"))
    os.mkdir(plain)
    assert_loads(plain, model)
    path = str(tmp_path / "r[1]\\x*?{r}, 'ü' \"\"" / "my[1].ckpt")
    t2t.checkpoints.save_t2t(model, path)
    Path(path).with_name(STATE_FILE).write_text(state_text(["my[1].ckpt"]))
    for place in (path, os.path.dirname(path)):
        assert_loads(place, model)
    with open(path + ".index", "ab") as file:
        file.truncate(10)
    with pytest.raises(UserError, match=re.escape(f"checkpoint {path} cannot be read: ")):
        t2t.checkpoints.read(path)


def test_half_precision_loads_and_saves_float32(model, path):
    t2t.checkpoints.save_t2t(model, path)
    half = small_model(LAYERS, seed=1, dtype="mixed_bfloat16")
    t2t.checkpoints.load_t2t(half, path)
    for ours, theirs in zip(half.get_weights(), model.get_weights(), strict=True):
        assert ours.dtype == np.float32
        np.testing.assert_array_equal(ours, theirs)
