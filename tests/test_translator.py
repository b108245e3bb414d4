"""Text to text: neighbours, T2T's batches, long lines, prefixes, sampling, scores, batches by length."""

import math
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from networks import ENCODER, ENCODERS, log_probabilities, padding_model, search_model

from t2t_keras import decoding
from t2t_keras.decoding import DecodeSettings, PairScorer, Translator, translator
from t2t_keras.decoding.translator import BatchDone, BatchLimits, LengthBatcher, Line, plan
from t2t_keras.errors import UserError

_RANDOM = np.random.default_rng(3)
LINES = [" ".join(f"w{n}" for n in _RANDOM.integers(2, 23, k)) for k in (3, 9, 1, 5, 0, 14, 3)]
TEXTS = [line for line in LINES if line]


def make(settings=None, model=None, report=pytest.fail, **kwargs):
    settings = DecodeSettings(**{"extra_length": 5, **(settings or {})})
    return Translator(model or search_model(), ENCODERS, settings, report, **kwargs)


def same(one, other):
    assert [t.texts for t in one] == [t.texts for t in other]
    assert [t.lengths for t in one] == [t.lengths for t in other]
    np.testing.assert_allclose([t.scores for t in one], [t.scores for t in other], rtol=1e-5)


def test_a_blank_line_stays_blank():
    """But not with a prefix, and not in T2T's batches, which are T2T's."""
    found = make({"beam_size": 2, "return_beams": True}).translate(["w3", " \t", ""])
    assert [any(each.texts) for each in found] == [True, False, False]
    assert found[1] == found[2] == (["", ""], [0.0, 0.0], [0, 0], [[], []])
    assert make({"t2t_batches": True}).translate([""])[0].lengths != [0]


@pytest.mark.parametrize("beam_size", [1, 2])
def test_padding_among_the_tokens_is_text(beam_size):
    """T2T cuts at the end of sentence alone. Without one it has the padding at the end, too."""
    settings = {"beam_size": beam_size, "extra_length": 14}
    sources = [[*ENCODER.encode(line), 1] for line in LINES]
    found = make(settings, padding_model()).translate_ids(sources)
    inner = 0
    for source, translation in zip(sources, found, strict=True):
        ids = decoding.search(padding_model(), [source], DecodeSettings(**settings)).ids[0, 0]
        row = ids.numpy().tolist()
        text = ENCODER.decode(row[: row.index(1)] if 1 in row else row)
        text = text if 1 in row else text.removesuffix(" <pad>")
        assert translation.texts == [text]
        assert translation.lengths == [len(text.split()) + (1 in row)]
        inner += "<pad>" in text
    assert inner


def test_hypotheses_that_do_not_exist_are_empty():
    """At most one token, of which only the end of sentence is an end. T2T has "<pad>" twice."""
    [found] = make({"beam_size": 3, "return_beams": True, "extra_length": 0}).translate_ids([[1]])
    assert found.texts == ["", "", ""]
    assert found.lengths == [1, 0, 0]
    assert found.scores[0] > -100 and max(found.scores[1:]) <= -1e7


def test_as_many_tokens_follow_a_prefix_as_would_come_without():
    settings = {"beam_size": 1, "extra_length": 2}
    [found] = make(settings, padding_model()).translate(["w20"], ["w3 w9"])
    assert found.lengths == [2 + 2 + 2]  # source, extra, prefix


@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        ([5, 0, 6, 1, 0, 0], [5, 0, 6]),
        ([5, 0, 1, 7, 1], [5, 0]),
        ([5, 0, 1, 0], [5, 0]),
        ([5, 0, 6], [5, 0, 6]),
        ([5, 0, 6, 0, 0], [5, 0, 6]),  # T2T keeps these two: "<pad> <pad>"
        ([0, 0], []),  # and of these, as of a hypothesis that does not exist
        ([1], []),
    ],
)
def test_what_of_an_output_is_text(ids, kept):
    assert translator.until_eos(np.array(ids)) == kept


def test_padding_within_a_source_keeps_its_place():
    """As in a text with the token <pad>; T2T masks it where it stands."""
    lines = ["w5 w6 <pad> w7", *TEXTS]
    rows = [[*ENCODER.encode(line), 1] for line in lines]
    translate = make({"beam_size": 2})
    found = translate.translate_ids(tf.constant(np.pad(translator.pad(rows), [(0, 0), (0, 3)])))
    same(found, translate.translate(lines))
    ids, scores = decoding.beam_search(search_model(), rows[:1], beam_size=2, max_lengths=[10])
    assert 0 in rows[0] and found[0].texts == [translate.text(ids[0, 0])]
    assert found[0].scores == pytest.approx(scores.numpy()[0], rel=1e-5)


def test_t2t_s_batches():
    """Sorted by words, the longest first, so many at once, and as long as the longest lets."""
    order = sorted(range(7), key=lambda i: -len(LINES[i].split()))
    wanted = {}
    for rows in (order[:3], order[3:6], order[6:]):
        ids = translator.pad([[*ENCODER.encode(LINES[i]), 1] for i in rows])
        found = decoding.beam_search(search_model(), ids, beam_size=2, extra_length=5)
        for i, best, score in zip(rows, found[0].numpy(), found[1].numpy(), strict=True):
            wanted[i] = (ENCODER.decode(translator.until_eos(best[0])), score[0])
    settings = {"beam_size": 2, "t2t_batches": True, "batch_size": 3}
    translated = make(settings).translate(LINES)
    assert [t.texts[0] for t in translated] == [wanted[i][0] for i in range(7)]
    scores = [wanted[i][1] for i in range(7)]
    np.testing.assert_allclose([t.scores[0] for t in translated], scores, rtol=1e-5)
    others = make({"beam_size": 2}).translate(LINES)
    assert [t.texts for t in translated] != [t.texts for t in others]
    assert make(settings | {"batch_size": 0}).batcher.limits.items == 32  # T2T's


def test_long_lines_are_cut_or_skipped_and_reported():
    messages = []
    settings = {"beam_size": 2, "max_input_size": 6, "write_beam_scores": True}
    cut = make(settings, report=messages.append).translate(LINES)
    assert messages == [
        "line 2 has 10 tokens, more than max_input_size=6: it is cut",
        "line 6 has 15 tokens, more than max_input_size=6: it is cut",
    ]
    same(cut, make({"beam_size": 2}).translate([" ".join(line.split()[:5]) for line in LINES]))

    messages.clear()
    settings |= {"long_inputs": "skip", "return_beams": True}
    skipped = make(settings, report=messages.append).translate(LINES)
    assert [line.split(": ")[1] for line in messages] == ["it is skipped"] * 2
    assert skipped[1] == skipped[5] == (["", ""], [0.0, 0.0], [0, 0], [[], []])
    kept = [i for i in range(7) if i not in (1, 5)]
    same([skipped[i] for i in kept], make(settings).translate([LINES[i] for i in kept]))


@pytest.mark.parametrize("beam_size", [1, 2])
def test_translations_begin_with_their_prefixes(beam_size):
    prefixes = ["w3 w9", "", "w2", "", "w8 w8 w8", "", ""]
    rows = [i for i, prefix in enumerate(prefixes) if not prefix]
    free = make({"beam_size": beam_size}).translate([LINES[i] for i in rows])
    forced = make({"beam_size": beam_size}).translate(LINES, prefixes)
    for translation, prefix in zip(forced, prefixes, strict=True):
        assert translation.texts[0].startswith(prefix)
    same([forced[i] for i in rows], free)
    same(forced[4:5], make({"beam_size": beam_size}).translate(LINES[4:5], prefixes[4:5]))


def test_a_word_follows_a_prefix_with_a_comma(monkeypatch):
    """T2T's tokenizer joins the comma and the space; without it, the prefix would end within a token."""
    encoded = []
    monkeypatch.setattr(ENCODERS["targets"], "encode", lambda text: encoded.append(text) or [2, 3])
    make().translate(["w3"] * 5, [" Nein, ", "So: ", "Ja; ", "Ja.", " "])
    assert [text for text in encoded if text != "w3"] == ["Nein, ", "So: ", "Ja; ", "Ja."]


def test_settings_of_sampling_need_the_method():
    said = []
    make({"sampling_temp": 0.5, "sampling_seed": 3}, report=said.append)
    assert said == ["sampling_temp, sampling_seed without sampling_method=random: no effect"]


def test_sampling():
    def drawn(**settings):
        settings = {"beam_size": 1, "sampling_method": "random", **settings}
        return [t.texts[0] for t in make(settings).translate(["w4 w5 w6"] * 40)]

    assert drawn() == drawn() != drawn(sampling_seed=2**31 + 1)
    assert len(set(drawn())) > 30 < len(set(drawn(batch_size=4)))
    [best] = make({"beam_size": 1}).translate(["w4 w5 w6"])
    assert {*drawn(sampling_keep_top_k=1), *drawn(sampling_keep_top_p=1e-6)} == {best.texts[0]}
    assert len(set(drawn(sampling_temp=0.01))) < 5


def test_sampling_goes_on_as_it_would_have():
    settings = {"beam_size": 1, "sampling_method": "random", "batch_size": 3}
    lines = [Line(n, text) for n, text in enumerate(LINES, start=1)]
    whole = list(make(settings).translate_lines(lines))
    for skip in (1, 4, 6):
        assert list(make(settings).translate_lines(lines, skip)) == whole[skip:]
    again = list(make(settings).translate_lines(lines, known={1, 2, 6}))
    assert [again[i] for i in (2, 3, 4, 6)] == [whole[i] for i in (2, 3, 4, 6)]


def test_formats_what_was_decoded():
    settings = {"beam_size": 2, "return_beams": True}
    plain = make(settings)
    both = make(settings, format_output=lambda inputs, text: f"{inputs}|{text}")
    for line, raw, made in zip(TEXTS, plain.translate(TEXTS), both.translate(TEXTS), strict=True):
        assert made.texts == [f"{line}|{text}" for text in raw.texts]


def test_names_the_line_that_has_no_ids():
    with pytest.raises(UserError, match="line 2: Token 'unknown' is not in the vocabulary"):
        make().translate(["w3", "unknown"])


# Scores of given pairs


def scorer(report=pytest.fail, **settings):
    return PairScorer(search_model(), ENCODERS, DecodeSettings(**settings), report)


def mean_loss(source, target):
    """Of the Transformer in NumPy, a token at a time; T2T's: padding in a target weighs nothing."""
    source, target = ([*ENCODER.encode(side), 1] for side in (source, target))
    log_p = [
        log_probabilities(search_model(), [source], [target[:t]])[0, token]
        for t, token in enumerate(target)
        if token
    ]
    return -np.mean(log_p)


def test_scores_are_mean_losses_of_the_target_s_tokens():
    pairs = [("w4 w5", "w6 w7 w8"), ("w9", ""), ("w3 w3 w3 w3", " w2 "), ("w4 w5", "w6 <pad> w8")]
    wanted = [mean_loss(*pair) for pair in pairs]
    lines = [Line(n, "\t".join(pair)) for n, pair in enumerate(pairs, start=1)]
    together = list(scorer().score_lines(lines))
    np.testing.assert_allclose([score.loss for score in together], wanted, rtol=1e-4)
    assert [score.tokens for score in together] == [4, 1, 2, 3]
    sums = [-sum(score.token_scores) / len(score.token_scores) for score in together]
    np.testing.assert_allclose(sums, wanted, rtol=1e-4)  # those of <pad> are not among them
    alone = [next(scorer(batch_size=1).score_lines([line])).loss for line in lines]
    np.testing.assert_allclose(alone, wanted, rtol=1e-4)


def test_a_pair_that_is_too_long_has_no_score():
    messages = []
    lines = [Line(1, "w3\tw4 w5 w6"), Line(2, "w3\tw4"), Line(3, "w4 w5 w6\tw3")]
    first, second, third = scorer(messages.append, max_input_size=3).score_lines(lines)
    assert math.isnan(first.loss) and second.loss > 0 and math.isnan(third.loss)
    why = "has 4 tokens, more than max_input_size=3: it is not scored"
    assert messages == [f"line {number} {why}" for number in (1, 3)]


@pytest.mark.parametrize(("text", "tabs"), [("w3 w4", 0), ("w3\tw4\tw5", 2)])
def test_a_line_to_score_has_one_tab(text, tabs):
    with pytest.raises(UserError, match=f"line 1 has {tabs} tabs"):
        list(scorer().score_lines([Line(1, text)]))


# Batches of about one length: order, limits, memory


class Item(NamedTuple):
    number: int
    size: int

    @property
    def text_bytes(self):
        return 10 * self.size


class Doubled:
    """Doubles lengths, notes batches, and has memory for so many tokens."""

    def __init__(self, memory=10**9):
        self.memory = memory
        self.batches = []

    def run(self, items, longest):
        if len(items) * max(item.size for item in items) > self.memory:
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
        self.batches.append(([item.size for item in items], longest))
        return [2 * item.size for item in items]

    def empty_result(self, item):
        return -1

    def tokens(self, result):
        return result


def make_items(*lengths):
    return [Item(n, length) for n, length in enumerate(lengths, start=1)]


def batcher(work, report=None, **limits):
    return LengthBatcher(work, BatchLimits(**limits), report or pytest.fail)


def test_results_have_the_order_of_the_items():
    lengths = np.random.default_rng(0).integers(1, 50, 200).tolist()
    work = Doubled()
    results = list(batcher(work, items=7, window=64).results(make_items(*lengths)))
    assert results == [2 * length for length in lengths]
    ordered = [length for batch, _ in work.batches for length in batch]
    for start in (0, 64, 128, 192):
        window = slice(start, start + 64)
        assert ordered[window] == sorted(lengths[window], reverse=True)
    assert max(len(batch) for batch, _ in work.batches) == 7


def test_a_batch_has_so_many_items_and_so_many_tokens():
    sizes = list(enumerate([9, 5, 5, 4, 4, 2, 2, 2, 1, 1]))
    assert plan(sizes, BatchLimits(tokens=10)) == [[0], [1, 2], [3, 4], [5, 6, 7, 8, 9]]
    assert plan(sizes, BatchLimits(items=3, tokens=10)) == [[0], [1, 2], [3, 4], [5, 6, 7], [8, 9]]
    assert plan(sizes, BatchLimits(tokens=1)) == [[n] for n in range(10)]
    assert plan(sizes, BatchLimits()) == [list(range(10))]
    assert plan([(0, 1), (1, 1), (2, 9), (3, 1)], BatchLimits(tokens=10)) == [[0, 1], [2], [3]]


def test_results_come_before_all_items_are_read():
    read = []

    def endless():
        while True:
            read.append(1)
            yield Item(len(read), 3)

    results = batcher(Doubled(), items=2, window=4).results(endless())
    assert [next(results), next(results)] == [6, 6]
    assert len(read) == 4


def test_says_what_each_batch_has_done_when_its_results_are_there():
    done, seen = [], []
    work = batcher(Doubled(), items=2, window=4)
    items = make_items(3, 1, 5, 2, 7)
    for result in work.results(items, done=lambda one: done.append((one, list(seen)))):
        seen.append(result)
    assert done == [
        (BatchDone(2, 80, 16, [(3, 10), (1, 6)]), [6]),
        (BatchDone(2, 30, 6, [(4, 4), (2, 2)]), [6, 2, 10, 4]),
        (BatchDone(1, 70, 14, [(5, 14)]), [6, 2, 10, 4, 14]),
    ]


def test_items_of_no_size_keep_their_place():
    results = batcher(Doubled(), window=2).results(make_items(0, 0, 4, 0, 1))
    assert list(results) == [-1, -1, 8, -1, 2]


@pytest.mark.parametrize("fixed", [False, True])
def test_skips_results(fixed):
    lengths = [1, 8, 2, 7, 3, 6, 4, 5]
    for skip in range(9):
        work = Doubled()
        limits = batcher(work, items=2, window=4, fixed=fixed)
        first = limits.first_of_window(skip)
        results = limits.results(make_items(*lengths)[first:], skip - first)
        assert list(results) == [2 * length for length in lengths[skip:]]
        whole = [[8, 7], [2, 1], [6, 5], [4, 3]]
        if fixed:
            assert all(batch in whole for batch, _ in work.batches)
        else:
            assert sum(len(batch) for batch, _ in work.batches) == 8 - skip


@pytest.mark.parametrize("fixed", [False, True])
def test_works_on_what_is_not_known(fixed):
    work = Doubled()
    limits = batcher(work, items=2, window=4, fixed=fixed)
    assert list(limits.results(make_items(1, 8, 2, 7, 3), known={2, 4, 1})) == [-1, -1, 4, -1, 6]
    assert [batch for batch, _ in work.batches] == ([[2, 1], [3]] if fixed else [[2], [3]])


def test_a_batch_too_large_for_memory_is_halved():
    messages = []
    work = Doubled(memory=30)
    lengths = [10] * 9 + [9] * 8
    made = batcher(work, messages.append, items=8).results(make_items(*lengths))
    assert list(made) == [2 * length for length in lengths]
    # 8 x 10 and 4 x 10 fail; from then on nothing above 20 tokens is tried.
    assert messages == [
        f"a batch of {n} sentences of up to 10 tokens does not fit into memory: batches of this size "
        "are halved from now on"
        for n in (8, 4)
    ]
    assert [len(batch) for batch, _ in work.batches[:4]] == [2, 2, 2, 2]
    assert all(len(batch) * max(batch) <= 20 for batch, _ in work.batches)
    work = Doubled(memory=10)  # the halves know the longest of their batch
    list(batcher(work, lambda line: None, items=4).results(make_items(5, 4, 2, 1)))
    assert work.batches == [([5, 4], 5), ([2, 1], 5)]


def test_an_item_too_large_for_memory_is_skipped():
    messages = []
    results = batcher(Doubled(memory=5), messages.append).results(make_items(4, 50, 3))
    assert list(results) == [8, -1, 6]
    assert messages[-1] == "line 2 does not fit into memory: it is skipped"
