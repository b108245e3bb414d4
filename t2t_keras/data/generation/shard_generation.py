"""Generation of shards from text: parallel, in little memory, resumable.

One process reads and cleans the text, some thousand examples at a time, and others encode it. Encoded
pieces are stored in `unfinished.{name}-{split}`; their names are digests of their text and of all settings
that affect them, so existing pieces are not encoded again after an interruption. When all pieces are
complete, each shard collects its examples from every piece, shuffles them, and gets its final name.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import multiprocessing
import multiprocessing.connection
import os
import pickle
import random
import shutil
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from t2t_keras import registry
from t2t_keras.data.generation.cleaning import Cleaner
from t2t_keras.data.generation.records import (
    Lists,
    columns,
    frame,
    pack,
    read_segment,
    serialize,
    write_piece,
)
from t2t_keras.data.generation.report import Counts, write_counts
from t2t_keras.data.problem import DatasetSplit, missing_field
from t2t_keras.data.shards import SIDES, Table, read_index, remove_index, write_index
from t2t_keras.errors import UserError
from t2t_keras.files import atomic_write, open_locked, publish
from t2t_keras.ids import EOS_ID
from t2t_keras.progress import CountProgress

if TYPE_CHECKING:
    from t2t_keras.data.text_problem import Text2TextProblem

PIECE_EXAMPLES = 16384
_WRITTEN_AT_ONCE = 8192

Sample = Mapping[str, Any]
_Coding = tuple[Mapping[str, Any] | None, Mapping[str, str]]  # encoders and prefixes, by side
_T = TypeVar("_T")


class Finishing(NamedTuple):
    """The processing of a shard's examples before they are written."""

    seed: int | None  # seed of the shuffle; None: examples are not shuffled
    packed_length: int | None  # T2T's `packed_length`; None: examples are not packed
    packed_spacing: int


class Generation:
    """Writes a stream of samples to shards, with their index and counts.

    Example i goes to shard i modulo the number of shards, and each shard is shuffled, as in T2T. The result
    depends only on samples, encoders and the problem's settings, not on the number of processes or on
    interruptions.

    Args:
        problem: the problem, for its settings.
        split: the split of the samples.
        shards: the final paths of the shards by split: one split, or all that share the samples.
        encoders: the encoders of "inputs" and "targets"; None: samples are already ids by field.
    """

    def __init__(
        self,
        problem: Text2TextProblem,
        split: str,
        shards: Mapping[str, Sequence[Path]],
        encoders: Mapping[str, Any] | None,
    ):
        self.problem = problem
        self.split = split
        self.shards = shards
        self.paths = [path for paths in shards.values() for path in paths]
        self.data_dir = self.paths[0].parent
        self.work = unfinished_directory(self.data_dir, problem.dataset_filename(), split)
        prefixes = {"inputs": problem.inputs_prefix, "targets": problem.targets_prefix}
        self._coding: _Coding = (encoders, prefixes)
        self._note = self.work / "shards"
        self._pieces: list[Path] = []
        self._counts = Counts()

    def run(self, samples: Iterable[Sample]) -> None:
        self._require_own_shards()
        try:
            self._write_pieces(samples)
            self._write_shards()
        except OSError as error:
            raise UserError(
                f"The {self.split} data of {self.problem.name} cannot be written to "
                f"{self.data_dir} ({error.strerror or error}): make room there or name another "
                "directory, then run again; finished parts are kept."
            ) from error

    def _require_own_shards(self) -> None:
        """Checks that existing shards are from an interrupted generation."""
        existing = sum(path.exists() for path in self.paths)
        if existing and not self._note.exists():
            raise UserError(
                f"{self.data_dir} holds {existing} of {len(self.paths)} shards of {self.problem.name} "
                f"({', '.join(self.shards)}): copy the missing ones, or delete these to make all again."
            )

    def _write_pieces(self, samples: Iterable[Sample]) -> None:
        progress = CountProgress(f"{self.problem.name} {self.split}", "pairs")
        tasks = self._missing_pieces(samples)
        for _ in run_ordered(_make_piece, tasks, self.problem.processes, self._coding):
            progress.update(self._counts.kept)
        if not self._counts.kept:
            raise UserError(
                f"There is no example to write to {self.data_dir}: the source of the {self.split} "
                f"data of {self.problem.name} is empty, or cleaning leaves nothing of it."
            )

    def _missing_pieces(self, samples: Iterable[Sample]) -> Iterator[tuple]:
        """Reads all text; yields the arguments of `_make_piece` for pieces not encoded yet."""
        # Everything that a piece depends on, except its text.
        setting = pickle.dumps((self._coding, len(self.paths)), protocol=4)
        kept = self._kept(samples)
        while piece := list(itertools.islice(kept, PIECE_EXAMPLES)):
            first, texts = self._counts.kept, self._by_field(piece)
            self._counts.kept += len(piece)
            content = hashlib.blake2b(setting, digest_size=16)
            content.update(repr((first, texts)).encode())
            path = self.work / f"{first:012d}-{content.hexdigest()}"
            self._pieces.append(path)
            if not path.exists():
                self.work.mkdir(exist_ok=True)
                yield path, first, texts, len(self.paths)

    def _kept(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """Yields samples, cleaned if for training; in the end it notes what was dropped."""
        self.problem.dropped.clear()
        # Held-out data stays whole, so that its scores can be compared.
        rules = self.problem.cleaning if self.split == DatasetSplit.TRAIN else None
        cleaner = Cleaner(rules) if rules else None
        samples = iter(samples)
        while block := list(itertools.islice(samples, PIECE_EXAMPLES)):
            yield from cleaner.keep(block) if cleaner else block
        self._counts.dropped = self.problem.dropped + (cleaner.dropped if cleaner else Counter())

    def _by_field(self, piece: list[Sample]) -> dict[str, list]:
        encoders, _ = self._coding
        fields = list(piece[0] if encoders is None else encoders)
        try:
            return {field: [sample[field] for sample in piece] for field in fields}
        except KeyError as error:
            raise missing_field(self.problem, self.split, error.args[0], fields) from error

    def _write_shards(self) -> None:
        problem = self.problem
        seed = None if problem.already_shuffled else problem.random_seed
        finishing = Finishing(seed, problem.packed_length, problem.packed_spacing)
        finished = self._finished_shards(finishing)
        name = problem.dataset_filename()
        # Before the last shard: once all shards exist, a later run generates nothing.
        write_counts(self.data_dir, name, self.split, self._counts)
        tasks = [
            (self._pieces, number, path, self.work, finishing)
            for number, path in enumerate(self.paths)
            if path not in finished
        ]
        tables = list(run_ordered(_make_shard, tasks, problem.processes))
        self._write_indices(name, None if finished else iter(tables))
        shutil.rmtree(self.work)

    def _write_indices(self, name: str, tables: Iterator[Table] | None) -> None:
        """Stores the index; `tables` is None if shards were kept and must be read for it."""
        for split, paths in self.shards.items():
            if tables is None:
                read_index(self.data_dir, name, split, self.problem.sides)
                continue
            of_split = list(itertools.islice(tables, len(paths)))
            if {*self.problem.sides} <= of_split[0].keys():
                write_index(self.data_dir, name, split, of_split)

    def _finished_shards(self, finishing: Finishing) -> set[Path]:
        """Returns the shards that an earlier call made from the same pieces; deletes others."""
        made_of = repr(([path.name for path in self._pieces], finishing))
        digest = hashlib.blake2b(made_of.encode(), digest_size=16).hexdigest()
        if self._note.exists() and self._note.read_text() == digest:
            return {path for path in self.paths if path.exists()}
        for path in self.paths:
            path.unlink(missing_ok=True)
        for split in self.shards:
            remove_index(self.data_dir, self.problem.dataset_filename(), split)
        with atomic_write(self._note) as partial:
            partial.write_text(digest)
        return set()


def unfinished_directory(data_dir: Path, name: str, split: str) -> Path:
    """Returns the directory that keeps the pieces of a split until its shards are complete."""
    return data_dir / f"unfinished.{name}-{split}"


@contextlib.contextmanager
def generating_alone(data_dir: Path, name: str) -> Iterator[None]:
    """Locks the data of a problem, after waiting for any other process that generates it."""
    path = data_dir / f"unfinished.{name}.lock"
    try:
        opened = open_locked(path, f"{name} in {data_dir}")
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror}): make room there, change its mode, or "
            "name another directory."
        ) from error
    with opened:
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


# Worker processes. Each gets the encoders once.

_coding: _Coding = (None, {})


def _make_piece(path: Path, first: int, samples: Mapping[str, Sequence], shards: int) -> None:
    """Encodes samples (a list per field) and stores them; `first` is the number of the first sample."""
    encoders, prefixes = _coding
    if encoders is not None:
        samples = {
            side: [[*encoder.encode(prefixes[side] + text), EOS_ID] for text in samples[side]]
            for side, encoder in encoders.items()
        }
    rows = len(next(iter(samples.values())))
    write_piece(path, columns(samples, first + 1), (first + np.arange(rows)) % shards, shards)


def _make_shard(
    pieces: Sequence[Path], number: int, path: Path, work: Path, finishing: Finishing
) -> Table:
    """Writes shard `number` in the directory `work`; moves it to `path` when complete."""
    fields = read_segment(pieces, number)
    order = list(range(len(next(iter(fields.values())).lengths)))
    if finishing.seed is not None:
        random.Random(f"{finishing.seed} {path.name}").shuffle(order)
    sides = [side for side in SIDES if side in fields]
    lengths = {name: [np.zeros(0, np.uint32)] for name in ("sizes", *sides)}
    with (work / path.name).open("wb") as file:
        for block in _blocks(fields, np.array(order, np.int64), finishing):
            records = serialize(block)
            file.write(frame(records).values.data)
            lengths["sizes"].append(records.lengths.astype(np.uint32))
            for side in sides:
                lengths[side].append(block[side].lengths.astype(np.uint32))
    publish({work / path.name: path})
    return {name: np.concatenate(parts) for name, parts in lengths.items()}


def _blocks(
    fields: Mapping[str, Lists], order: np.ndarray, finishing: Finishing
) -> Iterator[dict[str, Lists]]:
    """Yields blocks of examples in the given order, packed if configured."""
    taken = (
        {
            field: lists.take(order[start : start + _WRITTEN_AT_ONCE])
            for field, lists in fields.items()
        }
        for start in range(0, len(order), _WRITTEN_AT_ONCE)
    )
    if not finishing.packed_length:
        yield from taken
        return
    examples = (
        {field: ids.tolist() for field, ids in zip(fields, row, strict=True)}
        for block in taken
        for row in zip(*(np.split(a.values, a.starts[1:-1]) for a in block.values()), strict=True)
    )
    packed = pack(examples, finishing.packed_length, finishing.packed_spacing)
    while rows := list(itertools.islice(packed, _WRITTEN_AT_ONCE)):
        yield columns({field: [row[field] for row in rows] for field in rows[0]})


def run_ordered(
    function: Callable[..., _T],
    arguments: Iterable[tuple],
    processes: int,
    coding: _Coding = (None, {}),
) -> Iterator[_T]:
    """Yields `function(*item)` for each item of `arguments`, in order.

    Items are consumed as processes become free, so memory does not grow with their number. A single
    item, or any with `processes` = 1, is processed in this process.

    Args:
        function: a function of this module.
        arguments: the arguments of each call.
        processes: the number of processes.
        coding: each process gets it once, as `_coding`.
    """
    global _coding
    items = iter(arguments)
    first = list(itertools.islice(items, 2))
    items = itertools.chain(first, items)
    if processes == 1 or len(first) < 2:
        _coding = coding
        for item in items:
            yield function(*item)
        return
    # Spawned, because forking a process that has TensorFlow's threads could hang.
    context = multiprocessing.get_context("spawn")
    # Pickled here, because a process must import the classes of user directories before it unpickles.
    beginning = (pickle.dumps(coding), registry.user_directories())
    pool = ProcessPoolExecutor(processes, context, _begin, beginning)
    waiting: deque[Future] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, *item))
            if len(waiting) > 2 * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise UserError(
            f"One of {processes} processes was killed, perhaps for lack of memory: run again with fewer, "
            "see --num_concurrent_processes; finished parts are kept."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(pickled: bytes, user_directories: list[str]) -> None:
    global _coding
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        _coding = pickle.loads(pickled)
    except ModuleNotFoundError:  # only then, because user code may take long to import
        for directory in user_directories:
            registry.import_user_directory(directory)
        _coding = pickle.loads(pickled)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)
