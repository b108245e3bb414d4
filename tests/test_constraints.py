"""Words that must appear in an output: beside all outputs there are, in texts, exports and the command."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from networks import SOURCE, search_model
from test_beam import assert_equal, reference
from test_export import ENCODERS, make_model, texts
from test_translator import LINES, make

from t2t_keras.decoding import DecodeSettings, Translator, score, search
from t2t_keras.decoding.constraints import Phrases
from t2t_keras.errors import UserError
from t2t_keras.export import export_saved_model

WANTED = [[[7, 8], [5]], [[9]], [], [[4, 4, 4]]]


def contains(ids, phrase):
    return any(ids[i : i + len(phrase)] == phrase for i in range(len(ids) - len(phrase) + 1))


@pytest.mark.parametrize(("beam_size", "extra_length"), [(2, 6), (4, 1), (5, 14)])
def test_phrases_appear_and_scores_are_the_models(beam_size, extra_length):
    options = DecodeSettings(beam_size=beam_size, extra_length=extra_length, alpha=0.0)
    found = search(search_model(), SOURCE, options, strategy=Phrases.of(WANTED))
    best = found.ids.numpy()[:, 0]
    for ids, phrases in zip(best.tolist(), WANTED, strict=True):
        assert all(contains(ids, phrase) for phrase in phrases)
    log_p = score(search_model(), SOURCE, best)
    np.testing.assert_allclose(found.scores[:, 0], log_p, rtol=1e-4)
    np.testing.assert_allclose(tf.reduce_sum(found.token_scores, -1)[:, 0], log_p, rtol=1e-4)


def test_without_phrases_it_is_beam_search():
    options = DecodeSettings(beam_size=3, extra_length=4, return_beams=True)
    found = search(search_model(), SOURCE, options, strategy=Phrases.of([[]] * 4))
    assert_equal(found.ids, found.scores, reference(search_model(), SOURCE, 3, 0.6, 4, 3))


@pytest.mark.parametrize("phrases", [[[7]], [[9], [3]], [[3, 3]]])
def test_the_best_of_all_outputs_is_found(phrases):
    """Of all that have three tokens and do not end; the beam is wide enough for every bank."""
    outputs = map(list, itertools.product(range(2, 23), repeat=3))
    outputs = [ids for ids in outputs if all(contains(ids, phrase) for phrase in phrases)]
    source = np.repeat(SOURCE[:1], len(outputs), 0)
    log_p = score(search_model(), source, np.array(outputs)).numpy()
    options = DecodeSettings(beam_size=40, min_length=3)
    strategy = Phrases.of([phrases])
    found = search(search_model(), SOURCE[:1], options, max_lengths=[3], strategy=strategy)
    assert found.ids.numpy()[0, 0].tolist() == outputs[log_p.argmax()]
    np.testing.assert_allclose(found.scores[0, 0], log_p.max(), rtol=1e-4)


def test_texts_with_prefixes_and_neighbours():
    settings = {"beam_size": 3, "extra_length": 6}
    phrases = [["w7 w9"], [], ["w4", "w5"], [" "], ["w2"], [], []]
    found = make(settings).translate(LINES, ["w3", *[""] * 6], phrases)
    for translation, wanted in zip(found, phrases, strict=True):
        assert all(phrase.strip() in translation.texts[0] for phrase in wanted)
    assert found[0].texts[0].startswith("w3")
    alone = make(settings).translate(LINES[2:3], phrases=phrases[2:3])
    assert alone[0].texts == found[2].texts
    free = make(settings).translate(LINES)
    assert [each.texts for each in found[5:]] == [each.texts for each in free[5:]]


@pytest.mark.parametrize("settings", [{"beam_size": 1}, {"beam_size": 2, "xla": True}])
def test_refused(settings):
    with pytest.raises(UserError, match="words that must appear need beam search without XLA, got"):
        make(settings).translate(LINES[:1], phrases=[["w2"]])


def test_an_export(tmp_path):
    settings = DecodeSettings(beam_size=3, extra_length=5, return_beams=True)
    path = export_saved_model(make_model(), ENCODERS, tmp_path, settings, phrases=True)
    lines, phrases = ["low", "lowest 3.14", "slow"], [["Männer", "low"], [], ["3.14"]]
    call = tf.saved_model.load(path).signatures["translate_with_phrases"]
    joined = ["\t".join(each) for each in phrases]
    got = call(text=tf.constant(lines), phrases=tf.constant(joined))
    wanted = Translator(make_model(), ENCODERS, settings).translate(lines, phrases=phrases)
    assert texts(got["translations"].numpy()) == [each.texts for each in wanted]
    for row, each in zip(got["translation"].numpy(), phrases, strict=True):
        assert all(phrase in row.decode() for phrase in each)
