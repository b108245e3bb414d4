"""Beam search against a plain one in Python that runs the whole numpy network at every token."""

import numpy as np
import pytest
import tensorflow as tf
from networks import SOURCE, log_probabilities, search_model

from t2t_keras.decoding import beam, beam_search
from t2t_keras.settings import HParams

eagerly = pytest.mark.usefixtures("eagerly")  # for searches that share no graph

IMPOSSIBLE = -1e7


def length_penalty(length, alpha):
    return ((5 + length) / 6) ** alpha


def plain_beams(nexts, sentences, beams, top_beams, limit, alpha):
    """T2T's search: hypotheses of each sentence as (score or log p, ids), best first.

    `nexts` takes pairs of a sentence's number and ids, and returns for each of them the tokens that may
    be next, with their log p. If none has finished, those that are alive, with their plain log p.
    """
    alive = [[(0.0, [])] for _ in range(sentences)]
    finished = [[(IMPOSSIBLE, None)] * beams for _ in range(sentences)]
    last_penalty = length_penalty(limit, alpha)
    for length in range(1, limit + 1):
        within_reach = [rows[0][0] / last_penalty if rows else -np.inf for rows in alive]
        to_beat = [ended[0][0] for ended in finished]
        if top_beams > 1:
            to_beat = [min(ended[-1][0] for ended in finished)] * sentences
        if all(a > b for a, b in zip(to_beat, within_reach, strict=True)):
            break
        following = iter(nexts([(n, ids) for n, rows in enumerate(alive) for _, ids in rows]))
        for n, rows in enumerate(alive):
            grown = [(p + new, [*ids, token]) for p, ids in rows for token, new in next(following)]
            grown = sorted(grown, key=lambda h: -h[0])[: 2 * beams]
            alive[n] = [(p, ids) for p, ids in grown if ids[-1] != 1][:beams]
            ended = [(p / length_penalty(length, alpha), ids) for p, ids in grown if ids[-1] == 1]
            finished[n] = sorted(finished[n] + ended, key=lambda h: -h[0])[:beams]
    found = zip(finished, alive, strict=True)
    return [([h for h in ended if h[1]] or rows)[:top_beams] for ended, rows in found]


def reference(
    model, source, beam_size, alpha, extra_length, top_beams, next_log_p=log_probabilities
):
    def nexts(rows):
        numbers, prefixes = zip(*rows, strict=True)
        return map(enumerate, next_log_p(model, source[[*numbers]], prefixes))

    limit = source.shape[1] + extra_length
    return plain_beams(nexts, len(source), beam_size, top_beams, limit, alpha)


def assert_equal(ids, scores, wanted):
    """Compares what came out with the reference, as far as hypotheses were finished at all."""
    ids, scores = np.asarray(ids), np.asarray(scores)
    for row, row_scores, hypotheses in zip(ids, scores, wanted, strict=True):
        np.testing.assert_allclose(row_scores[: len(hypotheses)], [s for s, _ in hypotheses], 1e-5)
        assert (row_scores[len(hypotheses) :] <= IMPOSSIBLE).all()
        for sequence, (_, tokens) in zip(row, hypotheses, strict=False):
            np.testing.assert_array_equal(sequence, tokens + [0] * (ids.shape[-1] - len(tokens)))


@eagerly
@pytest.mark.parametrize(
    ("overrides", "beam_size", "top_beams", "alpha", "extra_length"),
    [
        ("", 1, 1, 0.6, 4),
        ("", 4, 1, 0.6, 4),
        ("", 5, 3, 0.6, 4),
        *[("", 3, 2, alpha, 6) for alpha in (0.0, 1.0, -0.5)],
        *[("", 3, 2, alpha, 0) for alpha in (0.3, 2.0, -2.0)],
        ("proximity_bias=true", 3, 3, 0.6, 2),
        ("pos=timing_paper", 3, 3, 0.6, 2),
        ("pos=emb,max_length=5", 3, 3, 0.6, 2),
        ("vocab_divisor=8", 3, 3, 0.6, 2),
    ],
)
def test_equals_the_plain_search(overrides, beam_size, top_beams, alpha, extra_length):
    model, settings = search_model(overrides), {"alpha": alpha, "extra_length": extra_length}
    ids, scores = beam_search(model, SOURCE, beam_size=beam_size, top_beams=top_beams, **settings)
    assert ids.dtype == tf.int32
    assert ids.shape[:2] == scores.shape == (4, top_beams)
    wanted = reference(model, SOURCE, beam_size, alpha, extra_length, top_beams)
    assert_equal(ids, scores, wanted)
    if beam_size == 4:  # some hypotheses finish, and some do not
        assert len({1 in tokens for row in wanted for _, tokens in row}) == 2


def test_what_is_pruned():
    seen = np.zeros((2, 2, 6), bool)
    seen[0, 0, [1, 4]] = seen[0, 1, [1, 3]] = seen[1, 0, [0]] = seen[1, 1, [5]] = True
    caches = [{"k": tf.reshape(tf.range(2 * 3 * 6 * 2.0), [2, 3, 6, 2])}]
    search = beam.BeamSearch(2)
    pruned, [cache] = search.prune(search.first(2)._replace(visible=tf.constant(seen)), caches)
    visible = pruned.visible.numpy().astype(int).tolist()
    assert visible == [[[1, 0, 1], [1, 1, 0]], [[1, 0, 0], [0, 1, 0]]]
    np.testing.assert_array_equal(cache["k"][0], caches[0]["k"].numpy()[0][:, [1, 3, 4]])
    np.testing.assert_array_equal(cache["k"][1, :, :2], caches[0]["k"].numpy()[1][:, [0, 5]])


class Script:
    """A model whose next token depends on the first source id and on the position alone."""

    kind = "translation"
    keys_need_positions = False
    variables = trainable_variables = non_trainable_variables = kernel_variables = ()
    dtype_policy = None
    hp = HParams("script")

    def __init__(self, p):
        self.log_p = np.log(np.array(p, np.float32))  # [source ids, positions, V]
        self.source_vocab_size = self.log_p.shape[0]
        self.target_vocab_size = self.log_p.shape[2]
        self.num_logits = self.target_vocab_size
        self.members = [self]

    def step_kernels(self, few_rows=False):
        return None

    def empty_caches(self, batch):
        return []

    def encode_source(self, inputs):
        return inputs[:, 0]

    def decode_step(self, last_ids, position, caches, source, visible=None, kernels=None):
        log_p = tf.gather(tf.constant(self.log_p), source)[:, position]
        return tf.repeat(log_p[:, None], last_ids.shape[1], axis=1), caches


def scripted_log_p(model, source, prefixes):
    return model.log_p[source[:, 0], len(prefixes[0])]


@pytest.mark.parametrize("neighbours", [1, 12])
def test_with_alpha_below_0_a_neighbour_has_no_say(neighbours):
    """T2T goes on while any sentence does, and may find better: below 0 its bound is none.

    One sentence of 13 that is done is too few to leave the batch at once, if that were all.
    """
    end, rest = [0.01, 0.97, 0.01, 0.01], [0.01, 0.01, 0.97, 0.01]
    first = [0.005, 0.4, 0.59, 0.005]
    model = Script([[end] * 4, [end] * 4, [first, end, end, end], [rest, rest, rest, end]])
    source = np.array([[2], *[[3]] * neighbours])
    ids, scores = beam_search(model, source, beam_size=2, alpha=-2.0, extra_length=3)
    [alone] = reference(model, source[:1], 2, -2.0, 3, 1, scripted_log_p)
    beside, *others = reference(model, source, 2, -2.0, 3, 1, scripted_log_p)
    assert_equal(ids, scores, [alone, *others])
    assert alone[0] == (pytest.approx(np.log(0.4)), [1])
    better = (np.log(0.59) + np.log(0.97)) * (7 / 6) ** 2
    assert beside[0] == (pytest.approx(better), [2, 1])


def test_only_a_prefix():
    """There is one hypothesis; those that do not exist are empty and score what T2T's do."""
    prefix = np.array([[7, 3], [9, 4], [2, 2], [4, 9]])
    settings = {"beam_size": 3, "top_beams": 3, "max_lengths": [2] * 4}
    ids, scores = beam_search(search_model(), SOURCE, **settings, prefix=prefix)
    np.testing.assert_array_equal(ids[:, 0], prefix)
    assert not ids[:, 1:].numpy().any()
    np.testing.assert_allclose(scores, [[0.0, IMPOSSIBLE, IMPOSSIBLE]] * 4)


@pytest.mark.parametrize("vocab_size", [5, 64, 200, 640, 1024])
@pytest.mark.parametrize("values", [3, 1000], ids=["many equal", "few equal"])
@pytest.mark.parametrize("number", [1, 8])
def test_top_k_by_blocks_equals_that_of_all(vocab_size, values, number):
    logits = np.random.default_rng(0).integers(0, values, (3, 2, vocab_size)).astype(np.float32)
    logits *= 20 / values
    best, tokens, normaliser = beam.blockwise_top_k(tf.constant(logits), number)
    expected = np.argsort(-logits, axis=-1, kind="stable")[..., :number]
    np.testing.assert_array_equal(tokens, expected)
    np.testing.assert_array_equal(best, np.take_along_axis(logits, expected, -1))
    np.testing.assert_array_equal(normaliser, tf.reduce_logsumexp(logits, -1, keepdims=True))


def test_top_k_by_blocks_of_minus_infinity():
    """As with the logits that fill the last block, which are minus infinity in float16."""
    logits = np.full((1, 1, 640), -np.inf, np.float32)
    logits[..., :4] = [1, 3, 2, 3]
    best, tokens, normaliser = beam.blockwise_top_k(tf.constant(logits), 3)
    assert tokens.numpy().tolist() == [[[1, 3, 2]]]
    assert best.numpy().tolist() == [[[3, 3, 2]]]
    np.testing.assert_allclose(normaliser, [[[np.log(np.exp([1, 3, 2, 3]).sum())]]], rtol=1e-6)
