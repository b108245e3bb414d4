"""Logits processors, in Python, in settings and in an export, and the choice of top-k and top-p."""

import numpy as np
import pytest
import tensorflow as tf
from networks import SOURCE, log_probabilities, search_model
from test_beam import assert_equal, reference
from test_translator import ENCODERS, LINES, same

import t2t_keras as t2t
from t2t_keras.decoding import DecodeSettings, Translator
from t2t_keras.decoding.logits import keep_top_k_top_p
from t2t_keras.errors import UserError
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
    ids, scores = t2t.decoding.beam_search(
        search_model(), SOURCE, **settings, logits_processors=[rarer()]
    )
    wanted = reference(search_model(), SOURCE, 3, 0.6, 4, 2, rarer_log_p)
    assert_equal(ids, scores, wanted)
    plain = reference(search_model(), SOURCE, 3, 0.6, 4, 2)
    assert [row[0][1] for row in wanted] != [row[0][1] for row in plain]


def test_greedy_and_sampled_decoding_count_them_too():
    processors = {"logits_processors": [rarer()], "extra_length": 4}
    model = search_model()
    for ids, scores in (
        t2t.decoding.greedy(model, SOURCE, **processors),
        t2t.decoding.sample(model, SOURCE, seed=5, **processors),
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
        forbidden = np.isin(np.arange(23), tokens)
        return lambda logits, step: tf.where(
            np.pad(forbidden, (0, logits.shape[-1] - 23)), -np.inf, logits
        )

    model = search_model()
    free, _ = t2t.decoding.beam_search(model, SOURCE, extra_length=6)
    common = np.bincount(np.asarray(free)[free > 1]).argmax()
    ids, scores = t2t.decoding.beam_search(
        model, SOURCE, extra_length=6, logits_processors=[without(common), without(1)]
    )
    assert not np.isin(ids, [common, 1]).any()
    assert np.isfinite(scores).all()
    with pytest.raises(ValueError, match="Dimension 2 in both shapes must be equal"):
        t2t.decoding.greedy(model, SOURCE, logits_processors=[lambda logits, step: logits[..., :9]])


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_decode_hparam_names_processors(beam_size):
    """In `Translator`, beside those that it is given, in what `inspect` shows, and in an export."""
    plain = DecodeSettings(beam_size=beam_size, extra_length=5)
    settings = DecodeSettings.parse(
        f"beam_size={beam_size},extra_length=5,logits_processors=[rarer:0.5,rarer:1.5]"
    )
    named = Translator(search_model(), ENCODERS, settings).translate(LINES)
    one = DecodeSettings.parse(f"beam_size={beam_size},extra_length=5,logits_processors=rarer")
    same(named, Translator(search_model(), ENCODERS, one).translate(LINES))
    given = Translator(search_model(), ENCODERS, plain, logits_processors=[rarer(2.0)])
    same(named, given.translate(LINES))
    without = Translator(search_model(), ENCODERS, plain).translate(LINES)
    assert [t.texts for t in named] != [t.texts for t in without]

    shown = attention_data(search_model(), ENCODERS, LINES[0], settings=settings)
    assert [shown.target.text] == named[0].texts

    served = t2t.export.ServedTransformer(search_model(), ENCODERS, settings)
    texts = served.translate(tf.constant(LINES))["translation"].numpy()
    assert [text.decode() for text in texts] == [t.texts[0] for t in named]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("rarest:2", "unknown logits processor 'rarest'; registered: .* Did you mean 'rarer'"),
        ("rarer:nan", "'rarer:nan' cannot be created .nan is not finite.: write rarer:NUMBER"),
        ("rarer:much", "'rarer:much' cannot be created .*'much'.*: write rarer:NUMBER"),
        ("always", "'always' cannot be created .*missing.*: write always:NUMBER"),
    ],
)
def test_processors_that_cannot_be_made(written, message):
    if written == "always":
        register_logits_processor("always")(lambda weight: lambda logits, step: logits)
    with pytest.raises(UserError, match=message) as refused:
        Translator(search_model(), ENCODERS, DecodeSettings(logits_processors=written))
    assert "\n" not in str(refused.value)


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
