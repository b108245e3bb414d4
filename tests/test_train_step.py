"""One training step: its mean over tokens, and dropout that can be repeated."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from golden import NO_DROPOUT
from networks import gradients, small_model
from subclasses import CHANGED
from test_transformer import PAIRS, SOURCE, TARGETS, padded

from t2t_keras import layers
from t2t_keras.data.records import pack
from t2t_keras.errors import UserError
from t2t_keras.training import TrainStep
from t2t_keras.training.train_step import PhiloxKeepMask, mask_seeds
from t2t_keras.transformer import PACKING

BATCH = {"inputs": SOURCE, "targets": TARGETS}


def plain_step(model):
    """A step that moves every variable by minus its gradient."""
    return TrainStep(model, keras.optimizers.SGD(1.0), seed=0, xla=False)


def assert_moves(model, wanted, batch=BATCH):
    """A step on a batch moves the weights by minus these gradients; returns its sums."""
    before = model.get_weights()
    sums = plain_step(model).update(batch)
    for old, new, gradient in zip(before, model.get_weights(), wanted, strict=True):
        np.testing.assert_allclose(old - new, gradient, atol=1e-6)
    return sums


def test_moves_by_the_gradient_of_the_mean_over_tokens(refused):
    model = small_model(NO_DROPOUT)
    sums = assert_moves(model, gradients(model, BATCH))
    assert sums[1:3] == (np.sum(TARGETS != 0), np.sum(SOURCE != 0))
    assert float(sums.loss) > 0 and sums.positions == SOURCE.size + TARGETS.size
    model.softmax.table.constraint = keras.constraints.NonNeg()
    plain_step(model).update(BATCH)
    assert model.softmax.table.numpy().min() == 0
    step = plain_step(model)
    step.variables.pop()  # as if the last part was built by the call in the step
    with refused("too late for this training"):
        step.update(BATCH)
    with refused("leaves out weight_decay: use hparams"):
        TrainStep(model, keras.optimizers.AdamW(), seed=0, xla=False)


@pytest.mark.usefixtures("eagerly")
def test_a_batch_of_padding_moves_nothing():
    nothing = {"inputs": BATCH["inputs"], "targets": tf.zeros_like(BATCH["targets"])}
    for more in ("", ",num_hidden_layers=0,num_encoder_layers=1"):  # nothing reads the encoder
        model = small_model(NO_DROPOUT + more)
        sums = assert_moves(model, [0.0] * len(model.weights), nothing)
        assert (float(sums.loss), float(sums.tokens)) == (0, 0)


class Dropping(layers.TransformerEncoderLayer):
    def feed_forward(self, name):
        return keras.layers.Dropout(0.5, name=name)  # Keras's own


@functools.cache
def step_with_dropout():
    """A step that changes no weight."""
    encoder = type("Own", (layers.TransformerEncoder,), {"layer_class": Dropping})
    own = type("Own", (CHANGED["model"],), {"encoder_class": encoder})
    model = small_model("attention_dropout=0.3,relu_dropout=0.3", model_class=own)
    return TrainStep(model, keras.optimizers.SGD(0.0), seed=0, xla=False)


def losses(steps, start=0, seed=0):
    """Losses of one batch under the dropout of several steps."""
    step = step_with_dropout()
    step.seed = seed  # which the graph is given
    step.optimizer.iterations.assign(start)
    return [float(step.update(BATCH).loss) for _ in range(steps)]


def test_dropout_is_repeated_by_seed_and_step():
    step = step_with_dropout()
    first = losses(3)
    assert len(set(first)) == 3  # every step its own masks
    assert losses(3) == pytest.approx(first, rel=1e-6)
    assert losses(2, start=1) == pytest.approx(first[1:], rel=1e-6)  # as after a restart
    assert losses(1, seed=1)[0] != pytest.approx(first[0], rel=1e-3)
    masks = [PhiloxKeepMask(mask_seeds(0, number)) for number in range(2)]
    drawn = [each([64], 0.5).numpy().tobytes() for each in masks for _ in range(3)]
    assert len(set(drawn)) == 6  # every call its own, too
    found = []
    for remat in (False, True):  # which draws them again, Keras's own too
        step.model.encoder.remat = remat
        again = TrainStep(step.model, keras.optimizers.SGD(0.0), seed=0, xla=False)
        found.append(again.forward_backward(BATCH)[0])
    for wanted, gradient in zip(*found, strict=True):
        np.testing.assert_allclose(gradient, wanted, atol=1e-5)


def test_parts_of_own_shapes_and_places():
    values, dropout = tf.ones([2, 1, 3, 4]), layers.Dropout(0.5)
    with tf.GradientTape() as tape:
        tape.watch(values)  # one head for all
        y = dropout.weighted(tf.ones([2, 2, 3, 3]), values, training=True)
    assert tape.gradient(y, values).shape == values.shape
    packed = {name: tf.ones_like(BATCH[name.partition("_")[0]]) for name in PACKING}
    with pytest.raises(UserError, match="encdec_attention has no distances in packed rows: unset"):
        small_model(model_class=CHANGED["near"])({**BATCH, **packed})


@pytest.mark.usefixtures("eagerly")
def test_moves_by_packed_pairs_as_by_the_same_pairs_alone():
    model = small_model(NO_DROPOUT)
    # With spacing, so that no pair begins with the end of the one before.
    rows = list(pack(PAIRS, 16, spacing=1))
    assert len(rows) < len(PAIRS)
    wanted = gradients(model, padded(PAIRS, 8))
    assert float(assert_moves(model, wanted, padded(rows, 16)).tokens) == 26


def test_a_graph_for_plain_and_one_for_packed_batches(monkeypatch):
    model = small_model(NO_DROPOUT)
    traces, call = [], model.call
    monkeypatch.setattr(model, "call", lambda *args, **kw: traces.append(1) or call(*args, **kw))
    step = plain_step(model)
    for rows, length in ((4, 5), (2, 3), (1, 1)):
        step.update({"inputs": SOURCE[:rows], "targets": TARGETS[:rows, :length]})
    assert len(traces) == 1
    for length in (16, 32):
        step.update(padded(list(pack(PAIRS, length)), length))
    step.update(BATCH)
    assert len(traces) == 2
