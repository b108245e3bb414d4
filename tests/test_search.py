"""Greedy and sampled decoding, options of all searches, ensembles, and searches in TensorFlow's graphs."""

import functools
import itertools

import golden
import keras
import numpy as np
import pytest
import replicas
import tensorflow as tf
from golden import up_to_eos
from networks import ENCODERS, RELATIVE, SOURCE, log_probabilities, search_model, small_model
from subclasses import CHANGED, layer_with, whole_scores, with_layer

import t2t_keras as t2t
from t2t_keras.decoding import DecodeSettings, Ensemble, beam_search, greedy, sample, score
from t2t_keras.decoding.searches import search as any_search
from t2t_keras.decoding.static_search import StaticSearch
from t2t_keras.errors import UserError
from t2t_keras.open_graph import open_shapes

BOTH = {"inputs": SOURCE, "targets": np.array([[7, 3, 1], [9, 1, 0], [1, 0, 0], [4, 4, 1]])}

eagerly = pytest.mark.usefixtures("eagerly")  # for searches that share no graph


@eagerly
def test_ends_where_it_first_may():
    model = small_model(ending=10.0)
    ids, _ = greedy(model, SOURCE, extra_length=50)
    np.testing.assert_array_equal(ids, [[1]] * 4)
    ids, _ = greedy(model, SOURCE, extra_length=4, min_length=5)
    assert [len(row) for row in up_to_eos(ids)] == [6] * 4


@eagerly
def test_a_length_of_nothing_returns_nothing():
    ids, scores = greedy(search_model(), SOURCE[:, :0], extra_length=0)
    assert ids.shape == (4, 0) and scores.numpy().tolist() == [0] * 4


@pytest.mark.parametrize("method", ["beam", "greedy", "random"])
def test_an_end_that_is_too_early_and_alone_allowed_leaves_nothing(method, eagerly):
    settings = {"greedy": {}, "random": {"sampling_method": "random"}, "beam": {"beam_size": 3}}
    options = DecodeSettings(**{"beam_size": 1, "min_length": 2, **settings[method]})

    def end_alone(logits, step):
        return tf.broadcast_to(tf.range(logits.shape[2]) == 1, tf.shape(logits))

    found = any_search(search_model(), SOURCE[:2], options, constraint=end_alone)
    assert not np.any(found.ids) and not np.any(found.lengths)
    assert found.scores.numpy().ravel().tolist() == [-1e7] * 2


def test_numbers_of_numpy_are_numbers(eagerly):
    sizes = {"beam_size": 2, "top_beams": 2, "extra_length": 1}
    numpys = {name: np.int64(size) for name, size in sizes.items()}
    ours, theirs = (beam_search(search_model(), SOURCE[:1], **each) for each in (sizes, numpys))
    np.testing.assert_array_equal(ours[0], theirs[0])


@pytest.mark.parametrize(
    ("search", "options", "message"),
    [
        ("sample", {"temperature": 1e30}, r"sampling_temp .* from 1e-30 to 100000.0, got 1e\+30"),
        ("sample", {"temperature": float("nan")}, "sampling_temp must be a number from .*, got nan"),
        ("sample", {"top_p": 0}, "sampling_keep_top_p must be .*, got 0"),
        ("beam_search", {"top_beams": 5}, "from 1 to beam_size=4, got 5"),
        ("beam_search", {"top_beams": 0}, "from 1 to beam_size=4, got 0"),
        ("beam_search", {"alpha": float("nan")}, "alpha must be a number, got nan"),
    ],
)  # fmt: skip
def test_options_that_are_refused(search, options, message):
    options |= {"seed": 0} if search == "sample" else {}
    with pytest.raises(UserError, match=message):
        getattr(t2t.decoding, search)(None, SOURCE, **options)


@eagerly
def test_sources_may_be_ragged_and_one_prefix_for_all():
    model, options = small_model(target_vocab=31), {"beam_size": 2, "extra_length": 4}
    ragged, one = tf.RaggedTensor.from_tensor(SOURCE, padding=0), [[3, 30]]
    ids, _ = beam_search(model, ragged, prefix=one, **options)
    np.testing.assert_array_equal(ids, beam_search(model, SOURCE, prefix=one * 4, **options)[0])


# Sampled decoding

MANY = np.tile(SOURCE[:1], (2000, 1))


def first_tokens(**settings):
    ids, _ = sample(search_model(), MANY, seed=1, max_lengths=[1] * 2000, **settings)
    return np.bincount(np.asarray(ids)[:, 0], minlength=23) / 2000


@eagerly
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_tokens_come_as_often_as_they_are_likely(temperature):
    log_p = log_probabilities(search_model(), SOURCE[:1], [[]])[0]
    p = np.exp(log_p / temperature) / np.exp(log_p / temperature).sum()
    deviation = np.sqrt(p * (1 - p) / 2000)
    assert (np.abs(first_tokens(temperature=temperature) - p) < 5 * deviation + 1e-3).all()
    np.testing.assert_array_equal(first_tokens(temperature=1e-4), np.eye(23)[log_p.argmax()])


@eagerly
def test_among_the_likeliest():
    log_p = log_probabilities(search_model(), SOURCE[:1], [[]])[0]
    order = np.argsort(-log_p)
    assert set(np.flatnonzero(first_tokens(top_k=3))) == set(order[:3])
    enough = np.cumsum(np.exp(log_p[order]))
    number = int(np.searchsorted(enough, 0.8)) + 1
    assert set(np.flatnonzero(first_tokens(top_p=0.8))) <= set(order[:number])
    assert first_tokens(top_p=1e-6)[order[0]] == 1
    assert np.count_nonzero(first_tokens(top_p=0.8, temperature=3.0)) > number


@eagerly
def test_with_relative_attention_all_tokens_are_kept():
    """T2T samples from such models by `T2TModel.sample`, which does not know `sampling_keep_top_k`."""
    model, said = search_model(f"{RELATIVE}4"), []
    ids, _ = sample(model, MANY, seed=1, max_lengths=[1] * 2000, top_k=1)
    assert len(np.unique(ids)) > 5
    assert Ensemble([model, search_model()]).keys_need_positions
    options = {"beam_size": 1, "sampling_method": "random", "sampling_keep_top_k": 1}
    t2t.decoding.Translator(model, ENCODERS, DecodeSettings(**options), said.append)
    assert len(said) == 1 and said[0].startswith("sampling_keep_top_k=1 has no effect on a model")
    t2t.decoding.Translator(search_model(), ENCODERS, DecodeSettings(**options), said.append)
    assert len(said) == 1


@eagerly
def test_one_seed_one_draw_whose_scores_are_the_models_log_probabilities():
    options = {"temperature": 2.0, "top_k": 5, "extra_length": 4}
    draws = [sample(search_model(), SOURCE, seed=seed, **options) for seed in (0, 0, 4)]
    first, again, other = (ids.numpy().tolist() for ids, _ in draws)
    assert first == again != other
    shorter = sample(search_model(), SOURCE, seed=0, max_lengths=[1, 9, 9, 9], **options)[0]
    assert shorter[1:, :4].numpy().tolist() == [row[:4] for row in first[1:]]
    unseeded = []
    for seed in (0, 0, 1):
        keras.utils.set_random_seed(seed)
        unseeded.append(sample(search_model(), SOURCE, **options)[0].numpy().tolist())
    assert unseeded[0] == unseeded[1] != unseeded[2]
    ids, scores = sample(search_model(), SOURCE, seed=2, top_k=5, extra_length=3)
    np.testing.assert_allclose(scores, score(search_model(), SOURCE, ids), rtol=1e-4)


# What trains is what translates: subclasses that override `call` of each part, and `attend`


@pytest.mark.parametrize("name", CHANGED)
def test_searches_call_what_a_subclass_overrides(name, request):
    """Scores are those that the whole network gives; one does so in graphs. More: `test_properties.py`."""
    if name != "memory":
        request.getfixturevalue("eagerly")
    # With positions, keys of a memory are made in a call without queries and keys.
    model = small_model("proximity_bias=true" * (name == "memory"), model_class=CHANGED[name])
    assert np.abs(model(BOTH) - small_model()(BOTH)).max() > 0.1
    assert len(t2t.checkpoints.t2t_variables(model)) == len(model.weights)
    options, source = {"extra_length": 4}, SOURCE[:3]
    for xla in (False, True):
        ids, scores = greedy(model, source, xla=xla, **options)
        np.testing.assert_allclose(scores, whole_scores(model, source, ids.numpy()), rtol=1e-4)
    served = t2t.export.ServedTransformer(model, ENCODERS, DecodeSettings(beam_size=1, **options))
    np.testing.assert_allclose(served.translate_ids(source[:1])["scores"][0], scores[:1], rtol=1e-4)
    whole = {"inputs": np.array([[5, 9, 3, 1]]), "targets": np.array([[7, 9, 1]])}
    logits = tf.nn.log_softmax(model(whole))[0].numpy()
    pair = served.score([ENCODERS["inputs"].decode([5, 9, 3])], ["w7 w9"])
    np.testing.assert_allclose(pair["token_scores"][0], logits[range(3), [7, 9, 1]], rtol=1e-4)


def test_a_call_without_a_cache_is_an_error_in_searches():
    class Own(t2t.Transformer):
        def call(self, inputs, training=False):
            return super().call(inputs, training=training)

    with pytest.raises(UserError, match=r"Own\.call takes no cache, .* add the argument cache=No"):
        greedy(small_model(model_class=Own), SOURCE)


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
    def keys_and_values(self, memory):
        projected = super().keys_and_values(memory)
        return {"k": projected["k"][:, :1] * 0.5, "v": projected["v"]}  # one for all heads


@pytest.mark.parametrize(
    ("overrides", "model_class", "dtype"),
    [
        ("proximity_bias=true", t2t.Transformer, "float32"),
        (f"{RELATIVE}2", t2t.Transformer, "float32"),
        ("", with_layer(layer_with(HalfSharpAttention)), "float32"),
        ("", t2t.Transformer, "mixed_bfloat16"),
        ("proximity_bias=true", t2t.Transformer, "mixed_float16"),
    ],
)
def test_a_graph_of_one_layer_equals_eager(grappler, overrides, model_class, dtype):
    model = small_model(overrides, model_class=model_class, dtype=dtype)
    targets = tf.constant([[7, 3, 8, 1], [9, 1, 0, 0], [5, 5, 5, 5], [1, 0, 0, 0]])

    @tf.function
    def in_a_graph(source):
        def step(position, logits, caches):
            last = targets[:, position - 1] if position > 0 else tf.zeros([4], tf.int32)
            step_logits, caches = model.decode_step(last[:, None], position, caches, source)
            return position + 1, tf.concat([logits, step_logits], 1), caches

        first = 0, tf.zeros([4, 0, 23]), model.empty_caches(4)
        shapes = tf.TensorShape([]), tf.TensorShape([4, None, 23]), open_shapes(first[2], 2)
        return tf.while_loop(lambda i, *_: i < 5, step, first, shape_invariants=shapes)[1]

    source = model.encode_source(SOURCE)
    logits = in_a_graph(source)
    assert logits.shape == (4, 5, 23)
    with replicas.eagerly():
        eager = in_a_graph(source)
    tolerance = {"float32": 1e-6, "mixed_bfloat16": 2e-2, "mixed_float16": 2e-3}[dtype]
    np.testing.assert_allclose(logits, eager, atol=tolerance * np.abs(eager).max())


def test_weights_of_lora_and_quantization_count():
    """After `enable_lora` and `quantize`, graphs are made anew, also those of an ensemble."""
    model = small_model()
    layer = model.decoder.layers[0].ffn.conv1

    def lora():
        layer.enable_lora(rank=2)
        layer.lora_kernel_b.assign(np.ones_like(layer.lora_kernel_b))

    either, scores = (model, Ensemble([model])), []
    for change in (lambda: None, lora, functools.partial(model.quantize, "int8")):
        change()
        scores.append([score(each, **BOTH) for each in either])
    for before, after in itertools.pairwise(scores):
        assert np.abs(np.subtract(before, after)).max(-1).min() > 1e-3


BLOCKS = "hidden_size=32,filter_size=64"  # which `shape.in_blocks` divides


def test_a_search_sees_layers_that_were_changed_before_compile():
    model = small_model()
    before = greedy(model, SOURCE)[1]
    model.decoder.layers[0].ffn.conv2.activation = keras.activations.tanh
    model.compile("sgd")  # makes new graphs in Keras, too
    assert np.any(greedy(model, SOURCE)[1] != before)


@pytest.mark.parametrize(("frozen", "rows"), [*itertools.product([False, True], [1, 4])])
def test_a_search_sees_weights_that_have_changed(frozen, rows):
    """Also where an optimizer writes them in place, and where they are frozen: matrices are kept between searches."""
    source, model = SOURCE[:rows], small_model(BLOCKS)
    model.trainable = not frozen
    either = (model, Ensemble([model]))
    [layer] = model.decoder.layers
    for variable in (layer.self_attention.q.kernel, layer.ffn.conv2.kernel, model.softmax.table):
        for network in either:
            greedy(network, source, extra_length=2)
        step = 3.0 * np.random.default_rng(0).normal(size=variable.shape).astype("float32")
        tf.raw_ops.ResourceApplyGradientDescent(var=variable.value.handle, alpha=0.1, delta=step)
        for network in either:
            ids, scores = greedy(network, source, extra_length=2)
            np.testing.assert_allclose(scores, whole_scores(model, source, ids.numpy()), rtol=1e-4)


class GatedLayer(t2t.layers.TransformerDecoderLayer):
    """Its gate is built at the first call, and of how many sentences its output is, it does not say."""

    def feed_forward(self, name):
        ffn = super().feed_forward(name)
        ffn.gate = keras.layers.Dense(32, kernel_initializer="ones")
        return ffn

    def call(self, x, memory=None, **options):
        y = self.ffn.gate(super().call(x, memory, **options))
        return tf.ensure_shape(tf.numpy_function(np.copy, [y], tf.float32), [None, *x.shape[1:]])


def test_one_sentence_is_searched_alike_in_a_graph_of_its_own():
    one, many = (small_model(BLOCKS, model_class=with_layer(GatedLayer)) for _ in range(2))
    options = {"beam_size": 3, "top_beams": 3, "extra_length": 4}
    beam_search(many, SOURCE, **options)
    found, again = (beam_search(model, SOURCE[:1], **options) for model in (one, many))
    for x, y in zip(found, again, strict=True):  # the others' graph was there, and served again
        np.testing.assert_allclose(x, y, rtol=1e-5)
    with tf.GradientTape() as tape:
        scores = greedy(one, SOURCE[:1], extra_length=2)[1]
    with pytest.raises(LookupError, match="a search has no gradient"):
        tape.gradient(scores, one.softmax.table.value)


# Several models that decode as one

OTHER = "num_hidden_layers=2,hidden_size=8,shared_embedding_and_softmax_weights=false"


def test_probabilities_are_averaged(eagerly):
    models = [search_model(), small_model(OTHER, seed=1, spread=3.0)]
    ids, scores = greedy(Ensemble(models), SOURCE, extra_length=2)
    targets = np.asarray(ids)
    batch = {"inputs": SOURCE, "targets": targets}
    p = np.mean([tf.nn.softmax(model(batch)) for model in models], 0)
    np.testing.assert_array_equal(np.where(targets > 0, p.argmax(-1), 0), targets)
    log_p = np.log(np.take_along_axis(p, targets[..., None], -1)[..., 0])
    wanted = np.where(targets > 0, log_p, 0).sum(1)
    np.testing.assert_allclose(scores, wanted, rtol=1e-4)
    np.testing.assert_allclose(score(Ensemble(models), SOURCE, targets), wanted, rtol=1e-4)


def test_what_cannot_be_one():
    with pytest.raises(UserError, match="sizes, got 23 and 23, 23 and 31"):
        Ensemble([search_model(), small_model(target_vocab=31, overrides=OTHER)])
    with pytest.raises(UserError, match="got 23, 24: leave out"):
        Ensemble([search_model(), small_model(overrides=f"{OTHER},vocab_divisor=8")])
    with pytest.raises(UserError, match="got none"):
        Ensemble([])


# Searches in tensors of fixed sizes beside those whose tensors grow, by XLA and operation by operation

THREE = SOURCE[:3]
"""Without the sentence of nothing but padding, which attends to padding, and here there is more of it."""

BEAM = {"beam_size": 3, "top_beams": 3}


@pytest.fixture
def little_room(eagerly, monkeypatch):
    """Operations one by one, and less room, so that a few tokens are more than that."""
    monkeypatch.setattr("t2t_keras.decoding.static_search.ROOM", 4)


def both(search, *args, **settings):
    """Checks that both ways find the same, and returns the ids."""
    ids, scores = search(*args, **settings)
    found, found_scores = search(*args, **settings, xla=True)
    np.testing.assert_array_equal(found, ids)
    np.testing.assert_allclose(found_scores, scores, rtol=1e-5)
    return np.asarray(ids)


@pytest.mark.parametrize("name", golden.MODELS)
def test_all_beams_of_tensor2tensor(name, request):
    if name != "relative":  # to compile takes seconds; others run one by one
        request.getfixturevalue("little_room")
    case = golden.load(name)
    assert case.search_error(case.model(), xla=True) <= golden.RELATIVE


def test_one_graph_for_all_sizes_by_xla():
    model = search_model()
    both(beam_search, model, THREE[:, :5], **BEAM, extra_length=7)
    both(beam_search, model, THREE[[0, 1, 2, 0]], **BEAM, extra_length=7, alpha=0.3)
    ids = both(beam_search, model, THREE, **BEAM, min_length=34, max_lengths=[40, 36, 0])
    assert ids.shape == (3, 3, 40)


def test_there_are_few_shapes(little_room, monkeypatch):
    shapes, extend = set(), StaticSearch.extend

    def counted(self, source, *others):
        shapes.add((*source["memory_bias"].shape, *others[-1].hypotheses.visible.shape))
        return extend(self, source, *others)

    monkeypatch.setattr(StaticSearch, "extend", counted)
    for rows, length, extra in (([0, 1, 2], 6, 4), ([0, 1, 2, 0], 5, 7), ([2, 1, 0], 6, 9)):
        source = THREE[rows, :length]
        beam_search(search_model(), source, beam_size=2, extra_length=extra, min_length=9, xla=True)
    assert shapes == {(4, 1, 1, 8, 4, 2, 2 * room) for room in (0, 4, 8, 12)}
    shapes.clear()  # what has ended is not searched further
    beam_search(small_model(ending=10.0), THREE, beam_size=2, extra_length=9, xla=True)
    assert shapes == {(4, 1, 1, 8, 4, 2, 0)}


def test_a_prefix_as_long_as_the_room_and_lengths(little_room):
    options = {"prefix": [[3, 4, 5, 6]] * 3, "max_lengths": [2, 9, 6]}
    either = [DecodeSettings(xla=xla) for xla in (False, True)]
    found = [any_search(search_model(), THREE, settings, **options) for settings in either]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_what_xla_does_not_compile():
    with pytest.raises(UserError, match="a search with logits_processors: leave out xla or"):
        greedy(search_model(), THREE, logits_processors=[max], xla=True)
    with pytest.raises(UserError, match="a search with sampling: leave out xla or"):
        DecodeSettings(xla=True, sampling_method="random", beam_size=1)
