"""Models with weights in 8 bits: their products, searches, exports and commands."""

import contextlib
import copy

import keras
import numpy as np
import pytest
import tensorflow as tf
from networks import small_model
from test_export import ENCODERS, LINES, make_model, python_translations, texts

import t2t_keras as t2t
from t2t_keras import precision
from t2t_keras.decoding import DecodeSettings, Ensemble, beam_search, greedy, score
from t2t_keras.errors import UserError
from t2t_keras.export import export_saved_model
from t2t_keras.precision import EightBits, Int8Matrix, in_precision
from t2t_keras.text import ClassLabelEncoder

SETTINGS = DecodeSettings(beam_size=2, extra_length=3)


@pytest.fixture(autouse=True)
def int8():
    if not precision.has_int8():
        pytest.skip("TensorFlow has no product in 8 bits here: it needs oneDNN")


@pytest.fixture(scope="module")
def model():
    return make_model()


def test_products_of_whole_numbers_are_exact():
    """Also where all are as large as can be: sums of 16 bits would overflow on older processors."""
    rng = np.random.default_rng(0)
    weights = rng.integers(-64, 65, (96, 50)).astype("float32")
    weights[0], weights[:, :10] = 64, 64
    x = rng.integers(-127, 128, (7, 3, 96)).astype("float32")
    x[:, :, 0], x[:4] = 127, 127
    np.testing.assert_array_equal(Int8Matrix(weights).multiply(x), x @ weights)


def test_products_are_rounded():
    rng = np.random.default_rng(0)
    x, weights = rng.standard_normal((5, 512)), rng.standard_normal((512, 40)) * np.arange(40)
    x[1] = 0
    exact = x @ weights
    got = Int8Matrix(weights.astype("float32")).multiply(tf.constant(x, tf.float32)).numpy()
    error = np.abs(got - exact).max(0) / (1e-9 + np.abs(exact).max(0))
    assert 1e-4 < error.max() < 0.1 and not got[1].any() and not got[:, 0].any()


@pytest.mark.parametrize(("dtype", "steps"), [("float32", 0.01), ("mixed_bfloat16", 0.04)])
def test_a_model_in_8_bits(dtype, steps, eagerly):
    """Its scores are about the model's; each step of a search is what whole targets give."""
    model = small_model(dtype=dtype)
    small = in_precision(model, "int8")
    source = np.array([[5, 9, 3, 1], [4, 1, 0, 0]])
    ids, scores = greedy(small, source, extra_length=4)
    exact = score(model, source, ids).numpy()
    np.testing.assert_allclose(scores, exact, rtol=0.05)
    assert np.abs(scores - exact).max() > 1e-4
    np.testing.assert_allclose(scores, score(small, source, ids), rtol=steps)
    assert small.count_params() == model.count_params()


def test_an_ensemble(model, eagerly):
    both = in_precision(Ensemble([model, model]), "int8")
    assert [type(each.dtype_policy) for each in both.members] == [EightBits, EightBits]
    source = np.array([[5, 9, 3, 1]])
    alone = beam_search(in_precision(model, "int8"), source, extra_length=2)
    for got, wanted in zip(beam_search(both, source, extra_length=2), alone, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_an_export_has_each_weight_once(model, tmp_path):
    small = in_precision(model, "int8")
    path = export_saved_model(small, ENCODERS, tmp_path, SETTINGS, warm_up=False)
    got = tf.saved_model.load(path)
    translated = got.signatures["translate"](text=tf.constant(LINES))
    wanted = python_translations(small, LINES, SETTINGS)
    assert texts(translated["translations"].numpy()) == [each.texts for each in wanted]
    scored = got.signatures["score"](source=tf.constant(LINES), target=tf.constant(LINES))
    assert np.isfinite(scored["log_probability"]).all()

    graph = tf.compat.as_bytes((tmp_path / "1" / "saved_model.pb").read_bytes())
    for _, matrix in small.dtype_policy.matrices.values():
        assert graph.count(matrix.weights.tobytes()) == 1
    stored = tf.train.list_variables(f"{path}/variables/variables")
    kernels = {tuple(v.shape) for v in model.weights if v.name == "kernel"}
    assert not kernels & {tuple(shape) for _, shape in stored}


class Rescaled(t2t.TransformerClassifier):
    """A user's model, with a layer of Keras's that is called as it is."""

    def _make_parts(self):
        super()._make_parts()
        self.scale = keras.layers.Dense(2)
        self.scale.build((None, 2))

    def call(self, inputs, **kwargs):
        return self.scale(super().call(inputs, **kwargs)[:, :2])


def test_an_export_keeps_the_kernels_of_other_layers(tmp_path):
    hp = t2t.registry.hparams("transformer_tiny").replace(num_hidden_layers=1, hidden_size=16)
    model = Rescaled(hp, source_vocab_size=ENCODERS["inputs"].vocab_size, num_classes=2)
    encoders = {**ENCODERS, "targets": ClassLabelEncoder(["low", "high"])}
    ids = np.array([[*ENCODERS["inputs"].encode("low"), 1]])
    settings = DecodeSettings(max_input_size=ids.size)
    path = export_saved_model(model, encoders, tmp_path, settings, precision="int8", warm_up=False)
    names = [n for n, shape in tf.train.list_variables(f"{path}/variables/variables") if shape]
    in_8_bits = ["q", "k", "v", "output_transform", "conv1", "conv2", "class_layer"]
    assert len(names) == len(model.weights) - len(in_8_bits)
    found = tf.saved_model.load(path).signatures["classify"](text=tf.constant(["low", "low low"]))
    assert found["truncated"].numpy().tolist() == [False, True]
    wanted = model({"inputs": ids}, pool_padding=False)
    wanted = np.sort(tf.nn.softmax(wanted))[:, ::-1]
    np.testing.assert_allclose(found["probabilities"][:1], wanted, rtol=0.1)


class Thrice(keras.layers.Dense):
    def call(self, inputs, training=None):
        return 3 * super().call(inputs)


def test_changed_weights_are_quantized_again():
    own = Thrice(3, use_bias=False, dtype=EightBits())  # not, as its call is its own
    np.testing.assert_allclose(precision.dense(own, np.eye(4)), 3 * own.kernel)
    layer = keras.layers.Dense(3, dtype=EightBits())
    layer.build((None, 4))
    x = np.ones((2, 4), "float32")
    first = precision.dense(layer, x).numpy()
    assert precision.dense(layer, x).numpy().tolist() == first.tolist()
    for change in (layer.kernel.assign, layer.kernel.assign_add):
        change(layer.kernel)  # the second doubles it
    np.testing.assert_allclose(precision.dense(layer, x), 2 * first, rtol=1e-5)

    model = small_model()
    small, source = in_precision(model, "int8"), np.array([[5, 9, 3, 1]])
    before = score(small, source, [[4, 7, 1]])
    model.set_weights([2 * weight for weight in model.get_weights()])
    np.testing.assert_array_equal(score(small, source, [[4, 7, 1]]), before)
    small.set_weights(model.get_weights())
    again = score(in_precision(model, "int8"), source, [[4, 7, 1]])
    np.testing.assert_array_equal(score(small, source, [[4, 7, 1]]), again)
    assert abs(again - before) > 0.1


def test_keras_predicts_with_the_weights_of_now(model):
    batch = {"inputs": np.array([[5, 9, 1]]), "targets": np.array([[4, 1]])}
    small = in_precision(small_model(), "int8")
    before, traced = small.predict(batch, verbose=0), small.predict_function
    assert small.predict(batch, verbose=0).tolist() == before.tolist()
    assert small.predict_function is traced
    small.compile()
    small.evaluate(batch, verbose=0)
    small.set_weights([2 * weight for weight in small.get_weights()])
    np.testing.assert_allclose(small.predict(batch, verbose=0), small(batch), rtol=1e-4)
    loss, tokens = small.loss_sums(small(batch), batch["targets"])
    assert small.evaluate(batch, verbose=0)[0] == pytest.approx(float(loss / tokens), rel=1e-4)


@pytest.mark.parametrize("again", [copy.copy, lambda small: in_precision(small, "float32")])
def test_a_copy_of_a_model_in_8_bits(again):
    batch = {"inputs": np.array([[5, 9, 1]]), "targets": np.array([[4, 1]])}
    model = small_model()
    copied = again(small := in_precision(model, "int8"))
    wanted = small if again is copy.copy else model
    np.testing.assert_allclose(copied(batch), wanted(batch), rtol=1e-5)
    copied.set_weights([2 * weight for weight in copied.get_weights()])
    assert np.abs(copied(batch) - wanted(batch)).max() > 0.1
    model.decoder.layers[0].ffn.conv1.activation = keras.ops.square
    np.testing.assert_allclose(in_precision(model, "float32")(batch), model(batch), rtol=1e-5)


def test_refused(model, monkeypatch):
    with pytest.raises(UserError, match=r"precision must be one of float32, .*int8, got"):
        in_precision(model, "int4")
    small = in_precision(model, "int8")
    with pytest.raises(UserError, match="precision int8: leave out xla or precision int8"):
        greedy(small, [[5, 1]], xla=True)
    monkeypatch.setattr(precision, "has_int8", lambda: False)
    with pytest.raises(UserError, match=r"int8 needs oneDNN.*, or choose another precision"):
        in_precision(model, "int8")


@pytest.mark.parametrize("before", [False, True])
def test_threads_leave_grappler_as_it_was(before):
    def is_off():
        return tf.config.optimizer.get_experimental_options()["disable_meta_optimizer"]

    small = in_precision(small_model(), "int8")
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": before})
    try:
        one, two = (precision.constants_not_copied(small) for _ in range(2))
        with contextlib.ExitStack() as later, one:
            later.enter_context(two)
            assert is_off()
        assert is_off() == before
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
