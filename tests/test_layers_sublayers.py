"""Feed-forward, the letters around sub-layers, dropout, the table of embeddings, and positions."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from layer_checks import RESIDUAL, X, random_tensor
from numpy_transformer import timing_signal, timing_signal_of_the_paper

from t2t_keras import layers
from t2t_keras.training.train_step import PhiloxKeepMask, mask_seeds


def test_feed_forward_by_hand():
    layer = layers.FeedForward(filter_size=2)
    layer.build((None, None, 1))
    layer.set_weights([np.array(w) for w in ([[1, -1]], [0, 2], [[10], [100]], [0.5])])
    x = np.array([[[3], [-1], [0]]], "float32")  # relu: [3, 0], [0, 3], [0, 2]
    np.testing.assert_allclose(layer(x)[0, :, 0], [30.5, 300.5, 200.5])
    layer.conv1.activation = keras.ops.abs  # a user's own, instead of relu
    np.testing.assert_allclose(layer(x)[0, :, 0], [130.5, 310.5, 200.5])


class Doubled(keras.layers.Dense):
    def call(self, inputs, training=None):
        return 2 * super().call(inputs)


class OfAnotherPart(layers.FeedForward):
    def build(self, x_shape):
        super().build(x_shape)
        self.conv2 = Doubled(x_shape[-1])
        self.conv2.build((None, self.filter_size))


@pytest.mark.parametrize("change", ["", "mixed_bfloat16", "lora", "int8", "another part"])
def test_feed_forward_of_one_query_is_that_of_many(change):
    kind = OfAnotherPart if change == "another part" else layers.FeedForward
    layer = kind(filter_size=12, dtype=change if change.startswith("mixed") else "float32")
    layer.build(X.shape)
    for weight in layer.trainable_variables:
        weight.assign(random_tensor(*weight.shape))
    if change == "lora":
        layer.conv2.enable_lora(2)
        layer.conv2.lora_kernel_b.assign(random_tensor(2, 8))
    elif change == "int8":
        layer.conv1.quantize("int8")
    many, one = layer(X), layer(X[:, :1])
    assert one.dtype == many.dtype == layer.compute_dtype
    near = 1e-5 if layer.compute_dtype == "float32" else 2e-2  # half is rounded twice
    wanted = np.asarray(many[:, :1], "float32")
    np.testing.assert_allclose(np.asarray(one, "float32"), wanted, atol=near * np.abs(many).max())


def test_feed_forward_dropout_acts_between_the_matrices_in_training_only():
    layer = layers.FeedForward(filter_size=400, dropout=0.25)
    layer.build((None, None, 1))
    layer.conv1.kernel.assign(np.ones((1, 400)))
    layer.conv2.kernel.assign(np.ones((400, 1)))
    x = np.ones((1, 1, 1), "float32")
    assert float(layer(x)[0, 0, 0]) == 400
    survivors = float(layer(x, training=True)[0, 0, 0]) * 0.75
    assert survivors == pytest.approx(round(survivors), abs=1e-3)
    assert 250 < survivors < 350  # 300 expected, standard deviation 8.7
    layer.conv1.activation = keras.ops.negative  # a user's own, after which no relu comes
    assert layer(x, training=True)[0, 0, 0] < 0


def test_dropout_of_a_user_s_own_comes_after_relu(monkeypatch):
    monkeypatch.setattr(layers.Dropout, "call", lambda self, x, training=False: x + 1)
    layer = layers.FeedForward(filter_size=40, dropout=0.25, kernel_initializer="ones")
    assert layer(-np.ones((1, 1, 1)), training=False)[0, 0, 0] == 40


def normalised(x, epsilon=1e-6):
    x = x.astype(float)
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)


@pytest.mark.parametrize(
    ("sequence", "wanted"),
    [
        ("none", X),
        ("", X),
        ("n", normalised(X)),
        ("a", X + RESIDUAL),
        ("dan", normalised(X + RESIDUAL)),
        ("nda", normalised(X) + RESIDUAL),
        ("aa", X + 2 * RESIDUAL),
    ],
)
def test_letters_in_order(sequence, wanted):
    output = layers.PrePostProcess(sequence=sequence, dropout=0.5)(X, RESIDUAL)
    np.testing.assert_allclose(output, wanted, atol=1e-5)


def test_epsilon_is_added_to_the_variance():
    x = np.array([[[1e-3, -1e-3]]], "float32")  # variance 1e-6
    output = layers.PrePostProcess(sequence="n")(x)
    np.testing.assert_allclose(output[0, 0], [0.5**0.5, -(0.5**0.5)], rtol=1e-5)


def test_dropout_spares_the_residual():
    layer = layers.PrePostProcess(sequence="da", dropout=0.5)
    output = np.asarray(layer(X, RESIDUAL, training=True))
    dropped = np.isclose(output, RESIDUAL)
    np.testing.assert_allclose(output[~dropped], (2 * X + RESIDUAL)[~dropped], rtol=1e-5)
    assert 20 < dropped.sum() < 60  # of 80


# Dropout: rates, shared decisions, and masks that a trainer supplies

ONES = np.ones((40, 50, 60), "float32")


def dropped(layer, masks="philox", x=ONES, seeds=(1, 2)):
    if masks == "keras":
        return layer(x, training=True)
    with layers.keep_mask_scope(PhiloxKeepMask(tf.constant(seeds, tf.int64))):
        return layer(x, training=True)


@pytest.mark.parametrize("masks", ["keras", "philox"])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_rate(rate, masks):
    """Of 120000 decisions the share dropped has a standard deviation of 0.0015 at most."""
    output = np.asarray(dropped(layers.Dropout(rate), masks))
    assert np.mean(output == 0) == pytest.approx(rate, abs=0.006)
    np.testing.assert_allclose(output[output != 0], 1 / (1 - rate), rtol=1e-6)


def test_steps_together_meet_a_rate_between_two_256ths():
    layer = layers.Dropout(0.5 / 256)
    zeroed = [np.asarray(dropped(layer, seeds=(1, step << 16))) == 0 for step in range(400)]
    assert np.mean(zeroed) == pytest.approx(layer.rate, rel=0.2)


@pytest.mark.parametrize("masks", ["keras", "philox"])
@pytest.mark.parametrize("broadcast_dims", [(0,), (1,), (0, 2), (-1,)])
def test_one_decision_along_broadcast_dims(broadcast_dims, masks):
    output = np.asarray(dropped(layers.Dropout(0.5, broadcast_dims=broadcast_dims), masks))
    for axis in range(3):
        same = (output == output.take([0], axis=axis)).all()
        assert same == (axis in broadcast_dims or axis - 3 in broadcast_dims)


def test_nothing_is_drawn_outside_training_or_at_rate_zero():
    def refuse(shape, rate):
        raise AssertionError

    with layers.keep_mask_scope(refuse):
        np.testing.assert_array_equal(layers.Dropout(0.5)(ONES), ONES)
        np.testing.assert_array_equal(layers.Dropout(0.0)(ONES, training=True), ONES)
        layers.FeedForward(filter_size=4, dropout=0.5)(ONES)
        layers.MultiHeadAttention(num_heads=2, dropout=0.5)(X)
    np.testing.assert_array_equal(layers.Dropout(0.5)(ONES, training=False), ONES)


@pytest.mark.parametrize("masks", ["keras", "philox"])
def test_every_call_site_differs(masks):
    """Twice 0.5 keeps a quarter only if the decisions are independent."""
    layer = layers.Dropout(0.5)
    twice = lambda x, training: layer(layer(x, training=training), training=training)  # noqa: E731
    assert np.mean(np.asarray(dropped(twice, masks)) != 0) == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("seeds", [(1, 3), (2, 2), (1 + (1 << 32), 2), (1, 2 + (1 << 16))])
def test_other_seeds_differ(seeds):
    """The seed, the replica (added at 2^32), the call site and the step (at 2^16)."""
    layer = layers.Dropout(0.5)
    first, second = (np.asarray(dropped(layer, seeds=s)) for s in ((1, 2), seeds))
    assert np.mean(first == second) == pytest.approx(0.5, abs=0.01)


def test_the_same_seeds_give_the_same_masks_with_and_without_xla():
    layer = layers.Dropout(0.3, broadcast_dims=(1,))

    def twice(seeds, x):
        with layers.keep_mask_scope(PhiloxKeepMask(seeds)):
            return layer(layer(x, training=True), training=True)

    seeds = mask_seeds(5, 7)
    assert seeds.numpy().tolist() == [5, 7 << 16]
    eager = twice(seeds, ONES)
    for xla in (False, True):
        np.testing.assert_array_equal(tf.function(twice, jit_compile=xla)(seeds, ONES), eager)


@pytest.mark.parametrize("masks", ["keras", "philox"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_keeps_the_dtype(dtype, masks):
    x = keras.ops.ones((3, 4), dtype)
    assert dropped(layers.Dropout(0.5, dtype=dtype), masks, x).dtype == dtype


def test_scopes_nest_and_end():
    keep_all = lambda shape, rate: tf.ones(shape, tf.bool)  # noqa: E731
    keep_none = lambda shape, rate: tf.zeros(shape, tf.bool)  # noqa: E731
    layer = layers.Dropout(0.5)
    with layers.keep_mask_scope(keep_all):
        with layers.keep_mask_scope(keep_none):
            assert np.all(np.asarray(layer(ONES, training=True)) == 0)
        assert np.all(np.asarray(layer(ONES, training=True)) == 2)
    assert len(np.unique(layer(ONES, training=True))) == 2


def test_gradient_flows_where_kept():
    x = tf.constant(ONES[0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = dropped(layers.Dropout(0.5), x=x)
    np.testing.assert_array_equal(tape.gradient(y, x), y)


@pytest.mark.parametrize("name", ["FeedForward", "MultiHeadAttention"])
def test_gradients_joined_with_dropout_are_those_of_the_operations(name):
    class Own(layers.Dropout):  # which is called as it is, and leaves the gradients to TensorFlow
        def call(self, x, training=False):
            calls.append(x)
            return super().call(x, training=training)

    sizes = {"num_heads": 2, "max_relative_position": 2} if name[0] == "M" else {"filter_size": 12}
    joined, plain = (getattr(layers, name)(**sizes, dropout=0.5) for _ in range(2))
    plain.dropout, found, calls = Own(0.5), [], []
    for layer in (joined, plain):
        layer.build(X.shape)
        layer.set_weights(joined.get_weights())
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(dropped(layer, x=X) ** 2)
        gradients = tape.gradient(loss, layer.trainable_variables)
        found.append(map(tf.convert_to_tensor, [loss, *gradients]))
    assert calls
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


# The table that embeds tokens and predicts them

IDS = np.array([[3, 1, 0], [0, 6, 2]], "int32")
EMBEDDING = {"vocab_size": 7, "hidden_size": 4}


@pytest.mark.parametrize(("scale", "factor"), [(True, 2.0), (False, 1.0)])
def test_lookup_and_logits(scale, factor):
    layer = layers.SharedEmbedding(**EMBEDDING, scale_by_sqrt_depth=scale)
    embedded = np.asarray(layer(IDS))
    table = np.asarray(layer.table)
    np.testing.assert_allclose(embedded[0, 0], factor * table[3], rtol=1e-6)
    assert (embedded[IDS == 0] == 0).all()
    layer.table.assign(np.abs(table))  # sums in which nothing cancels
    x = np.abs(random_tensor(2, 3, 4))
    np.testing.assert_allclose(layer.logits(x), x @ np.abs(table).T, rtol=1e-5)
    np.testing.assert_array_equal(layer(x, reverse=True), layer.logits(x))


def test_lookup_of_a_lone_layer_is_scaled_in_float32():
    layer = layers.SharedEmbedding(vocab_size=7, hidden_size=8, dtype="mixed_bfloat16")
    found = layer(np.arange(1, 7)[None])
    np.testing.assert_array_equal(found[0], tf.cast(layer.table.value[1:] * 8**0.5, "bfloat16"))


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_carries_a_mask(dtype):
    """Keras makes the ids of a `Sequential` floats."""
    layer = layers.SharedEmbedding(**EMBEDDING)
    np.testing.assert_array_equal(layer.compute_mask(IDS.astype(dtype)), IDS != 0)
    np.testing.assert_array_equal(layer.compute_mask(random_tensor(2, 3, 4), IDS != 0), IDS != 0)


def test_functional_softmax():
    layer = layers.SharedEmbedding(**EMBEDDING)
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, layer(layer(ids), reverse=True))
    assert model.output_shape == (None, None, 7)
    np.testing.assert_array_equal(model(IDS), layer.logits(layer(IDS)))


def test_a_negative_id_is_no_token_from_the_end():
    found = np.asarray(layers.SharedEmbedding(**EMBEDDING)(np.array([[1, -1]])))
    assert np.isnan(found[0]).all(-1).tolist() == [False, True]


def test_padding_gets_no_gradient():
    layer = layers.SharedEmbedding(**EMBEDDING)
    layer.build()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(IDS))
    gradient = tf.convert_to_tensor(tape.gradient(loss, layer.table.value))
    np.testing.assert_allclose(gradient[:, 0], [0, 2, 2, 2, 0, 0, 2])


# Sinusoids in T2T's form and in the paper's, and learned positions


@pytest.mark.parametrize("channels", [1, 2, 3, 5, 8, 15, 512])
@pytest.mark.parametrize(
    ("kind", "formula"), [("timing", timing_signal), ("timing_paper", timing_signal_of_the_paper)]
)
def test_sinusoids(kind, formula, channels):
    signal = layers.timing_signal(6, channels, start=3, kind=kind)
    assert signal.dtype == "float32"
    wanted = formula(2001, channels)
    np.testing.assert_allclose(signal, wanted[3:9], rtol=1e-5, atol=1e-6)
    # float32 holds an angle of 2000 to 1e-4.
    far = layers.timing_signal(1, channels, start=2000, kind=kind)
    np.testing.assert_allclose(far[0], wanted[2000], atol=5e-4)


@pytest.mark.parametrize("kind", [{}, {"kind": "timing_paper"}, {"kind": "emb", "max_length": 3}])
def test_start_and_given_positions(kind):
    x = random_tensor(2, 5, 7)
    layer = layers.PositionEncoding(**kind)
    whole = np.asarray(layer(x))
    for i in range(5):
        np.testing.assert_allclose(layer(x[:, i : i + 1], start=i)[:, 0], whole[:, i], atol=1e-6)
    position = np.array([[0, 1, 2, 0, 1], [4, 3, 0, 0, 0]])
    straight = (whole - x)[0]
    np.testing.assert_allclose(layer(x, position=position), x + straight[position], atol=1e-6)


def test_past_the_table_nothing_is_added():
    layer = layers.PositionEncoding(kind="emb", max_length=3)
    output = np.asarray(layer(X))
    np.testing.assert_allclose(output[:, :3], X[:, :3] + np.asarray(layer.table), rtol=1e-6)
    np.testing.assert_array_equal(output[:, 3:], X[:, 3:])
