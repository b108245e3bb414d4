"""The network, its training and its searches against tensor2tensor 1.15.7's own numbers.

`tests/data/golden` was made by running T2T itself (float32, CPU): six tiny models with their
logits, loss, gradients, three optimizer steps and decodes, and T2T's released test checkpoint.
"""

import functools

import golden
import keras
import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras.training import TrainStep


@pytest.fixture(scope="module", params=golden.MODELS)
def name(request):
    """One model after the other, so that memory holds the graphs of one."""
    yield request.param
    model_of.cache_clear()
    step_of.cache_clear()


@functools.cache
def model_of(name):
    """T2T's model, for tests that do not change it."""
    return golden.load(name).model()


@functools.cache
def step_of(name):
    """Its training step; one test uses the optimizer."""
    return TrainStep(model_of(name), golden_optimizer(golden.load(name).hp), seed=0, xla=False)


def assert_near(ours, theirs):
    assert golden.relative_error(ours, theirs) <= golden.RELATIVE


def golden_optimizer(hp):
    """The optimizer of `hp` with new moments, but the learning rates from step 4000 on."""
    optimizer = t2t.optimizers.create(hp)
    schedule = t2t.schedules.learning_rate_schedule(hp)
    optimizer.learning_rate = lambda: schedule(optimizer.iterations + golden.FIRST_STEP)
    return optimizer


def test_logits(name):
    model, case = model_of(name), golden.load(name)
    assert_near(model(case.batch), case.arrays["logits"])


def test_loss_and_every_gradient_of_the_compiled_training_step(name):
    case, step = golden.load(name), step_of(name)
    gradients, (loss, tokens, *_) = step.forward_backward(case.batch)
    assert_near(loss, case.arrays["loss_numerator"])
    assert_near(tokens, case.arrays["loss_denominator"])
    assert_near(loss / tokens, case.arrays["training_loss"])
    wanted = case.variables("grad")
    assert set(step.names) == wanted.keys()
    for variable, gradient in zip(step.names, gradients, strict=True):
        assert_near(gradient / tokens, wanted[variable])


def test_schedule(name):
    case = golden.load(name)
    schedule = t2t.schedules.learning_rate_schedule(case.hp)
    ours = [float(schedule(int(step))) for step in case.arrays["schedule_steps"]]
    np.testing.assert_allclose(ours, case.arrays["schedule"], rtol=golden.RELATIVE)
    ours = [float(schedule(golden.FIRST_STEP + i)) for i in range(3)]
    np.testing.assert_allclose(ours, case.arrays["learning_rates"], rtol=golden.RELATIVE)


# Adam divides a gradient by its own magnitude, so where a gradient is itself the rounding error
# of a sum (relative size 1e-7 and less), the size and sign of its first step are too: such an
# element may differ by the learning rate, and the units that it feeds a little at the next step.
# Hence two tests: from T2T's own first gradient, every element agrees; from ours, all but a few.


def test_three_optimizer_steps_from_the_same_gradient(name):
    case, step = golden.load(name), step_of(name)
    before = [np.array(variable) for variable in step.variables]
    first, wanted = case.variables("grad"), case.variables("after3")
    step.optimizer.apply([tf.constant(first[variable]) for variable in step.names])
    for _ in range(2):
        gradients, (_, tokens, *_) = step.forward_backward(case.batch)
        step.optimizer.apply([gradient / tokens for gradient in gradients])
    after = [np.array(variable) for variable in step.variables]
    for variable, value in zip(step.variables, before, strict=True):
        variable.assign(value)
    for variable, value in zip(step.names, after, strict=True):
        np.testing.assert_allclose(value, wanted[variable], atol=1e-5, rtol=0, err_msg=variable)


def test_three_training_steps_compiled_by_xla():
    case = golden.load("relative")
    model = case.model()
    step = TrainStep(model, golden_optimizer(case.hp), seed=0, xla=True)
    compiled = tf.function(lambda: step.update(case.batch))
    loss, tokens, *_ = compiled()
    assert_near(loss, case.arrays["loss_numerator"])
    assert_near(tokens, case.arrays["loss_denominator"])
    compiled()
    compiled()
    wanted = case.variables("after3")
    errors = np.concatenate(
        [
            np.abs(np.asarray(value) - wanted[variable]).ravel()
            for variable, value in t2t.checkpoints.t2t_variables(model).items()
        ]
    )
    assert np.mean(errors > 1e-5) <= 1e-3
    assert errors.max() <= 3 * case.arrays["learning_rates"].max()


def test_greedy(name):
    model, case = model_of(name), golden.load(name)
    ids, scores = t2t.decoding.greedy(model, case.arrays["inputs"], extra_length=case.extra_length)
    theirs = case.arrays["greedy/outputs"]
    theirs = theirs.reshape(theirs.shape[:2])  # T2T's slow greedy returns [B, L, 1, 1]
    assert golden.up_to_eos(ids) == golden.up_to_eos(theirs)
    if "greedy/scores" in case.arrays:  # the slow one returns none
        assert_near(scores, case.arrays["greedy/scores"])


def test_all_beams(name):
    check_beams(name, "beam_all", top_beams=4)


@pytest.mark.parametrize("of", ["base_prenorm", "relative"])
def test_best_beam(of):
    """It ends sooner than where all beams are asked for."""
    check_beams(of, "beam_top1", top_beams=1)


def check_beams(name, kind, top_beams):
    model, case = model_of(name), golden.load(name)
    ids, scores = t2t.decoding.beam_search(
        model,
        case.arrays["inputs"],
        beam_size=4,
        alpha=0.6,
        extra_length=case.extra_length,
        top_beams=top_beams,
    )
    assert golden.up_to_eos(ids) == golden.up_to_eos(case.arrays[f"{kind}/outputs"])
    assert_near(np.reshape(scores, -1), np.reshape(case.arrays[f"{kind}/scores"], -1))


def test_some_golden_has_greedy_scores():
    assert any("greedy/scores" in golden.load(name).arrays for name in golden.MODELS)


def test_saves_back_bit_for_bit(name, tmp_path):
    path = str(tmp_path / "model.ckpt-0")
    t2t.checkpoints.save_t2t(model_of(name), path)
    ours, theirs = golden.stored(path), golden.stored(golden.load(name).checkpoint)
    model_variables = {n: a for n, a in theirs.items() if n.startswith("transformer/")}
    assert ours.keys() == model_variables.keys()
    for variable, value in ours.items():
        assert value.dtype == model_variables[variable].dtype
        assert value.shape == model_variables[variable].shape
        assert value.tobytes() == model_variables[variable].tobytes(), variable


# T2T's released test checkpoint


@functools.cache
def release():
    model, expected = golden.new_release_model()
    step = t2t.checkpoints.load_t2t(model, str(golden.RELEASE / "model.ckpt-1"))
    return model, expected, step


def test_release_logits():
    model, expected, _ = release()
    assert_near(
        model({"inputs": expected["inputs"], "targets": expected["targets"]}), expected["logits"]
    )


def test_release_beam():
    model, expected, _ = release()
    ids, scores = t2t.decoding.beam_search(
        model, expected["inputs"], beam_size=4, alpha=0.6, extra_length=10
    )
    assert golden.up_to_eos(ids) == golden.up_to_eos(expected["beam_outputs"])
    assert_near(scores[:, 0], expected["beam_scores"])


def test_release_has_slots_and_a_step_and_saves_back_bit_for_bit(tmp_path):
    model, _, step = release()
    theirs = golden.stored(str(golden.RELEASE / "model.ckpt-1"))
    assert step == theirs["global_step"] == 1
    assert any(name.endswith("/Adam_1") for name in theirs)
    path = str(tmp_path / "model.ckpt-1")
    t2t.checkpoints.save_t2t(model, path)
    ours = golden.stored(path)
    assert ours.keys() == {n for n in theirs if n.startswith("transformer/")}
    assert all(value.tobytes() == theirs[variable].tobytes() for variable, value in ours.items())


def test_release_target_space_matters(monkeypatch):
    """So that `test_release_logits` shows that `target_space_id` is read."""
    model, expected, _ = release()
    monkeypatch.setattr(model, "target_space_id", 0)
    inputs = {"inputs": expected["inputs"], "targets": expected["targets"]}
    assert keras.ops.max(keras.ops.abs(model(inputs) - expected["logits"])) > 1e-3
