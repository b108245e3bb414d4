"""Multi-head attention: Keras's contract, masks, weights, cache, and hand-made cases."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from layer_checks import assert_same, check_layer, random_tensor

from t2t_keras.layers import (
    AttentionMask,
    KeyValueCache,
    MultiHeadAttention,
    SharedEmbedding,
    mask_bias,
)

QUERY = random_tensor(2, 5, 8)
MEMORY = random_tensor(2, 3, 12, seed=1)
MASK = np.array([[1, 1, 0], [0, 1, 1]], bool)


@pytest.mark.parametrize(
    ("settings", "inputs", "weights"),
    [
        ({"num_heads": 4, "key_channels": 4, "value_channels": 12}, (QUERY, MEMORY), 4),
        ({"num_heads": 2, "max_relative_position": 2}, (QUERY,), 6),
        ({"num_heads": 2, "dropout": 0.1, "dropout_broadcast_dims": (0, 1)}, (QUERY,), 4),
    ],
)
def test_contract(settings, inputs, weights, tmp_path):
    call = {"return_attention_weights": True}
    check_layer(MultiHeadAttention, settings, inputs, weights=weights, tmp_path=tmp_path, call=call)


def test_contract_without_weights(tmp_path):
    check_layer(MultiHeadAttention, {"num_heads": 2}, (QUERY,), weights=4, tmp_path=tmp_path)


def test_one_head_by_hand():
    """softmax(q k / sqrt(2)) v with q = x, k = 2 x, v = x, output = -x."""
    layer = MultiHeadAttention(num_heads=1)
    x = np.array([[[1, 0], [0, 1]]], "float32")
    layer.build(x.shape)
    for dense, factor in ((layer.q, 1), (layer.k, 2), (layer.v, 1), (layer.output_transform, -1)):
        dense.kernel.assign(factor * np.eye(2))
    high = np.exp(2**0.5) / (np.exp(2**0.5) + 1)
    output, weights = layer(x, return_attention_weights=True)
    np.testing.assert_allclose(weights[0, 0], [[high, 1 - high], [1 - high, high]], rtol=1e-6)
    np.testing.assert_allclose(output[0], [[-high, high - 1], [high - 1, -high]], rtol=1e-6)


def test_relative_positions_by_hand():
    """Keys and queries of zero: only the value embeddings of the clipped distances are left."""
    layer = MultiHeadAttention(num_heads=1, max_relative_position=1)
    layer.build((1, 4, 2))
    for dense in (layer.q, layer.k, layer.v):
        dense.kernel.assign(np.zeros((2, 2)))
    layer.output_transform.kernel.assign(np.eye(2))
    layer.relative_values.assign([[-1, 0], [0, 10], [1, 0]])  # before, here, after
    output = layer(np.ones((1, 4, 2), "float32"))
    wanted = [[3 / 4, 10 / 4], [1 / 4, 10 / 4], [-1 / 4, 10 / 4], [-3 / 4, 10 / 4]]
    np.testing.assert_allclose(output[0], wanted, rtol=1e-6)


def test_masks_and_bias_say_the_same():
    layer = MultiHeadAttention(num_heads=2)
    by_mask = layer(QUERY, MEMORY, memory_mask=MASK, return_attention_weights=True)
    weights = np.asarray(by_mask[1])
    assert weights.shape == (2, 2, 5, 3)
    assert (weights.transpose(0, 3, 1, 2)[~MASK] == 0).all()
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
    per_query = np.repeat(MASK[:, None], 5, axis=1)
    for call in (
        {"attention_mask": per_query},
        {"attention_mask": AttentionMask(keys=MASK)},
        {"attention_mask": AttentionMask(bias=mask_bias(MASK))},
        {"attention_mask": AttentionMask(keys=MASK, bias=np.zeros((2, 1, 1, 3), "float32"))},
    ):
        same = layer(QUERY, MEMORY, return_attention_weights=True, **call)
        assert_same(same, by_mask, atol=1e-7)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_nothing_to_look_at_looks_evenly(policy):
    layer = MultiHeadAttention(num_heads=2, dtype=policy)
    output, weights = layer(
        QUERY, MEMORY, memory_mask=np.zeros((2, 3), bool), return_attention_weights=True
    )
    np.testing.assert_allclose(weights, np.full((2, 2, 5, 3), 1 / 3), rtol=1e-6)
    assert weights.dtype == "float32"
    assert np.isfinite(np.asarray(ops.cast(output, "float32"))).all()


@pytest.mark.parametrize(
    "embedding",
    [
        keras.layers.Embedding(9, 8, mask_zero=True),
        SharedEmbedding(vocab_size=9, hidden_size=8),
    ],
)
def test_the_mask_that_a_tensor_carries(embedding):
    carried = embedding(np.array([[3, 4, 0], [5, 0, 0]]))
    real = np.array([[1, 1, 0], [1, 0, 0]], bool)
    _, weights = MultiHeadAttention(num_heads=2)(carried, return_attention_weights=True)
    assert (np.asarray(weights).transpose(0, 3, 1, 2)[~real] == 0).all()
    _, weights = MultiHeadAttention(num_heads=2)(QUERY, carried, return_attention_weights=True)
    assert (np.asarray(weights).transpose(0, 3, 1, 2)[~real] == 0).all()


def test_weights_are_those_before_dropout():
    keras.utils.set_random_seed(0)
    layer = MultiHeadAttention(num_heads=2, dropout=0.5)
    _, weights = layer(QUERY, training=True, return_attention_weights=True)
    np.testing.assert_allclose(np.sum(weights, -1), 1, rtol=1e-5)


@pytest.mark.parametrize("max_relative_position", [0, 2])
def test_a_cache_gives_what_the_whole_sentence_gives(max_relative_position):
    layer = MultiHeadAttention(num_heads=2, max_relative_position=max_relative_position)
    whole = layer(QUERY, attention_mask=AttentionMask(causal=True))
    for joint_kernel in (None, layer.joint_kernel()):
        for mask in (None, AttentionMask(causal=True)):  # the query stands at the last key
            cache = KeyValueCache(layer.empty_cache(2), joint_kernel=joint_kernel)
            for i in range(5):
                step = layer(QUERY[:, i : i + 1], cache=cache, attention_mask=mask)
                np.testing.assert_allclose(step[:, 0], whole[:, i], atol=1e-6)


def test_few_queries_go_past_onednn():
    """TensorFlow replaces BatchMatMulV2, Softmax and Transpose of floats by oneDNN's, and no others."""
    layer = MultiHeadAttention(num_heads=2)
    memory = random_tensor(2, 20, 8)
    layer.build(memory.shape)

    def onednns(length):
        attend = tf.function(lambda x: layer(x, cache=cache))
        graph = attend.get_concrete_function(memory[:, :length]).graph
        kinds = ("BatchMatMulV2", "Softmax", "Transpose")
        found = [op for op in graph.get_operations() if op.type in kinds]
        return sorted(op.type for op in found if op.inputs[0].dtype == tf.float32)

    cache = KeyValueCache(layer.keys_and_values(memory), of_memory=True)
    assert onednns(1) == []
    products = ["BatchMatMulV2"] * 2
    assert onednns(4) == [*products, "Transpose"]  # of keys, which the product absorbs
    assert onednns(20) == [*products, "Softmax", *["Transpose"] * 3]
    whole = layer(memory, cache=cache)
    for length in (1, 4):
        assert_same(layer(memory[:, :length], cache=cache), whole[:, :length], atol=1e-6)


def test_few_queries_have_the_same_gradients():
    layer = MultiHeadAttention(num_heads=2)
    x = tf.constant(random_tensor(2, 20, 8))
    layer.build(x.shape)
    cache = KeyValueCache(layer.keys_and_values(x), of_memory=True)

    def gradient(length):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x[:, :length], cache=cache)[:, :4]
            loss = tf.reduce_sum(y**2)
        return tape.gradient(loss, [x, *layer.trainable_variables[-1:]])

    for few, many in zip(gradient(4), gradient(20), strict=True):
        assert_same(few, many, atol=1e-5)


def test_a_subclass_changes_the_keys():
    class Blind(MultiHeadAttention):
        """Sees all keys alike."""

        def keys_and_values(self, memory):
            projected = super().keys_and_values(memory)
            return {"k": 0 * projected["k"], "v": projected["v"]}

    _, weights = Blind(num_heads=2)(QUERY, return_attention_weights=True)
    np.testing.assert_allclose(weights, np.full((2, 2, 5, 5), 1 / 5), rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"num_heads": 3}, "key_channels must be a multiple of num_heads, got 8 and 3"),
        (
            {"num_heads": 2, "value_channels": 5},
            "value_channels must be a multiple of num_heads, got 5 and 2",
        ),
        (
            {"num_heads": 2, "value_channels": 4, "max_relative_position": 2},
            "equal key_channels and value_channels, got 8 and 4",
        ),
        ({"num_heads": 2, "dropout": 1.0}, r"must be in \[0, 1\), got 1.0"),
        ({"num_heads": 0}, "num_heads must be 1 or more, got 0"),
    ],
)
def test_wrong_settings(settings, wanted):
    with pytest.raises(ValueError, match=wanted):
        MultiHeadAttention(**settings)(QUERY)


def test_relative_positions_need_self_attention():
    with pytest.raises(ValueError, match="relative positions"):
        MultiHeadAttention(num_heads=2, max_relative_position=2)(QUERY, MEMORY)
