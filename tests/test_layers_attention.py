"""Multi-head attention: hand-made cases, masks and their biases, caches, few queries."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from layer_checks import WITH_WEIGHTS, assert_same, random_tensor

from t2t_keras import layers

QUERY = random_tensor(2, 5, 8)
MEMORY = random_tensor(2, 3, 12, seed=1)


def test_one_head_by_hand():
    """softmax(q k / sqrt(2)) v with q = x, k = 2 x, v = x, output = -x."""
    layer = layers.MultiHeadAttention(num_heads=1)
    x = np.array([[[1, 0], [0, 1]]], "float32")
    layer.build(x.shape)
    for dense, factor in ((layer.q, 1), (layer.k, 2), (layer.v, 1), (layer.output_transform, -1)):
        dense.kernel.assign(factor * np.eye(2))
    high = np.exp(2**0.5) / (np.exp(2**0.5) + 1)
    output, weights = layer(x, **WITH_WEIGHTS)
    np.testing.assert_allclose(weights[0, 0], [[high, 1 - high], [1 - high, high]], rtol=1e-6)
    np.testing.assert_allclose(output[0], [[-high, high - 1], [high - 1, -high]], rtol=1e-6)


def test_relative_positions_by_hand():
    """Keys and queries of zero: only the value embeddings of the clipped distances are left."""
    layer = layers.MultiHeadAttention(num_heads=1, max_relative_position=1)
    layer.build((1, 4, 2))
    for dense in (layer.q, layer.k, layer.v):
        dense.kernel.assign(np.zeros((2, 2)))
    layer.output_transform.kernel.assign(np.eye(2))
    layer.relative_values.assign([[-1, 0], [0, 10], [1, 0]])  # before, here, after
    output = layer(np.ones((1, 4, 2), "float32"))
    wanted = [[3 / 4, 10 / 4], [1 / 4, 10 / 4], [-1 / 4, 10 / 4], [-3 / 4, 10 / 4]]
    np.testing.assert_allclose(output[0], wanted, rtol=1e-6)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_nothing_to_look_at_looks_evenly(policy):
    layer = layers.MultiHeadAttention(num_heads=2, dtype=policy)
    output, weights = layer(QUERY, MEMORY, memory_mask=np.zeros((2, 3), bool), **WITH_WEIGHTS)
    np.testing.assert_allclose(weights, np.full((2, 2, 5, 3), 1 / 3), rtol=1e-6)
    assert weights.dtype == "float32"
    assert np.isfinite(np.asarray(ops.cast(output, "float32"))).all()


def test_initializers_of_ones_own_need_no_registration():
    own = type("Own", (keras.initializers.RandomNormal,), {})
    for given in (own(), lambda shape, dtype=None: keras.random.normal(shape, dtype=dtype)):
        layer = layers.MultiHeadAttention(num_heads=2, kernel_initializer=given)
        layer.build((None, 5, 8))
        assert not np.allclose(layer.q.kernel, layer.k.kernel)


def test_weights_are_those_before_dropout():
    keras.utils.set_random_seed(0)
    layer = layers.MultiHeadAttention(num_heads=2, dropout=0.5)
    _, weights = layer(QUERY, training=True, **WITH_WEIGHTS)
    np.testing.assert_allclose(np.sum(weights, -1), 1, rtol=1e-5)


@pytest.mark.parametrize("max_relative_position", [0, 2])
def test_a_cache_gives_what_the_whole_sentence_gives(max_relative_position):
    layer = layers.MultiHeadAttention(num_heads=2, max_relative_position=max_relative_position)
    whole = layer(QUERY, attention_mask=layers.AttentionMask(causal=True))
    no = np.zeros((2, 1), bool)  # a mask of the query is none of the cache
    for joint_kernel in (None, layer.joint_kernel()):
        for mask in (None, layers.AttentionMask(causal=True)):  # the query stands at the last key
            cache = layers.KeyValueCache(layer.empty_cache(2), joint_kernel=joint_kernel)
            for i in range(5):
                step = layer(QUERY[:, i : i + 1], cache=cache, attention_mask=mask, query_mask=no)
                np.testing.assert_allclose(step[:, 0], whole[:, i], atol=1e-6)
    for layer.q.bias, layer.q.activation in ((1, keras.activations.linear), (None, keras.ops.tanh)):
        assert layer.joint_kernel() is None  # which would leave out either


def test_few_queries_go_past_onednn():
    """TensorFlow replaces BatchMatMulV2, Softmax and Transpose of floats by oneDNN's, and no others."""
    layer = layers.MultiHeadAttention(num_heads=2)
    memory = random_tensor(2, 20, 8)
    layer.build(memory.shape)

    def onednns(length):
        attend = tf.function(lambda x: layer(x, cache=cache))
        graph = attend.get_concrete_function(memory[:, :length]).graph
        kinds = ("BatchMatMulV2", "Softmax", "Transpose")
        found = [op for op in graph.get_operations() if op.type in kinds]
        return sorted(op.type for op in found if op.inputs[0].dtype == tf.float32)

    cache = layers.KeyValueCache(layer.keys_and_values(memory), of_memory=True)
    products = ["BatchMatMulV2"] * 2  # of attention; dense layers make plain ones
    assert [onednns(1), onednns(4)] == [[], []]
    assert onednns(5) == [*products, "Transpose"]  # of keys, which the product absorbs
    assert onednns(20) == [*products, *products, "Softmax", *["Transpose"] * 3]
    whole = layer(memory, cache=cache)
    for length in (1, 4, 5):
        assert_same(layer(memory[:, :length], cache=cache), whole[:, :length], atol=1e-6)


def test_few_queries_have_the_same_gradients():
    layer = layers.MultiHeadAttention(num_heads=2)
    x = tf.constant(random_tensor(2, 20, 8))
    layer.build(x.shape)
    cache = layers.KeyValueCache(layer.keys_and_values(x), of_memory=True)

    def gradient(length):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(layer(x[:, :length], cache=cache)[:, :4] ** 2)
        return tape.gradient(loss, [x, *layer.trainable_variables[-1:]])

    for few, many in zip(gradient(4), gradient(20), strict=True):
        assert_same(few, many, atol=1e-5)


# Biases, written out

NO = -1e9
A, B = -np.log(2), -np.log(3)
SEGMENTS, KEY_SEGMENTS = np.array([[1, 2, 0]]), np.array([[1, 1, 2, 0]])


@pytest.mark.parametrize(
    ("bias", "wanted"),
    [
        (lambda: layers.mask_bias(np.array([[True, False], [True, True]])), [[[[0, NO]]], [[[0, 0]]]]),
        (lambda: layers.mask_bias(np.array([[[1, 0, 1], [0, 0, 1]]])), [[[[0, NO, 0], [NO, NO, 0]]]]),
        (lambda: layers.causal_bias(3), [[[[0, NO, NO], [0, 0, NO], [0, 0, 0]]]]),
        (lambda: layers.proximity_bias(3), [[[[0, A, B], [A, 0, A], [B, A, 0]]]]),
        (lambda: layers.segment_bias(SEGMENTS), [[[[0, NO, NO], [NO, 0, NO], [NO, NO, 0]]]]),
        (lambda: layers.segment_bias(SEGMENTS, KEY_SEGMENTS), [[[[0, 0, NO, NO], [NO, NO, 0, NO], [NO, NO, NO, 0]]]]),
    ],
)  # fmt: skip
def test_biases(bias, wanted):
    np.testing.assert_allclose(bias(), wanted, rtol=1e-6)
    assert bias().dtype == "float32"


@pytest.mark.parametrize(
    ("mask", "wanted"),
    [
        ({"keys": np.array([[1, 1, 0]])}, [[0, 0, NO]]),
        ({"causal": True}, [[0, NO, NO], [0, 0, NO], [0, 0, 0]]),
        ({"proximity": True}, [[0, A, B], [A, 0, A], [B, A, 0]]),
        ({"segments": SEGMENTS, "keys": np.array([[0, 0, 0]])}, [[0, NO, NO], [NO, 0, NO], [NO, NO, 0]]),
        ({"proximity": True, "causal": True, "distance": np.array([[-2, 0, 1]])}, [[B, 0, A + NO]]),
        ({"causal": True, "keys": np.array([[0, 1, 1]]), "bias": np.ones((1, 1, 1, 3))}, [[1 + NO, 1 + NO, 1 + NO], [1 + NO, 1, 1 + NO], [1 + NO, 1, 1]]),
    ],
)  # fmt: skip
def test_the_bias_of_a_mask(mask, wanted):
    x = np.zeros((1, 3, 8), "float32")
    bias = np.asarray(layers.AttentionMask(**mask).dense_bias(x, x))
    np.testing.assert_allclose(bias.reshape(bias.shape[-2:]), wanted, rtol=1e-6)
    assert layers.AttentionMask().dense_bias(x, x) is None


def test_functional_models_save_a_mask_without_tensors(tmp_path):
    mask, x = layers.AttentionMask(causal=True, proximity=True), keras.Input((5, 8))
    model = keras.Model(x, layers.MultiHeadAttention(num_heads=2)(x, attention_mask=mask))
    model.save(tmp_path / "model.keras")
    assert_same(keras.models.load_model(tmp_path / "model.keras")(QUERY), model(QUERY), atol=1e-6)
    assert layers.AttentionMask.from_config(mask.get_config()) == mask
    with pytest.raises(ValueError, match=r"AttentionMask with tensors \(keys\) cannot be saved"):
        layers.AttentionMask(keys=SEGMENTS).get_config()


def test_attention_makes_its_bias_of_a_mask_once():
    layer = layers.MultiHeadAttention(num_heads=2)
    both = layers.AttentionMask(bias=layers.causal_bias(5) + layers.proximity_bias(5))
    wanted = layer(QUERY, attention_mask=both, **WITH_WEIGHTS)
    mask = layers.AttentionMask(causal=True, proximity=True)
    prepared = layer.prepare(mask, QUERY)
    assert layer.prepare(prepared, QUERY) is prepared
    for each in (mask, prepared):
        assert_same(layer(QUERY, attention_mask=each, **WITH_WEIGHTS), wanted, atol=1e-7)
