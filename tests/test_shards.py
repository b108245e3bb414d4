"""Shards: their names, their contents, and what is said of damaged ones."""

import pytest
import tensorflow as tf

from t2t_keras.data.shards import (
    count_examples,
    find_shards,
    read_records,
    shard_paths,
    to_example,
    write_shards,
)
from t2t_keras.errors import UserError


def examples(count):
    return [{"inputs": [number + 2, 1], "targets": [number + 2, 3, 1]} for number in range(count)]


def first_ids(path):
    """The first input id of each example, read with TensorFlow's protocol buffer alone."""
    parsed = [tf.train.Example.FromString(record) for record in read_records(path)]
    return [example.features.feature["inputs"].int64_list.value[0] for example in parsed]


def test_names_are_those_of_tensor2tensor(tmp_path):
    names = [path.name for path in shard_paths(tmp_path, "translate_ende", "train", 100)]
    assert names[0] == "translate_ende-train-00000-of-00100"
    assert names[-1] == "translate_ende-train-00099-of-00100"


def test_examples_are_dealt_round_robin_and_nothing_else_is_left(tmp_path):
    paths = shard_paths(tmp_path, "toy", "train", 3)
    assert write_shards(examples(8), paths, seed=1) == 8
    assert sorted(tmp_path.iterdir()) == paths
    assert [sorted(first_ids(path)) for path in paths] == [[2, 5, 8], [3, 6, 9], [4, 7]]
    assert count_examples(paths) == 8


def test_fields_are_int64_lists(tmp_path):
    paths = shard_paths(tmp_path, "toy", "dev", 1)
    write_shards([{"inputs": [7, 2**40, 1], "targets": [1]}], paths, seed=1)
    (record,) = read_records(paths[0])
    features = tf.train.Example.FromString(record).features.feature
    assert {name: list(feature.int64_list.value) for name, feature in features.items()} == {
        "inputs": [7, 2**40, 1],
        "targets": [1],
    }


def test_shuffle_depends_on_the_seed_alone(tmp_path):
    orders = []
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / folder).mkdir()
        paths = shard_paths(tmp_path / folder, "toy", "train", 1)
        write_shards(examples(50), paths, seed)
        orders.append(first_ids(paths[0]))
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == list(range(2, 52))


def test_no_file_of_a_final_name_until_all_are_whole(tmp_path):
    paths = shard_paths(tmp_path, "toy", "train", 2)

    def interrupted():
        yield from examples(5)
        assert not any(path.exists() for path in paths)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(interrupted(), paths, seed=1)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_field_is_refused_with_the_number_of_its_example(tmp_path):
    bad = [*examples(2), {"inputs": [], "targets": [1]}]
    with pytest.raises(UserError, match=r"^Example 3 has an empty field 'inputs'"):
        write_shards(bad, shard_paths(tmp_path, "toy", "dev", 1), seed=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ids", [["word"], [1.5], [2**63]])
def test_only_integers_are_stored(ids):
    with pytest.raises(UserError, match=r"^Example 4 holds something else than 64-bit integers"):
        to_example({"inputs": ids}, 4)


def test_no_example_at_all(tmp_path):
    with pytest.raises(UserError, match="no example"):
        write_shards([], shard_paths(tmp_path, "toy", "dev", 1), seed=1)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_does_not_exist(tmp_path):
    with pytest.raises(UserError, match="cannot be written"):
        write_shards(examples(1), shard_paths(tmp_path / "none", "toy", "dev", 1), seed=1)


@pytest.fixture
def three_shards(tmp_path):
    paths = shard_paths(tmp_path, "toy", "train", 3)
    write_shards(examples(9), paths, seed=1)
    return paths


def test_a_truncated_shard_is_named(three_shards):
    damaged = three_shards[1]
    damaged.write_bytes(damaged.read_bytes()[:-5])
    with pytest.raises(UserError, match=f"{damaged} is truncated or corrupt"):
        count_examples(three_shards)


def test_a_corrupt_shard_is_named(three_shards):
    damaged = three_shards[2]
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged.write_bytes(content)
    with pytest.raises(UserError, match=f"{damaged} is truncated or corrupt") as raised:
        count_examples(three_shards)
    assert "\n" not in str(raised.value)


def test_shards_are_found_in_order(three_shards):
    directory = three_shards[0].parent
    (directory / "toy-train-00000-of-00003.incomplete").touch()
    (directory / "toy-unshuffled-train-00000-of-00003").touch()
    (directory / "toy_rev-train-00000-of-00001").touch()
    assert find_shards(directory, "toy", "train") == three_shards


def test_a_missing_shard_is_named(three_shards):
    three_shards[1].unlink()
    with pytest.raises(UserError, match=r"lacks toy-train-00001-of-00003, of 3 shards"):
        find_shards(three_shards[0].parent, "toy", "train")


def test_two_sets_of_shards(three_shards):
    directory = three_shards[0].parent
    (directory / "toy-train-00000-of-00001").touch()
    with pytest.raises(UserError, match="in sets of 1 and of 3 shards"):
        find_shards(directory, "toy", "train")


@pytest.mark.parametrize("folder", [".", "absent"])
def test_no_shards_at_all(tmp_path, folder):
    with pytest.raises(UserError, match="run t2t-keras-datagen --problem=toy --data_dir="):
        find_shards(tmp_path / folder, "toy", "dev")
