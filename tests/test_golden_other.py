"""Language models and the classifier against tensor2tensor 1.15.7's own numbers (`tests/data/golden`)."""

import functools

import golden
import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras.decoding.translator import probabilities
from t2t_keras.errors import UserError
from t2t_keras.training import TrainStep

LANGUAGE_MODELS = golden.OTHERS[:2]


@functools.cache
def case_of(name):
    """T2T's model, its numbers, and how many tokens a continuation may have."""
    model, arrays, extra, checkpoint = golden.other(name)
    t2t.checkpoints.load_t2t(model, checkpoint)
    return model, arrays, extra


def batch_of(arrays):
    return {side: arrays[side] for side in ("inputs", "targets") if side in arrays}


def assert_near(ours, theirs):
    assert golden.relative_error(ours, theirs) <= golden.RELATIVE


@pytest.mark.parametrize("name", golden.OTHERS)
def test_logits_loss_and_every_gradient(name):
    model, arrays, _ = case_of(name)
    assert_near(model(batch_of(arrays)), arrays["logits"])
    step = TrainStep(model, t2t.optimizers.create(model.hp), seed=0, xla=False)
    batch = {side: tf.constant(ids) for side, ids in batch_of(arrays).items()}
    gradients, (loss, weight, *_) = step.forward_backward(batch)
    assert_near(loss / weight, arrays["loss"])
    wanted = golden.join_tables(
        {n.removeprefix("grad/"): a for n, a in arrays.items() if n.startswith("grad/")}
    )
    assert set(step.names) == wanted.keys()
    for variable, gradient in zip(step.names, gradients, strict=True):
        assert_near(gradient / weight, wanted[variable])


@pytest.mark.parametrize("name", golden.OTHERS)
def test_a_checkpoint_is_saved_back_bit_for_bit(name, tmp_path):
    model, *_ = case_of(name)
    t2t.checkpoints.save_t2t(model, str(tmp_path / "model.ckpt-0"))
    theirs = golden.stored(str(golden.FOLDER / name / "model.ckpt-0"))
    ours = golden.stored(str(tmp_path / "model.ckpt-0"))
    assert {n: a.tobytes() for n, a in ours.items()} == {
        n: a.tobytes() for n, a in theirs.items() if not n.startswith(("training/", "global_step"))
    }


@pytest.mark.parametrize("name", golden.OTHERS)
def test_a_model_is_made_of_a_checkpoint_alone(name):
    model, *_ = case_of(name)
    loaded = t2t.checkpoints.load_model(str(golden.FOLDER / name / "model.ckpt-0"), model.hp)
    assert type(loaded) is type(model)
    assert loaded.description() == model.description()


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_continuations_of_prompts(name):
    model, arrays, extra = case_of(name)
    prompts = arrays["prompts"]
    ids, scores = t2t.decoding.greedy(model, prompts, extra_length=extra)
    assert golden.up_to_eos(ids) == golden.up_to_eos(arrays["greedy/outputs"])
    assert_near(scores, arrays["greedy/scores"])
    ids, scores = t2t.decoding.beam_search(
        model, prompts, beam_size=4, alpha=0.6, extra_length=extra, top_beams=4
    )
    assert golden.up_to_eos(ids) == golden.up_to_eos(arrays["beam/outputs"])
    assert_near(scores, arrays["beam/scores"])


def test_prompts_of_several_lengths_go_on_as_each_does_alone():
    model, *_ = case_of("language_model")
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
    model, *_ = case_of("language_model")
    prompts = np.array([[14, 16, 18, 20], [15, 16, 0, 0], [0, 0, 0, 0]])
    for search in (t2t.decoding.beam_search, t2t.decoding.greedy):
        ids, scores = search(model, prompts, extra_length=5, xla=True)
        wanted, wanted_scores = search(model, prompts, extra_length=5)
        assert golden.up_to_eos(ids) == golden.up_to_eos(wanted)
        assert_near(scores, wanted_scores)


def test_scores_are_those_of_the_logits():
    model, arrays, _ = case_of("language_model")
    targets, logits = arrays["targets"], arrays["logits"]
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    log_p = np.take_along_axis(log_p, targets[..., None], -1)[..., 0] * (targets != 0)
    assert_near(t2t.decoding.score(model, None, targets), log_p.sum(1))


def test_a_prefix_besides_the_prompts_is_refused():
    model, arrays, _ = case_of("language_model")
    with pytest.raises(UserError, match="add the prefix to them"):
        t2t.decoding.greedy(model, arrays["prompts"], prefix=arrays["prompts"])


@pytest.mark.parametrize("name", golden.OTHERS)
def test_keras_saves_and_loads_it(name, tmp_path):
    import keras

    model, arrays, _ = case_of(name)
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = keras.models.load_model(path)
    assert_near(loaded(batch_of(arrays)), model(batch_of(arrays)))


def test_padding_is_left_out_of_the_average_if_asked():
    model, arrays, _ = case_of("classifier")
    rows = [row[row != 0][None] for row in arrays["inputs"]]
    alone = np.concatenate([model({"inputs": row}) for row in rows])
    assert_near(model({"inputs": arrays["inputs"]}, pool_padding=False), alone)


def test_classes_are_rounded_up_as_words_are(tmp_path):
    """T2T's names and shapes of `vocab_divisor`; the classes that it adds are none."""
    model, arrays, *_ = case_of("classifier")
    hp = model.hp.replace(vocab_divisor=8)
    rounded = t2t.TransformerClassifier(hp, source_vocab_size=23, num_classes=4)
    t2t.checkpoints.save_t2t(rounded, str(tmp_path / "model.ckpt-0"))
    shape = golden.stored(str(tmp_path / "model.ckpt-0"))[
        "transformer_encoder/class_label_modality_8_32/class_label_modality_8_32/dense/kernel"
    ].shape
    assert shape == (32, 8)
    p = probabilities(rounded, arrays["inputs"], 4).numpy()
    np.testing.assert_allclose(p.sum(1), np.ones(6), rtol=1e-6)
