"""Where every example of a split lies in its shards, and how long its sides are.

With it a reader takes examples in any order, and knows beforehand which of them share a batch. The
generation stores it beside the shards, as `index.{name}-{split}.npz`; for shards of tensor2tensor it is
made when they are read for the first time.
"""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t2t_keras.data.generation.records import FOOTER_BYTES, HEADER_BYTES
from t2t_keras.data.shards import READ_BUFFER, count_examples, find_shards
from t2t_keras.errors import UserError
from t2t_keras.files import atomic_write
from t2t_keras.progress import CountProgress

SIDES = ("inputs", "targets")

_MEASURED_AT_ONCE = 2048


class SplitIndex(NamedTuple):
    """The N examples of a split, in the order of its shards."""

    paths: list[Path]
    """The shards."""
    counts: np.ndarray
    """Examples of each shard: [shards] int64."""
    offsets: np.ndarray
    """The first byte of each serialised example within its shard: [N] int64."""
    sizes: np.ndarray
    """The bytes of each serialised example: [N] uint32."""
    lengths: dict[str, np.ndarray]
    """The ids of "inputs" and of "targets" as stored, end of sentence included: [N] uint32 each."""


def read_index(data_dir: str | os.PathLike, name: str, split: str) -> SplitIndex:
    """Returns the index of the shards of a split.

    A stored one is used if the shards have the sizes that it gives them; nothing of them is read
    then. Otherwise they are read to their ends, with their checksums, and the index is stored if
    the directory can be written.

    Raises:
        UserError: shards are absent or missing, or one of those that had to be read is damaged or
            holds something else than int64 lists called inputs and targets.
    """
    paths = find_shards(data_dir, name, split)
    stored = _load(_index_path(data_dir, name, split))
    if stored is None or not _matches(paths, *stored[:2]):
        measured = _measure(paths, f"{name}-{split}")
        sizes = [table["sizes"] for table in measured]
        lengths = [{side: table[side] for side in SIDES} for table in measured]
        with contextlib.suppress(OSError):
            write_index(data_dir, name, split, sizes, lengths)
        stored = _joined(sizes, lengths)
    counts, all_sizes, all_lengths = stored
    return SplitIndex(paths, counts, _offsets(counts, all_sizes), all_sizes, all_lengths)


def write_index(
    data_dir: str | os.PathLike,
    name: str,
    split: str,
    sizes: Sequence[np.ndarray],
    lengths: Sequence[Mapping[str, np.ndarray]],
) -> None:
    """Stores the index of shards that have just been written or read.

    Args:
        data_dir: where the shards are.
        name: the problem's file name.
        split: of the shards.
        sizes: for each shard, the bytes of its serialised examples: [n] integers.
        lengths: for each shard, the ids of "inputs" and of "targets": [n] integers each.

    Raises:
        OSError: it cannot be written; what was there is as it was.
    """
    counts, all_sizes, all_lengths = _joined(sizes, lengths)
    columns = {"counts": counts, "sizes": all_sizes, **all_lengths}
    path = _index_path(data_dir, name, split)
    with atomic_write(path) as partial, partial.open("wb") as file:
        np.savez(file, **{field: _smallest(column) for field, column in columns.items()})  # type: ignore[arg-type]


def remove_index(data_dir: str | os.PathLike, name: str, split: str) -> None:
    """Deletes the stored index of a split, if there is one: its shards are made anew."""
    _index_path(data_dir, name, split).unlink(missing_ok=True)


_Stored = tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]  # counts, sizes, lengths


def _index_path(data_dir: str | os.PathLike, name: str, split: str) -> Path:
    # Not `{name}-{split}...`: tensor2tensor takes every file of such a name for a shard.
    return Path(data_dir) / f"index.{name}-{split}.npz"


def _joined(sizes: Sequence[np.ndarray], lengths: Sequence[Mapping[str, np.ndarray]]) -> _Stored:
    return (
        np.array([len(shard) for shard in sizes], np.int64),
        np.concatenate(sizes).astype(np.uint32),
        {
            side: np.concatenate([shard[side] for shard in lengths]).astype(np.uint32)
            for side in SIDES
        },
    )


def _load(path: Path) -> _Stored | None:
    """What is stored; None if there is nothing that can be used."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as columns:
            counts = columns["counts"].astype(np.int64)
            sizes, *sides = (columns[field].astype(np.uint32) for field in ("sizes", *SIDES))
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
        return None
    if not all(len(column) == counts.sum() for column in (sizes, *sides)):
        return None
    return counts, sizes, dict(zip(SIDES, sides, strict=True))


def _matches(paths: Sequence[Path], counts: np.ndarray, sizes: np.ndarray) -> bool:
    """Whether each shard has as many bytes as its examples take."""
    framed = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    ends = np.cumsum(counts)
    expected = framed[ends] - framed[ends - counts] + (HEADER_BYTES + FOOTER_BYTES) * counts
    return expected.tolist() == [path.stat().st_size for path in paths]


def _offsets(counts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    ends = np.cumsum(sizes, dtype=np.int64)
    ends += (HEADER_BYTES + FOOTER_BYTES) * np.arange(1, len(ends) + 1)
    shard_ends = np.concatenate([[0], ends])[np.cumsum(counts)[:-1]]
    starts = ends - sizes - FOOTER_BYTES
    starts[counts[0] :] -= np.repeat(shard_ends, counts[1:])
    return starts


def _measure(paths: Sequence[Path], what: str) -> list[dict[str, np.ndarray]]:
    """Reads shards to their ends: "sizes", "inputs" and "targets" of each, [n] uint32."""
    import tensorflow as tf

    feature = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def measure(records):
        parsed = tf.io.parse_example(records, dict.fromkeys(SIDES, feature))
        return {
            "sizes": tf.strings.length(records),
            **{side: parsed[side].row_lengths() for side in SIDES},
        }

    tables = []
    progress = CountProgress(what, "shards", len(paths))
    for number, path in enumerate(paths):
        progress.update(number)
        tables.append(_measure_shard(path, measure))
    return tables


def _measure_shard(path: Path, measure: Callable) -> dict[str, np.ndarray]:
    import tensorflow as tf

    chunks = tf.data.TFRecordDataset(str(path), buffer_size=READ_BUFFER).batch(_MEASURED_AT_ONCE)
    columns: dict[str, list] = {"sizes": [], **{side: [] for side in SIDES}}
    try:
        for records in chunks.prefetch(1):
            for field, numbers in measure(records).items():
                columns[field].append(numbers.numpy().astype(np.uint32))
    except tf.errors.InvalidArgumentError:
        raise not_examples(path) from None
    except tf.errors.OpError:
        count_examples([path])  # says what is wrong with the file
        raise
    none = [np.zeros(0, np.uint32)]
    table = {field: np.concatenate(column or none) for field, column in columns.items()}
    if not all(table[side].all() for side in SIDES):
        raise not_examples(path)
    return table


def not_examples(path: Path) -> UserError:
    """Returns the error of a shard that holds something else than text problems store."""
    return UserError(
        f"The shard {path} does not hold tf.Examples with the int64 lists inputs and "
        "targets: check that it comes from t2t-keras-datagen or t2t-datagen."
    )


def _smallest(column: np.ndarray) -> np.ndarray:
    """The same numbers in the narrowest unsigned type that holds them."""
    return column.astype(np.min_scalar_type(int(column.max(initial=0))))
