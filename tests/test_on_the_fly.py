"""Batches from raw text: the contents of shards, in static shapes, repeatable from any step."""

from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
import toy
from test_reading import equal

from t2t_keras import data, registry
from t2t_keras.data import Text2TextProblem, VocabType, bucket_shapes, on_the_fly
from t2t_keras.data.generation import CleaningRules
from t2t_keras.data.on_the_fly import TextBatches
from t2t_keras.data.reading import dataset, plain_errors
from t2t_keras.errors import UserError
from t2t_keras.settings import HParams

TEXT = [("a b c d", "d c b a"), ("one", "eno"), ("x y z", "z y x"), ("Grüße — 世界", "!")]
TEXT = [*TEXT, ("", "q")] * 9


class Letters(Text2TextProblem):
    """Bytes of `TEXT`, pair i once with i at its end, in one stream for all splits."""

    name = "letters"
    is_generate_per_split = False
    vocab_type = VocabType.CHARACTER
    dataset_splits = [{"split": "train", "shards": 4}, {"split": "dev", "shards": 1}]
    text = TEXT

    def generate_samples(self, data_dir, tmp_dir, split):
        for number, (inputs, targets) in enumerate(self.text):
            yield {"inputs": f"{inputs} {number}", "targets": f"{targets}{number}"}


class TwoStreams(Letters):
    is_generate_per_split = True


class Classes(data.Text2ClassProblem):
    is_generate_per_split = False
    vocab_type = VocabType.CHARACTER
    num_classes = 3
    inputs_prefix = "not in T2T's examples of classes"
    dataset_splits = [{"split": "train", "shards": 4}, {"split": "dev", "shards": 1}]

    def generate_samples(self, data_dir, tmp_dir, split):
        return ({"inputs": text[0] + ".", "label": i % 2 + 1} for i, text in enumerate(TEXT))


class WrongClasses(Classes):
    num_classes = 2


def settings(**changes):
    values = {"batch_size": 60, "max_length": 20, "min_length_bucket": 6, "batch_shuffle_size": 3}
    return HParams(**{**values, "length_bucket_step": 1.5, **changes})


def read(problem, split, tmp_path, hp=None, start_step=0, **keywords):
    batches = TextBatches(problem, split, tmp_path, tmp_path, hp or settings(), **keywords)
    return batches.dataset(start_step)


def pairs(batches):
    """The contents of batches, without padding: counts of (inputs, targets)."""
    found = Counter()
    for batch in batches.as_numpy_iterator():
        for row in zip(*batch.values(), strict=True):
            sides = tuple(tuple(ids[ids != 0].tolist()) for ids in row)
            found[sides] += sides != ((), ())
    return +found


@pytest.mark.parametrize(
    ("problem", "split", "flags", "changes"),
    [
        (Letters, "train", {}, {"max_length": 12, "max_input_seq_length": 7}),
        (Letters, "dev", {"was_reversed": True}, {"max_input_seq_length": 7}),
        (TwoStreams, "dev", {"was_copy": True}, {"max_target_seq_length": 4}),
        (Letters, "train", {"was_copy": True}, {"min_length": 5}),
        (Classes, "train", {}, {}),
        (Classes, "dev", {}, {}),
    ],
)
def test_an_epoch_is_what_the_shards_hold(tmp_path, monkeypatch, problem, split, flags, changes):
    monkeypatch.setattr(on_the_fly, "SHUFFLED_AT_ONCE", 7)
    made = problem(**flags)
    made.generate_data(tmp_path, tmp_path)
    hp = settings(**changes)
    expected = pairs(dataset(made, split, tmp_path, hp, repeat=False))
    assert pairs(read(made, split, tmp_path, hp, repeat=False)) == expected != Counter()


def test_dev_text_is_told_from_another(tmp_path):
    first, other = TwoStreams(), TwoStreams()
    other.text = TEXT[1:]
    made = [TextBatches(p, "dev", tmp_path, tmp_path, settings()) for p in (first, first, other)]
    assert made[0].shards == made[1].shards != made[2].shards


def test_endless_batches_are_full_and_of_announced_shapes(tmp_path):
    batches = TextBatches(TwoStreams(), "train", tmp_path, tmp_path, settings())
    endless = batches.dataset()
    assert endless.options().autotune.enabled is False
    assert [spec.dtype for spec in endless.element_spec.values()] == [tf.int32] * 2
    found = {tuple(tuple(side.shape) for side in batch.values()) for batch in endless.take(60)}
    announced = bucket_shapes(settings())
    assert batches.shapes == announced
    assert found <= {(shape, shape) for shape in announced}
    assert len(found) > 2
    assert batches.description() == (
        f"{len(announced)} batch shapes, from 10 x 6 to 3 x 20; text is encoded as it is read"
    )


def test_each_epoch_has_every_pair_once_in_another_order(tmp_path):
    """One bucket, whose batches of three divide the 36 pairs that are short enough."""
    hp = settings(min_length_bucket=20, batch_shuffle_size=0)
    batches = list(read(TwoStreams(), "train", tmp_path, hp).take(36).as_numpy_iterator())
    epochs = [np.concatenate([b["inputs"] for b in batches[i : i + 12]]) for i in (0, 12, 24)]
    orders = [[tuple(row) for row in epoch.tolist()] for epoch in epochs]
    assert len(set(orders[0])) == 36
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(orders[2])
    assert len({tuple(order) for order in orders}) == 3


def test_starting_at_a_step_equals_skipping_those_before(tmp_path):
    batches = read(TwoStreams(), "train", tmp_path, seed=3).take(40)
    whole = list(batches.as_numpy_iterator())
    equal(list(batches.as_numpy_iterator()), whole)
    rest = read(TwoStreams(), "train", tmp_path, seed=3, start_step=29).take(11)
    equal(list(rest.as_numpy_iterator()), whole[29:])
    other = list(read(TwoStreams(), "train", tmp_path, seed=4).take(40).as_numpy_iterator())
    pairs = zip(whole, other, strict=True)
    assert any(not np.array_equal(one["inputs"], two["inputs"]) for one, two in pairs)


def test_hosts_share_every_batch(tmp_path):
    """Shuffled, and once, so that the last batches have rows of padding."""
    keywords = {"replicas": 4, "seed": 5, "repeat": False}
    whole, *shares = (
        read(TwoStreams(), "train", tmp_path, hosts=hosts, host=host, **keywords)
        for hosts, host in ((1, 0), (2, 0), (2, 1))
    )
    batches = (share.as_numpy_iterator() for share in shares)
    for batch, *parts in zip(whole.as_numpy_iterator(), *batches, strict=True):
        assert len({part["inputs"].shape for part in parts}) == 1
        joined = {side: np.concatenate([part[side] for part in parts]) for side in batch}
        equal([joined], [batch])


@pytest.mark.parametrize(
    ("base", "split", "cleaned"),
    [(Letters, "train", True), (TwoStreams, "train", True), (TwoStreams, "dev", False)],
)
def test_prefixes_and_cleaning_are_those_of_the_generation(tmp_path, base, split, cleaned, capsys):
    class Prefixed(base):
        inputs_prefix = "> "
        cleaning = CleaningRules(max_characters=9)

    Prefixed().generate_data(tmp_path, tmp_path)
    expected = pairs(dataset(Prefixed(), split, tmp_path, settings(), repeat=False))
    found = pairs(read(Prefixed(), split, tmp_path, repeat=False))
    assert found == expected
    assert ("left out of the training text: " in capsys.readouterr().err) == cleaned
    assert all(bytes(id - 2 for id in inputs[:2]) == b"> " for inputs, _ in found)
    assert all(len(inputs) <= len("> ") + 9 + 1 for inputs, _ in found) == cleaned


def test_a_vocabulary_is_built_and_real_words_come_back(tmp_path):
    text_dir = toy.write_text(tmp_path / "text")
    problem = registry.problem(toy.PROBLEM)
    hp = registry.hparams(toy.hparams())
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    batches = TextBatches(problem, "dev", data_dir, text_dir, hp).dataset()
    assert [path.name for path in data_dir.iterdir()] == [problem.vocab_filename]
    encoder = problem.get_feature_encoders(data_dir)["inputs"]
    lines = [encoder.decode(ids[:-1]) for ids, _ in pairs(batches).elements()]
    assert sorted(lines) == sorted((text_dir / "inputs.eval.txt").read_text().split("\n")[:-1])


class Packed(Letters):
    packed_length = 50


class OwnIds(Letters):
    def generate_encoded_samples(self, data_dir, tmp_dir, split):
        yield {"inputs": [2, 1], "targets": [3, 1]}


class Nothing(Letters):
    text = []


class Words(Letters):
    is_generate_per_split = True
    vocab_type = VocabType.TOKEN

    def generate_samples(self, data_dir, tmp_dir, split):
        yield {"inputs": "known", "targets": "known"}
        yield {"inputs": "strange", "targets": "known"}


class Broken(TwoStreams):
    def generate_samples(self, data_dir, tmp_dir, split):
        yield from [{"inputs": "a", "targets": "b"}] * 300
        raise UserError("line 301 of the text is not UTF-8.")


class Half(TwoStreams):
    def generate_samples(self, data_dir, tmp_dir, split):
        yield from [{"inputs": "a", "targets": "b"}] * 300
        yield {"inputs": "a"}


@pytest.mark.parametrize(
    ("problem", "changes", "message"),
    [
        (Packed, {}, "packs several pairs into a row"),
        (OwnIds, {}, "overrides generate_encoded_samples"),
        (Nothing, {}, "The train text of nothing is empty"),
        (Letters, {"max_length": 1, "min_length_bucket": 1}, "so none is left: raise max_length"),
        (WrongClasses, {}, "train sample of wrong_classes has the label 2; it must be from 0 to 1"),
    ],
)
def test_what_cannot_be_read_on_the_fly(tmp_path, problem, changes, message):
    with pytest.raises(UserError, match=message):
        read(problem(), "train", tmp_path, settings(**changes))
    with pytest.raises(UserError, match="letters has no test data, only train and dev"):
        read(Letters(), "test", tmp_path)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (Words, r"no replacement for it: \"?strange"),
        (Broken, r"^line 301 of the text is not UTF-8\.$"),
        (
            Half,
            "^A dev sample of half has no 'targets'; every sample needs the fields inputs, targets.$",
        ),
    ],
)
def test_what_is_wrong_in_the_text_reaches_the_user_in_a_line(tmp_path, problem, message, refused):
    (tmp_path / Words().vocab_filename).write_text("<pad>\n<EOS>\nknown\n")
    with refused(message), plain_errors():
        list(read(problem(), "dev", tmp_path))


def test_text_that_becomes_empty_ends_the_epochs(tmp_path):
    problem = TwoStreams()
    problem.text = text = [*TEXT]
    batches = read(problem, "train", tmp_path)
    text.clear()
    with pytest.raises(UserError, match=r"train text of .* has become empty"), plain_errors():
        next(iter(batches))


def test_a_negative_setting_shuffles_and_cuts_nothing(tmp_path):
    names = ("batch_shuffle_size", "max_input_seq_length", "max_target_seq_length")
    given = [settings(**dict.fromkeys(names, number)) for number in (-1, 0)]
    batches = [read(TwoStreams(), "train", tmp_path, hp).take(5) for hp in given]
    equal(*(list(b.as_numpy_iterator()) for b in batches))


@pytest.mark.parametrize("kind", ["shards", "text"])
@pytest.mark.parametrize(
    ("options", "start", "message"),
    [
        ({"seed": None}, 0, "^seed must be an integer, got None"),
        ({}, -1, "^start_step must be an integer of at least 0, got -1"),
    ],
)
def test_a_seed_and_a_step_are_integers(tmp_path, kind, options, start, message):
    Letters().generate_data(tmp_path, tmp_path)
    made, places = {"text": (TextBatches, 2), "shards": (data.Batches, 1)}[kind]
    with pytest.raises(UserError, match=message):
        made(Letters(), "train", *[tmp_path] * places, settings(), **options).dataset(start)
