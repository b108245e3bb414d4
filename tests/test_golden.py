"""The network, its training and its searches against tensor2tensor 1.15.7's own numbers.

`tests/data/golden` was made by running T2T itself (float32, CPU): six tiny models with their
logits, loss, gradients, three optimizer steps and decodes, two language models and a classifier
with theirs, and T2T's released test checkpoint.
"""

import functools

import golden
import keras
import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras.decoding.translator import probabilities
from t2t_keras.training import TrainStep

LANGUAGE_MODELS = golden.OTHERS[:2]


def parametrized(*names):
    """One model after the other, so that memory holds the graphs of one."""
    return pytest.mark.parametrize("name", names, scope="module")


@functools.lru_cache(1)
def model_of(name):
    """T2T's model, for tests that do not change it."""
    return golden.load(name).model()


@functools.lru_cache(1)
def step_of(name):
    """Its training step; one test uses the optimizer."""
    return TrainStep(model_of(name), golden.load(name).optimizer(), seed=0, xla=False)


def assert_near(ours, theirs):
    assert golden.relative_error(ours, theirs) <= golden.RELATIVE


@parametrized(*golden.ALL)
def test_logits(name):
    case = golden.load(name)
    assert_near(model_of(name)(case.batch), case.arrays["logits"])


@parametrized(*golden.MODELS, *golden.OTHERS)
def test_loss_and_every_gradient_of_the_compiled_training_step(name):
    case, step = golden.load(name), step_of(name)
    gradients, (loss, tokens, *_) = step.forward_backward(case.batch)
    assert_near(loss / tokens, case.arrays["loss"])
    if name in golden.MODELS:
        assert_near(loss, case.arrays["loss_numerator"])
        assert_near(tokens, case.arrays["loss_denominator"])
    wanted = case.variables("grad")
    assert set(step.names) == wanted.keys()
    for variable, gradient in zip(step.names, gradients, strict=True):
        assert_near(gradient / tokens, wanted[variable])


# Adam divides a gradient by its own magnitude, so where a gradient is itself the rounding error
# of a sum (relative size 1e-7 and less), the size and sign of its first step are too: such an
# element may differ by the learning rate, and the units that it feeds a little at the next step.
# Hence two tests: from T2T's own first gradient, every element agrees; from ours, all but a few.


@parametrized(*golden.MODELS)
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
    step = TrainStep(model, case.optimizer(), seed=0, xla=True)
    compiled = tf.function(lambda: step.update(case.batch))
    (loss, tokens, *_), *_ = (compiled() for _ in range(3))
    assert_near(loss, case.arrays["loss_numerator"])
    assert_near(tokens, case.arrays["loss_denominator"])
    off, furthest = case.update_errors(model)
    assert off <= 1e-3 and furthest <= 1


@parametrized(*golden.MODELS, *LANGUAGE_MODELS)
def test_greedy(name):
    case = golden.load(name)
    ids, scores = t2t.decoding.greedy(model_of(name), case.source, extra_length=case.extra_length)
    theirs = case.arrays["greedy/outputs"]
    theirs = theirs.reshape(theirs.shape[:2])  # T2T's slow greedy returns [B, L, 1, 1]
    assert golden.up_to_eos(ids) == golden.up_to_eos(theirs)
    if name != "relative":  # the slow one returns none
        assert_near(scores, case.arrays["greedy/scores"])


@parametrized(*golden.MODELS, *LANGUAGE_MODELS)
def test_all_beams(name):
    assert golden.load(name).search_error(model_of(name), top_beams=4) <= golden.RELATIVE


@parametrized("base_prenorm", "relative", golden.RELEASE.name)
def test_best_beam(name):
    assert golden.load(name).search_error(model_of(name), top_beams=1) <= golden.RELATIVE


@parametrized(*golden.ALL)
def test_saves_back_bit_for_bit(name, tmp_path):
    path = str(tmp_path / "model.ckpt-0")
    t2t.checkpoints.save_t2t(model_of(name), path)
    ours, theirs = (
        {n: (a.dtype, a.shape, a.tobytes()) for n, a in golden.stored(prefix).items()}
        for prefix in (path, golden.load(name).checkpoint)
    )
    assert ours == {n: a for n, a in theirs.items() if n.startswith("transformer")}


# T2T's released test checkpoint, whose target space counts


def test_the_release_has_slots_and_a_step():
    case = golden.load(golden.RELEASE.name)
    theirs = golden.stored(case.checkpoint)
    assert t2t.checkpoints.load_t2t(case.new_model(), case.checkpoint) == theirs["global_step"] == 1
    assert any(name.endswith("/Adam_1") for name in theirs)


def test_release_target_space_matters(monkeypatch):
    """So that `test_logits` shows that `target_space_id` is read."""
    case, model = golden.load(golden.RELEASE.name), model_of(golden.RELEASE.name)
    monkeypatch.setattr(model, "target_space_id", 0)
    assert keras.ops.max(keras.ops.abs(model(case.batch) - case.arrays["logits"])) > 1e-3


# Language models and the classifier


@parametrized(*golden.OTHERS)
def test_a_checkpoint_alone_and_a_file_of_keras_make_the_model(name, tmp_path):
    case, model = golden.load(name), model_of(name)
    loaded = t2t.checkpoints.load_model(case.checkpoint, case.hp)
    assert type(loaded) is type(model)
    assert loaded.description() == model.description()
    model.save(tmp_path / "model.keras")
    assert_near(keras.models.load_model(tmp_path / "model.keras")(case.batch), model(case.batch))


def test_prompts_of_several_lengths_go_on_as_each_does_alone():
    model = model_of("language_model")
    prompts = np.array([[14, 16, 18, 20], [15, 16, 0, 0], [21, 0, 0, 0], [0, 0, 0, 0]])
    for search in (
        functools.partial(t2t.decoding.beam_search, beam_size=3, top_beams=2),
        t2t.decoding.greedy,
        functools.partial(t2t.decoding.sample, seed=1, top_k=1),
    ):
        together = search(model, prompts, extra_length=5)[0].numpy()
        for row, prompt in enumerate(prompts):
            alone = search(model, [prompt[: np.count_nonzero(prompt)]], extra_length=5)[0].numpy()
            width = alone.shape[-1]
            assert (together[row][..., :width] == alone[0]).all()
            assert not together[row][..., width:].any()


def test_a_search_by_xla_goes_on_from_prompts_too(eagerly):
    model = model_of("language_model")
    prompts = np.array([[14, 16, 18, 20], [15, 16, 0, 0], [0, 0, 0, 0]])
    for search in (t2t.decoding.beam_search, t2t.decoding.greedy):
        ids, scores = search(model, prompts, extra_length=5, xla=True)
        wanted, wanted_scores = search(model, prompts, extra_length=5)
        assert golden.up_to_eos(ids) == golden.up_to_eos(wanted)
        assert_near(scores, wanted_scores)


def test_scores_are_those_of_the_logits():
    arrays = golden.load("language_model").arrays
    targets, logits = arrays["targets"], arrays["logits"]
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    log_p = np.take_along_axis(log_p, targets[..., None], -1)[..., 0] * (targets != 0)
    assert_near(t2t.decoding.score(model_of("language_model"), None, targets), log_p.sum(1))


def test_padding_is_left_out_of_the_average_if_asked():
    model, inputs = model_of("classifier"), golden.load("classifier").arrays["inputs"]
    alone = np.concatenate([model({"inputs": row[row != 0][None]}) for row in inputs])
    assert_near(model({"inputs": inputs}, pool_padding=False), alone)
    assert np.isfinite(model({"inputs": inputs * 0}, pool_padding=False)).all()


def test_classes_are_rounded_up_as_words_are(tmp_path):
    """T2T's names and shapes of `vocab_divisor`; the classes that it adds are none."""
    case = golden.load("classifier")
    hp = case.hp.replace(vocab_divisor=8)
    rounded = t2t.TransformerClassifier(hp, source_vocab_size=23, num_classes=4)
    t2t.checkpoints.save_t2t(rounded, str(tmp_path / "model.ckpt-0"))
    name = "transformer_encoder/class_label_modality_8_32/class_label_modality_8_32/dense/kernel"
    assert golden.stored(str(tmp_path / "model.ckpt-0"))[name].shape == (32, 8)
    same = t2t.TransformerClassifier(hp, source_vocab_size=5, num_classes=4)  # 8 rows and columns
    assert "transformer_encoder/symbol_modality_8_32/shared" in t2t.checkpoints.t2t_variables(same)
    p = probabilities(rounded, case.arrays["inputs"], 4).numpy()
    np.testing.assert_allclose(p[:, :4].sum(1), np.ones(6), rtol=1e-6)
