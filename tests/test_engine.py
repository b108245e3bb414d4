"""The engine on one device: precision, accumulation, moving average, memory, batches of an update."""

import functools
import gc
import json
import weakref

import keras
import networks
import numpy as np
import pytest
import replicas
import tensorflow as tf
import test_trainer
import toy

from t2t_keras import checkpoints, data, optimizers, registry
from t2t_keras.checkpoints import load_t2t
from t2t_keras.data.on_the_fly import TextBatches
from t2t_keras.errors import UserError
from t2t_keras.training import Trainer, TrainSettings, TrainStep, prepare_fit
from t2t_keras.training.engine import _TEXT_TARGET_SHARE, fit_to_update
from t2t_keras.training.run_checkpoint import RunCheckpoints
from t2t_keras.transformer import Transformer

pytestmark = pytest.mark.usefixtures("one_engine")
PROBLEM = registry.problem(toy.PROBLEM)
DROPOUT = "layer_prepostprocess_dropout=0.2,attention_dropout=0.2,relu_dropout=0.2"
RELATIVE = "self_attention_type=dot_product_relative,max_relative_position=2"
BATCHES = list(replicas.batches(8))


def engine(overrides="", **settings):
    return replicas.engine(overrides, distribute="none", **settings)


def train(trained, batches):
    return trained.train(replicas.iterator(batches), len(batches))


@pytest.mark.usefixtures("eagerly")
def test_accumulates_as_one_update_by_the_mean_gradient():
    """Two batches of unequal tokens: the mean of their gradients, each clipped by itself as in T2T."""
    overrides = "optimizer=multistep_adam,optimizer_multistep_accumulate_steps=2,clip_grad_norm=0.7"
    trained = engine(overrides + ",learning_rate_constant=0.01")
    before = replicas.weights(trained)
    first, second = BATCHES[0], {side: ids[:1] for side, ids in BATCHES[1].items()}
    gradients = [replicas.flat(networks.gradients(trained.model, each)) for each in (first, second)]
    assert train(trained, [first]).gradient_norm == -1.0  # no point in the curve
    np.testing.assert_array_equal(replicas.weights(trained), before)
    assert trained.between_updates
    totals = train(trained, [second])
    assert not trained.between_updates
    norms = [np.linalg.norm(gradient) for gradient in gradients]
    assert min(norms) > 0.7
    wanted = np.mean([0.7 * g / norm for g, norm in zip(gradients, norms, strict=True)], axis=0)
    assert totals.gradient_norm == pytest.approx(np.linalg.norm(wanted), rel=1e-5)
    # Adam's first moment after one update is a tenth of the gradient.
    moments = replicas.flat(trained.optimizer.t2t_slots()["Adam"])
    np.testing.assert_allclose(moments, 0.1 * wanted, atol=1e-7)
    assert train(trained, [first] * 3).gradient_norm == pytest.approx(0.7)  # of the second


@pytest.mark.usefixtures("eagerly")
def test_moving_average_of_the_weights(tmp_path):
    trained = engine(ema=0.75)
    with trained.evaluation_weights():
        start = replicas.weights(trained)
    np.testing.assert_array_equal(start, replicas.weights(trained))
    average = 0.0
    for number, batch in enumerate(BATCHES[:3]):
        train(trained, [batch])
        now = replicas.weights(trained)
        average = 0.75 * average + 0.25 * now if number else now
    with pytest.raises(ZeroDivisionError), trained.evaluation_weights():
        np.testing.assert_allclose(replicas.weights(trained), average, atol=1e-6)
        raise ZeroDivisionError
    np.testing.assert_array_equal(replicas.weights(trained), now)
    assert np.abs(average - now).max() > 1e-3
    RunCheckpoints(str(tmp_path), trained).save({})
    load_t2t(trained.model, str(tmp_path))
    np.testing.assert_allclose(replicas.weights(trained), average, atol=1e-6)


@pytest.mark.usefixtures("eagerly")
def test_float16_scales_the_loss_and_leaves_out_what_overflows():
    trained = engine(precision="float16", ema=0.5)
    scale, good, *_ = trained.state().values()
    scale.assign(2.0**40), good.assign(7)
    before = replicas.weights(trained)
    totals = train(trained, BATCHES[:1])
    assert not np.isfinite(totals.gradient_norm)
    np.testing.assert_array_equal(replicas.weights(trained), before)
    assert (float(np.asarray(scale)), int(np.asarray(good))) == (2.0**39, 0)
    assert (trained.step, int(trained.optimizer.iterations)) == (1, 0)
    assert not int(np.asarray(trained.state()["ema_updates"]))
    scale.assign(1024.0)
    good.assign(1999)
    totals = train(trained, BATCHES[:1])
    assert 0 < totals.gradient_norm < 100
    assert (float(np.asarray(scale)), int(np.asarray(good))) == (2048.0, 0)
    assert np.abs(replicas.weights(trained) - before).max() > 1e-3
    trained.step = 2  # as after a restart
    assert (trained.step, int(trained.optimizer.iterations)) == (2, 1)
    scale.assign(1.0), good.assign(1)
    assert not trained.overflows
    two = "optimizer=multistep_adam,optimizer_multistep_accumulate_steps=2"
    half, single = (engine(two, precision=each) for each in ("float16", "float32"))
    half._train_step.loss_multiplier = 2.0
    for factor in (2.0**100, 1024.0):  # the first overflows
        half.state()["loss_scale"].assign(factor)
        totals = train(half, BATCHES[:2])
    wanted = 2 * train(single, BATCHES[:2]).gradient_norm
    assert (half.step, totals.gradient_norm) == (4, pytest.approx(wanted, rel=0.02))


@pytest.mark.usefixtures("eagerly")
def test_bfloat16_is_near_float32():
    both = [engine(precision=precision) for precision in ("bfloat16", "float32")]
    half, single = ([train(trained, [batch]) for batch in BATCHES[:3]] for trained in both)
    losses, wanted = ([each.loss / each.tokens for each in totals] for totals in (half, single))
    assert losses == pytest.approx(wanted, rel=5e-3)
    assert losses != wanted
    assert half[0].gradient_norm == pytest.approx(single[0].gradient_norm, rel=0.02)


def test_bfloat16_rounds_once():
    model, batch = engine("activation_dtype=bfloat16").model, BATCHES[0]
    _, weights = model(batch, return_attention_weights=True)
    row_sums = tf.reduce_sum(weights["decoder"][0], -1)
    np.testing.assert_allclose(row_sums, np.ones(row_sums.shape), atol=1e-6)
    # Scaled in float32, then rounded once: not the scaled value of a rounded table.
    embedded = model.source_embedding(batch["inputs"])
    assert embedded.dtype == "bfloat16"
    rows = np.asarray(model.source_embedding.table)[batch["inputs"]] * np.float32(16**0.5)
    np.testing.assert_array_equal(embedded, tf.cast(rows, tf.bfloat16))


def test_the_settings_choose_the_precision_unless_one_is_given():
    assert engine("activation_dtype=bfloat16").model.compute_dtype == "bfloat16"
    assert engine("activation_dtype=bfloat16", precision="float32").model.compute_dtype == "float32"
    with pytest.raises(UserError, match=r"precision must be one of .*'bfloat'. Did you mean"):
        engine(precision="bfloat")
    with pytest.raises(UserError, match="ema must be"):
        engine(ema=1.0)
    assert not np.array_equal(*(replicas.weights(engine(random_seed=n)) for n in (0, 1)))


@pytest.mark.parametrize("by", ["engine", "fit"])
def test_the_graphs_of_a_model_are_freed_with_it(by, monkeypatch):
    """TensorFlow registers what `tf.custom_gradient` makes in a graph for ever."""
    graphs, whole = [], Transformer.call

    @functools.wraps(whole)  # Keras passes on `training` where it sees that name
    def call(model, *arguments, **keywords):
        graphs.append(weakref.ref(tf.constant(0).graph))
        return whole(model, *arguments, **keywords)

    monkeypatch.setattr(Transformer, "call", call)
    if by == "engine":
        train(engine(DROPOUT), BATCHES[:1])
    else:
        model = networks.small_model(f"{RELATIVE},{DROPOUT},learning_rate_constant=1")
        model.compile(optimizers.create(model.hp))
        prepare_fit(model)
        model.fit(tf.data.Dataset.from_tensors(BATCHES[0]), verbose=0)
        del model
    keras.backend.clear_session()
    gc.collect(2)
    assert graphs and not [graph() for graph in graphs if graph()]


def test_rematerialised_layers_give_the_same_gradients():
    """With XLA, as those of operations run one by one; without it: `test_distribution.py`."""
    batch = {side: tf.constant(ids) for side, ids in BATCHES[0].items()}

    def gradients(remat, xla=False):
        trained = engine(DROPOUT, remat=remat)
        step = TrainStep(trained.model, trained.optimizer, seed=1, xla=xla)
        stacks, calls = (trained.model.encoder, trained.model.decoder), []
        assert not remat or len({int(each.mask_seed.state[0]) for each in stacks}) == 2
        layer = stacks[1].layer_0.ffn
        call = layer.call
        layer.call = lambda *args, **kwargs: calls.append(1) or call(*args, **kwargs)
        found, sums = step.forward_backward(batch)
        assert len(calls) == 1 + remat
        return replicas.flat(found), sums

    with replicas.eagerly():
        wanted, wanted_sums = gradients(False)
    found, sums = gradients(True, xla=True)
    np.testing.assert_allclose(sums, wanted_sums, rtol=1e-6)
    np.testing.assert_allclose(found, wanted, atol=5e-6)


def test_says_how_many_programs_there_are():
    shapes = [(4, 7), (2, 9)]
    compiled = engine(xla=True)
    assert compiled.programs(shapes) == "2 programs (one per batch shape and device), XLA on"
    compiled.local_replicas = 8
    assert compiled.programs(shapes).startswith("16 programs")
    assert engine().programs(shapes) == "1 graph for all batch shapes, XLA off"


@pytest.mark.usefixtures("eagerly")
def test_too_large_a_batch_says_what_to_lower(monkeypatch):
    """TensorFlow itself raises this after ten seconds, in which it tries again to get the memory."""
    trained = engine()

    def update(*arguments):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    monkeypatch.setattr(trained._train_step, "update", update)
    with pytest.raises(UserError, match=r"batch of 4 x 7 source.*does not fit.*lower batch_size"):
        train(trained, BATCHES[:1])


# Updates of so many tokens


def hparams(**changes):
    return registry.hparams(toy.hparams(num_hidden_layers=1, hidden_size=16, **changes))


def fitted(toy_dir, hp, count):
    places = ("train", toy_dir / "data")
    return fit_to_update(lambda hp: data.Batches(PROBLEM, *places, hp, replicas=count), hp, count)


@pytest.mark.parametrize("count", [1, 2, 5, 11, 40])
def test_an_update_has_the_tokens_on_any_number_of_replicas(toy_dir, count):
    hp = hparams(batch_size=256, tokens_per_update=3000)
    batches, size = fitted(toy_dir, hp, count)
    assert size.tokens == pytest.approx(3000, rel=0.15)
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
    places = ("train", toy_dir / "data", toy_dir / "text")
    _, size = fit_to_update(lambda hp: TextBatches(PROBLEM, *places, hp, replicas=2), hp, 2)
    assert size.batches == 8
    assert size.tokens == pytest.approx(8 * _TEXT_TARGET_SHARE * 256 * 2, rel=0.1)


def test_what_cannot_be(toy_dir):
    with pytest.raises(UserError, match="must be 2 or more"):
        fitted(toy_dir, hparams(tokens_per_update=1), 2)
    both = {"tokens_per_update": 100, "optimizer_multistep_accumulate_steps": 2}
    with pytest.raises(UserError, match="leave one of them at 0"):
        fitted(toy_dir, hparams(**both), 2)


# Steps of several batches


@pytest.mark.usefixtures("eagerly")
def test_batches_of_a_step_count_as_one():
    """Three batches of unequal tokens change the weights as one batch of all their rows does."""
    some = list(replicas.batches(6))
    for number, batch in enumerate(some):
        batch["targets"][: number % 3, 1:] = 0
    apart = engine("clip_grad_norm=0.5", batches_per_step=3)
    joined = engine("clip_grad_norm=0.5")
    start = replicas.weights(apart)
    threes = [
        {side: np.concatenate([batch[side] for batch in some[n : n + 3]]) for side in some[0]}
        for n in (0, 3)
    ]
    ours = apart.train(replicas.iterator(some), 2)
    theirs = train(joined, threes)
    assert np.abs(replicas.weights(apart) - start).max() > 0.01
    np.testing.assert_allclose(replicas.weights(apart), replicas.weights(joined), atol=1e-6)
    assert ours == pytest.approx(theirs, rel=1e-5)
    assert apart.step == joined.step == 2
    assert not apart.state()  # nothing is left between two steps


@pytest.mark.usefixtures("eagerly")
def test_the_learning_rate_counts_steps():
    overrides = "learning_rate_schedule=linear_warmup,learning_rate_warmup_steps=10"
    trained = engine(overrides, batches_per_step=2)
    for step in range(3):
        trained.train(replicas.iterator(list(replicas.batches(2))), 1)
        assert trained.last_learning_rate == pytest.approx(step / 10)  # that of the curves
    trained.step = 7
    assert trained.step == 7
    assert trained.last_learning_rate == pytest.approx(0.6)


@pytest.mark.usefixtures("eagerly")
def test_the_batches_of_an_update_are_counted_and_recorded(toy_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(type(PROBLEM), "loss_multiplier", 2.0)
    hp = toy.hparams(num_hidden_layers=1, hidden_size=16, batch_size=128, tokens_per_update=300)
    trainer = test_trainer.trainer(toy_dir / "data", tmp_path / "run", 2, hp)
    trainer.run()
    assert (number := trainer.update_size.batches) > 1
    assert trainer.engine._train_step.loss_multiplier == 2
    assert trainer._progress.steps_per_epoch == trainer.batches.batches_per_epoch / number
    assert int(trainer.engine.optimizer.iterations) == 2
    assert any("batches per update, about 2" in line for line in trainer.description())
    assert not trainer.engine.state()  # nothing is left between two updates
    assert json.loads((tmp_path / "run" / "hparams.json").read_text())["batch_size"] == 128
    later, asked = test_trainer.trainer(toy_dir / "data", tmp_path / "run", 3, hp), []
    later.batches.dataset = lambda start_step: asked.append(start_step) or 1 / 0
    with pytest.raises(ZeroDivisionError):
        later.run()
    assert asked == [2 * later.update_size.batches]


def test_a_run_of_an_earlier_version_goes_on(toy_dir, tmp_path):
    checkpoints.write_settings(str(tmp_path), hparams(), {})
    path = tmp_path / "hparams.json"
    recorded = json.loads(path.read_text())
    del recorded["tokens_per_update"]
    path.write_text(json.dumps(recorded))
    (tmp_path / "run.json").write_text("{}")  # nor has it a digest of them
    places = (str(toy_dir / "data"), str(tmp_path), TrainSettings(train_steps=0))
    Trainer(PROBLEM, hparams(), *places).prepare()
    with pytest.raises(UserError, match="tokens_per_update was 0 and is now 500"):
        Trainer(PROBLEM, hparams(tokens_per_update=500), *places).prepare()
