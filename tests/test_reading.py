"""Batches from shards: their shapes, contents and order, resuming, and errors about shards."""

import gc
import shutil
import weakref

import numpy as np
import pytest
import tensorflow as tf
from corpus_files import stored_examples, write_shards

from t2t_keras.data import Batches, Problem, bucket_shapes, dataset, trim_padding
from t2t_keras.data.reading import plain_errors
from t2t_keras.data.records import Lists, frame, pack
from t2t_keras.data.shards import read_index
from t2t_keras.errors import UserError
from t2t_keras.settings import HParams
from t2t_keras.text import TokenTextEncoder


class Toy(Problem):
    """Only a name: the tests write its shards."""


def settings(**changes):
    # Buckets of lengths to 4, 6 and 12; of T2T's way, to 3, 7 and 12.
    values = {"batch_size": 48, "max_length": 12, "min_length_bucket": 4, "batch_shuffle_size": 4}
    return HParams(**{**values, "length_bucket_step": 2.0, **changes})


def pair(number, source_length, target_length):
    """An example that is told by its first id, the same on both sides."""
    lengths = {"inputs": source_length, "targets": target_length}
    return {side: [number + 2] * (length - 1) + [1] for side, length in lengths.items()}


def write(directory, split, pairs, shards=1):
    write_shards(directory, "toy", split, pairs, shards)


def once(tmp_path, pairs, split="dev", hp=None, **keywords):
    write(tmp_path, split, pairs)
    return dataset(Toy(), split, tmp_path, hp or settings(), repeat=False, **keywords)


def of_lengths(lengths):
    return [pair(number, length, 2) for number, length in enumerate(lengths)]


def numbers(batches):
    """The numbers of all examples in batches; rows of padding have none."""
    first = np.concatenate([np.asarray(batch["inputs"])[:, 0] for batch in batches])
    return [int(number) - 2 for number in first if number]


def shapes(batches):
    return {tuple(batch[side].shape) for batch in batches for side in ("inputs", "targets")}


_RANDOM = np.random.RandomState(0)
LENGTHS = np.concatenate([_RANDOM.randint(2, end, size=(50, 2)) for end in (4, 6, 8, 13)])


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """200 pairs of 2 to 12 ids a side for training in 3 shards, the same for dev in 1."""
    directory = tmp_path_factory.mktemp("toy")
    pairs = [pair(number, *lengths) for number, lengths in enumerate(LENGTHS)]
    write(directory, "train", pairs, shards=3)
    write(directory, "dev", pairs)
    return directory


@pytest.fixture
def own_dir(data_dir, tmp_path):
    return shutil.copytree(data_dir, tmp_path, dirs_exist_ok=True)


def test_training_batches_have_the_shapes_that_are_announced(data_dir):
    batches = list(dataset(Toy(), "train", data_dir, settings()).take(100))
    assert shapes(batches) == set(bucket_shapes(settings()))
    assert {batch[side].dtype for batch in batches for side in batch} == {tf.int32}


def test_both_sides_are_padded_with_zeros_to_the_edge(tmp_path):
    (batch,) = once(tmp_path, [pair(0, 5, 2), pair(1, 3, 6)])
    rows = {side: {tuple(row) for row in batch[side].numpy().tolist()} for side in batch}
    assert rows["inputs"] == {(2, 2, 2, 2, 1, 0), (3, 3, 1, 0, 0, 0)}
    assert rows["targets"] == {(2, 1, 0, 0, 0, 0), (3, 3, 3, 3, 3, 1)}


def test_padding_of_tensor2tensor_is_to_the_longest_of_each_side(tmp_path):
    (batch,) = once(tmp_path, [pair(0, 5, 2), pair(1, 3, 6)], pad_to_boundary=False)
    assert (batch["inputs"].shape, batch["targets"].shape) == ((2, 5), (2, 6))


@pytest.mark.parametrize("split", ["train", "dev"])
def test_batches_of_tensor2tensor_by_a_setting(data_dir, split):
    """The very batches; trimmed, as they are without XLA, they have its shapes, too."""
    hp = settings(t2t_batches=True)
    made = dataset(Toy(), split, data_dir, hp, seed=3).take(40)
    wanted = dataset(Toy(), split, data_dir, settings(), seed=3, pad_to_boundary=False).take(40)
    for batch, one in zip(trim_padding(made), wanted, strict=True):
        for side in ("inputs", "targets"):
            np.testing.assert_array_equal(batch[side], one[side])
    if split == "train":
        assert shapes(made) == set(bucket_shapes(hp))


def test_evaluation_has_every_example_once_in_file_order(data_dir):
    batches = list(dataset(Toy(), "dev", data_dir, settings(), seed=5))
    assert sorted(numbers(batches)) == list(range(200))
    stored = stored_examples(data_dir / "toy-dev-00000-of-00001")
    place = {example["inputs"][0] - 2: position for position, example in enumerate(stored)}
    for batch in batches:
        positions = [place[number] for number in numbers([batch])]
        assert positions == sorted(positions)


def test_order_depends_on_the_seed(data_dir):
    def order(seed):
        return numbers(dataset(Toy(), "train", data_dir, settings(), seed=seed).take(20))

    assert order(3) == order(3)
    assert order(3) != order(4)


def equal(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])


CASES = [{}, {"batch_shuffle_size": 0}, {"batch_size": 700}]


@pytest.mark.parametrize(("split", "hparams"), [*(("train", hp) for hp in CASES), ("dev", {})])
def test_starting_at_a_step_equals_skipping_those_before(data_dir, split, hparams):
    batches = Batches(Toy(), split, data_dir, settings(**hparams), seed=7)
    whole = list(batches.dataset().take(60).as_numpy_iterator())
    steps = (1, 20, 21)
    iterators = [batches.dataset(step).as_numpy_iterator() for step in steps]
    for later in range(len(whole) - 21):
        equal([next(each) for each in iterators], [whole[step + later] for step in steps])


def test_the_number_of_threads_changes_nothing(data_dir):
    batches = dataset(Toy(), "train", data_dir, settings(), seed=7)
    assert batches.options().autotune.enabled is False  # nor does TensorFlow choose it
    wanted = list(batches.take(90).as_numpy_iterator())
    for threads in (1, 7):
        options = tf.data.Options()
        options.threading.private_threadpool_size = threads
        found = batches.with_options(options).prefetch(3 * threads).take(90)
        equal(list(found.as_numpy_iterator()), wanted)


def test_a_dataset_that_is_gone_leaves_no_file_open(data_dir):
    batches = Batches(Toy(), "train", data_dir, settings())
    stored, taken = weakref.ref(batches._stored), iter(batches.dataset())
    del batches
    next(taken)  # the dataset holds all that it needs
    del taken
    gc.collect()
    assert stored() is None


def test_training_leaves_out_what_is_too_long_or_too_short(tmp_path):
    lengths = [(2, 2), (5, 3), (3, 12), (13, 4), (4, 13)]
    pairs = [pair(number, *both) for number, both in enumerate(lengths)]
    assert sorted(numbers(once(tmp_path, pairs, "train", settings(min_length=4)))) == [1, 2]
    kept = Batches(Toy(), "train", tmp_path, settings(min_length=4))
    assert kept.target_tokens_per_batch * kept.batches_per_epoch == pytest.approx(3 + 12)


def test_evaluation_keeps_longer_sentences_in_doubling_buckets_or_drops_them(tmp_path):
    batches = list(once(tmp_path, of_lengths((12, 13, 24, 25, 100))))
    found = sorted((*batch["inputs"].shape, *sorted(numbers([batch]))) for batch in batches)
    # 48 // 24 = 2 rows to 24 ids, one row to 48 and to 192.
    assert found == [(1, 12, 0), (1, 48, 3), (1, 192, 4), (2, 24, 1, 2)]
    assert numbers(dataset(Toy(), "dev", tmp_path, settings(eval_drop_long_sequences=True))) == [0]
    kept = numbers(dataset(Toy(), "dev", tmp_path, settings(min_length=25)))  # as in training
    assert kept == [3, 4]


def test_evaluation_keeps_longer_sentences_in_the_last_bucket_of_tensor2tensor(tmp_path):
    """Its `batching_scheme` by hand: boundaries 4 and 8, and 48 // 12 = 4 rows of all that is longer."""
    hp = settings(t2t_batches=True)
    batches = once(tmp_path, of_lengths((12, 13, 24, 25, 100)), hp=hp)
    found = [(*batch["inputs"].shape, *numbers([batch])) for batch in batches]
    assert found == [(4, 25, 0, 1, 2, 3), (1, 100, 4)]
    dropped = dataset(Toy(), "dev", tmp_path, hp.replace(eval_drop_long_sequences=True))
    assert numbers(dropped) == [0]


def test_replicas_share_every_batch_equally(data_dir):
    training = dataset(Toy(), "train", data_dir, settings(), replicas=2).take(60)
    assert shapes(training) == set(bucket_shapes(settings(), replicas=2))
    evaluation = list(dataset(Toy(), "dev", data_dir, settings(), replicas=3))
    assert {batch["inputs"].shape[0] % 3 for batch in evaluation} == {0}
    assert sorted(numbers(evaluation)) == list(range(200))


@pytest.mark.parametrize(
    ("split", "hosts", "pad_to_boundary"),
    [("train", 2, True), ("train", 3, False), ("dev", 3, True), ("dev", 2, False)],
)
def test_hosts_share_every_batch(data_dir, split, hosts, pad_to_boundary):
    keywords = {"replicas": 6, "seed": 5, "pad_to_boundary": pad_to_boundary}
    whole = dataset(Toy(), split, data_dir, settings(), **keywords).take(50)
    shares = [
        dataset(Toy(), split, data_dir, settings(), hosts=hosts, host=host, **keywords).take(50)
        for host in range(hosts)
    ]
    whole, *shares = (list(batches.as_numpy_iterator()) for batches in (whole, *shares))
    for step, parts in enumerate(zip(*shares, strict=True)):
        assert len({part["inputs"].shape for part in parts}) == 1
        joined = {side: np.concatenate([part[side] for part in parts]) for side in parts[0]}
        equal([joined], [whole[step]])


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"replicas": 3, "hosts": 2}, "3 replicas cannot be divided among 2 hosts"),
        ({"replicas": 2, "hosts": 2, "host": 2}, "host must be from 0 to 1, got 2"),
    ],
)
def test_hosts_that_do_not_fit(data_dir, keywords, message):
    with pytest.raises(UserError, match=message):
        dataset(Toy(), "train", data_dir, settings(), **keywords)


def test_description_is_what_comes(data_dir):
    batches = Batches(Toy(), "train", data_dir, settings())
    assert batches.shapes == bucket_shapes(settings()) == [(12, 4), (8, 6), (4, 12)]
    # 200 / 12, 8 and 4 rows of the examples of each bucket.
    longer = LENGTHS.max(axis=1)
    expected = sum(
        np.sum((longer > low) & (longer <= high)) / size
        for low, high, size in ((0, 4, 12), (4, 6, 8), (6, 12, 4))
    )
    assert batches.description() == (
        f"3 batch shapes, from 12 x 4 to 4 x 12; 200 examples, {expected:.0f} batches per epoch"
    )
    dev = Batches(Toy(), "dev", data_dir, settings())
    assert dev.batches_per_epoch == len(list(dev.dataset()))
    raw = Batches(Toy(), "dev", data_dir, settings(), pad_to_boundary=False)
    assert raw.description().startswith("batch shapes vary; 200 examples")


def test_columns_that_no_row_uses_can_be_left_out():
    padded = {
        "inputs": [[7, 1, 0, 9, 0, 0], [8, 0, 0, 0, 0, 0]],
        "targets": [[7, 1, 4, 5, 1, 3], [8, 0, 0, 0, 0, 0]],
    }
    nothing = {side: np.zeros((2, 6), int) for side in padded}
    for batch, widths in ((padded, (4, 6)), (nothing, (1, 1))):
        (found,) = trim_padding(tf.data.Dataset.from_tensors(batch))
        for side, width in zip(("inputs", "targets"), widths, strict=True):
            np.testing.assert_array_equal(found[side], np.array(batch[side])[:, :width])


def test_packed_batches_keep_their_columns(packed_dir):
    batches = dataset(Packed(), "train", packed_dir, settings())
    trimmed = trim_padding(batches)
    assert trimmed.element_spec == batches.element_spec
    for batch, same in zip(batches.take(5), trimmed.take(5), strict=True):
        assert all(np.array_equal(batch[name], same[name]) for name in batch)


def test_only_shapes_that_come_are_counted(tmp_path):
    write(tmp_path, "train", [pair(number, 5, 6) for number in range(20)])
    description = Batches(Toy(), "train", tmp_path, settings()).description()
    assert description == "1 batch shape, 8 x 6; 20 examples, 2 batches per epoch"


def test_a_record_damaged_after_its_index_was_made_is_named(own_dir, refused):
    dataset(Toy(), "train", own_dir, settings())
    path = own_dir / "toy-train-00001-of-00003"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    records = []
    with refused() as raised, plain_errors():
        for batch in dataset(Toy(), "train", own_dir, settings(), repeat=False):
            records += numbers([batch])
    number = int(str(raised.value).split()[1])
    assert f"Example {number} of the shard {path} is damaged" in str(raised.value)
    assert 20 < number < 50  # of 67


class OfTenIds(Toy):
    """`Toy` with vocabularies of the ids 0 to 9 for inputs and 0 to 19 for targets."""

    name = "toy"

    def feature_encoders(self, data_dir):
        return {
            side: TokenTextEncoder(vocab_list=[str(i) for i in range(size - 2)])
            for side, size in {"inputs": 10, "targets": 20}.items()
        }


def read_all(problem, directory):
    with plain_errors():
        for _ in dataset(problem, "dev", directory, settings()):
            pass


@pytest.mark.parametrize(
    ("problem", "side", "wrong", "ids"),
    [
        (OfTenIds(), "inputs", 10, "9"),
        (OfTenIds(), "targets", -3, "19"),
        (OfTenIds(was_reversed=True), "targets", 20, "19"),
        (OfTenIds(was_copy=True), "inputs", 10, "9"),
        (Toy(), "inputs", 2**32 + 7, str(2**31 - 1)),  # without a vocabulary: what int32 holds
    ],
)
def test_an_id_beyond_the_vocabulary_is_named(tmp_path, problem, side, wrong, ids):
    pairs = [pair(number, 3, 4) for number in range(5)]
    pairs[3] = {**pairs[3], side: [3, wrong, 1]}
    write(tmp_path, "dev", pairs, shards=2)
    shard = tmp_path / "toy-dev-00001-of-00002"
    with pytest.raises(UserError) as raised:
        read_all(problem, tmp_path)
    expected = f"Example 2 of the shard {shard} has the id {wrong} in its {side}, whose ids are 0 to {ids}:"
    assert expected in str(raised.value)
    write(tmp_path, "dev", [{"inputs": [9, 1], "targets": [19, 0, 1]}] * 2, shards=2)
    (tmp_path / "index.toy-dev.npz").unlink(missing_ok=True)
    read_all(problem, tmp_path)  # the largest ids there are


def test_a_record_that_is_no_example_is_named_with_an_index_of_its_size(tmp_path):
    write(tmp_path, "dev", [pair(number, 3, 4) for number in range(5)])
    (path,) = tmp_path.iterdir()
    dataset(Toy(), "dev", tmp_path, settings())
    content, index = path.read_bytes(), read_index(tmp_path, "toy", "dev")
    start, size = int(index.offsets[2]), int(index.sizes[2])
    record = Lists(np.frombuffer(b"x" * size, np.uint8), np.array([size]))
    other = frame(record).values.tobytes()
    path.write_bytes(content[: start - 12] + other + content[start + size + 4 :])
    message = rf"The shard {path} does not hold tf.Examples .* \(see example 3\)"
    with pytest.raises(UserError, match=message):
        read_all(Toy(), tmp_path)


def test_an_index_of_other_shards_of_the_same_size_is_named(tmp_path):
    write(tmp_path, "dev", [pair(number, 3, 5) for number in range(5)])
    dataset(Toy(), "dev", tmp_path, settings())
    write(tmp_path, "dev", [pair(number, 5, 3) for number in range(5)])
    with pytest.raises(UserError, match=r"index.toy-dev.npz is not the index of .*: delete it"):
        read_all(Toy(), tmp_path)


def test_a_shard_that_vanishes_is_named(own_dir):
    batches = dataset(Toy(), "train", own_dir, settings())
    for path in own_dir.glob("toy-train*"):
        path.unlink()
    with pytest.raises(UserError, match=r"cannot be read \(No such file"), plain_errors():
        next(iter(batches))


class Packed(Toy):
    """Rows of several pairs, of at most 24 ids a side."""

    name = "toy"
    packed_length = 24


@pytest.fixture(scope="module")
def packed_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("packed")
    pairs = [pair(number, *lengths) for number, lengths in enumerate(LENGTHS)]
    for split in ("train", "dev"):
        write(directory, split, pack(pairs, 24))
    return directory


def unpacked(batch):
    for row in range(len(batch["inputs"])):
        segments = {side: batch[f"{side}_segmentation"][row] for side in ("inputs", "targets")}
        for number in range(1, segments["inputs"].max() + 1):
            sides = {}
            for side, segment in segments.items():
                of_pair = segment == number
                sides[side] = batch[side][row][of_pair].tolist()
                positions = batch[f"{side}_position"][row][of_pair].tolist()
                assert positions == list(range(len(positions)))
            yield sides


@pytest.mark.parametrize(
    ("split", "flags"),
    [("train", {}), ("dev", {"was_reversed": True}), ("dev", {"was_copy": True})],
)
def test_packed_rows_come_with_all_their_fields(packed_dir, split, flags):
    """48 ids a batch: two rows a replica."""
    problem = Packed(**flags)
    batches = dataset(problem, split, packed_dir, settings(), repeat=False, replicas=2)
    found = [item for batch in batches.as_numpy_iterator() for item in unpacked(batch)]
    pairs = [problem.orient(pair(number, *both)) for number, both in enumerate(LENGTHS)]
    assert sorted(found, key=str) == sorted(pairs, key=str)


def test_packed_training_has_one_static_shape(packed_dir):
    batches = dataset(Packed(), "train", packed_dir, settings(), replicas=4, hosts=2)
    assert {tuple(spec.shape) for spec in batches.element_spec.values()} == {(4, 24)}
    assert len(batches.element_spec) == 6
    assert {spec.dtype for spec in batches.element_spec.values()} == {tf.int32}
    assert {batch["targets_position"].shape for batch in batches.take(20)} == {(4, 24)}
    description = Batches(Packed(), "train", packed_dir, settings()).description()
    assert description.startswith("1 batch shape, 2 x 24; ")


def test_packed_rows_in_batches_of_tensor2tensor(packed_dir):
    """It treats them as any other, so that `max_length` counts and batches are of several shapes."""
    hp = settings(t2t_batches=True, max_length=24)
    batches = list(dataset(Packed(), "train", packed_dir, hp, repeat=False).as_numpy_iterator())
    found = [item for batch in batches for item in unpacked(batch)]
    pairs = [pair(number, *both) for number, both in enumerate(LENGTHS)]
    assert sorted(found, key=str) == sorted(pairs, key=str)
    most = {3: 12, 7: 6, 15: 3, 24: 2}  # boundaries 4, 8 and 16, and 48 ids
    assert len(shapes(batches)) > 1
    assert all(len(batch["inputs"]) <= most[batch["inputs"].shape[1]] for batch in batches)


def test_packed_targets_with_and_without_the_inputs_of_tensor2tensor(tmp_path):
    """T2T writes [0] as inputs of a language model; its rows in evaluation may be of any length."""

    class Targets(Packed):
        name, has_inputs = "toy", False

    rows = list(pack([{"targets": [5, 1]}, {"targets": [6, 7, 1]}], 24))
    assert rows[0]["inputs"] == [0]
    for row in (rows[0], {name: ids for name, ids in rows[0].items() if name != "inputs"}):
        for given in ({}, {"t2t_batches": True}, {"t2t_batches": True, "max_length": 4}):
            write(tmp_path, "dev", [row])
            (batch,) = dataset(Targets(), "dev", tmp_path, settings(**given))
            assert len(batch) == 3
            np.testing.assert_array_equal(batch["targets_segmentation"][0, :5], [1, 1, 2, 2, 2])


def test_what_cannot_be_packed(data_dir, packed_dir):
    with pytest.raises(UserError, match="has no inputs_segmentation, but toy is packed"):
        dataset(Packed(), "train", data_dir, settings())
    with pytest.raises(UserError, match="leave them at 0 for a packed problem"):
        dataset(Packed(), "train", packed_dir, settings(max_input_seq_length=5))


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
    assert [batch[side].numpy().tolist() for side in batch] == [[inputs], [targets]]


def test_data_without_examples_or_limits_that_drop_everything(data_dir, tmp_path):
    hp = settings(batch_size=8, max_length=1, min_length_bucket=1)
    with pytest.raises(UserError, match=r"longer than 1 ids \(max_length=1.*raise max_length"):
        dataset(Toy(), "train", data_dir, hp)
    (tmp_path / "toy-dev-00000-of-00001").touch()
    with pytest.raises(UserError, match="hold no example"):
        dataset(Toy(), "dev", tmp_path, settings())


@pytest.mark.parametrize("was_reversed", [False, True])
@pytest.mark.parametrize(("limit", "targets"), [(4, 4), (0, 9), (-1, 9)])
def test_long_sides_are_cut_before_any_reversal(tmp_path, was_reversed, limit, targets):
    write(tmp_path, "dev", [pair(0, 8, 9)])
    limits = settings(max_input_seq_length=3, max_target_seq_length=limit)
    (batch,) = dataset(Toy(was_reversed=was_reversed), "dev", tmp_path, limits)
    lengths = [int(np.count_nonzero(batch[side])) for side in ("inputs", "targets")]
    assert lengths == ([targets, 3] if was_reversed else [3, targets])
