"""Logits processors, top-k and top-p, and words that must appear: in Python, in settings and in exports."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from networks import ENCODERS, SOURCE, log_probabilities, search_model, small_model
from test_beam import assert_equal, reference
from test_translator import LINES, make, same

from t2t_keras import decoding
from t2t_keras.decoding import DecodeSettings, Translator, score, search
from t2t_keras.decoding.constraints import Phrases
from t2t_keras.decoding.logits import keep_top_k_top_p
from t2t_keras.errors import UserError
from t2t_keras.export import ServedTransformer
from t2t_keras.inspection import attention_data
from t2t_keras.registry import register_logits_processor


@register_logits_processor
def rarer(weight=2.0):
    """Takes `weight` from the logit of a token for each time that it has come."""

    def process(logits, step):
        counts = tf.one_hot(step.ids, logits.shape[-1])  # [b, K, i, V]
        return logits - weight * tf.reduce_sum(counts, 2)

    return process


def rarer_log_p(model, source, prefixes):
    """The same in NumPy: log p of the next token after `prefixes` [B, t], normalised afterwards."""
    log_p = log_probabilities(model, source, prefixes)
    for row, prefix in zip(log_p, prefixes, strict=True):
        np.subtract.at(row, prefix, 2.0)
    return log_p - np.log(np.exp(log_p).sum(-1, keepdims=True))


def test_beam_search_counts_changed_probabilities():
    """Scores and order are those of a search whose model has the changed distribution."""
    settings = {"beam_size": 3, "extra_length": 4, "top_beams": 2}
    model = search_model()
    ids, scores = decoding.beam_search(model, SOURCE, **settings, logits_processors=[rarer()])
    wanted = reference(model, SOURCE, 3, 0.6, 4, 2, rarer_log_p)
    assert_equal(ids, scores, wanted)
    plain = reference(search_model(), SOURCE, 3, 0.6, 4, 2)
    assert [row[0][1] for row in wanted] != [row[0][1] for row in plain]


def test_greedy_and_sampled_decoding_count_them_too():
    processors = {"logits_processors": [rarer()], "extra_length": 4}
    model = search_model()
    for ids, scores in (
        decoding.greedy(model, SOURCE, **processors),
        decoding.sample(model, SOURCE, seed=5, **processors),
    ):
        log_p = np.zeros(len(SOURCE))
        for n in range(ids.shape[1]):
            prefixes = np.asarray(ids)[:, :n]
            row = rarer_log_p(model, SOURCE, prefixes.tolist())[range(len(SOURCE)), ids[:, n]]
            log_p += np.where((prefixes == 1).any(-1), 0.0, row)
        np.testing.assert_allclose(scores, log_p, rtol=1e-4)


def test_what_a_processor_forbids_does_not_come():
    """Minus infinity is as good as a large number, and processors run in their order."""

    def without(*tokens):
        return lambda x, step: tf.where(np.isin(range(x.shape[-1]), tokens), -np.inf, x)

    model = search_model()
    free, _ = decoding.beam_search(model, SOURCE, extra_length=6)
    common = np.bincount(np.asarray(free)[free > 1]).argmax()
    processors = [without(common), without(1)]
    ids, scores = decoding.beam_search(model, SOURCE, extra_length=6, logits_processors=processors)
    assert not np.isin(ids, [common, 1]).any() and np.isfinite(scores).all()
    with pytest.raises(ValueError, match="Dimension 2 in both shapes must be equal"):
        decoding.greedy(model, SOURCE, logits_processors=[lambda logits, step: logits[..., :9]])
    model = small_model()
    twice = [lambda logits, step: logits + score(model, SOURCE, SOURCE)[0]]
    decoding.greedy(model, SOURCE, logits_processors=twice)
    scores = score(model, SOURCE, SOURCE).numpy()
    with keras.StatelessScope([(each, 0 * each.value) for each in model.variables]):
        assert np.abs(score(model, SOURCE, SOURCE) - scores).max() > 0.1
    np.testing.assert_array_equal(score(model, SOURCE, SOURCE), scores)  # no graph kept zeros


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_decode_hparam_names_processors(beam_size):

    def translated(decode_hparams, **kwargs):
        settings = DecodeSettings.parse(f"beam_size={beam_size},extra_length=5,{decode_hparams}")
        return settings, Translator(search_model(), ENCODERS, settings, **kwargs).translate(LINES)

    settings, named = translated("logits_processors=[rarer:0.5,rarer:1.5]")
    same(named, translated("logits_processors=rarer")[1])
    same(named, translated("", logits_processors=[rarer(2.0)])[1])
    assert [t.texts for t in named] != [t.texts for t in translated("")[1]]

    shown = attention_data(search_model(), ENCODERS, LINES[0], settings=settings)
    assert [shown.target.text] == named[0].texts

    served = ServedTransformer(search_model(), ENCODERS, settings)
    texts = served.translate(tf.constant(LINES))["translation"].numpy()
    assert [text.decode() for text in texts] == [t.texts[0] for t in named]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("rarest:2", "unknown logits processor 'rarest'. Did you mean 'rarer'. Registered: "),
        ("rarer:nan", "'rarer:nan' cannot be created .nan is not finite.: write rarer:NUMBER"),
        ("rarer:much", "'rarer:much' cannot be created .*'much'.*: write rarer:NUMBER"),
        ("always", "'always' cannot be created .*missing.*: write always:NUMBER"),
    ],
)
def test_processors_that_cannot_be_made(written, message, refused):
    if written == "always":
        register_logits_processor("always")(lambda weight: lambda logits, step: logits)
    with refused(message):
        Translator(search_model(), ENCODERS, DecodeSettings(logits_processors=written))


def test_a_name_is_taken_once():
    with pytest.raises(UserError, match="logits processor 'rarer' is registered already"):
        register_logits_processor("rarer")(lambda: None)


def test_top_k_and_top_p_keep_the_best_tokens():
    logits = np.log(np.array([[0.5, 0.1, 0.3, 0.1], [0.1, 0.2, 0.3, 0.4]], np.float32))
    kept = np.asarray(keep_top_k_top_p(logits, 0, np.float32(0.7))) > -1e6
    np.testing.assert_array_equal(kept, [[1, 0, 1, 0], [0, 0, 1, 1]])
    kept = np.asarray(keep_top_k_top_p(logits, 1, None)) > -1e6
    np.testing.assert_array_equal(kept, [[1, 0, 0, 0], [0, 0, 0, 1]])
    # What is cut off stays so, however low the temperature.
    logits = np.log(np.array([[0.5, 0.1, 0.3, 0.1]], np.float32)) / np.float32(1e-9)
    for top_k, top_p in ((2, None), (0, np.float32(0.7))):
        kept = np.asarray(keep_top_k_top_p(logits, top_k, top_p))
        assert kept.argmax() == 0
        assert (kept[0, [1, 3]] < -1e38).all()


# Words that must appear, beside all outputs there are

WANTED = [[[7, 8], [5]], [[12, 22], [12, 13]], [], [[4, 4, 4]]]


def contains(ids, phrase):
    return any(ids[i : i + len(phrase)] == phrase for i in range(len(ids) - len(phrase) + 1))


@pytest.mark.parametrize(("beam_size", "extra_length"), [(2, 6), (4, 1), (5, 14)])
def test_phrases_appear_and_scores_are_the_models(beam_size, extra_length):
    options = DecodeSettings(beam_size, 0.0, extra_length, return_beams=True)  # alpha is 0
    found = search(search_model(), SOURCE, options, strategy=Phrases.of(WANTED))
    for rows, phrases in zip(found.ids.numpy(), WANTED, strict=True):
        assert all(contains(rows[0].tolist(), phrase) for phrase in phrases)
        assert len(np.unique(rows, axis=0)) == beam_size  # no candidate comes twice
    log_p = score(search_model(), SOURCE, found.ids[:, 0])
    np.testing.assert_allclose(found.scores[:, 0], log_p, rtol=1e-4)
    np.testing.assert_allclose(tf.reduce_sum(found.token_scores, -1)[:, 0], log_p, rtol=1e-4)


def test_phrases_are_no_way_around_a_constraint_or_a_prefix():
    options = DecodeSettings(beam_size=3, return_beams=True)
    given = {"prefix": [[3]], "max_lengths": 2, "strategy": Phrases.of([[[9], [5]]] * 4)}
    given["constraint"] = lambda x, step: tf.range(x.shape[2]) != tf.fill(tf.shape(x), 9)
    ids = search(search_model(), SOURCE, options, **given).ids.numpy()
    assert (ids == 5).any(-1)[:, 0].all() and (ids != 9).all() and (ids[..., 0] == 3).all()


def test_without_phrases_it_is_beam_search():
    options = DecodeSettings(beam_size=3, extra_length=4, return_beams=True)
    found = search(search_model(), SOURCE, options, strategy=Phrases.of([[]] * 4))
    assert_equal(found.ids, found.scores, reference(search_model(), SOURCE, 3, 0.6, 4, 3))


@pytest.mark.parametrize("phrases", [[[7]], [[9], [3]], [[3, 3]]])
def test_the_best_of_all_outputs_is_found(phrases):
    """Of all that have three tokens and do not end; the beam is wide enough for every bank."""
    outputs = map(list, itertools.product(range(2, 23), repeat=3))
    outputs = [ids for ids in outputs if all(contains(ids, phrase) for phrase in phrases)]
    log_p = score(search_model(), np.repeat(SOURCE[:1], len(outputs), 0), np.array(outputs)).numpy()
    options = DecodeSettings(beam_size=40, min_length=3)
    strategy = Phrases.of([phrases])
    found = search(search_model(), SOURCE[:1], options, max_lengths=[3], strategy=strategy)
    assert found.ids.numpy()[0, 0].tolist() == outputs[log_p.argmax()]
    np.testing.assert_allclose(found.scores[0, 0], log_p.max(), rtol=1e-4)


def test_phrases_in_texts_with_prefixes_and_neighbours():
    settings = {"beam_size": 3, "extra_length": 6}
    phrases = [["w7 w9"], [], ["w4", "w5"], [" "], ["w2"], [], []]
    found = make(settings).translate(LINES, ["w3", *[""] * 6], phrases)
    for translation, wanted in zip(found, phrases, strict=True):
        assert all(phrase.strip() in translation.texts[0] for phrase in wanted)
    assert found[0].texts[0].startswith("w3")
    assert make(settings).translate(LINES[2:3], phrases=phrases[2:3])[0].texts == found[2].texts
    free = make(settings).translate(LINES)
    assert [each.texts for each in found[5:]] == [each.texts for each in free[5:]]


@pytest.mark.parametrize("settings", [{"beam_size": 1}, {"beam_size": 2, "xla": True}])
def test_phrases_are_refused(settings):
    with pytest.raises(UserError, match="words that must appear need TensorFlow's beam search"):
        make(settings).translate(LINES[:1], phrases=[["w2"]])
