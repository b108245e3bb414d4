"""Greedy search against the whole network in numpy, and inside TensorFlow's graphs."""

import numpy as np
import pytest
import tensorflow as tf
from networks import log_probabilities, padding_model, search_model, small_model

import t2t_keras as t2t
from t2t_keras.decoding.search import open_shapes

eagerly = pytest.mark.usefixtures("eagerly")  # for searches that share no graph

SOURCE = np.array([[5, 9, 3, 7, 6, 1], [4, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0], [0] * 6], np.int32)
"""With an empty sentence, and one of nothing but padding."""


def reference(model, source, extra_length):
    """Greedy search by the rules: ids of every sentence up to its end, and log p until there."""
    rows = [[] for _ in source]
    scores = np.zeros(len(source))
    for _ in range(source.shape[1] + extra_length):
        ended = np.array([1 in row for row in rows])
        if ended.all():
            break
        log_p = log_probabilities(model, source, rows)
        best = log_p.argmax(-1)
        scores += np.where(ended, 0, log_p.max(-1))
        for row, token in zip(rows, best, strict=True):
            row.append(int(token))
    for row in rows:
        if 1 in row:
            row[row.index(1) + 1 :] = [0] * (len(row) - row.index(1) - 1)
    return np.array(rows), scores


@eagerly
@pytest.mark.parametrize(
    ("overrides", "extra_length"),
    [("", 0), ("num_hidden_layers=2", 4), ("proximity_bias=true", 4), ("pos=timing_paper", 4)],
)
def test_equals_numpy(overrides, extra_length):
    model = search_model(overrides)
    wanted, wanted_scores = reference(model, SOURCE, extra_length)
    ids, scores = t2t.decoding.greedy(model, SOURCE, extra_length=extra_length)
    assert ids.dtype == tf.int32
    np.testing.assert_array_equal(ids, wanted)
    np.testing.assert_allclose(scores, wanted_scores, rtol=1e-5)


def test_padding_that_is_chosen_is_a_token():
    """T2T's, too: it embeds to zeros, nothing masks it, and the search goes on."""
    wanted, wanted_scores = reference(padding_model(), SOURCE, 14)
    ids, scores = t2t.decoding.greedy(padding_model(), SOURCE, extra_length=14)
    np.testing.assert_array_equal(ids, wanted)
    np.testing.assert_allclose(scores, wanted_scores, rtol=1e-5)
    assert any(0 in row[: row.index(1)] for row in wanted.tolist() if 1 in row)


def test_some_sentences_end_and_some_do_not():
    """So that `test_equals_numpy` covers both."""
    ids, _ = reference(search_model("num_hidden_layers=2"), SOURCE, 4)
    assert len({1 in row for row in ids.tolist()}) == 2


@eagerly
def test_batch_of_one_without_padding_equals_its_row():
    model = search_model()
    batch = t2t.decoding.greedy(model, SOURCE, extra_length=4)
    alone = t2t.decoding.greedy(model, SOURCE[:1], extra_length=4)
    length = alone[0].shape[1]
    np.testing.assert_array_equal(batch[0][:1, :length], alone[0])
    assert not np.any(batch[0][:1, length:])
    np.testing.assert_allclose(batch[1][:1], alone[1], rtol=1e-5)


@eagerly
def test_stops_when_every_sentence_has_ended():
    model = small_model(ending=10.0)
    ids, _ = t2t.decoding.greedy(model, SOURCE, extra_length=50)
    np.testing.assert_array_equal(ids, [[1]] * 4)


@eagerly
def test_a_length_of_nothing_returns_nothing():
    ids, scores = t2t.decoding.greedy(search_model(), SOURCE[:, :0], extra_length=0)
    assert ids.shape == (4, 0)
    np.testing.assert_array_equal(scores, np.zeros(4))


@pytest.fixture
def grappler():
    """TensorFlow's graph optimiser, which `warm_server.quick_graphs` turns off."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


# TensorFlow 2.21's graph optimiser on CPU turns (q * c) @ k + bias in a while loop into a fused
# operation that returns empty tensors; `MultiHeadAttention` steps around that.


class HalfSharpAttention(t2t.layers.MultiHeadAttention):
    """What a user may write: other weights from the same queries and keys."""

    def keys_and_values(self, memory):
        projected = super().keys_and_values(memory)
        return {"k": projected["k"] * 0.5, "v": projected["v"]}


class HalfSharpDecoderLayer(t2t.layers.TransformerDecoderLayer):
    def attention(self, name, relative=False):
        return HalfSharpAttention.from_config(super().attention(name, relative).get_config())


class HalfSharpDecoder(t2t.layers.TransformerDecoder):
    layer_class = HalfSharpDecoderLayer


class HalfSharpTransformer(t2t.Transformer):
    def _make_stacks(self):
        super()._make_stacks()
        self.decoder = HalfSharpDecoder.from_config(self.decoder.get_config())


RELATIVE = "self_attention_type=dot_product_relative,max_relative_position=2"


@pytest.mark.parametrize(
    ("overrides", "model_class", "dtype"),
    [
        ("", t2t.Transformer, "float32"),
        ("proximity_bias=true", t2t.Transformer, "float32"),
        (RELATIVE, t2t.Transformer, "float32"),
        ("", HalfSharpTransformer, "float32"),
        ("", t2t.Transformer, "mixed_bfloat16"),
        ("proximity_bias=true", t2t.Transformer, "mixed_float16"),
    ],
)
def test_a_graph_of_one_layer_equals_eager(grappler, overrides, model_class, dtype):
    model = small_model(f"num_hidden_layers=1,{overrides}", model_class=model_class, dtype=dtype)
    targets = tf.constant([[7, 3, 8, 1], [9, 1, 0, 0], [5, 5, 5, 5], [1, 0, 0, 0]])

    def step(position, logits, caches, source):
        last = targets[:, position - 1] if position > 0 else tf.zeros([4], tf.int32)
        step_logits, caches = model.decode_step(last[:, None], position, caches, source)
        return position + 1, tf.concat([logits, step_logits], 1), caches

    @tf.function
    def in_a_graph(source):
        caches = model.empty_caches(4)
        start = (0, tf.zeros([4, 0, 23]), caches)
        invariants = (
            tf.TensorShape([]),
            tf.TensorShape([4, None, 23]),
            open_shapes(caches, 2),
        )
        return tf.while_loop(
            lambda position, *_: position < 5,
            lambda position, logits, caches: step(position, logits, caches, source),
            start,
            shape_invariants=invariants,
        )[1]

    source = model.encode_source(SOURCE)
    logits = in_a_graph(source)
    assert logits.shape == (4, 5, 23)
    tf.config.run_functions_eagerly(True)
    try:
        eager = in_a_graph(source)
    finally:
        tf.config.run_functions_eagerly(False)
    tolerance = {"float32": 1e-6, "mixed_bfloat16": 2e-2, "mixed_float16": 2e-3}[dtype]
    np.testing.assert_allclose(logits, eager, atol=tolerance * np.abs(eager).max())
