"""Corpus cleaning: drops sentence pairs that are unlikely translations, by language-independent rules."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
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
from t2t_keras.data.problem import DatasetSplit, missing_field
from t2t_keras.data.reading import Buckets
from t2t_keras.data.records import (
    Lists,
    columns,
    frame,
    pack,
    read_segment,
    serialize,
    write_piece,
)
from t2t_keras.data.shards import SIDES, SplitIndex, Table, read_index, remove_index, write_index
from t2t_keras.errors import UserError
from t2t_keras.files import atomic_write, open_locked, publish, read_json
from t2t_keras.ids import EOS_ID
from t2t_keras.progress import CountProgress

if TYPE_CHECKING:
    from t2t_keras.data.text_problem import Text2TextProblem


Sample = Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class CleaningRules:
    """Which pairs to drop; by default none.

    Raises:
        UserError: a limit is out of range.
    """

    max_characters: int = 0
    """Drop pairs in which either side is longer than this; 0: no limit."""
    max_ratio: float = 0.0
    """Drop pairs in which one side has more than this many times the characters of the other; 0: no limit."""
    min_letters: float = 0.0
    """Drop pairs in which less than this share (0 to 1) of a side's non-space characters are letters."""
    copies: bool = False
    """Drop pairs with equal sides."""
    duplicates: bool = False
    """Drop pairs that occurred before. Needs eight bytes of memory per pair."""

    def __post_init__(self):
        if self.max_characters < 0:
            raise UserError(f"max_characters is {self.max_characters}; it must be 0 or more.")
        if self.max_ratio and self.max_ratio < 1:
            raise UserError(f"max_ratio is {self.max_ratio}; it must be 1 or more, or 0 for none.")
        if not 0 <= self.min_letters <= 1:
            raise UserError(f"min_letters is {self.min_letters}; it must be from 0 to 1.")

    def given(self) -> dict[str, Any]:
        """Returns the active rules by name."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value}

    def reason(self, sample: Sample) -> str | None:
        """Returns the reason to drop a pair, duplicates aside; None: it is kept."""
        if "inputs" not in sample or not isinstance(sample.get("targets"), str):
            raise UserError(
                "cleaning compares the two texts of a pair: leave out --clean_... here."
            )
        inputs, targets = sample["inputs"], sample["targets"]
        shorter, longer = sorted((len(inputs), len(targets)))
        if 0 < self.max_characters < longer:
            return "too long"
        if self.max_ratio and longer > self.max_ratio * shorter:
            return "unequal lengths"
        if self.min_letters and min(map(_letters, (inputs, targets))) < self.min_letters:
            return "few letters"
        if self.copies and inputs == targets:
            return "copy"
        return None


class Cleaner:
    """Applies rules to a stream of pairs and counts the dropped ones."""

    def __init__(self, rules: CleaningRules):
        self.rules = rules
        self.dropped: Counter[str] = Counter()
        self._seen = _Seen() if rules.duplicates else None

    def keep(self, samples: Sequence[Sample]) -> list[Sample]:
        """Returns those of the next samples that are kept, in order."""
        reasons = [self.rules.reason(sample) for sample in samples]
        kept = [sample for sample, why in zip(samples, reasons, strict=True) if why is None]
        self.dropped.update(why for why in reasons if why is not None)
        if self._seen is not None and kept:
            new = self._seen.add([f"{sample['inputs']}\0{sample['targets']}" for sample in kept])
            self.dropped.update({"duplicate": len(new) - int(new.sum())})
            kept = [sample for sample, is_new in zip(kept, new, strict=True) if is_new]
        return kept


class _Seen:
    """A set of texts, as sorted arrays of 64-bit hashes, each more than twice as long as the next."""

    def __init__(self):
        self._runs: list[np.ndarray] = []

    def add(self, texts: Sequence[str]) -> np.ndarray:
        """Adds texts; returns [N] bool, True for each that was new."""
        digests = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
        hashes = np.frombuffer(b"".join(digests), np.uint64)
        run, first = np.unique(hashes, return_index=True)
        new = np.zeros(len(hashes), bool)
        new[first] = True
        for known in self._runs:
            place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            new &= known[place] != hashes
        run = run[np.isin(run, hashes[new])]
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.union1d(run, self._runs.pop())
        if len(run):
            self._runs.append(run)
        return new


def _letters(text: str) -> float:
    """Returns the share of letters among the non-space characters; 0 for an empty text."""
    characters = "".join(text.split())
    return sum(map(str.isalpha, characters)) / max(1, len(characters))


# Reports on the shards of a split: pairs kept and dropped, ids, lengths, padding


_WIDEST_BAR = 40
_MOST_BARS = 16


@dataclasses.dataclass
class Counts:
    """The number of source pairs that were kept, and of those dropped, by reason."""

    kept: int = 0
    dropped: Counter[str] = dataclasses.field(default_factory=Counter)


def write_counts(data_dir: str | os.PathLike, name: str, split: str, counts: Counts) -> None:
    """Stores the counts of a split beside its shards."""
    values = {"kept": counts.kept, "dropped": dict(counts.dropped)}
    with atomic_write(_path(data_dir, name, split)) as path:
        path.write_text(json.dumps(values, indent=1) + "\n")


def read_counts(data_dir: str | os.PathLike, name: str, split: str) -> Counts | None:
    """Returns the stored counts; None if the file is absent (as with T2T's shards) or damaged."""
    try:
        values = read_json(_path(data_dir, name, split), {"kept": int, "dropped": {str: int}})
    except UserError:
        return None
    return Counts(values["kept"], Counter(values["dropped"]))


def describe_split(split: str, index: SplitIndex, counts: Counts | None) -> list[str]:
    """Returns lines that describe a split: its files, the pairs kept and left out, its ids."""
    first, last = index.paths[0].name, index.paths[-1].name
    more = f" to {last[-14:]}" if len(index.paths) > 1 else ""
    lines = [f"  {split}: {len(index.sizes):,} examples in {first}{more}"]
    if counts is not None and counts.dropped.total():
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in counts.dropped.most_common())
        lines.append(f"    left out: {counts.dropped.total():,} ({reasons}), kept: {counts.kept:,}")
    sides = [
        f"{int(lengths.sum(dtype=np.int64)):,} {side} ({lengths.mean():.1f} per pair)"
        for side, lengths in index.lengths.items()
        if len(lengths)
    ]
    return lines + ([f"    ids: {', '.join(sides)}"] if sides else [])


def length_histogram(lengths: Mapping[str, np.ndarray]) -> list[str]:
    """Returns a histogram of lengths, one line per range: ids of the longer side, pairs, a bar."""
    longer = np.maximum.reduce([*lengths.values()]).astype(np.int64)
    if not len(longer):
        return []
    width = max(1, -(-int(np.quantile(longer, 0.99)) // (_MOST_BARS - 1)))
    pairs = np.bincount(np.minimum(longer // width, _MOST_BARS - 1), minlength=_MOST_BARS)
    lines = ["length of the longer side, pairs:"]
    for number in range(np.flatnonzero(pairs)[0], np.flatnonzero(pairs)[-1] + 1):
        low, count = number * width, int(pairs[number])
        high = int(longer.max()) if number == _MOST_BARS - 1 else low + width - 1
        bar = "#" * round(_WIDEST_BAR * count / int(pairs.max()))
        lines.append(f"{low:5d} -{high:5d} {count:11,d} {bar}".rstrip())
    return lines


def padding_table(lengths: Mapping[str, np.ndarray], buckets: Buckets) -> list[str]:
    """Returns one line per bucket that has pairs: its shape, pairs and share of padding.

    The last lines are totals: the share of padding over both sides, the mean number of ids and of target
    ids in a full batch, and the number of pairs that are in no bucket.
    """
    sides = {side: column.astype(np.int64) for side, column in lengths.items()}
    bucket = buckets.of(np.maximum.reduce([*sides.values()]))
    kept = bucket >= 0
    number = len(buckets.edges)
    pairs = np.bincount(bucket[kept], minlength=number)
    real = np.bincount(bucket[kept], np.sum([*sides.values()], axis=0)[kept], minlength=number)
    edges = np.array(buckets.edges, np.int64)
    widths = [edges if column.max(initial=0) > 1 else edges**0 for column in sides.values()]
    positions = pairs * sum(widths)  # a class label is a side of width 1
    lines = ["rows x ids, pairs, padding:"]
    lines += [
        f"{buckets.sizes[k]:5d} x {buckets.edges[k]:<5d} {pairs[k]:11,d} "
        f"{1 - real[k] / positions[k]:6.1%}"
        for k in np.flatnonzero(pairs)
    ]
    batches = float(np.sum(pairs / np.array(buckets.sizes)))
    if batches:
        lines.append(
            f"all: {1 - real.sum() / positions.sum():.1%} padding; a batch has "
            f"{real.sum() / batches:,.0f} ids, {sides['targets'][kept].sum() / batches:,.0f} of them targets"
        )
    if not kept.all():
        lines.append(f"too long or too short for training: {int(np.sum(~kept)):,} pairs")
    return lines


def _path(data_dir: str | os.PathLike, name: str, split: str) -> Path:
    return Path(data_dir) / f"counts.{name}-{split}.json"


# Generation of shards from text: parallel, in little memory, resumable


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
