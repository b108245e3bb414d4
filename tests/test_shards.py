"""Shards: their names and number, their index, and errors about damaged ones."""

import io
import itertools
import random
import tracemalloc
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from corpus_files import write_records, write_shards

from t2t_keras import progress
from t2t_keras.data import shards as shard_files
from t2t_keras.data.records import Lists, frame
from t2t_keras.data.shards import SIDES, find_shards, read_index, shard_paths
from t2t_keras.errors import UserError


@pytest.fixture
def three_shards(tmp_path):
    examples = [{"inputs": [number + 2, 1], "targets": [3, 1]} for number in range(9)]
    return write_shards(tmp_path, "toy", "train", examples, shards=3)


def test_shards_are_found_in_order(three_shards):
    directory = three_shards[0].parent
    (directory / "toy-train-00000-of-00003.incomplete").touch()
    (directory / "toy-unshuffled-train-00000-of-00003").touch()
    (directory / "toy_rev-train-00000-of-00001").touch()
    assert find_shards(directory, "toy", "train") == three_shards
    last = shard_paths(directory, "translate_ende", "train", 100)[-1]
    assert last.name == "translate_ende-train-00099-of-00100"  # as T2T names it


def test_sets_of_shards_that_are_not_whole(three_shards):
    directory = three_shards[0].parent
    (directory / "toy-train-00000-of-00001").touch()
    with pytest.raises(UserError, match="in sets of 1 and of 3 shards"):
        find_shards(directory, "toy", "train")
    (directory / "toy-train-00000-of-00001").unlink()
    three_shards[1].unlink()
    with pytest.raises(UserError, match=r"lacks toy-train-00001-of-00003, of 3 shards"):
        find_shards(directory, "toy", "train")


@pytest.mark.parametrize("folder", [".", "absent"])
def test_no_shards_at_all(tmp_path, folder):
    with pytest.raises(UserError, match="run t2t-keras-datagen --problem=toy --data_dir="):
        find_shards(tmp_path / folder, "toy", "dev")


@pytest.fixture
def shards(tmp_path):
    """Three shards of 5, 0 and 300 pairs; returns their directory, records and lengths."""
    generator = random.Random(1)
    lengths = [(generator.randint(1, 300), generator.randint(1, 300)) for _ in range(305)]
    sides = [[generator.choices(range(2, 40000), k=k) for k in both] for both in lengths]
    pairs = [dict(zip(SIDES, both, strict=True)) for both in sides]
    records = [
        write_records(tmp_path / f"toy-train-{number:05d}-of-00003", piece)
        for number, piece in enumerate((pairs[:5], [], pairs[5:]))
    ]
    return tmp_path, records, np.array(lengths)


def check(found, shards):
    directory, records, lengths = shards
    assert found.paths == [directory / f"toy-train-{number:05d}-of-00003" for number in range(3)]
    assert found.counts.tolist() == [len(shard) for shard in records]
    shard_of = np.repeat(np.arange(3), found.counts)
    content = [path.read_bytes() for path in found.paths]
    places = zip(shard_of, found.offsets, found.sizes, strict=True)
    taken = [content[shard][offset : offset + size] for shard, offset, size in places]
    assert taken == [record for shard in records for record in shard]
    np.testing.assert_array_equal([found.lengths[side] for side in SIDES], lengths.T)
    types = [found.offsets, found.sizes, *found.lengths.values()]
    assert [column.dtype for column in types] == [np.int64, np.uint32, np.uint32, np.uint32]


def test_shards_are_read_once_and_then_not_again(shards):
    check(read_index(shards[0], "toy", "train"), shards)
    with mock.patch.object(shard_files, "_measure", side_effect=AssertionError):
        check(index := read_index(shards[0], "toy", "train"), shards)
    other = index._replace(lengths={side: lengths[::-1] for side, lengths in index.lengths.items()})
    assert other.digest() != index.digest()
    with np.load(shards[0] / "index.toy-train.npz") as stored:  # it is small on disk
        types = {name: stored[name].dtype for name in ("counts", "sizes", "inputs", "targets")}
    assert {*types.values()} == {np.dtype(np.uint16)}


def saved(*array, save=np.savez, **columns):
    file = io.BytesIO()
    save(file, *array, **columns)
    return file.getvalue()


_OTHER = {"sizes": [1] * 305, "inputs": [1] * 305, "targets": [1] * 305}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        saved(np.arange(3), save=np.save),
        saved(counts=305, **_OTHER),
        saved(counts=[5, -300, 600], **_OTHER),
        saved(counts=["5", "0", "300"], **_OTHER),
        saved(counts=[2**62] * 4 + [305], **_OTHER),  # their sum in 64 bits is 305
        saved(counts=[5, 0, 300], **_OTHER, save=np.savez_compressed),
    ],
)
def test_a_damaged_index_is_made_again(shards, content):
    path = shards[0] / "index.toy-train.npz"
    path.write_bytes(content)
    check(read_index(shards[0], "toy", "train"), shards)
    assert path.read_bytes() != content


def test_an_index_that_expands_is_not_unpacked(shards):
    """Our own is not compressed; this one is of 0.1 MB and would take 90 MB."""
    column = np.ones(10**7, np.uint8)
    content = saved(counts=[10**7], **dict.fromkeys(_OTHER, column), save=np.savez_compressed)
    (shards[0] / "index.toy-train.npz").write_bytes(content)
    tracemalloc.start()
    check(read_index(shards[0], "toy", "train"), shards)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6


def test_other_shards_under_the_same_names_need_a_new_index(shards):
    directory = shards[0]
    index = read_index(directory, "toy", "train").path
    path = directory / "toy-train-00001-of-00003"
    (record,) = write_records(path, [{"inputs": [7, 8, 1], "targets": [9, 1]}])
    before = index.read_bytes()
    with pytest.raises(UserError, match=rf"{path} has 1 examples, and {index.name} says 0: "):
        read_index(directory, "toy", "train")
    assert index.read_bytes() == before
    index.unlink()
    found = read_index(directory, "toy", "train")
    assert found.counts.tolist() == [5, 1, 300]
    assert [found.lengths[side][5] for side in SIDES] == [3, 2]
    assert path.read_bytes()[found.offsets[5] :][: found.sizes[5]] == record


def test_a_full_disk_leaves_no_half_index(shards, monkeypatch):
    def full(file, **_):
        file.write(b"PK")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    check(read_index(shards[0], "toy", "train"), shards)
    assert {path.name[:3] for path in shards[0].iterdir()} == {"toy"}


def test_a_full_disk_is_told_without_the_names_of_operations():
    with pytest.raises(tf.errors.OpError) as full:
        tf.io.write_file("/dev/full", "x" * 100_000)
    assert "{{function_node" in str(full.value)
    error = UserError(f"/dev/full cannot be written: {full.value}")
    assert str(error) == "/dev/full cannot be written: /dev/full; No space left on device"


def test_a_damaged_shard_is_found_while_there_is_no_index(shards):
    """Changed, cut off, cut within the head of a record, or with bytes after the last one."""
    path = shards[0] / "toy-train-00000-of-00003"
    content = path.read_bytes()
    changed = bytearray(content)
    changed[len(content) // 2] ^= 4
    first = 16 + int.from_bytes(content[:8], "little")
    for damaged in (changed, content[:-3], content[: first + 5], content + bytes(11)):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=f"^The shard {path} is truncated or corrupt.*again.$"):
            read_index(shards[0], "toy", "train")


@pytest.mark.parametrize("record", [b"not an example", b"", b"\xff\xfe is quoted by TensorFlow"])
def test_records_of_another_kind(tmp_path, record):
    path = tmp_path / "toy-dev-00000-of-00001"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(record)
    with pytest.raises(UserError, match=f"{path} does not hold tf.Examples"):
        read_index(tmp_path, "toy", "dev")


def test_a_record_that_claims_more_than_there_is(tmp_path):
    """With the right checksum, so that TensorFlow makes room for it."""
    path = tmp_path / "toy-dev-00000-of-00001"
    length = np.frombuffer((2**62).to_bytes(8, "little"), np.uint8)
    path.write_bytes(length.tobytes() + frame(Lists(length, np.array([8]))).values.tobytes()[-4:])
    with pytest.raises(UserError, match=f"{path} is truncated or corrupt .a record of 4,611,686,"):
        read_index(tmp_path, "toy", "dev")


def test_reading_for_long_tells_how_far_it_is(shards, monkeypatch, capsys):
    monkeypatch.setattr(progress.time, "monotonic", itertools.count(step=10.0).__next__)
    read_index(shards[0], "toy", "train")
    assert "toy-train: 2 of 3 shards, 0.1 shards/s" in capsys.readouterr().err
