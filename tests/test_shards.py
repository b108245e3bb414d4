"""Shards: their names, their number, and what is said of damaged ones."""

import pytest

from t2t_keras.data.shards import count_examples, find_shards, shard_paths
from t2t_keras.errors import UserError
from tests.shard_files import write_shards


def test_names_are_those_of_tensor2tensor(tmp_path):
    names = [path.name for path in shard_paths(tmp_path, "translate_ende", "train", 100)]
    assert names[0] == "translate_ende-train-00000-of-00100"
    assert names[-1] == "translate_ende-train-00099-of-00100"


@pytest.fixture
def three_shards(tmp_path):
    examples = [{"inputs": [number + 2, 1], "targets": [3, 1]} for number in range(9)]
    return write_shards(tmp_path, "toy", "train", examples, shards=3)


def test_examples_are_counted(three_shards):
    assert count_examples(three_shards) == 9


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
