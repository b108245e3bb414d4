"""Properties that hold for random settings: of searches, batches, resumed runs, texts and files."""

import functools
import random
import tempfile
from pathlib import Path
from unittest import mock

import keras
import numpy as np
import pytest
import replicas
import tensorflow as tf
import test_trainer
import toy
from corpus_files import write_lines
from hypothesis import strategies as st
from networks import ENCODERS as WORDS, numpy_logits, padding_model, search_model
from properties import NETWORKS, SEED, every_output, holds, network
from test_beam import length_penalty, plain_beams
from test_translator import same

import t2t_keras as t2t
from t2t_keras import data, optimizers, registry
from t2t_keras.data.reading import EndlessPlan, OncePlan, buckets_for
from t2t_keras.data.translate import Corpus, ParallelFiles
from t2t_keras.decoding import DecodeSettings, Ensemble, PairScorer, Translator, search
from t2t_keras.decoding.translator import Line
from t2t_keras.export import export_saved_model
from t2t_keras.precision import in_precision
from t2t_keras.problems.translate_files import TranslateFiles
from t2t_keras.settings import HParams
from t2t_keras.training import EngineSettings, Evaluation, Trainer, TrainSettings
from t2t_keras.training.callbacks import SaveCheckpoints, prepare_fit

eagerly = pytest.mark.usefixtures("eagerly", "little_room")


@pytest.fixture
def little_room(monkeypatch):
    """In fixed shapes: fewer keys, and a few tokens are more than there is room for."""
    monkeypatch.setattr("t2t_keras.decoding.static_search.ROOM", 2)


# Searches


@eagerly
@holds(
    30, members=st.lists(NETWORKS, min_size=1, max_size=2),
    precision=st.sampled_from(["float32", "float32", "float32", "bfloat16", "int8"]),
    kind=st.sampled_from(["few", "all", "few", "all", "greedy", "sample"]),
    source=st.lists(st.integers(2, 3), max_size=4),
    forced=st.lists(st.sampled_from([2, 3]), max_size=2).map(tuple), more=st.sampled_from([3, 2, 1, 0]),
    min_length=st.integers(0, 3), alpha=st.sampled_from([0.6, 0.0, 1.3, 2.0]),
    beams=st.sampled_from([3, 2, 1, 5]),
    target_only=st.sampled_from([False, False, True]), xla=st.booleans(),
)  # fmt: skip
def test_a_search_finds_what_is_best_of_all_outputs(
    members, precision, kind, source, forced, more, min_length, alpha, beams, target_only, xla
):
    """Scores are the network's own; with room for all hypotheses the best are found."""
    models = [network(each, target_only=target_only) for each in members]
    models = [model for model in models if model.num_logits == models[0].num_logits]
    model = Ensemble(models) if len(models) > 1 else models[0]
    is_exact = precision == "float32"
    if not is_exact:
        model, xla = in_precision(model, precision), xla and precision != "int8"
    limit = len(forced) + min(more, 3 if model.num_logits < 5 else 2)
    outputs = every_output(model, source := [*source, 1], limit, forced)
    prefixes = {row[:n]: log_p[:n] for row, log_p in outputs.items() for n in range(len(row) + 1)}

    def nexts(row):
        tokens = forced[len(row) : len(row) + 1] or range(model.num_logits)
        tokens = [t for t in tokens if t != 1 or len(row) >= min_length]
        return [(t, prefixes[(*row, t)][-1]) for t in tokens]

    penalty = functools.partial(length_penalty, alpha=alpha)
    beam_size = {"all": model.num_logits ** (limit - len(forced)), "few": beams}.get(kind, 1)
    top_beams = min(beams, beam_size)
    options = {"beam_size": beam_size, "alpha": alpha, "min_length": min_length}
    if kind == "sample":
        options |= {"sampling_method": "random", "sampling_seed": beams}
    found = search(
        model,
        [list(forced) or [0]] if target_only else [source],
        DecodeSettings(**options, xla=xla and kind != "sample"),
        beams=beam_size > 1,
        top_beams=top_beams,
        max_lengths=[limit],
        prefix=None if target_only else [[*forced, 0]],
    )
    near = {"rtol": 1e-4, "atol": 1e-5} if is_exact else {"rtol": 0.05, "atol": 0.2}
    before, rows, scores = forced if target_only else (), [], []
    for ids, length, score, token_scores in zip(*(x.numpy()[0] for x in found), strict=True):
        if score > -1e7:  # it exists
            rows.append((*before, *ids[:length].tolist()))
            log_p, ended = prefixes[rows[-1]], rows[-1][len(forced) :][-1:] == (1,)
            scores.append(float(score) * (penalty(len(rows[-1])) if ended and beam_size > 1 else 1))
            np.testing.assert_allclose(scores[-1], sum(log_p), **near)
            np.testing.assert_allclose(token_scores[:length], log_p[len(before) :], **near)
    if kind == "all":
        valid = [
            (sum(outputs[row]) / penalty(len(row)), row)
            for row in outputs
            if row[-1:] == (1,) and len(row) > min_length
        ]
        valid = valid or [(sum(outputs[row]), row) for row in outputs if 1 not in row]
        best = sorted(valid, reverse=True)[:top_beams]
        np.testing.assert_allclose(found.scores[0, : len(best)], [s for s, _ in best], **near)
        assert len(rows) == len(best)
    if is_exact and beam_size > 1:
        settings = (1, beam_size, top_beams, limit, alpha)
        [best] = plain_beams(lambda rows: [nexts(row) for _, row in rows], *settings)
        assert rows == [tuple(row) for _, row in best]
    if is_exact and kind == "greedy":
        for n in range(len(rows[0])):
            assert rows[0][n] == max(nexts(rows[0][:n]), key=lambda each: each[1])[0]


@eagerly
@holds(
    12, drawn=NETWORKS,
    ids=st.lists(st.lists(st.integers(0, 3), min_size=8, max_size=8), min_size=1, max_size=4),
    few_rows=st.sampled_from([None, False, True, True]), columns=st.sampled_from([None, 8]),
)  # fmt: skip
def test_cached_steps_equal_the_whole_sequence(drawn, ids, few_rows, columns):
    """And, where no subclass changes it, the Transformer in NumPy; without kernels, with all kinds."""
    model, ids = network(drawn), np.array(ids, np.int32)
    source, targets = ids[:, :4], ids[:, 4:]
    whole = model({"inputs": source, "targets": targets}).numpy()
    if drawn[1] is None and "prepend" not in drawn[0]:
        wanted = numpy_logits(model, source, targets)
        np.testing.assert_allclose(whole[..., :4], wanted[..., :4], atol=1e-4)
    seen, caches = model.encode_source(source), model.empty_caches(len(ids))
    with mock.patch("t2t_keras.shape.COLUMNS", columns):
        kernels = None if few_rows is None else model.step_kernels(few_rows)
    for place, last in enumerate(np.pad(targets, [(0, 0), (1, 0)]).T[:4]):
        logits, caches = model.decode_step(last[:, None], place, caches, seen, kernels=kernels)
        np.testing.assert_allclose(logits[:, 0, : whole.shape[2]], whole[:, place], atol=1e-4)


# A sentence alone and among others


@functools.cache
def translators_of(number):
    """A model, with one graph for all that is drawn, and the hypotheses and least length of it."""
    both = Ensemble([search_model("num_hidden_layers=2,proximity_bias=true"), search_model()])
    return ((search_model(), 1, 0), (padding_model(), 3, 0), (both, 2, 3))[number]


def _lines(number):
    chance = random.Random(f"{SEED} {number}")
    lengths = [chance.choice([0, 1, 2, 3, 5, 9]) for _ in range(chance.randint(2, 7))]
    return [" ".join(f"w{chance.randint(2, 22)}" for _ in range(length)) for length in lengths]


SENTENCES = st.integers(0, 2**32).map(_lines)
"""By a number: the first that hypothesis draws is the simplest, and would be without words."""


@holds(
    20, number=st.integers(0, 2), lines=SENTENCES,
    prefixes=st.none() | st.lists(st.sampled_from(["", "w3", "w9 w4"]), min_size=7, max_size=7),
    alpha=st.sampled_from([0.6, 0.0, 1.5]), extra_length=st.sampled_from([5, 0, 2]),
    batch_size=st.integers(0, 4), batch_tokens=st.sampled_from([0, 20, 200]),
)  # fmt: skip
def test_a_line_is_translated_alike_whatever_its_neighbours(
    number, lines, prefixes, alpha, extra_length, batch_size, batch_tokens
):
    model, beam_size, min_length = translators_of(number)
    options = {"beam_size": beam_size, "min_length": min_length, "return_beams": beam_size > 1}
    options |= {"alpha": alpha, "extra_length": extra_length}
    translate = Translator(model, WORDS, DecodeSettings(**options)).translate
    prefixes = prefixes and prefixes[: len(lines)]
    sizes = {"batch_size": batch_size, "batch_tokens": batch_tokens}
    found = Translator(model, WORDS, DecodeSettings(**options, **sizes)).translate(lines, prefixes)
    same(
        found,
        [
            translate([x], prefixes and [p])[0]
            for x, p in zip(lines, prefixes or lines, strict=True)
        ],
    )


@holds(
    10, sources=SENTENCES, targets=SENTENCES,
    batch_size=st.integers(1, 4), spare=st.integers(0, 3),
)  # fmt: skip
def test_scores_and_evaluation_do_not_depend_on_the_batches(sources, targets, batch_size, spare):
    model, pairs = search_model(), [*zip(sources, targets, strict=False)]
    rows = [Line(n, "\t".join(pair)) for n, pair in enumerate(pairs, 1)]
    alone, together = (
        [*PairScorer(model, WORDS, DecodeSettings(batch_size=size)).score_lines(rows)]
        for size in (1, batch_size)
    )
    losses, tokens = np.array([score[:2] for score in together]).T
    np.testing.assert_allclose(losses, [score.loss for score in alone], rtol=1e-4)
    examples = [
        {side: [*WORDS[side].encode(text), 1] for side, text in zip(WORDS, pair, strict=True)}
        for pair in pairs
    ]
    batches = [examples[i : i + batch_size] for i in range(0, len(examples), batch_size)]

    def padded(batch):
        for side in WORDS:
            longest = max(len(each[side]) for each in batch) + spare
            yield side, np.array([each[side] + [0] * (longest - len(each[side])) for each in batch])

    dataset = tf.data.Dataset.from_generator(
        lambda: map(dict, map(padded, batches)),
        output_signature=dict.fromkeys(WORDS, tf.TensorSpec([None, None], tf.int32)),
    )
    figures = Evaluation(model, dataset, WORDS, DecodeSettings(beam_size=1, extra_length=0))()
    assert figures["loss"] == pytest.approx((losses * tokens).sum() / tokens.sum(), rel=1e-4)


@holds(
    1, drawn=NETWORKS, lines=SENTENCES,
    settings=st.builds(
        DecodeSettings, beam_size=st.sampled_from([3, 1, 2]), alpha=st.sampled_from([0.9, 0, -1]),
        extra_length=st.sampled_from([4, 0]), min_length=st.sampled_from([0, 3]),
        return_beams=st.sampled_from([True, False]), max_input_size=st.sampled_from([6, 0]),
    ),
)  # fmt: skip
def test_an_export_translates_as_the_translator_does(drawn, lines, settings):
    model = network(drawn, 23)
    wanted = [Translator(model, WORDS, settings, [].append).translate([line])[0] for line in lines]
    with tempfile.TemporaryDirectory() as directory:
        path = export_saved_model(model, WORDS, directory, settings, warm_up=False)
        found = tf.saved_model.load(path).signatures["translate"](text=tf.constant(lines))
    texts = [[text.decode() for text in row] for row in found["translations"].numpy()]
    assert texts == [each.texts for each in wanted]
    np.testing.assert_allclose(found["scores"], [each.scores for each in wanted], rtol=1e-3)
    assert found["lengths"].numpy().tolist() == [each.lengths for each in wanted]


# Training


@eagerly
@holds(
    6,
    optimizer=st.sampled_from(["sgd", "momentum", "adafactor"]), clip=st.sampled_from([0.3, 0.0]),
    rows=st.lists(st.integers(1, 3), min_size=2, max_size=3),
    kind=st.sampled_from([*replicas.SIZES]), ids=st.integers(0, 99),
    ema=st.sampled_from([0.5, 0.0]),
)  # fmt: skip
def test_batches_that_make_an_update_equal_one_large_batch(optimizer, clip, rows, kind, ids, ema):
    overrides = f"optimizer={optimizer},clip_grad_norm={clip},learning_rate_constant=0.1"
    chance, parts = np.random.default_rng(ids), []
    for number in rows:
        sides = {side: chance.integers(2, 23, (number, 6), np.int32) for side in WORDS}
        for side in sides.values():
            side[np.arange(6) >= chance.integers(1, 7, (number, 1))] = 0
        parts.append(replicas.of_kind(sides, kind))
    whole = {side: np.concatenate([part[side] for part in parts]) for side in parts[0]}
    one, many = (
        replicas.engine(overrides, batches_per_step=n, model=kind, distribute="none", ema=ema)
        for n in (1, len(parts))
    )
    start = replicas.weights(one)
    wanted = one.train(replicas.iterator([whole] * 2), 2)
    np.testing.assert_allclose(many.train(replicas.iterator(parts * 2), 2), wanted, rtol=1e-4)
    with one.evaluation_weights(), many.evaluation_weights():
        ours, theirs = replicas.weights(many), replicas.weights(one)
    np.testing.assert_allclose(ours, theirs, atol=1e-3 * np.abs(theirs - start).max())


class Packed(TranslateFiles):
    name, packed_length = "translate_files", 24


@functools.cache
def data_of(kind, folder):
    """A problem of two corpora with weights and tags, and its directories of data and text."""
    problem, folder = kind(), folder / kind.__name__
    corpora = []
    for number, tag in enumerate(("<2b>", "")):
        files = {}
        for split, count in (("train", 40), ("dev", 6)):
            lines = toy.rows(count, seed=number * 10 + count)
            sides = (
                (folder / f"{split}{number}.in", lines),
                (folder / f"{split}{number}.out", [line[::-1] for line in lines]),
            )
            files[split] = [write_lines(*side) for side in sides]
        corpora.append(Corpus(ParallelFiles(files), weight=number + 1.0, tag=tag))
    problem.use_corpora(corpora, vocab_size=60)
    problem.generate_data(folder / "data", folder)
    return problem, folder / "data", folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


NET = {"num_hidden_layers": 1, "hidden_size": 16, "filter_size": 16, "num_heads": 2}
OPTIMIZERS = {
    ",optimizer_multistep_accumulate_steps=2": ["multistep_adam"],
    "": ["adam", "adafactor", "momentum", "sgd", "adam_w"],
    ",tokens_per_update=90": ["adam", "adafactor"],
}
OPTIMIZERS = [f"optimizer={name}{more}" for more, names in OPTIMIZERS.items() for name in names]


@eagerly
@holds(
    3, kind=st.sampled_from([TranslateFiles, TranslateFiles, Packed]),
    optimizer=st.sampled_from(OPTIMIZERS),
    hparams=st.sampled_from(
        ["", ",batch_shuffle_size=0,weight_decay=0.01", ",clip_grad_norm=0.1,t2t_batches=true"]
    ),
    engine=st.builds(
        EngineSettings, ema=st.sampled_from([0.9, 0.0]), random_seed=st.integers(0, 9),
        precision=st.sampled_from(["float32", "bfloat16", "float16"]), remat=st.booleans(),
        freeze=st.sampled_from(["", "/ffn/"]),
    ),
    on_the_fly=st.sampled_from([False, False, True]), every=st.sampled_from([1, 3]),
    stop=st.sampled_from([3, 2, 1]),
)  # fmt: skip
def test_stopped_and_resumed_a_run_is_the_same_bit_for_bit(
    folder, kind, optimizer, hparams, engine, on_the_fly, every, stop
):
    problem, data_dir, tmp_dir = data_of(kind, folder)
    hp = registry.hparams(toy.hparams(**NET, batch_size=64, layer_prepostprocess_dropout=0.2))
    hp = hp.override(optimizer + hparams)
    settings = TrainSettings(
        train_steps=4, local_eval_frequency=4, eval_steps=1, log_step_count_steps=every,
        engine=engine, decode=DecodeSettings(beam_size=1, extra_length=1),
    )  # fmt: skip

    def trainer(directory):
        text = tmp_dir if on_the_fly and kind is not Packed else None
        return Trainer(problem, hp, data_dir, directory, settings, text).prepare()

    with tempfile.TemporaryDirectory() as directory:
        one, other = Path(directory, "one"), Path(directory, "other")
        wanted = trainer(str(one)).run()
        test_trainer.after(trainer(str(other)), stop, test_trainer.interrupt).run()
        assert "stopped by SIGTERM" in test_trainer.ending(other)
        assert trainer(str(other)).run() == wanted
        test_trainer.assert_same(one, other, 4, every)


@eagerly
@holds(
    3, optimizer=st.sampled_from([*OPTIMIZERS[1:6], "Adam", "AdamW", "RMSprop", "Lion"]),
    kind=st.sampled_from([TranslateFiles, Packed]), stop=st.integers(1, 2),
    number=st.integers(0, 9),
)  # fmt: skip
def test_a_fit_that_is_stopped_and_resumed_is_the_same_bit_for_bit(
    folder, optimizer, kind, stop, number
):
    problem, data_dir, _ = data_of(kind, folder)
    is_ours = optimizer in OPTIMIZERS
    hp = registry.hparams(toy.hparams(**NET, batch_size=64)).override(optimizer if is_ours else "")
    size = problem.get_feature_encoders(data_dir)["inputs"].vocab_size

    def fit(directory, model, until):
        if not model:
            keras.utils.set_random_seed(number)
            model = t2t.Transformer(hp, source_vocab_size=size, target_vocab_size=size)
            theirs = None if is_ours else getattr(keras.optimizers, optimizer)(1e-3)
            model.compile(theirs or optimizers.create(hp))
        saving = [SaveCheckpoints(model, directory)] if is_ours else []
        step = saving[0].restore() if is_ours else int(model.optimizer.iterations)
        prepare_fit(model, number)
        batches = data.dataset(problem, "train", data_dir, hp, start_step=step, seed=number)
        model.fit(batches, steps_per_epoch=until - step, shuffle=False, verbose=0, callbacks=saving)
        return model

    with tempfile.TemporaryDirectory() as directory:
        whole = fit(f"{directory}/whole", None, 3)
        half, path = fit(f"{directory}/parts", None, stop), f"{directory}/model.keras"
        if not is_ours:
            half.save(path)
        resumed = fit(f"{directory}/parts", None if is_ours else keras.models.load_model(path), 3)
    kept = ([*each.trainable_variables, *each.optimizer.variables] for each in (whole, resumed))
    for one, two in zip(*kept, strict=True):
        np.testing.assert_array_equal(one, two, err_msg=one.path)


@holds(
    60, lengths=st.lists(st.integers(1, 40), min_size=1, max_size=300).map(np.array),
    numbers=st.fixed_dictionaries({
        "batch_size": st.integers(1, 200), "max_length": st.sampled_from([0, 1, 7, 12, 30, 64]),
        "min_length": st.integers(0, 5), "length_bucket_step": st.floats(1.01, 3),
        "min_length_bucket": st.integers(1, 12),
        "t2t_batches": st.booleans(),
    }),
    longest=st.none() | st.integers(1, 50), flags=st.tuples(*[st.booleans()] * 4),
    replicas=st.integers(1, 3), seed=st.integers(0, 2**63), first=st.integers(0, 500),
)  # fmt: skip
def test_each_example_comes_once_an_epoch_and_what_is_left_out_is_counted(
    lengths, numbers, longest, flags, replicas, seed, first
):
    (shuffle, mix, drop_long, t2t_batches), hp = flags, HParams(**numbers)
    buckets = buckets_for(hp, drop_long, replicas, longest, t2t_batches=t2t_batches)
    most = (hp.max_length if longest is None else longest) or hp.batch_size
    kept = (lengths >= hp.min_length) & ((lengths <= most) | (not drop_long))
    once = OncePlan(lengths, buckets, seed, shuffle, mix)
    batches = [once.batch(step) for step in range(len(once))]
    assert sorted(row for batch in batches for row in batch.rows) == np.flatnonzero(kept).tolist()
    assert once.examples == kept.sum()
    for batch in batches:
        edges = [0, *buckets.edges][batch.bucket : batch.bucket + 2]
        assert (lengths[batch.rows] > edges[0]).all() and (lengths[batch.rows] <= edges[1]).all()
        assert len(batch.rows) <= buckets.sizes[batch.bucket]
    if not kept.any():
        return
    endless, epochs = EndlessPlan(lengths, buckets, seed, shuffle, mix), 4
    batches = [endless.batch(step) for step in range(endless.batches_before(epochs))]
    for bucket, members in enumerate(endless.members):
        rows = [batch.rows for batch in batches if batch.bucket == bucket]
        size, n = buckets.sizes[bucket], len(members)
        assert {len(each) for each in rows} <= {size}
        assert len(rows) == epochs * n // size
        stream = np.concatenate([members[:0], *rows])
        times = np.bincount(stream, minlength=len(lengths))[members]
        assert (times <= epochs).all() and (times >= epochs - -(-(size - 1) // max(n, 1))).all()
        for start in range(0, len(stream) - n + 1, n) if n and not mix else ():
            assert sorted(stream[start : start + n]) == members.tolist()
    again = EndlessPlan(lengths, buckets, seed, shuffle, mix)
    for step in (first, first % max(len(batches), 1)):
        one, other = (plan.batch(step) for plan in (again, endless))
        assert one.bucket == other.bucket and one.rows.tolist() == other.rows.tolist()
