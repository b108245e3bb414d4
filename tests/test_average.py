"""Averages of checkpoints: the mean, what is refused, what is chosen, what stands beside."""

import json
import os

import golden
import numpy as np
import pytest
from networks import KERNEL, SMALL, TABLE, small_model

import t2t_keras as t2t
from t2t_keras.checkpoints import average, is_whole, last_checkpoints
from t2t_keras.checkpoints.t2t import model_arrays, write
from t2t_keras.errors import UserError
from t2t_keras.files import locked_directory

DATA = ".data-00000-of-00001"
RUN = {"problem": "p", "model": "transformer", "target_space_id": 0, "vocabulary": {"inputs": "1"}}


def like_a_run(directory, arrays, step, hp=None, run=None):
    """A checkpoint with the optimizer's variables, and settings beside it."""
    extra = {
        "global_step": np.int64(step),
        "training/beta1_power": np.float32(0.5),
        **{f"training/{name}/Adam": array for name, array in arrays.items()},
    }
    prefix = str(directory / f"model.ckpt-{step}")
    write(prefix, {**arrays, **extra})
    if hp is not None:
        (directory / "hparams.json").write_text(json.dumps(hp.to_dict()))
        (directory / "run.json").write_text(json.dumps(RUN | (run or {})))
    return prefix


@pytest.fixture(scope="module")
def models():
    return [small_model(seed=seed) for seed in range(6)]


@pytest.fixture(name="directory")
def _directory(tmp_path, models):
    """A run with checkpoints of the steps 10 to 60, ten minutes apart."""
    directory = tmp_path / "run"
    for number, model in enumerate(models, 1):
        prefix = like_a_run(directory, model_arrays(model), 10 * number, model.hp)
        os.utime(prefix + ".index", (600.0 * number, 600.0 * number))
    return directory


def prefixes(directory, *steps):
    return [str(directory / f"model.ckpt-{step}") for step in steps]


def cut(prefix):
    os.truncate(prefix + DATA, os.path.getsize(prefix + DATA) - 1)


def test_mean_of_the_model_variables_alone(directory, models, tmp_path):
    """As NumPy computes it in float64, rounded once: 1e8 + 1 is 1e8 in float32."""
    output = str(tmp_path / "averaged" / "model.ckpt")
    expected = [model_arrays(models[i]) for i in (4, 0, 2)]
    for arrays, step, value in zip(expected, (50, 10, 30), (1e8, 1.0, -1e8), strict=True):
        arrays[KERNEL] = np.full_like(arrays[KERNEL], value)
        like_a_run(directory, arrays, step)
    assert average(prefixes(directory, 50, 10, 30), output) == 50
    stored = golden.stored(output)
    assert int(stored.pop("global_step")) == 50
    assert stored.keys() == expected[0].keys()
    for name, mean in stored.items():
        exact = np.mean([arrays[name] for arrays in expected], axis=0, dtype=np.float64)
        assert mean.dtype == np.float32
        np.testing.assert_array_equal(mean, exact.astype(np.float32), err_msg=name)


def test_a_weight_of_a_users_own_may_be_named_as_a_slot(directory, models, tmp_path):
    own = {"transformer/body/v": np.ones(2, "f4"), f"{KERNEL}/Adam": np.ones(2, "f4")}
    like_a_run(directory, {**model_arrays(models[0]), **own}, 70)
    average(prefixes(directory, 70), str(tmp_path / "averaged"))
    mean = golden.stored(str(tmp_path / "averaged"))
    assert mean.keys() == {*model_arrays(models[0]), "transformer/body/v", "global_step"}


@pytest.mark.parametrize("name", ["base_prenorm", "t2t_release"])
def test_a_checkpoint_of_t2t(name, tmp_path):
    [index] = (golden.FOLDER / name).glob("*.index")
    source = str(index)[: -len(".index")]
    assert is_whole(source)
    average([source], str(tmp_path / "own-7"))
    one, other = golden.stored(source), golden.stored(*last_checkpoints(str(tmp_path)))
    compared = [n for n in other if n != "global_step"]
    assert len(compared) > 20
    for variable in compared:
        np.testing.assert_array_equal(one[variable], other[variable], err_msg=variable)


# Beside it


def test_result_is_marked_and_the_model_made_from_it(directory, models, tmp_path):
    averaged = tmp_path / "averaged"
    sources = prefixes(directory, 10, 20)
    average(sources, str(averaged / "model.ckpt"))
    about = RUN | {"inference_only": True, "averages": {"model.ckpt": sources}}
    assert json.loads((averaged / "run.json").read_text()) == about
    hp = json.loads((averaged / "hparams.json").read_text())
    assert hp == json.loads((directory / "hparams.json").read_text())
    loaded = t2t.checkpoints.load_model(str(averaged))  # the directory alone names it
    assert loaded.count_params() == models[0].count_params()
    with pytest.raises(UserError, match=r"averaged holds averages .* cannot be trained on"):
        t2t.checkpoints.write_settings(str(averaged), models[0].hp, {"problem": "p"})


def test_several_averages_in_a_directory(directory, tmp_path):
    averaged = tmp_path / "averaged"
    for last in (20, 30, 30):
        average(prefixes(directory, 10, last), str(averaged / f"model.ckpt-{last}"))
    run = json.loads((averaged / "run.json").read_text())
    assert list(run["averages"]) == ["model.ckpt-20", "model.ckpt-30"]
    assert t2t.checkpoints.resolve(str(averaged)) == str(averaged / "model.ckpt-30")
    model = small_model("num_heads=4")
    sources = [like_a_run(tmp_path / "other", model_arrays(model), 5, model.hp)]
    with pytest.raises(UserError, match=r"averaged holds another model .*: num_heads is 2, not 4"):
        average(sources, str(averaged / "model.ckpt-5"))
    os.remove(averaged / "model.ckpt-20.index")
    average(sources, str(averaged / "model.ckpt-30"))  # nothing of the other model is left


def test_another_average_in_its_place_brings_its_settings(directory, tmp_path):
    output = str(tmp_path / "averaged.ckpt")
    average(prefixes(directory, 10), output)
    assert (tmp_path / "hparams.json").exists()
    average([like_a_run(tmp_path / "bare", model_arrays(small_model("num_heads=4")), 5)], output)
    assert not (tmp_path / "hparams.json").exists()
    average(prefixes(directory, 10), str(tmp_path / "bare/mean"))  # beside that of others
    assert {*os.listdir(tmp_path / "bare")}.isdisjoint(["run.json", "hparams.json", "checkpoint"])


def test_a_run_is_left_as_it_is(directory, capsys):
    before = {p.name: p.read_bytes() for p in directory.iterdir()}
    with locked_directory(directory):  # as a training does, for which it does not wait
        average(prefixes(directory, 10, 20), str(directory / "averaged.ckpt"))
    assert "waiting" not in capsys.readouterr().err
    after = {p.name: p.read_bytes() for p in directory.iterdir()}
    assert {name: after.pop(name) for name in before} == before
    assert sorted(after) == [f"averaged.ckpt{suffix}" for suffix in (DATA, ".index")]


@pytest.mark.parametrize(
    ("steps", "output", "expected"),
    [
        ((10, 20), "model.ckpt-15", "would be taken for a checkpoint of the run"),
        ((10, 20), "model.ckpt-avg-15", "would be taken for a checkpoint of the run"),
        ((10, 20), "../run/model.ckpt-20", "is one of the checkpoints to average"),
        ((10, 20, 10), "averaged", r"model\.ckpt-10 is listed twice"),
        ((10, "link/model.ckpt-10"), "averaged", r"link/model\.ckpt-10 is listed twice"),
        ((10, 60), "averaged", "checkpoint .*-60 cannot be read: "),
        ((10, 99), "averaged", ".*-99 has no variable transformer/.* no T2T"),
    ],
)
def test_checkpoints_and_outputs_that_are_refused(directory, steps, output, expected):
    [damaged, other] = prefixes(directory, 60, 99)
    cut(damaged)
    write(other, {"lstm/kernel": np.zeros(3, "f4")})
    (directory / "model.ckpt-link").symlink_to(directory)
    with pytest.raises(UserError, match=expected):
        average(prefixes(directory, *steps), str(directory / output))


# What is refused


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({KERNEL: np.zeros((3, 2), "f4")}, rf"{KERNEL} is \[3, 2\], not \[16, 24\]\."),
        ({KERNEL: None}, rf"{KERNEL} is absent, not \[16, 24\]\."),
        ({TABLE + "/x": np.zeros(1, "f4")}, rf"{TABLE}/x is \[1\], not absent\."),
    ],
)
def test_other_shapes_and_names(directory, models, changes, expected, tmp_path, refused):
    arrays = {**model_arrays(models[0]), **changes}
    arrays = {name: array for name, array in arrays.items() if array is not None}
    [odd] = prefixes(directory, 30)
    write(odd, arrays)
    with refused(f"{odd} is of another model than .*-10: {expected}"):
        average(prefixes(directory, 10, 20, 30, 40), str(tmp_path / "averaged"))
    assert not (tmp_path / "averaged.index").exists()


@pytest.mark.parametrize(
    ("overrides", "run", "expected"),
    [
        ("num_heads=4", None, "num_heads is 4, not 2"),  # of the same shapes
        ("", {"problem": "p_rev"}, "problem is p_rev, not p"),
        ("", {"vocabulary": {"inputs": "2"}}, "vocabulary is {'inputs': '2'}, not"),
        ("", {"target_space_id": 3}, "target_space_id is 3, not 0"),
        ("", {"model": "own"}, "model is own, not transformer"),
        ("", {"source_vocab_size": 23}, None),  # the other does not say
        ("learning_rate_warmup_steps=9", None, None),  # of no interest in inference
    ],
)
def test_other_settings(directory, models, tmp_path, overrides, run, expected):
    hp = t2t.registry.hparams("transformer_base", SMALL).override(overrides)
    other = like_a_run(tmp_path / "other", model_arrays(models[0]), 5, hp, run)
    paths = [*prefixes(directory, 10), other]
    output = str(tmp_path / "averaged" / "model.ckpt")
    if expected is None:
        assert average(paths, output) == 10
        return
    with pytest.raises(UserError, match=f"{other} is of another model than .*: {expected}"):
        average(paths, output)


# What is chosen


@pytest.mark.parametrize(
    ("wanted", "steps"),
    [
        ({"count": 3}, [40, 50, 60]),
        ({"min_steps": 20, "max_steps": 40}, [20, 30, 40]),
        ({"count": 2, "max_steps": 45}, [30, 40]),
        ({"minutes": 20}, [20, 40, 60]),
        ({"minutes": 11, "count": 2}, [40, 60]),
        ({"minutes": 10.5}, [10, 20, 30, 40, 50, 60]),  # less than 5 % short
    ],
)
def test_chosen_by_number_steps_and_minutes(directory, wanted, steps):
    assert last_checkpoints(str(directory), **wanted) == prefixes(directory, *steps)


def test_the_newest_are_those_of_the_most_steps(directory, models):
    """Times may be those of copies; an average in the run's directory is not one of its checkpoints."""
    average(prefixes(directory, 50, 60), str(directory / "averaged.ckpt-60"))
    os.utime(prefixes(directory, 50)[0] + ".index")
    assert last_checkpoints(str(directory), 3) == prefixes(directory, 40, 50, 60)
    t2t.checkpoints.save_t2t(models[0], str(directory / "other-70"))
    assert last_checkpoints(str(directory / "model.ckpt"), 2) == prefixes(directory, 50, 60)


def test_damaged_ones_are_passed_over_with_a_warning(directory, capsys):
    damaged = prefixes(directory, 60, 40)
    cut(damaged[0])
    os.remove(damaged[1] + DATA)
    assert last_checkpoints(str(directory), 3) == prefixes(directory, 20, 30, 50)
    for prefix, warning in zip(damaged, capsys.readouterr().err.strip().split("\n"), strict=True):
        assert warning.startswith(f"warning: checkpoint {prefix} cannot be read: ")
        assert warning.endswith(". It is left out.")
    # Nor do their times count.
    assert last_checkpoints(str(directory), minutes=20) == prefixes(directory, 10, 30, 50)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"count": 7}, "has 6 intact checkpoints, 7 were requested"),
        ({"count": 3, "minutes": 30}, "2 intact checkpoints at least 30 minutes apart, 3 were"),
        ({"max_steps": 9}, "0 intact checkpoints of 0 to 9 steps, one or more were"),
        ({"prefix": "/nowhere/model", "count": 1}, "has 0 intact checkpoints"),
    ],
)
def test_too_few(directory, wanted, expected):
    with pytest.raises(UserError, match=expected):
        last_checkpoints(**{"prefix": str(directory), **wanted})
