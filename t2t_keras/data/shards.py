"""The shards of a split: TFRecord files with T2T's names, their index, and random access to examples.

`{name}-{split}-00000-of-00100` contains serialised `tf.Example`s of int64 lists, as T2T's do.
The index gives the offset of each example and the lengths of its sides, so that batches can be
planned in advance and examples read in any order. It is stored beside the shards as
`index.{name}-{split}.npz` when they are generated or, for T2T's shards, when they are first read.
"""

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t2t_keras.data.records import FOOTER_BYTES, HEADER_BYTES, Lists, frame, smallest
from t2t_keras.errors import UserError, explained
from t2t_keras.files import PathLike, atomic_write
from t2t_keras.progress import CountProgress

SIDES = ("inputs", "targets")
_FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
_READ_BUFFER = 2**20
_MEASURED_AT_ONCE = 2048
_AGAIN = "copy it again, or delete the shards of its split and run t2t-keras-datagen again"


def sharded_name(base_name: str, shard: int, total_shards: int) -> str:
    """Returns the name of a shard."""
    return f"{base_name}-{shard:05d}-of-{total_shards:05d}"


def shard_filepath(fname: str, num_shards: int) -> list[str]:
    """Returns the names of shards."""
    return [sharded_name(fname, shard, num_shards) for shard in range(num_shards)]


def shard_paths(data_dir: PathLike, name: str, split: str, shards: int) -> list[Path]:
    """Returns the final paths of all shards of a split."""
    return [Path(data_dir) / each for each in shard_filepath(f"{name}-{split}", shards)]


def find_shards(data_dir: PathLike, name: str, split: str) -> list[Path]:
    """Returns the shards of a split in `data_dir`, in order."""
    pattern = re.compile(rf"{re.escape(name)}-{re.escape(split)}-(\d{{5}})-of-(\d{{5}})")
    directory = Path(data_dir)
    found = sorted(directory.iterdir()) if directory.is_dir() else []
    shards = {path: match for path in found if (match := pattern.fullmatch(path.name))}
    if not shards:
        raise UserError(
            f"{data_dir} holds no {split} data of {name}: "
            f"run t2t-keras-datagen --problem={name} --data_dir={data_dir} first, or name another directory; "
            f"the problem's dataset_splits must have {split} (of translate_files, --{split}_files)."
        )
    totals = sorted({int(match[2]) for match in shards.values()})
    if len(totals) > 1:
        raise UserError(
            f"{data_dir} holds {split} data of {name} in sets of {' and of '.join(map(str, totals))} "
            "shards; only one set is allowed: delete the other."
        )
    wanted = shard_paths(data_dir, name, split, totals[0])
    if missing := [path.name for path in wanted if path not in shards]:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UserError(
            f"{data_dir} lacks {missing[0]}{more}, of {totals[0]} shards: copy what is missing, delete "
            f"{name}-{split}-* and run t2t-keras-datagen --problem={name} again, or, to use a part, "
            f"rename the others as a whole set, from -00000-of-{len(shards):05d} on."
        )
    return wanted


class SplitIndex(NamedTuple):
    """The N examples of a split, in the order of its shards."""

    path: Path  # the path of the stored index
    paths: list[Path]  # the shards
    counts: np.ndarray  # number of examples in each shard: [shards] int64
    offsets: np.ndarray  # byte offset of each serialised example in its shard: [N] int64
    sizes: np.ndarray  # bytes of each serialised example: [N] uint32
    lengths: dict[str, np.ndarray]  # number of ids by side, with end of sentence: [N] uint32 each
    made_with: str  # digests of vocabularies, "side=digest"; "" if unknown, as with T2T's shards

    def digest(self) -> str:
        """Returns a digest of the number of examples, their sizes and lengths."""
        content = hashlib.sha256()
        for column in (self.counts, self.sizes, *self.lengths.values()):
            content.update(np.ascontiguousarray(column, np.uint32).data)  # mostly no copy
        return content.hexdigest()[:16]


def read_index(
    data_dir: PathLike, name: str, split: str, sides: Sequence[str] = SIDES, made_with: str = ""
) -> SplitIndex:
    """Returns the index of the shards of a split, whose examples have these sides.

    A stored index that matches the file sizes is used without reading the shards. Otherwise the
    shards are read completely, their checksums are verified, and the index is stored if possible. A
    shard that is missing, damaged or lacks the int64 list of a side is a `UserError`, and so is one
    with another number of examples than the stored index says. A new index gets `made_with`.
    """
    paths = find_shards(data_dir, name, split)
    path = index_path(data_dir, name, split)
    stored, fits = _load(path, paths, sides)
    if stored is None or not fits:
        tables, progress = [], CountProgress(f"{name}-{split}", "shards", len(paths))
        for number, shard in enumerate(paths):
            progress.update(number)
            tables.append(_measure(shard, sides))
        if stored is not None and len(stored[0]) == len(paths):
            for shard, table, count in zip(paths, tables, stored[0], strict=True):
                if (found := len(table["sizes"])) != count:
                    raise UserError(
                        f"The shard {shard} has {found} examples, and {path.name} says {count}: "
                        f"{_AGAIN}; or delete {path} if the shards were made anew."
                    )
        with contextlib.suppress(OSError):
            write_index(data_dir, name, split, tables, made_with)
        stored = (*_joined(tables), made_with)
    counts, sizes, lengths, made_with = stored
    starts = np.concatenate([[0], np.cumsum(sizes + _FRAME_BYTES, dtype=np.int64)])
    first = starts[np.cumsum(counts) - counts]  # where each shard begins, if all are one file
    offsets = starts[:-1] - np.repeat(first - HEADER_BYTES, counts)
    return SplitIndex(path, paths, counts, offsets, sizes, lengths, made_with)


Table = Mapping[str, np.ndarray]
"""A shard's part of the index: bytes of each example ("sizes") and its ids by side, [n] each."""


def write_index(
    data_dir: PathLike, name: str, split: str, tables: Sequence[Table], made_with: str
) -> None:
    """Stores the index of shards that have just been written or read, from the table of each."""
    counts, sizes, lengths = _joined(tables)
    columns = {"counts": counts, "sizes": sizes, **lengths}
    columns = {field: smallest(column) for field, column in columns.items()}
    columns["made_with"] = np.array(made_with)
    with atomic_write(index_path(data_dir, name, split)) as partial, partial.open("wb") as file:
        np.savez(file, **columns)  # type: ignore[arg-type]


def index_path(data_dir: PathLike, name: str, split: str) -> Path:
    """Returns the path of the stored index of a split."""
    # Not `{name}-{split}...`: tensor2tensor takes every file with that prefix for a shard.
    return Path(data_dir) / f"index.{name}-{split}.npz"


_Columns = tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]  # counts, sizes, lengths
_Stored = tuple[np.ndarray, np.ndarray, dict[str, np.ndarray], str]  # and `made_with`


def _joined(tables: Sequence[Table]) -> _Columns:
    columns = {
        name: np.concatenate([table[name] for table in tables]).astype(np.uint32)
        for name in tables[0]
    }
    counts = np.array([len(table["sizes"]) for table in tables], np.int64)
    return counts, columns.pop("sizes"), columns


def _load(path: Path, paths: Sequence[Path], sides: Sequence[str]) -> tuple[_Stored | None, bool]:
    """Returns the stored index, None if it is absent or damaged, and whether it is of shards of these sizes."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as columns:
            if any(part.compress_type for part in columns.zip.infolist()):
                return None, False  # not of `write_index`, and of any size when unpacked
            stored = [columns[field] for field in ("counts", "sizes", *sides)]
            made_with = str(columns.get("made_with", ""))
    except Exception:  # for other files NumPy, zipfile and zlib raise a dozen types
        return None, False
    if any(column.ndim != 1 or column.dtype.kind not in "iu" for column in stored):
        return None, False
    counts = stored[0].astype(np.int64)
    in_range = (counts >= 0) & (counts <= len(stored[1]))  # so that their sum does not overflow
    if not in_range.all() or any(len(column) != counts.sum() for column in stored[1:]):
        return None, False
    sizes, *lengths = (column.astype(np.uint32) for column in stored[1:])
    ends = np.concatenate([[0], np.cumsum(sizes + _FRAME_BYTES, dtype=np.int64)])[np.cumsum(counts)]
    fits = np.diff(ends, prepend=0).tolist() == [shard.stat().st_size for shard in paths]
    return (counts, sizes, dict(zip(sides, lengths, strict=True)), made_with), fits


def _measure(path: Path, sides: Sequence[str]) -> Table:
    """Reads a shard completely."""
    import tensorflow as tf

    def unreadable(reason: str, what: str = "is truncated or corrupt") -> UserError:
        return UserError(f"The shard {path} {what} ({reason}): {_AGAIN}.")

    # TensorFlow would crash on a record that claims more bytes than its shard has. A file that
    # cannot be opened is reported below.
    with contextlib.suppress(OSError), path.open("rb", _READ_BUFFER) as file:
        left = os.fstat(file.fileno()).st_size
        while len(header := file.read(HEADER_BYTES)) == HEADER_BYTES:
            length = int.from_bytes(header[:8], "little")
            left -= length + _FRAME_BYTES
            if left < 0:
                raise unreadable(f"a record of {length:,} bytes")
            file.seek(length + FOOTER_BYTES, os.SEEK_CUR)
        if header:
            raise unreadable(f"{len(header)} bytes after the last record")
    chunks = tf.data.TFRecordDataset(str(path), buffer_size=_READ_BUFFER).batch(_MEASURED_AT_ONCE)
    columns: dict[str, list] = {"sizes": [], **{side: [] for side in sides}}
    first = 1

    def place(row: int) -> tuple[Path, int]:
        return path, first + row

    try:
        for records in chunks.prefetch(1):
            sizes = tf.strings.length(records).numpy()
            columns["sizes"].append(sizes.astype(np.uint32))
            for side, ids in parsed_examples(records.numpy().tolist(), place, sides).items():
                columns[side].append(ids.lengths.astype(np.uint32))
            first += len(sizes)
    except tf.errors.DataLossError as error:
        raise unreadable(error.message.splitlines()[0]) from None
    except tf.errors.OpError as error:
        raise unreadable(error.message.splitlines()[0], "cannot be read") from None
    none = [np.zeros(0, np.uint32)]
    return {field: np.concatenate(column or none) for field, column in columns.items()}


def parsed_examples(
    records: Sequence[bytes], place: Callable[[int], tuple[Path, int]], sides: Sequence[str]
) -> dict[str, Lists]:
    """Parses serialised examples; returns the ids of each side. `place` gives shard and number of a row."""
    import tensorflow as tf

    feature = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
    try:
        with tf.device("CPU:0"):
            parsed = tf.io.parse_example(records, dict.fromkeys(sides, feature))
    # TensorFlow's message quotes the record, which fails to decode in Python if it is not UTF-8.
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):
        for row, record in enumerate(records if len(records) > 1 else []):
            parsed_examples([record], lambda _, row=row: place(row), sides)  # type: ignore[misc]
        raise _not_an_example(*place(0), sides) from None
    examples = {}
    for side, ids in parsed.items():
        lists = examples[side] = Lists(ids.flat_values.numpy(), np.diff(ids.row_splits.numpy()))
        if not lists.lengths.all():
            raise _not_an_example(*place(int(np.argmin(lists.lengths))), sides)
    return examples


def _not_an_example(path: Path, number: int, sides: Sequence[str]) -> UserError:
    return UserError(
        f"The shard {path} does not hold tf.Examples with the int64 lists {' and '.join(sides)} (see "
        f"example {number}): check that it comes from t2t-keras-datagen or t2t-datagen."
    )


class StoredExamples:
    """Random access to the serialised examples of a split.

    The first time an example is read, its checksum is verified, its lengths are compared with the
    index and its ids with `vocab_sizes`, their exclusive limits by side. Shards stay open. Threads
    can read concurrently: file reads release the GIL. It keeps about 11 bytes per example.
    """

    def __init__(self, index: SplitIndex, vocab_sizes: Mapping[str, int]):
        self._files: dict[int, int] = {}
        self.paths = index.paths
        self._index_path = index.path
        self._vocab_sizes = vocab_sizes
        self._first = np.concatenate([[0], np.cumsum(index.counts)])
        self._places = smallest(index.offsets - HEADER_BYTES)
        self._sizes = smallest(index.sizes + _FRAME_BYTES)
        self._lengths = {side: smallest(lengths) for side, lengths in index.lengths.items()}
        self._checked = np.zeros(len(index.sizes), bool)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._checked)

    def read(self, rows: np.ndarray) -> list[bytes]:
        shards = (np.searchsorted(self._first, rows, side="right") - 1).tolist()
        places, sizes = self._places[rows].tolist(), self._sizes[rows].tolist()
        what = f"The shards at {self._index_path.parent} cannot be read"
        remedy = "check that they exist and that this many files may be open (ulimit -n)"
        with explained(what, OSError, remedy=remedy):
            files = {shard: self._file(shard) for shard in set(shards)}
            framed = [
                os.pread(files[shard], size, place)
                for shard, place, size in zip(shards, places, sizes, strict=True)
            ]
        new = ~self._checked[rows]
        if new.any():
            self._check(rows[new], [framed[i] for i in np.flatnonzero(new)])
        return [record[HEADER_BYTES:-FOOTER_BYTES] for record in framed]

    def place(self, row: int) -> tuple[Path, int]:
        """Returns the shard of an example and the example's number in it, from 1."""
        shard = int(np.searchsorted(self._first, row, side="right")) - 1
        return self.paths[shard], int(row - self._first[shard]) + 1

    def __del__(self, close=os.close):  # when Python ends, `os` may be gone
        for file in self._files.values():
            close(file)

    def _file(self, shard: int) -> int:
        with self._lock:
            if shard not in self._files:
                self._files[shard] = os.open(self.paths[shard], os.O_RDONLY)
            return self._files[shard]

    def _check(self, rows: np.ndarray, framed: Sequence[bytes]) -> None:
        """Checks records that are read for the first time: [n] rows, framed as in the shards."""
        parts = [record[HEADER_BYTES:-FOOTER_BYTES] for record in framed]
        lengths = np.array([len(part) for part in parts], np.int64)
        expected = frame(Lists(np.frombuffer(b"".join(parts), np.uint8), lengths))
        if expected.values.tobytes() != b"".join(framed):
            whole = [part.tobytes() for part in np.split(expected.values, expected.starts[1:-1])]
            damaged = next(n for n, record in enumerate(framed) if record != whole[n])
            path, place = self.place(rows[damaged])
            raise UserError(f"Example {place} of the shard {path} is damaged: {_AGAIN}.")
        parsed = parsed_examples(parts, lambda number: self.place(rows[number]), [*self._lengths])
        for side, ids in parsed.items():
            if (ids.lengths != self._lengths[side][rows]).any():
                raise UserError(
                    f"{self._index_path} is not the index of {self.paths[0].parent}: delete it, and run "
                    "again to rebuild it."
                )
            wrong = np.flatnonzero((ids.values < 0) | (ids.values >= self._vocab_sizes[side]))
            if len(wrong):
                row = int(np.searchsorted(ids.starts, wrong[0], side="right")) - 1
                path, place = self.place(rows[row])
                raise UserError(
                    f"Example {place} of the shard {path} has the id {ids.values[wrong[0]]} in its "
                    f"{side}, whose ids are 0 to {self._vocab_sizes[side] - 1}: copy the vocabulary "
                    "that the shards were made with, or delete them and run t2t-keras-datagen again."
                )
        self._checked[rows] = True
