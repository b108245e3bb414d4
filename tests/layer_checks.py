"""Checks in one call everything that a Keras user expects of a layer."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf


def random_tensor(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


X, RESIDUAL = random_tensor(2, 5, 8), random_tensor(2, 5, 8, seed=1)
MEMORY = random_tensor(2, 3, 8, seed=1)
WITH_WEIGHTS = {"return_attention_weights": True}


def outputs_of(result):
    return [np.asarray(tf.cast(tensor, "float32")) for tensor in keras.tree.flatten(result)]


def assert_same(ours, theirs, **tolerance):
    ours, theirs = outputs_of(ours), outputs_of(theirs)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


def check_layer(layer_class, settings, inputs, *, weights, tmp_path, call):
    """Checks a layer of so many trainable weights on arrays; `call` are keywords of every call."""
    layer = layer_class(**settings)
    layer(*inputs, **call)
    assert layer.supports_masking
    assert len(layer.trainable_weights) == weights
    for i, variable in enumerate(layer.trainable_variables):  # no test passes by zeros and ones
        variable.assign(variable + 0.3 * random_tensor(*variable.shape, seed=i))
    result = layer(*inputs, **call)
    compiled = tf.function(lambda: layer(*inputs, **call), jit_compile=True)
    assert_same(compiled(), result, atol=2e-5)
    _check_settings(layer, settings, inputs, call)
    _check_shapes(layer, inputs, result)
    _check_saving(layer, inputs, result, call, tmp_path)
    for policy, tolerance in (("mixed_bfloat16", 0.1), ("mixed_float16", 0.01)):
        half = layer_class.from_config({**layer.get_config(), "dtype": policy})
        half(*inputs, **call)
        half.set_weights(layer.get_weights())
        reduced = half(*inputs, **call)
        assert keras.tree.flatten(reduced)[0].dtype == half.compute_dtype
        assert all(variable.dtype == "float32" for variable in half.trainable_variables)
        for array, wanted in zip(outputs_of(reduced), outputs_of(result), strict=True):
            np.testing.assert_allclose(array, wanted, atol=tolerance * max(1, np.abs(wanted).max()))


def _check_settings(layer, settings, inputs, call):
    layer_class, config = type(layer), layer.get_config()
    assert json.loads(json.dumps(config)) == config
    for name, value in settings.items():
        assert config[name] == (list(value) if isinstance(value, tuple) else value), name
    again = layer_class.from_config(config)
    assert again.get_config() == config
    again(*inputs, **call)
    assert [w.shape for w in again.weights] == [w.shape for w in layer.weights]
    with pytest.raises(ValueError, match=rf"{layer_class.__name__}: .*no_such_setting"):
        layer_class(**settings, no_such_setting=1)
    with pytest.raises(TypeError):
        layer_class(*settings.values(), 1, 2)


def _check_shapes(layer, inputs, result):
    shapes = [array.shape for array in inputs]
    first = keras.tree.flatten(result)[0]
    assert tuple(layer.compute_output_shape(*shapes)) == first.shape
    unknown = [(None, None, *shape[2:]) for shape in shapes]
    assert tuple(layer.compute_output_shape(*unknown)) == (None, None, *first.shape[2:])
    assert first.dtype == layer.compute_dtype


def _check_saving(layer, inputs, result, call, tmp_path):
    symbols = [keras.Input((None, *array.shape[2:]), dtype=array.dtype.name) for array in inputs]
    model = keras.Model(symbols, layer(*symbols, **call))
    assert_same(model(list(inputs)), result, atol=1e-6)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_same(loaded(list(inputs)), result, atol=1e-6)
    model.save_weights(tmp_path / "model.weights.h5")
    loaded.set_weights([0 * weight for weight in loaded.get_weights()])
    loaded.load_weights(tmp_path / "model.weights.h5")
    assert_same(loaded(list(inputs)), result, atol=1e-6)
