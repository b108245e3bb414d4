"""t2t-keras-convert: a run's checkpoint, a Keras file, and back."""

import errno
import itertools
import json
import random
import zipfile

import numpy as np
import pytest
import toy
from corpus_files import write_archive
from mutations import NUMBER, mutations
from networks import small_model
from run_files import write_run

from t2t_keras import Transformer, checkpoints
from t2t_keras.cli.convert import load_keras, save_checkpoint, save_keras
from t2t_keras.errors import UserError


@pytest.fixture(scope="module")
def keras_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.keras"
    small_model(target_space_id=3).save(path)
    return path


def convert(keras_file, output, *others):
    given = (f"--checkpoint_path={keras_file}", f"--output_path={output}")
    return toy.command("convert", *given, *others)


def test_a_checkpoint_has_what_a_run_s_has(keras_file, tmp_path):
    toy.succeeded(convert(keras_file, tmp_path / "run" / "model.ckpt-5"))
    assert int(checkpoints.read(str(tmp_path / "run"))["global_step"]) == 5
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["hparams_set"] == "transformer_base"
    ours, theirs = checkpoints.load_model(str(tmp_path / "run")), load_keras(str(keras_file))
    assert ours.target_space_id == 3
    for one, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    save_checkpoint(load_keras(str(keras_file)), str(tmp_path / "run" / "model.ckpt-5"))  # again


def test_another_run_stays_as_it_was(keras_file, tmp_path):
    run = write_run(tmp_path / "run")
    there = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    done = convert(keras_file, run / "converted-5")
    assert "holds a run with other settings" in toy.complaint(done)
    with pytest.raises(UserError, match="-400 would be taken for a checkpoint of the run in "):
        save_checkpoint(load_keras(str(keras_file)), str(run / "model.ckpt-400"))
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == there


@pytest.mark.parametrize("there", [None, b"a good model"])
def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, there):
    def save_half(self, path):
        with open(path, "wb") as file:
            file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Transformer, "save", save_half)
    path = tmp_path / "model.keras"
    (tmp_path / "model.keras.host.77.incomplete.keras").touch()  # of one that was killed
    if there:
        path.write_bytes(there)
    with pytest.raises(UserError, match=r"model\.keras cannot be written: No space left"):
        save_keras(small_model(), str(path))
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [there] * bool(there)


@pytest.mark.parametrize(
    ("name", "flags", "message"),
    [
        ("model.ckpt-5", ["--target_space_id=0"], "leave out --hparams, --model and --target_space_id"),
        ("new/", [], "/new/ is a directory: add a name"),
    ],
)  # fmt: skip
def test_what_is_refused_writes_nothing(keras_file, tmp_path, name, flags, message):
    assert message in toy.complaint(convert(keras_file, f"{tmp_path}/{name}", *flags))
    assert list(tmp_path.iterdir()) == []


def test_a_class_that_is_not_registered_is_one_line(tmp_path, refused):
    class Mine(Transformer):
        pass

    small_model(model_class=Mine).save(tmp_path / "mine.keras")
    with refused(r"mine\.keras cannot be read: .*'Mine'"):
        load_keras(str(tmp_path / "mine.keras"))


# Files that are damaged


@pytest.fixture(scope="module")
def members(keras_file):
    with zipfile.ZipFile(keras_file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def with_config(members, **changes):
    config = json.loads(members["config.json"])
    config["config"].update(changes)
    return {**members, "config.json": json.dumps(config)}


@pytest.mark.parametrize(
    "damage",
    [
        lambda members: {"x": b"other"},
        lambda members: {n: c for n, c in members.items() if n != "model.weights.h5"},
        lambda members: {**members, "config.json": b"[1]"},
        lambda members: {**members, "config.json": b"[" * 100_000},
        lambda members: {**members, "config.json": b"\xff"},
        lambda members: {**members, "model.weights.h5": b"no HDF5"},
        lambda members: with_config(members, source_vocab_size="many"),
        lambda members: with_config(members, source_vocab_size=24),
        lambda members: with_config(members, hparams={"num_heads": []}),
        *(0, 10, 1000, -1, -100),  # the place where it is cut off
    ],
)
def test_a_damaged_file_is_one_line(keras_file, members, tmp_path, damage, refused):
    path = tmp_path / "model.keras"
    if isinstance(damage, int):
        path.write_bytes(keras_file.read_bytes()[:damage])
    else:
        write_archive(tmp_path / "model.zip", damage(members)).rename(path)
    with refused(r"model\.keras cannot be read: \S"):
        load_keras(str(path))


def test_damaged_by_chance_it_is_read_or_refused(keras_file, members, tmp_path):
    path, chance, refused = tmp_path / "model.keras", random.Random(0), 0
    for name, content in [*members.items(), ("", keras_file.read_bytes())]:
        for damaged in itertools.islice(mutations(content, chance), NUMBER // 15):
            if name:
                changed = {**members, name: damaged}
                write_archive(tmp_path / "model.zip", changed).rename(path)
            else:
                path.write_bytes(damaged)
            try:
                load_keras(str(path))
            except UserError as error:
                refused += 1
                assert "\n" not in str(error)
    assert refused
