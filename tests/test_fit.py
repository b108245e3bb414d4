"""Plain Keras `compile` and `fit`: the trainer's losses, and callbacks that save and score."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import toy
from golden import NO_DROPOUT
from networks import small_model

import t2t_keras as t2t
from t2t_keras.checkpoints import load_model
from t2t_keras.decoding import DecodeSettings
from t2t_keras.training import Evaluation, TrainStep
from t2t_keras.training.callbacks import EvaluateOnDev, SaveCheckpoints, prepare_fit

DROPOUT = "attention_dropout=0.3,relu_dropout=0.3"
SIDES = {"source_vocab": "inputs", "target_vocab": "targets"}
SEED = 3
STEPS = 4


@pytest.fixture(scope="module")
def encoders(data_dir):
    return t2t.registry.problem(toy.PROBLEM).get_feature_encoders(data_dir)


@pytest.fixture(scope="module")
def batches(data_dir):
    """Makes batches of several shapes: those of a split, from a step on."""

    def batches(split="train", start_step=0):
        return t2t.data.dataset(problem, split, data_dir, hp, start_step=start_step)

    problem = t2t.registry.problem(toy.PROBLEM)
    hp = t2t.registry.hparams(toy.hparams(batch_size=96, min_length_bucket=4))
    assert len({tuple(batch["targets"].shape) for batch in batches().take(STEPS)}) > 1
    return batches


@pytest.fixture(scope="module")
def make(encoders):
    """Makes a model from overrides, always the same."""
    sizes = {side: encoders[name].vocab_size for side, name in SIDES.items()}
    return lambda overrides: small_model(f"learning_rate_warmup_steps=20,{overrides}", **sizes)


@pytest.fixture(scope="module")
def compiled(make):
    """Makes a compiled model; without a graph, which these few steps would not pay for."""

    def compiled(overrides, run_eagerly=True, **kwargs):
        model = make(overrides)
        model.compile(t2t.optimizers.create(model.hp), run_eagerly=run_eagerly, **kwargs)
        return model

    return compiled


class Losses(keras.callbacks.Callback):
    """The loss of each step, where Keras gives means since the beginning of an epoch."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_begin(self, batch, logs=None):
        self.model.reset_metrics()

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(logs["loss"])


def fitted_losses(model, batches, steps=STEPS, callbacks=()):
    seen = Losses()
    fit(model, batches, steps_per_epoch=steps, callbacks=[seen, *callbacks])
    return seen.losses


def fit(model, batches, **kwargs):
    return model.fit(batches, shuffle=False, verbose=0, **kwargs).history


# The same as our step


@pytest.mark.parametrize("overrides", [DROPOUT, f"{NO_DROPOUT},clip_grad_norm=0.05"])
def test_losses_and_weights_are_those_of_our_step(overrides, batches, make, eagerly):
    ours = make(overrides)
    step = TrainStep(ours, t2t.optimizers.create(ours.hp), seed=SEED, xla=False)
    sums = [step.update(batch) for batch in batches().take(STEPS)]
    wanted = [float(step.loss / step.tokens) for step in sums]
    assert len(set(wanted)) == STEPS

    model = make(overrides)
    if clip := model.hp.clip_grad_norm:
        assert all(float(step.gradient_norm) > 2 * clip for step in sums)
    clipping = {"global_clipnorm": clip} if clip else {}
    model.compile(t2t.optimizers.create(model.hp, **clipping))
    if overrides == DROPOUT:
        prepare_fit(model, SEED)
    assert fitted_losses(model, batches()) == pytest.approx(wanted, rel=2e-6)
    for a, b in zip(model.get_weights(), ours.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=5e-6)


def test_losses_are_the_same_in_a_graph_by_xla(batches, compiled):
    batch = batches().take(1).cache().repeat()
    losses = []
    for jit_compile in (False, True):
        model = compiled(DROPOUT, run_eagerly=not jit_compile, jit_compile=jit_compile)
        prepare_fit(model, SEED)
        losses.append(fitted_losses(model, batch, 3))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_each_batch_of_an_update_has_its_own_masks(batches, make):
    model = make(DROPOUT)
    model.compile(t2t.optimizers.SGD(0.0, gradient_accumulation_steps=2), run_eagerly=True)
    prepare_fit(model, SEED)
    assert len(set(fitted_losses(model, batches().take(1).cache().repeat(), 4))) == 4


# What Keras reports


def test_reports_means_over_tokens_as_our_evaluation_does(batches, make, encoders):
    model = make(NO_DROPOUT)
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    evaluation = Evaluation(model, batches("dev"), encoders, DecodeSettings(beam_size=1), steps=2)
    seen = []
    later = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(dict(logs)))
    callbacks = [EvaluateOnDev(evaluation, every=2), later]
    history = fit(model, batches(), steps_per_epoch=2, epochs=2, callbacks=callbacks)
    figures = evaluation()
    assert len(list(evaluation.batches)) == 2
    assert figures.keys() == {"loss", "accuracy", "bleu"}
    assert "val_bleu" not in seen[0]
    for name, value in figures.items():
        assert seen[1][f"val_{name}"] == history[f"val_{name}"][0] == pytest.approx(value)

    measured = model.evaluate(evaluation.batches, verbose=0, return_dict=True)
    assert measured["loss"] == pytest.approx(figures["loss"], rel=1e-5)
    assert measured["accuracy"] == pytest.approx(figures["accuracy"], rel=1e-5)
    assert measured["perplexity"] == pytest.approx(np.exp(figures["loss"]), rel=1e-4)

    loss = tokens = right = 0.0
    for batch in batches().take(2):
        logits = model(batch)
        sums = t2t.losses.padded_cross_entropy(logits, batch["targets"], model.hp.label_smoothing)
        loss, tokens = loss + float(sums[0]), tokens + float(sums[1])
        right += float(t2t.losses.token_accuracy(logits, batch["targets"])[0])
    assert history["loss"][0] == pytest.approx(loss / tokens, rel=1e-5)
    assert history["accuracy"][0] == pytest.approx(right / tokens, rel=1e-5)


def test_each_metric_is_reported_once_and_others_see_the_targets(batches, compiled):
    metric = keras.metrics.SparseCategoricalAccuracy(name="with_padding")
    model = compiled(NO_DROPOUT, metrics=[metric])
    batch = next(batches().as_numpy_iterator())
    history = fit(model, batches(), steps_per_epoch=1)
    assert history.keys() == {"loss", "with_padding", "accuracy", "perplexity"}
    loss, with_padding, accuracy, perplexity = model.evaluate(
        batch, batch_size=len(batch["targets"]), verbose=0
    )
    assert perplexity == pytest.approx(np.exp(loss))
    right = np.argmax(model(batch), -1) == batch["targets"]
    assert with_padding == pytest.approx(right.mean())
    assert accuracy == pytest.approx(right[batch["targets"] != 0].mean())


def test_a_metric_named_like_ours_is_ours_or_refused(batches, compiled):
    batch = next(batches().as_numpy_iterator())
    plain, asked = compiled(NO_DROPOUT), compiled(NO_DROPOUT, metrics=["accuracy"])
    wanted, got = (model.evaluate(batch, verbose=0) for model in (plain, asked))
    assert got == wanted
    metric = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    with pytest.raises(t2t.errors.UserError, match="has its own 'accuracy': rename yours"):
        compiled(NO_DROPOUT, metrics=[metric])


def test_metrics_see_the_targets_after_prepended_inputs():
    overrides = "learning_rate_constant=0,prepend_mode=prepend_inputs_masked_attention"
    model = small_model(f"{NO_DROPOUT},{overrides}")
    metric = keras.metrics.SparseCategoricalAccuracy(name="of_targets")
    model.compile(t2t.optimizers.create(model.hp), metrics=[metric], run_eagerly=True)
    batch = {"inputs": np.ones([2, 3], np.int32), "targets": np.ones([2, 4], np.int32)}
    history = fit(model, tf.data.Dataset.from_tensors(batch))
    right = np.argmax(model(batch), -1) == batch["targets"]
    assert history["of_targets"] == [pytest.approx(right.mean())]


def test_another_loss_makes_it_any_keras_model(batches, compiled):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model = compiled(NO_DROPOUT, loss=loss, metrics=["accuracy"])
    batch = next(batches().as_numpy_iterator())
    wanted = loss(batch["targets"], model(batch))
    history = fit(model, batch, y=batch["targets"], batch_size=len(batch["targets"]), epochs=3)
    assert history.keys() == {"loss", "accuracy"}
    assert history["loss"][0] == pytest.approx(float(wanted), rel=1e-5)
    assert history["loss"][2] < 0.95 * history["loss"][0]


def test_a_saved_model_goes_on(tmp_path, batches, compiled):
    hparams = f"{NO_DROPOUT},optimizer=adafactor,optimizer_adafactor_beta1=0.9"
    model = compiled(hparams, metrics=["accuracy"])
    fit(model, batches(), steps_per_epoch=2)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    rest = [fitted_losses(m, batches(start_step=2), 3) for m in (model, again)]
    assert rest[0] == pytest.approx(rest[1], rel=1e-6)


def test_what_fit_would_leave_out_is_an_error(batches, compiled):
    batch = next(iter(batches()))
    weighted = (batch, batch["targets"], tf.ones([len(batch["targets"])]))
    for overrides, given, message in (
        ("clip_grad_norm=2.0", batch, "create the optimizer with global_clipnorm=2.0"),
        ("weight_decay=0.1", batch, "weight_decay is 0.1: set it to 0"),
        (NO_DROPOUT, weighted, "weighs all tokens equally"),
    ):
        with pytest.raises(t2t.errors.UserError, match=message):
            fit(compiled(overrides), tf.data.Dataset.from_tensors(given))
    for name, given in (("sample_weight", np.ones(len(weighted[1]))), ("class_weight", {0: 1.0})):
        with pytest.raises(t2t.errors.UserError, match="weighs all tokens equally"):
            fit(compiled(NO_DROPOUT), batch, **{name: given})
    with pytest.raises(t2t.errors.UserError, match="weighs all tokens equally"):
        compiled(NO_DROPOUT).evaluate(batch, sample_weight=np.ones(len(weighted[1])))


# Callbacks


@pytest.mark.parametrize(("bundle", "saved"), [(1, (2, 4)), (3, (3, 6))])
def test_saves_at_steps_what_loads_as_it_was(bundle, saved, tmp_path, batches, compiled):
    model = compiled(DROPOUT, run_eagerly=bundle == 1, steps_per_execution=bundle)
    fitted_losses(model, batches(), 4, [SaveCheckpoints(model, str(tmp_path), every=2)])
    names = {path.name for path in tmp_path.glob("*.index")}
    assert names == {f"model.ckpt-{step}.index" for step in saved}
    batch = next(iter(batches()))
    np.testing.assert_array_equal(load_model(str(tmp_path))(batch), model(batch))


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: t2t.optimizers.Adam(0.01, amsgrad=True),
        lambda: t2t.optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=2),
        lambda: t2t.optimizers.SGD(0.01, momentum=0.9),
    ],
    ids=["amsgrad", "average", "momentum"],
)
def test_all_variables_of_an_optimizer_are_restored(optimizer, tmp_path, make):
    def saved():
        model = make(NO_DROPOUT)
        model.compile(optimizer())
        return SaveCheckpoints(model, str(tmp_path)), model.optimizer

    saving, before = saved()
    for number, each in enumerate(before.variables[2:], 1):
        each.assign(tf.fill(each.shape, 0.5 * number))
    before.iterations.assign(3)
    saving.on_epoch_end(0)
    saving, after = saved()
    assert saving.restore() == 3
    for ours, theirs in zip(after.variables, before.variables, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_run_is_not_begun_twice_in_a_directory(tmp_path, batches, compiled):
    model = compiled(NO_DROPOUT)
    fitted_losses(model, batches(), 2, [SaveCheckpoints(model, str(tmp_path))])
    model = compiled(NO_DROPOUT)
    saving = SaveCheckpoints(model, str(tmp_path))
    with pytest.raises(t2t.errors.UserError, match="holds a longer run: call restore"):
        fitted_losses(model, batches(), 1, [saving])
    assert saving.restore() == 2
    fitted_losses(model, batches(), 1, [saving])
    model.compile("sgd")
    with pytest.raises(t2t.errors.UserError, match="compiled again: create SaveCheckpoints after"):
        fitted_losses(model, batches(), 1, [saving])


def test_only_our_optimizers_can_be_saved(tmp_path, make):
    model = make(NO_DROPOUT)
    model.compile(keras.optimizers.Adam())
    with pytest.raises(t2t.errors.UserError, match="only a model compiled with an optimizer of"):
        SaveCheckpoints(model, str(tmp_path))
    model.compile(t2t.optimizers.create(model.hp, gradient_accumulation_steps=2))
    with pytest.raises(t2t.errors.UserError, match="gradient_accumulation_steps cannot be saved"):
        SaveCheckpoints(model, str(tmp_path))
    model.encoder.layers[0].ffn.conv1.enable_lora(2)
    model.compile(t2t.optimizers.create(model.hp))
    with pytest.raises(t2t.errors.UserError, match="float kernels only"):
        SaveCheckpoints(model, str(tmp_path))


IDS = np.ones((4, 3), "int32")


@pytest.mark.parametrize(
    ("call", "got"),
    [
        (lambda model: model.fit([IDS, IDS], verbose=0), "got tuple"),
        (lambda model: model.fit(IDS, IDS, verbose=0), "got .*Tensor"),
        (lambda model: model.fit({"source": IDS, "target": IDS}, verbose=0), "got 'source', 'target'"),
        (lambda model: model.predict({"inputs": IDS}, verbose=0), "got 'inputs'; .* call t2t_keras"),
        (lambda model: model({"inputs": IDS, "targets": IDS[:, 0]}), r"got shapes .*, \(\d+,\);"),
    ],
)  # fmt: skip
def test_what_a_call_needs_is_said(call, got, compiled):
    start = r'Transformer takes a dict, {"inputs": ids, "targets": ids}, int32 \[B, length\] each, '
    with pytest.raises(t2t.errors.UserError, match=start + got):
        call(compiled(NO_DROPOUT))


def test_the_loss_is_ours_again_after_compile_without_one(compiled):
    padded = IDS * np.int32([1, 1, 0])
    model, batch = compiled(NO_DROPOUT), {"inputs": padded, "targets": padded}
    wanted = model.evaluate(batch, verbose=0)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert model.evaluate(batch, padded, verbose=0) != wanted[0]
    with pytest.raises(t2t.errors.UserError, match=r"call fit\(batch, y\), or leave it out"):
        model.fit(batch, verbose=0)
    model.compile("sgd")
    assert model.evaluate(batch, verbose=0) == wanted
    nothing = {"inputs": IDS, "targets": 0 * IDS}
    assert float(model.compute_loss(nothing, y_pred=model(nothing))) == 0


def test_losses_of_layers_count(compiled):
    """And a loss or metrics of a subclass get logits in `fit`, too."""
    model, batch = compiled(NO_DROPOUT), {"inputs": IDS, "targets": IDS}
    plain = float(model.compute_loss(batch, y_pred=model(batch)))
    model.encoder.layers[0].ffn.conv1.kernel.regularizer = keras.regularizers.L2(10.0)
    assert (added := float(sum(model.losses))) > 1
    assert float(model.compute_loss(batch, y_pred=model(batch))) == pytest.approx(plain + added)
    assert model.evaluate(batch, verbose=0)[0] > added
    model.sum_over_replicas = lambda tokens: 2 * tokens  # each of two gives half
    half = float(model.compute_loss(batch, y_pred=model(batch)))
    assert half == pytest.approx((plain + added) / 2)
    loss, tokens = model.training_sums(batch)
    smoothed = model.loss_sums(model(batch), IDS, model.hp.label_smoothing)[0] / tokens
    assert float(loss / tokens) == pytest.approx(float(smoothed + added), rel=1e-5)
    assert type(model).joins_loss.fget(model)
    own = type("Own", (t2t.Transformer,), {"compute_loss": lambda *_, **__: 0})
    assert not own(model.hp, source_vocab_size=9, target_vocab_size=9).joins_loss
    for dtype in ("bfloat16", "mixed_float16"):
        narrow = t2t.Transformer(model.hp, source_vocab_size=9, target_vocab_size=9, dtype=dtype)
        assert not narrow.joins_loss


def test_a_classifier_takes_labels_of_one_or_two_axes():
    hp = t2t.registry.hparams("transformer_tiny", "num_hidden_layers=1,hidden_size=8")
    model = t2t.TransformerClassifier(hp, source_vocab_size=9, num_classes=3)
    model.compile("sgd", run_eagerly=True)
    labels = np.array([0, 1, 2, 1])
    flat, column = (
        model.evaluate({"inputs": IDS}, each, verbose=0, return_dict=True)
        for each in (labels, labels[:, None])
    )
    assert flat == column
    with pytest.raises(t2t.errors.UserError, match=r"\[B\] or \[B, 1\], got shape \(4, 3\)"):
        model.evaluate({"inputs": IDS}, np.eye(3)[labels], verbose=0)
    with pytest.raises(t2t.errors.UserError, match="labels are missing"):
        model.evaluate({"inputs": IDS}, verbose=0)
