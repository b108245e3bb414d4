"""Updates of a number of tokens, whatever the devices: `tokens_per_update`."""

import json

import numpy as np
import pytest
import replicas
import toy

from t2t_keras import checkpoints, data, registry
from t2t_keras.data.on_the_fly import TextBatches
from t2t_keras.decoding import DecodeSettings
from t2t_keras.errors import UserError
from t2t_keras.training import Trainer, TrainSettings
from t2t_keras.training.update_size import ON_THE_FLY, fit_to_update

PROBLEM = registry.problem(toy.PROBLEM)


@pytest.fixture(scope="module")
def toy_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("toy")
    toy.generate(directory)
    return directory


@pytest.fixture(scope="module", autouse=True)
def one_engine():
    with toy.one_engine():
        yield


def hparams(**changes):
    return registry.hparams(toy.hparams(num_hidden_layers=1, hidden_size=16, **changes))


def fitted(toy_dir, hp, count):
    def batches_for(hp):
        return data.Batches(PROBLEM, "train", toy_dir / "data", hp, replicas=count)

    return fit_to_update(batches_for, hp, count)


# How many batches, and how large


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 8, 11, 16, 40])
def test_an_update_has_the_tokens_on_any_number_of_replicas(toy_dir, count):
    hp = hparams(batch_size=256, tokens_per_update=3000)
    batches, size = fitted(toy_dir, hp, count)
    assert size.tokens == pytest.approx(3000, rel=0.15)
    # Counted in the batches themselves.
    some = batches.dataset().take(20).as_numpy_iterator()
    counted = np.mean([np.count_nonzero(batch["targets"]) for batch in some])
    assert size.batches * counted == pytest.approx(size.tokens, rel=0.1)
    assert all(rows * length <= 256 * count for rows, length in batches.shapes)
    fewer = size.batches - 1
    largest, _ = fitted(toy_dir, hp.replace(tokens_per_update=0), count)
    assert fewer * largest.target_tokens_per_batch < 3000 / 1.1


def test_batches_have_their_own_size_where_it_fits(toy_dir):
    plain, size = fitted(toy_dir, hparams(batch_size=256), 2)
    assert size == (1, 0)
    wanted = round(4 * plain.target_tokens_per_batch)
    batches, size = fitted(toy_dir, hparams(batch_size=256, tokens_per_update=wanted), 2)
    assert size.batches == 4
    assert batches.shapes == plain.shapes


def test_tokens_are_estimated_where_lengths_are_not_known(toy_dir):
    hp = hparams(batch_size=256, tokens_per_update=3000)

    def batches_for(hp):
        return TextBatches(PROBLEM, "train", toy_dir / "data", toy_dir / "text", hp, replicas=2)

    _, size = fit_to_update(batches_for, hp, 2)
    assert size.batches == 8
    assert size.tokens == pytest.approx(8 * ON_THE_FLY * 256 * 2, rel=0.1)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"tokens_per_update": 1}, "must be 2 or more"),
        (
            {"tokens_per_update": 100, "optimizer_multistep_accumulate_steps": 2},
            "leave one of them at 0",
        ),
    ],
)
def test_what_cannot_be(toy_dir, changes, expected):
    with pytest.raises(UserError, match=expected):
        fitted(toy_dir, hparams(**changes), 2)


# Steps


@pytest.mark.usefixtures("eagerly")
def test_batches_of_a_step_count_as_one():
    """Three batches of unequal tokens change the weights as one batch of all their rows does."""
    some = list(replicas.batches(6))
    for number, batch in enumerate(some):
        batch["targets"][: number % 3, 1:] = 0
    apart = replicas.engine("clip_grad_norm=0.5", batches_a_step=3, distribute="none")
    joined = replicas.engine("clip_grad_norm=0.5", distribute="none")
    start = replicas.weights(apart)
    threes = [
        {side: np.concatenate([batch[side] for batch in some[n : n + 3]]) for side in some[0]}
        for n in (0, 3)
    ]
    ours = apart.train(replicas.iterator(some), 2)
    theirs = joined.train(replicas.iterator(threes), 2)
    assert np.abs(replicas.weights(apart) - start).max() > 0.01
    np.testing.assert_allclose(replicas.weights(apart), replicas.weights(joined), atol=1e-6)
    assert ours == pytest.approx(theirs, rel=1e-5)
    assert apart.step == joined.step == 2
    assert not apart.state()  # nothing is left between two steps


@pytest.mark.usefixtures("eagerly")
def test_the_learning_rate_counts_steps():
    overrides = "learning_rate_schedule=linear_warmup,learning_rate_warmup_steps=10"
    trained = replicas.engine(overrides, batches_a_step=2, distribute="none")
    for step in range(3):
        assert trained.learning_rate == pytest.approx(step / 10)
        trained.train(replicas.iterator(list(replicas.batches(2))), 1)
    trained.step = 7
    assert trained.step == 7
    assert trained.learning_rate == pytest.approx(0.7)


def test_a_run_goes_on_bit_for_bit(toy_dir, tmp_path):
    def run(name, *steps):
        for number in steps:
            settings = TrainSettings(
                train_steps=number, eval_steps=1, decode=DecodeSettings(beam_size=1, extra_length=1)
            )
            hp = hparams(batch_size=128, tokens_per_update=300)
            trainer = Trainer(PROBLEM, hp, str(toy_dir / "data"), str(tmp_path / name), settings)
            trainer.run()
        return trainer, checkpoints.read(str(tmp_path / name / "model.ckpt-4"))

    trainer, whole = run("whole", 4)
    _, parts = run("parts", 2, 4)
    assert trainer.update_size.batches > 1
    assert int(trainer.engine.optimizer.iterations) == 4
    assert any("batches an update, about 2" in line for line in trainer.description())
    assert whole.keys() == parts.keys()
    assert not [name for name in whole if name.endswith("/gradients")]
    for name, array in whole.items():
        np.testing.assert_array_equal(array, parts[name], err_msg=name)
    recorded = json.loads((tmp_path / "whole" / "hparams.json").read_text())
    assert recorded["batch_size"] == 128


def test_a_run_of_an_earlier_version_goes_on(toy_dir, tmp_path):
    """Its settings lack ours."""
    settings = TrainSettings(train_steps=0)
    Trainer(PROBLEM, hparams(), str(toy_dir / "data"), str(tmp_path), settings)
    path = tmp_path / "hparams.json"
    recorded = json.loads(path.read_text())
    del recorded["tokens_per_update"]
    path.write_text(json.dumps(recorded))
    Trainer(PROBLEM, hparams(), str(toy_dir / "data"), str(tmp_path), settings)
    path.write_text(json.dumps(recorded))
    with pytest.raises(UserError, match="tokens_per_update was 0 and is now 500"):
        Trainer(
            PROBLEM,
            hparams(tokens_per_update=500),
            str(toy_dir / "data"),
            str(tmp_path),
            settings,
        )
