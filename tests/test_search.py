"""Greedy and sampled decoding, options of all searches, and a step inside TensorFlow's graphs."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from golden import up_to_eos
from networks import SOURCE, log_probabilities, padding_model, search_model, small_model
from subclasses import CHANGED, whole_scores
from test_translator import ENCODERS

import t2t_keras as t2t
from t2t_keras.decoding import DecodeSettings, Ensemble, score
from t2t_keras.errors import UserError
from t2t_keras.open_graph import open_shapes
from t2t_keras.precision import in_precision

BOTH = {"inputs": SOURCE, "targets": np.array([[7, 3, 1], [9, 1, 0], [1, 0, 0], [4, 4, 1]])}

eagerly = pytest.mark.usefixtures("eagerly")  # for searches that share no graph


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
    """`test_equals_numpy` covers both."""
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


def searches(**settings):
    """Beam search and greedy search with the same settings: ids [B, L] and scores [B] each."""
    model = search_model()
    ids, scores = t2t.decoding.beam_search(model, SOURCE, beam_size=3, **settings)
    yield np.asarray(ids[:, 0]), np.asarray(scores[:, 0])
    ids, scores = t2t.decoding.greedy(model, SOURCE, **settings)
    yield np.asarray(ids), np.asarray(scores)


def lengths_of(ids):
    """Tokens of each row, its end of sentence included."""
    return [len(row) if 1 in row else int(np.count_nonzero(row)) for row in up_to_eos(ids)]


def test_a_maximum_length_for_each_sentence():
    limits = [7, 1, 0, 12]
    for together, _ in searches(max_lengths=limits):
        assert (np.array(lengths_of(together)) <= limits).all()
        assert lengths_of(together)[1:3] == [1, 0]
    ids, scores = t2t.decoding.beam_search(search_model(), SOURCE, beam_size=3, max_lengths=limits)
    for row in (0, 1, 3):
        alone, own = t2t.decoding.beam_search(
            search_model(), SOURCE[row : row + 1], beam_size=3, max_lengths=limits[row : row + 1]
        )
        np.testing.assert_allclose(own, scores[row : row + 1], rtol=1e-5)
        assert lengths_of(ids[row]) == lengths_of(alone[0])
        np.testing.assert_array_equal(ids[row, 0, : alone.shape[2]], alone[0, 0])


def test_a_length_of_six_more_is_a_maximum_of_twelve():
    for free, limited in zip(searches(extra_length=6), searches(max_lengths=[12] * 4), strict=True):
        np.testing.assert_array_equal(free[0], limited[0])
        np.testing.assert_array_equal(free[1], limited[1])


def test_minimum_length():
    free, _ = next(searches(extra_length=4))
    assert min(lengths_of(free)) < 5
    for ids, _ in searches(extra_length=4, min_length=5):
        assert not np.any(ids[:, :5] == 1)


@eagerly
def test_the_end_comes_where_it_first_may():
    ids, _ = t2t.decoding.greedy(small_model(ending=10.0), SOURCE, extra_length=4, min_length=5)
    assert lengths_of(ids) == [6] * 4


def test_prefix():
    """Each row begins as it is told and goes on as the model finds best."""
    prefix = np.array([[7, 3, 8], [9, 0, 0], [0, 0, 0], [4, 4, 0]])
    for (ids, scores), (free, free_scores) in zip(
        searches(extra_length=4, prefix=prefix), searches(extra_length=4), strict=True
    ):
        for row, forced in zip(ids, prefix, strict=True):
            forced = forced[forced != 0]
            np.testing.assert_array_equal(row[: len(forced)], forced)
        assert up_to_eos(ids[2]) == up_to_eos(free[2])
        np.testing.assert_allclose(scores[2], free_scores[2], rtol=1e-5)


def test_what_greedy_search_found_as_prefix_is_found_again():
    _, (ids, scores) = searches(extra_length=4)
    prefix = ids[:, :2]
    again, again_scores = t2t.decoding.greedy(search_model(), SOURCE, extra_length=4, prefix=prefix)
    np.testing.assert_array_equal(again, ids)
    assert not np.any(prefix == 1)
    cost = t2t.decoding.score(search_model(), SOURCE, prefix)
    np.testing.assert_allclose(again_scores, scores - cost, rtol=1e-4)


def test_scores_of_what_was_found():
    """Beam search's score, without its penalty, is what `score` says of its output."""
    model = search_model()
    for ids, scores in searches(extra_length=4):
        targets = np.where(np.cumsum(ids == 1, -1) - (ids == 1) > 0, 0, ids)
        log_p = np.asarray(t2t.decoding.score(model, SOURCE, targets))
        length = np.array(lengths_of(ids))
        penalty = np.where([1 in row for row in ids], ((5 + length) / 6) ** 0.6, 1)
        close = np.isclose(scores, log_p, rtol=1e-4) | np.isclose(
            scores, log_p / penalty, rtol=1e-4
        )
        assert close.all()


# Sampled decoding

MANY = np.tile(SOURCE[:1], (2000, 1))


def first_tokens(**settings):
    ids, _ = t2t.decoding.sample(search_model(), MANY, seed=1, max_lengths=[1] * 2000, **settings)
    return np.bincount(np.asarray(ids)[:, 0], minlength=23) / 2000


@eagerly
def test_tokens_come_as_often_as_they_are_likely():
    p = np.exp(log_probabilities(search_model(), SOURCE[:1], [[]]))[0]
    deviation = np.sqrt(p * (1 - p) / 2000)
    assert (np.abs(first_tokens() - p) < 5 * deviation + 1e-3).all()


@eagerly
def test_temperature():
    log_p = log_probabilities(search_model(), SOURCE[:1], [[]])[0]
    sharper = np.exp(2 * log_p) / np.exp(2 * log_p).sum()
    deviation = np.sqrt(sharper * (1 - sharper) / 2000)
    assert (np.abs(first_tokens(temperature=0.5) - sharper) < 5 * deviation + 1e-3).all()
    likeliest = np.eye(23)[log_p.argmax()]
    np.testing.assert_array_equal(first_tokens(temperature=1e-4), likeliest)


@eagerly
def test_among_the_likeliest():
    log_p = log_probabilities(search_model(), SOURCE[:1], [[]])[0]
    order = np.argsort(-log_p)
    assert set(np.flatnonzero(first_tokens(top_k=3))) == set(order[:3])
    enough = np.cumsum(np.exp(log_p[order]))
    number = int(np.searchsorted(enough, 0.8)) + 1
    assert set(np.flatnonzero(first_tokens(top_p=0.8))) <= set(order[:number])
    assert first_tokens(top_p=1e-6)[order[0]] == 1


@eagerly
def test_one_seed_one_draw():
    settings = {"extra_length": 4, "temperature": 2.0}
    first, again, other = (
        np.asarray(t2t.decoding.sample(search_model(), SOURCE, seed=seed, **settings)[0])
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@eagerly
def test_scores_are_the_models_log_probabilities():
    model = search_model()
    ids, scores = t2t.decoding.sample(model, SOURCE, seed=2, top_k=5, extra_length=3)
    np.testing.assert_allclose(scores, t2t.decoding.score(model, SOURCE, ids), rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"temperature": 0}, "sampling_temp must be a number from 1e-30 to 100000.0, got 0"),
        ({"temperature": 1e30}, r"sampling_temp must be .* from 1e-30 to 100000.0, got 1e\+30"),
        ({"temperature": float("nan")}, "sampling_temp must be a number from .*, got nan"),
        ({"top_p": 0}, "sampling_keep_top_p must be .*, got 0"),
    ],
)
def test_wrong_settings(settings, words):
    with pytest.raises(UserError, match=words):
        t2t.decoding.sample(None, SOURCE, seed=0, **settings)


# What trains is what translates: subclasses that override `call` of each part, and `attend`


@pytest.mark.parametrize("name", CHANGED)
def test_searches_call_what_a_subclass_overrides(name):
    """Every search returns the scores that the whole network gives its outputs."""
    model = small_model("num_hidden_layers=1", model_class=CHANGED[name])
    plain = small_model("num_hidden_layers=1")
    assert np.abs(model(BOTH) - plain(BOTH)).max() > 0.1
    options, source = {"extra_length": 4}, SOURCE[:3]
    ids, scores = t2t.decoding.greedy(model, source, **options)
    likeliest = np.argmax(model({"inputs": source, "targets": ids}), -1)
    np.testing.assert_array_equal(np.where(ids.numpy() > 0, likeliest, 0), ids)
    found = [
        (ids, scores),
        t2t.decoding.greedy(model, source, xla=True, **options),
        t2t.decoding.sample(model, source, seed=1, **options),
        t2t.decoding.beam_search(model, source, alpha=0.0, **options),
    ]
    for ids, scores in found:
        ids = ids.numpy().reshape(len(source), -1)
        np.testing.assert_allclose(np.ravel(scores), whole_scores(model, source, ids), rtol=1e-4)
    served = t2t.export.ServedTransformer(
        model, ENCODERS, DecodeSettings(beam_size=1, extra_length=4)
    )
    exported = served.translate_ids(source[:1])
    np.testing.assert_allclose(exported["scores"][0], found[0][1][:1], rtol=1e-4)
    whole = {"inputs": np.array([[5, 9, 3, 1]]), "targets": np.array([[7, 9, 1]])}
    logits = tf.nn.log_softmax(model(whole))[0].numpy()
    pair = served.score([ENCODERS["inputs"].decode([5, 9, 3])], ["w7 w9"])
    np.testing.assert_allclose(pair["token_scores"][0], logits[range(3), [7, 9, 1]], rtol=1e-4)
    pair = Ensemble([model, plain])
    ids, scores = t2t.decoding.greedy(pair, source, **options)
    np.testing.assert_allclose(scores, whole_scores(pair, source, ids.numpy()), rtol=1e-4)
    eight_bits = in_precision(model, "int8")
    ids, scores = t2t.decoding.greedy(eight_bits, source, **options)
    np.testing.assert_allclose(
        scores, whole_scores(eight_bits, source, ids.numpy()), rtol=0.05, atol=0.2
    )


def test_a_call_without_a_cache_is_an_error_in_searches():
    class Own(t2t.Transformer):
        def call(self, inputs, training=False):
            return super().call(inputs, training=training)

    with pytest.raises(
        UserError, match=r"Own\.call takes no cache, .* add the argument cache=None"
    ):
        t2t.decoding.greedy(small_model("num_hidden_layers=1", model_class=Own), SOURCE)


# A step in a graph


@pytest.fixture
def grappler():
    """TensorFlow's graph optimiser, which `toy.quick_graphs` turns off."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


# TensorFlow 2.21's graph optimiser on CPU turns (q * c) @ k + bias in a while loop into a fused
# operation that returns empty tensors; `MultiHeadAttention` steps around that.


class HalfSharpAttention(t2t.layers.MultiHeadAttention):
    """Attention of a user, with other weights from the same queries and keys."""

    def keys_and_values(self, memory):
        projected = super().keys_and_values(memory)
        return {"k": projected["k"] * 0.5, "v": projected["v"]}


class HalfSharpDecoderLayer(t2t.layers.TransformerDecoderLayer):
    def attention(self, name, relative=False):
        return HalfSharpAttention.from_config(super().attention(name, relative).get_config())


class HalfSharpDecoder(t2t.layers.TransformerDecoder):
    layer_class = HalfSharpDecoderLayer


class HalfSharpTransformer(t2t.Transformer):
    def _make_parts(self):
        super()._make_parts()
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


def test_weights_of_lora_and_quantization_count():
    """After `enable_lora` and `quantize`, graphs are made anew, also those of an ensemble."""
    model = small_model("num_hidden_layers=1")
    targets = np.array([[7, 3, 1], [9, 1, 0], [1, 0, 0], [4, 4, 1]])
    either = (model, Ensemble([model]))
    scores = [[score(each, SOURCE, targets) for each in either]]
    layer = model.decoder.layers[0].ffn.conv1
    layer.enable_lora(rank=2)
    layer.lora_kernel_b.assign(np.ones_like(layer.lora_kernel_b))
    scores.append([score(each, SOURCE, targets) for each in either])
    model.quantize("int8")
    scores.append([score(each, SOURCE, targets) for each in either])
    for before, after in itertools.pairwise(scores):
        assert np.abs(np.subtract(before, after)).max(-1).min() > 1e-3
