"""Checkpoints of a run: nothing half-written is taken for one, and the right ones are kept."""

import os

import keras
import numpy as np
import pytest
from networks import small_model

from t2t_keras import checkpoints, optimizers
from t2t_keras.errors import UserError
from t2t_keras.training import RunCheckpoints

LOSSES = {"run/losses": np.arange(5.0)}


class Run:
    """Stand-in for the parts of an engine that checkpoints need."""

    def __init__(self, overrides="", seed=0):
        self.model = small_model(overrides, seed=seed)
        self.optimizer = optimizers.create(self.model.hp)
        self.optimizer.build(self.model.trainable_variables)
        self.average = keras.Variable(np.zeros((3, 2), np.float32), trainable=False)
        self.step = 0

    def state(self):
        return {"transformer/symbol_modality_23_16/shared/ema": self.average}


@pytest.fixture(scope="module")
def run():
    return Run()


def saved(run, directory, steps, **settings):
    """Checkpoints of these steps, each a second younger than the one before."""
    kept = RunCheckpoints(str(directory), run, **settings)
    for step in steps:
        run.step = step
        run.average.assign(np.full((3, 2), step))
        kept.save(LOSSES)
        os.utime(kept.prefix(step) + ".index", (step, step))
    return kept


def steps_on_disk(directory):
    return sorted(int(path.stem.split("-")[1]) for path in directory.glob("model.ckpt-*.index"))


@pytest.mark.parametrize("optimizer", ["adam", "adafactor"])
def test_restores_all_that_was_saved(tmp_path, optimizer):
    """Slots of a table are cut with it, as T2T does; Adafactor's columns are kept for each piece."""
    overrides = f"optimizer={optimizer}"
    run, other = Run(overrides), Run(overrides, seed=1)
    assert RunCheckpoints(str(tmp_path), run).restore_latest(LOSSES) is None  # a new run
    slots = [slot for slot in run.optimizer.variables if slot.shape]
    assert len(slots) > 5
    for number, slot in enumerate(slots):
        slot.assign(np.random.default_rng(number).uniform(size=slot.shape))
    saved(run, tmp_path, [7])
    found = RunCheckpoints(str(tmp_path), other).restore_latest({**LOSSES, "global_step": 0})
    assert (found["global_step"], found["global_step"].dtype) == (7, np.int64)
    np.testing.assert_array_equal(found["run/losses"], LOSSES["run/losses"])
    kept, restored = ([*each.model.weights, *each.optimizer.variables] for each in (run, other))
    for one, two in zip(kept, restored, strict=True):
        np.testing.assert_array_equal(one, two, err_msg=one.path)
    np.testing.assert_array_equal(other.average, np.full((3, 2), 7))
    assert checkpoints.load_t2t(small_model(), str(tmp_path)) == 7
    shapes = {
        tuple(name.split("/")[-2:]): value.shape
        for name, value in checkpoints.t2t.each_variable(str(tmp_path))
        if name.startswith("training/transformer/symbol_modality_23_16/shared/")
    }
    if optimizer == "adafactor":
        assert {name[1] for name in shapes} == {"Adafactor", "Adafactor_1"}
        assert [shapes[f"weights_{i}", "Adafactor"] for i in range(3)] == [(8,), (8,), (7,)]
        assert [shapes[f"weights_{i}", "Adafactor_1"] for i in range(3)] == [(16,)] * 3


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def change(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DATA = "data-00000-of-00001"


@pytest.mark.parametrize(
    ("damage", "suffix"),
    [
        *((cut, DATA), (change, DATA), (os.remove, DATA), (cut, "index"), (change, "index")),
        (lambda path: path.write_bytes(b""), "index"),
    ],
)
def test_damaged_checkpoints_are_left_out(run, tmp_path, capsys, damage, suffix):
    saved(run, tmp_path, [2, 4, 6])
    for step in (4, 6):
        damage(tmp_path / f"model.ckpt-{step}.{suffix}")
    again = RunCheckpoints(str(tmp_path), run, keep=2)
    assert again.restore_latest({"global_step": 0})["global_step"] == 2
    assert again.newest.endswith("model.ckpt-2")
    warnings = capsys.readouterr().err.splitlines()
    assert [line[:19] for line in warnings] == ["warning: checkpoint"] * 2
    assert "model.ckpt-6" in warnings[0]
    again.remove_old()
    assert checkpoints.resolve(str(tmp_path)).endswith("model.ckpt-2")
    run.step = 4  # it comes again
    again.save(LOSSES)
    assert checkpoints.is_whole(again.prefix(4))
    assert checkpoints.resolve(tmp_path).endswith("model.ckpt-4")


def test_a_run_is_not_begun_anew_over_damaged_checkpoints(run, tmp_path, capsys):
    saved(run, tmp_path, [2])
    cut(tmp_path / "model.ckpt-2.data-00000-of-00001")
    with pytest.raises(UserError, match="none of the 1 checkpoints"):
        RunCheckpoints(str(tmp_path), run).restore_latest(LOSSES)


def test_what_a_killed_process_left_is_removed_and_nothing_else(run, tmp_path):
    kept = saved(run, tmp_path, [2])
    (tmp_path / "model.ckpt-2.input.data-00000-of-00001").write_bytes(b"of others")
    whole = sorted(path.name for path in tmp_path.iterdir())
    for name in (
        ".model.ckpt-3.unfinished.data-00000-of-00001",
        ".model.ckpt-3.unfinished.index",
        ".model.ckpt-3.unfinished.data-00000-of-00001.tempstate123",
        "model.ckpt-1.data-00000-of-00001",
        "evaluations.jsonl.77.incomplete",
    ):
        (tmp_path / name).write_bytes(b"half")
    (tmp_path / "export.host.77.incomplete" / "assets").mkdir(parents=True)
    assert kept.restore_latest({"global_step": 0})["global_step"] == 2
    kept.clear_unfinished()
    assert sorted(path.name for path in tmp_path.iterdir()) == whole


def test_keeps_the_newest_and_the_best(run, tmp_path, capsys):
    kept = saved(run, tmp_path, [2, 4], keep=2)
    kept.name_best(2)
    assert (tmp_path / "best").read_text() == "model.ckpt-2\n"
    saved(run, tmp_path, [6, 8], keep=2)
    assert steps_on_disk(tmp_path) == [2, 6, 8]
    kept.name_best(8)
    saved(run, tmp_path, [10], keep=2)
    assert steps_on_disk(tmp_path) == [8, 10]
    assert len(list(tmp_path.glob("model.ckpt-*"))) == 4
    names = (tmp_path / "checkpoint").read_text()
    saved(run, tmp_path, [12], keep=2)
    (tmp_path / "checkpoint").write_text(names)  # by a process that was killed before it wrote it
    kept.restore_latest(LOSSES)
    assert (
        f"another checkpoint than {tmp_path}/model.ckpt-12: to go back" in capsys.readouterr().err
    )
    for run.step in (14, 16):
        kept.save(LOSSES)
    assert steps_on_disk(tmp_path) == [8, 14, 16]
    saved(run, tmp_path, [18], keep=-1)
    assert steps_on_disk(tmp_path) == [8, 14, 16, 18]


def test_keeps_one_of_so_many_hours_for_good(run, tmp_path):
    hour = 3600
    steps = [step * hour // 2 for step in range(1, 12)]  # written every half hour
    saved(run, tmp_path, steps, keep=2, keep_every_hours=2)
    assert [step // (hour // 2) for step in steps_on_disk(tmp_path)] == [4, 8, 10, 11]
    saved(run, tmp_path / "late", steps, keep=1, keep_every_hours=2, run_started=1e10)
    assert [step // (hour // 2) for step in steps_on_disk(tmp_path / "late")] == [1, 5, 9, 11]
    for path in tmp_path.glob("model*"):
        os.utime(path)  # as `cp -r` does
    for later in ({"keep": 2, "keep_every_hours": 2}, {"keep": 2}, {"keep": 0}, {"keep": 1}):
        copy = RunCheckpoints(str(tmp_path), run, **later)
        copy.restore_latest(LOSSES)
        copy.remove_old()
        assert len(steps_on_disk(tmp_path)) == 4


def test_a_slot_that_is_missing_is_named(run, tmp_path):
    checkpoints.save_t2t(run.model, str(tmp_path / "model.ckpt-5"), {"global_step": np.int64(5)})
    message = r"has no training/transformer/.*/Adam: it cannot be resumed"
    with pytest.raises(UserError, match=message):
        RunCheckpoints(str(tmp_path), run).restore_latest({})
