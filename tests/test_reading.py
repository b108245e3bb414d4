"""Batches from shards: their shapes, what is in them, their order, and going on after a stop."""

from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data import Problem, bucket_shapes, dataset
from t2t_keras.data.shards import shard_paths, write_shards
from t2t_keras.errors import UserError
from t2t_keras.settings import HParams


class Toy(Problem):
    """Only a name: the tests write its shards."""


def settings(**changes):
    # Boundaries 4 and 8 below 12 ids; buckets of lengths to 3, 7 and 12.
    values = {
        "batch_size": 48,
        "max_length": 12,
        "min_length_bucket": 4,
        "length_bucket_step": 2.0,
        "batch_shuffle_size": 4,
    }
    return HParams(**{**values, **changes})


def pair(number, source_length, target_length):
    """An example that is told by its first id, the same on both sides."""
    return {
        "inputs": [number + 2] * (source_length - 1) + [1],
        "targets": [number + 2] * (target_length - 1) + [1],
    }


def write(directory, split, pairs, shards=1):
    write_shards(pairs, shard_paths(directory, "toy", split, shards), seed=1)


def numbers(batches):
    """The numbers of all examples in batches; rows of padding have none."""
    first = np.concatenate([np.asarray(batch["inputs"])[:, 0] for batch in batches])
    return [int(number) - 2 for number in first if number]


def shapes(batches):
    return {tuple(batch[side].shape) for batch in batches for side in ("inputs", "targets")}


_RANDOM = np.random.RandomState(0)
LENGTHS = np.concatenate([_RANDOM.randint(2, end, size=(50, 2)) for end in (4, 6, 8, 13)])


@pytest.fixture
def data_dir(tmp_path):
    """200 pairs of 2 to 12 ids a side for training in 3 shards, the same for dev in 1."""
    pairs = [pair(number, *lengths) for number, lengths in enumerate(LENGTHS)]
    write(tmp_path, "train", pairs, shards=3)
    write(tmp_path, "dev", pairs)
    return tmp_path


def test_training_batches_have_the_shapes_that_are_announced(data_dir):
    batches = list(dataset(Toy(), "train", data_dir, settings()).take(100))
    assert shapes(batches) == set(bucket_shapes(settings()))
    assert {batch[side].dtype for batch in batches for side in batch} == {tf.int32}


def test_both_sides_are_padded_with_zeros_to_the_edge(tmp_path):
    write(tmp_path, "dev", [pair(0, 5, 2), pair(1, 3, 6)])
    (batch,) = dataset(Toy(), "dev", tmp_path, settings())
    rows = {tuple(row) for row in batch["inputs"].numpy().tolist()}
    assert rows == {(2, 2, 2, 2, 1, 0, 0), (3, 3, 1, 0, 0, 0, 0)}
    rows = {tuple(row) for row in batch["targets"].numpy().tolist()}
    assert rows == {(2, 1, 0, 0, 0, 0, 0), (3, 3, 3, 3, 3, 1, 0)}


def test_padding_of_tensor2tensor_is_to_the_longest_of_each_side(tmp_path):
    write(tmp_path, "dev", [pair(0, 5, 2), pair(1, 3, 6)])
    (batch,) = dataset(Toy(), "dev", tmp_path, settings(), pad_to_boundary=False)
    assert batch["inputs"].shape == (2, 5)
    assert batch["targets"].shape == (2, 6)


def test_buckets_are_those_of_tensor2tensor(tmp_path):
    """A length that equals a boundary belongs to the bucket above it."""
    write(tmp_path, "dev", [pair(number, length, 2) for number, length in enumerate((3, 4, 7, 8))])
    batches = dataset(Toy(), "dev", tmp_path, settings())
    found = {batch["inputs"].shape[1]: sorted(numbers([batch])) for batch in batches}
    assert found == {3: [0], 7: [1, 2], 12: [3]}


def test_one_epoch_has_every_example_once(data_dir):
    batches = list(dataset(Toy(), "train", data_dir, settings(), repeat=False))
    assert sorted(numbers(batches)) == list(range(200))


def test_what_an_epoch_leaves_over_carries_over(data_dir):
    """Endless batches are full, and after many epochs no example is behind by more than a few."""
    batches = dataset(Toy(), "train", data_dir, settings()).take(1000).as_numpy_iterator()
    counts = Counter(numbers(batches))
    assert sorted(counts) == list(range(200))
    assert max(counts.values()) - min(counts.values()) <= 4
    assert min(counts.values()) > 20


def test_evaluation_has_every_example_once_in_file_order(data_dir):
    batches = list(dataset(Toy(), "dev", data_dir, settings()))
    again = list(dataset(Toy(), "dev", data_dir, settings(), seed=5))
    assert sorted(numbers(batches)) == list(range(200))
    assert numbers(batches) == numbers(again)
    stored = write_order(data_dir / "toy-dev-00000-of-00001")
    place = {number: position for position, number in enumerate(stored)}
    for batch in batches:
        positions = [place[number] for number in numbers([batch])]
        assert positions == sorted(positions)


def write_order(path):
    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    parsed = [tf.train.Example.FromString(record) for record in records]
    return [example.features.feature["inputs"].int64_list.value[0] - 2 for example in parsed]


def test_order_depends_on_the_seed(data_dir):
    def order(seed):
        return numbers(dataset(Toy(), "train", data_dir, settings(), seed=seed).take(20))

    assert order(3) == order(3)
    assert order(3) != order(4)


def test_epochs_come_in_different_order(data_dir):
    hp = settings(batch_shuffle_size=0, batch_size=12, max_length=12, min_length_bucket=12)
    order = numbers(dataset(Toy(), "train", data_dir, hp).take(400))
    assert sorted(order[:200]) == sorted(order[200:]) == list(range(200))
    assert order[:200] != order[200:]


def test_an_iterator_goes_on_exactly_where_it_was_saved(data_dir, tmp_path):
    def start():
        return iter(dataset(Toy(), "train", data_dir, settings(), seed=7))

    iterator = start()
    for _ in range(13):
        next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "saved"))
    expected = [next(iterator) for _ in range(60)]

    resumed = start()
    tf.train.Checkpoint(iterator=resumed).restore(saved).assert_consumed()
    for batch in expected:
        found = next(resumed)
        np.testing.assert_array_equal(found["inputs"], batch["inputs"])
        np.testing.assert_array_equal(found["targets"], batch["targets"])


def test_training_leaves_out_what_is_too_long_or_too_short(tmp_path):
    lengths = [(2, 2), (5, 3), (3, 12), (13, 4), (4, 13)]
    write(tmp_path, "train", [pair(number, *both) for number, both in enumerate(lengths)])
    hp = settings(min_length=4)
    assert sorted(numbers(dataset(Toy(), "train", tmp_path, hp, repeat=False))) == [1, 2]


def test_evaluation_keeps_longer_sentences_in_doubling_buckets(tmp_path):
    lengths = [12, 13, 24, 25, 100]
    write(tmp_path, "dev", [pair(number, length, 2) for number, length in enumerate(lengths)])
    batches = list(dataset(Toy(), "dev", tmp_path, settings()))
    found = sorted((*batch["inputs"].shape, *sorted(numbers([batch]))) for batch in batches)
    # 48 // 24 = 2 rows to 24 ids, one row to 48 and to 192.
    assert found == [(1, 12, 0), (1, 48, 3), (1, 192, 4), (2, 24, 1, 2)]


def test_evaluation_drops_them_when_asked(tmp_path):
    write(tmp_path, "dev", [pair(number, length, 2) for number, length in enumerate((12, 13))])
    hp = settings(eval_drop_long_sequences=True)
    assert numbers(dataset(Toy(), "dev", tmp_path, hp)) == [0]


def test_replicas_share_every_batch_equally(data_dir):
    training = dataset(Toy(), "train", data_dir, settings(), replicas=2).take(60)
    assert shapes(training) == set(bucket_shapes(settings(), replicas=2))
    evaluation = list(dataset(Toy(), "dev", data_dir, settings(), replicas=3))
    assert {batch["inputs"].shape[0] % 3 for batch in evaluation} == {0}
    assert sorted(numbers(evaluation)) == list(range(200))


@pytest.mark.parametrize(
    ("flags", "inputs", "targets"),
    [
        ({"was_reversed": True}, [3, 1], [2, 2, 1]),
        ({"was_copy": True}, [2, 2, 1], [2, 2, 1]),
        ({"was_reversed": True, "was_copy": True}, [3, 1], [3, 1]),
    ],
)
def test_reversed_and_copied_problems_read_the_same_files(tmp_path, flags, inputs, targets):
    write(tmp_path, "dev", [{"inputs": [2, 2, 1], "targets": [3, 1]}])
    (batch,) = dataset(Toy(**flags), "dev", tmp_path, settings(), pad_to_boundary=False)
    assert batch["inputs"].numpy().tolist() == [inputs]
    assert batch["targets"].numpy().tolist() == [targets]


def test_limits_that_drop_everything(data_dir):
    hp = settings(batch_size=8, max_length=1, min_length_bucket=1)
    with pytest.raises(UserError, match=r"longer than 1 ids \(max_length=1.*raise max_length"):
        dataset(Toy(), "train", data_dir, hp)


def test_a_truncated_shard_is_named_at_once(data_dir):
    damaged = data_dir / "toy-train-00001-of-00003"
    damaged.write_bytes(damaged.read_bytes()[:-3])
    with pytest.raises(UserError, match=f"{damaged} is truncated or corrupt"):
        dataset(Toy(), "train", data_dir, settings())


def test_absent_shards(data_dir):
    with pytest.raises(UserError, match="holds no test data of toy: run t2t-keras-datagen"):
        dataset(Toy(), "test", data_dir, settings())


def test_shards_without_examples(tmp_path):
    (tmp_path / "toy-dev-00000-of-00001").touch()
    with pytest.raises(UserError, match="hold no example"):
        dataset(Toy(), "dev", tmp_path, settings())


@pytest.mark.parametrize("record", [b"not an example", b""])
def test_records_of_another_kind(tmp_path, record):
    path = tmp_path / "toy-dev-00000-of-00001"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(record)
    with pytest.raises(UserError, match=f"{path} does not hold tf.Examples"):
        dataset(Toy(), "dev", tmp_path, settings())


@pytest.mark.parametrize("was_reversed", [False, True])
def test_long_sides_are_cut_before_any_reversal(tmp_path, was_reversed):
    write(tmp_path, "dev", [pair(0, 8, 9)])
    limits = settings(max_input_seq_length=3, max_target_seq_length=4)
    (batch,) = dataset(Toy(was_reversed=was_reversed), "dev", tmp_path, limits)
    lengths = [int(np.count_nonzero(batch[side])) for side in ("inputs", "targets")]
    assert lengths == ([4, 3] if was_reversed else [3, 4])
