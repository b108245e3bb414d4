"""From samples to shards: cleaning, encoding by many processes in resumable pieces, a report."""

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
import signal
import threading
import unicodedata
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from t2t_keras import registry
from t2t_keras.data import records, shards as shard_files
from t2t_keras.data.problem import DatasetSplit, shards_by_split
from t2t_keras.data.reading import Buckets
from t2t_keras.data.records import Lists, read_segment, write_piece
from t2t_keras.data.shards import PathLike, SplitIndex, Table
from t2t_keras.errors import UserError, explained
from t2t_keras.files import atomic_write, content_digest, open_locked, publish, read_json
from t2t_keras.ids import EOS_ID
from t2t_keras.progress import CountProgress, StopRequests
from t2t_keras.text.encoders import TensorEncoder, vocabulary_digest

if TYPE_CHECKING:
    from t2t_keras.data.text_problem import Text2TextProblem

Sample = Mapping[str, Any]

# Cleaning: drops pairs that are unlikely translations, by rules that hold for every language


@dataclasses.dataclass(frozen=True)
class CleaningRules:
    """Which pairs to drop; by default none. A limit that is out of range is a `UserError`."""

    max_characters: int = 0
    """Drop pairs in which either side is longer than this; 0: no limit."""
    max_ratio: float = 0.0
    """Drop pairs with a side of more than this many times the other's characters; 0: no limit."""
    min_letters: float = 0.0
    """Drop pairs in which less than this share (0 to 1) of a side's non-space characters are letters."""
    copies: bool = False
    """Drop pairs with equal sides."""
    duplicates: bool = False
    """Drop pairs that occurred before. Needs eight bytes of memory per pair."""

    def __post_init__(self):
        if self.max_characters < 0:
            raise UserError(f"max_characters is {self.max_characters}; it must be 0 or more.")
        if self.max_ratio and not self.max_ratio >= 1:  # nor NaN
            raise UserError(f"max_ratio is {self.max_ratio}; it must be 1 or more, or 0 for none.")
        if not 0 <= self.min_letters <= 1:
            raise UserError(f"min_letters is {self.min_letters}; it must be from 0 to 1.")

    def reason(self, sample: Sample) -> str | None:
        """Returns the reason to drop a pair, duplicates aside; None: it is kept."""
        if "inputs" not in sample or not isinstance(sample.get("targets"), str):
            raise UserError("cleaning compares the two texts of a pair: leave out --clean_...")
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
        # Sorted hashes, each array over twice as long as the next.
        self._seen: list[np.ndarray] = []

    def keep(self, samples: Sequence[Sample]) -> list[Sample]:
        """Returns those of the next samples that are kept, in order."""
        reasons = [self.rules.reason(sample) for sample in samples]
        kept = [sample for sample, why in zip(samples, reasons, strict=True) if why is None]
        self.dropped.update(why for why in reasons if why is not None)
        if self.rules.duplicates and kept:
            new = self._add([f"{sample['inputs']}\0{sample['targets']}" for sample in kept])
            self.dropped.update({"duplicate": len(new) - int(new.sum())})
            kept = [sample for sample, is_new in zip(kept, new, strict=True) if is_new]
        return kept

    def _add(self, texts: Sequence[str]) -> np.ndarray:
        """Adds texts to those seen; returns [N] bool, True for each that was new."""
        digests = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
        hashes = np.frombuffer(b"".join(digests), np.uint64)
        run, first = np.unique(hashes, return_index=True)
        new = np.zeros(len(hashes), bool)
        new[first] = True
        for known in self._seen:
            place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            new &= known[place] != hashes
        run = run[np.isin(run, hashes[new])]
        while self._seen and len(self._seen[-1]) <= 2 * len(run):
            run = np.union1d(run, self._seen.pop())
        if len(run):
            self._seen.append(run)
        return new


def _letters(text: str) -> float:
    """The share of letters among the non-space characters; 0 for an empty text."""
    characters = "".join(text.split())
    letters = (unicodedata.category(c)[0] in "LM" for c in characters)  # M: vowel signs and accents
    return sum(letters) / max(1, len(characters))


def _owned(sample: Sample) -> Sample:
    """Returns a copy: the maker may use its dict, lists and arrays again for the next sample."""
    owned: dict[type, Any] = {list: list, np.ndarray: np.ndarray.tolist}
    return {field: owned.get(type(value), lambda v: v)(value) for field, value in sample.items()}


def samples_by_split(
    problem: Text2TextProblem, split: str, samples: Iterable[Sample]
) -> Iterator[tuple[str, Sample]]:
    """Yields (split, sample) of one split, or of all, to whose shards samples are dealt in turn.

    Cleaning is for training: held-out data stays whole, so that its scores can be compared.
    """
    splits = [split]
    if not problem.is_generate_per_split:
        splits = [name for name, n in shards_by_split(problem).items() for _ in range(n)]
    dealt = zip(itertools.cycle(splits), map(_owned, samples), strict=False)
    if not problem.cleaning:
        yield from dealt
        return
    cleaner, train = Cleaner(problem.cleaning), DatasetSplit.TRAIN
    while block := list(itertools.islice(dealt, PIECE_EXAMPLES)):
        yield from (pair for pair in block if pair[0] != train)
        kept = cleaner.keep([sample for name, sample in block if name == train])
        yield from ((train, sample) for sample in kept)
    problem.dropped.update(cleaner.dropped)


# Reports on the shards of a split: pairs kept and dropped, ids, lengths, padding

_WIDEST_BAR = 40
_MOST_BARS = 16


@dataclasses.dataclass
class Counts:
    """The number of source pairs that were kept, and of those dropped, by reason."""

    kept: int = 0
    dropped: Counter[str] = dataclasses.field(default_factory=Counter)


def read_counts(data_dir: PathLike, name: str, split: str) -> Counts | None:
    """Returns the stored counts; None if the file is absent (as with T2T's shards) or damaged."""
    try:
        path = _counts_path(data_dir, name, split)
        values = read_json(path, {"kept": int, "dropped": {str: int}})
    except UserError:
        return None
    return Counts(values["kept"], Counter(values["dropped"]))


def _counts_path(data_dir: PathLike, name: str, split: str) -> Path:
    return Path(data_dir) / f"counts.{name}-{split}.json"


def with_reasons(dropped: Counter[str]) -> str:
    """Returns how many samples were left out, and why, such as "3 (2 empty, 1 not UTF-8)"."""
    reasons = ", ".join(f"{n:,} {reason}" for reason, n in dropped.most_common())
    return f"{dropped.total():,} ({reasons})"


def describe_split(data_dir: PathLike, name: str, split: str, index: SplitIndex) -> list[str]:
    """Returns lines that describe a split: its files, the pairs kept and left out, its ids."""
    counts = read_counts(data_dir, name, split)
    first, last = index.paths[0].name, index.paths[-1].name
    more = f" to {last[-14:]}" if len(index.paths) > 1 else ""
    lines = [f"  {split}: {len(index.sizes):,} examples in {first}{more}"]
    if counts is not None and counts.dropped.total():
        lines.append(f"    left out: {with_reasons(counts.dropped)}, kept: {counts.kept:,}")
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
    """Returns one line per bucket that has pairs, its shape and share of padding, then totals."""
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
    if batches := float(np.sum(pairs / np.array(buckets.sizes))):
        targets = sides["targets"][kept].sum()
        lines.append(
            f"all: {1 - real.sum() / positions.sum():.1%} padding; a batch has "
            f"{real.sum() / batches:,.0f} ids, {targets / batches:,.0f} of them targets"
        )
    if not kept.all():
        lines.append(f"too long or too short for training: {int(np.sum(~kept)):,} pairs")
    return lines


# Generation, as in T2T: a split's example i goes to its shard i modulo their number, and each is shuffled

PIECE_EXAMPLES = 16384
_WRITTEN_AT_ONCE = 8192

_Coding = tuple[Mapping[str, Any], Mapping[str, str]]  # encoders and prefixes, by side
_Finishing = tuple[int | None, int | None, int]  # seed of the shuffle, length and spacing of rows
_T = TypeVar("_T")


class Generation:
    """Writes a stream of samples to shards, with their index and counts.

    One process reads and cleans the text, some thousand examples at a time, and others encode it. The encoded
    pieces are stored in `unfinished.{name}-{split}` under digests of their text and of all settings that
    affect them, so after an interruption they are not encoded again. When all are complete, each shard
    collects its examples from every piece. The result depends neither on the number of processes nor on
    interruptions. `shards` are final paths by split: of one split, or of all that share the samples.
    """

    def __init__(self, problem: Text2TextProblem, split: str, shards: Mapping[str, Sequence[Path]]):
        self.problem, self.split, self.shards = problem, split, shards
        self.name = problem.dataset_filename()
        self.paths = [path for paths in shards.values() for path in paths]
        self.data_dir = self.paths[0].parent
        self.work = self.data_dir / f"unfinished.{self.name}-{split}"
        self._note = self.work / "shards"  # which pieces and settings the shards are made from
        self._pieces: list[Path] = []
        self._fields: list[str] = []
        self._counts = Counts()

    def is_complete(self) -> bool:
        """Returns True if all shards exist and generation has ended; then removes its leftovers."""
        complete = not self._note.exists() and all(path.exists() for path in self.paths)
        if complete:
            shutil.rmtree(self.work, ignore_errors=True)
        return complete

    def run(self, samples: Iterable[Sample], encoders: Mapping[str, Any]) -> None:
        """Writes the shards of samples: a text for each encoder or, without any, ids by field."""
        existing = sum(path.exists() for path in self.paths)
        if existing and not self._note.exists():  # not from an interrupted generation
            raise UserError(
                f"{self.data_dir} holds {existing} of {len(self.paths)} shards of "
                f"{self.problem.name} ({', '.join(self.shards)}): copy the missing ones, or delete "
                "these to regenerate all of them."
            )
        problem, split = self.problem, self.split
        progress = CountProgress(f"{problem.name} {split}", "pairs")
        what = f"The {split} data of {problem.name} cannot be written to {self.data_dir}"
        remedy = "make room there or name another directory and run again; finished parts are kept"
        with explained(what, OSError, remedy=remedy):
            coding = encoders, problem.text_prefixes if encoders else {}
            tasks = self._missing_pieces(samples, coding)
            for _ in run_ordered(_make_piece, tasks, problem.processes, coding):
                progress.update(self._counts.kept)
            if not self._counts.kept:
                dropped = ", ".join(f"{why} {n:,}" for why, n in problem.dropped.items())
                raise UserError(
                    f"There are no examples to write to {self.data_dir}: the source of the {split} "
                    f"data of {problem.name} is empty, or all is left out ({dropped or 'blank'})."
                )
            ours = {side: e for side, e in encoders.items() if isinstance(e, TensorEncoder)}
            self._write_shards(" ".join(f"{s}={vocabulary_digest(e)}" for s, e in ours.items()))

    def _missing_pieces(self, samples: Iterable[Sample], coding: _Coding) -> Iterator[tuple]:
        """Reads all text; yields the arguments of `_make_piece` for pieces not encoded yet."""
        # Everything that a piece depends on, except its text.
        setting = pickle.dumps((coding, len(self.paths)), protocol=4)
        number = {path: n for n, path in enumerate(self.paths)}
        turns = {name: itertools.cycle(paths) for name, paths in self.shards.items()}
        self.problem.dropped.clear()
        kept = samples_by_split(self.problem, self.split, self._read(samples))
        while block := list(itertools.islice(kept, PIECE_EXAMPLES)):
            shard_of = [number[next(turns[name])] for name, _ in block]
            piece = [sample for _, sample in block]
            if not self._fields:
                kinds = {field: np.asarray(values).dtype.kind for field, values in piece[0].items()}
                ours = {*coding[0], *self.problem.sides}
                self._fields = [f for f in kinds if f in ours or kinds[f] in "iu"]  # others: ids
            if any(not {*self._fields} <= sample.keys() for sample in piece):
                raise UserError(
                    f"Some {self.split} samples of {self.problem.name} lack one of the fields "
                    f"{', '.join(self._fields)}: give each to all samples."
                )
            texts = {field: [sample[field] for sample in piece] for field in self._fields}
            first = self._counts.kept
            self._counts.kept += len(piece)
            digest = content_digest(setting + repr((first, shard_of, texts)).encode())
            path = self.work / f"{first:012d}-{digest}.npy"
            self._pieces.append(path)
            if not path.exists():
                self.work.mkdir(exist_ok=True)
                yield path, first, texts, shard_of, len(self.paths)
        self._counts.dropped = Counter(self.problem.dropped)

    def _read(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """Yields samples; an `OSError` in making them is reported as theirs, not as of writing."""
        try:
            yield from samples
        except OSError as error:
            package = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
            place = registry.place_in(error, lambda file: not file.startswith(package))
            raise UserError(
                f"making the {self.split} samples of {self.problem.name} failed{place}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def _write_shards(self, made_with: str) -> None:
        """Makes the shards that are not finished, counts and index; then removes the pieces."""
        problem = self.problem
        seed = None if problem.already_shuffled else problem.random_seed
        finishing = (seed, problem.packed_length, problem.packed_spacing)
        finished = self._finished_shards(finishing)
        with atomic_write(_counts_path(self.data_dir, self.name, self.split)) as partial:
            partial.write_text(json.dumps(vars(self._counts), indent=1) + "\n")
        tasks = {
            path: (self._pieces, number, path, finishing)
            for number, path in enumerate(self.paths)
            if path not in finished
        }
        made = run_ordered(_make_shard, tasks.values(), problem.processes)
        tables = dict(zip(tasks, made, strict=True))
        for split, paths in self.shards.items():
            of_split = [tables[path] for path in paths if path in tables]
            if len(of_split) < len(paths):  # some were kept: it reads them
                shard_files.read_index(self.data_dir, self.name, split, problem.sides, made_with)
            elif {*problem.sides} <= of_split[0].keys():
                shard_files.write_index(self.data_dir, self.name, split, of_split, made_with)
        shutil.rmtree(self.work)

    def _finished_shards(self, finishing: _Finishing) -> set[Path]:
        """Returns the shards that an earlier call made from the same pieces; deletes others."""
        digest = content_digest(repr(([p.name for p in self._pieces], finishing)).encode())
        if self._note.exists() and self._note.read_text() == digest:
            return {path for path in self.paths if path.exists()}
        for path in self.paths:
            path.unlink(missing_ok=True)
        for split in self.shards:
            shard_files.index_path(self.data_dir, self.name, split).unlink(missing_ok=True)
        with atomic_write(self._note) as partial:
            partial.write_text(digest)
        return set()


@contextlib.contextmanager
def generating_alone(data_dir: Path, name: str) -> Iterator[None]:
    """Locks the data of a problem, after waiting for any other process that generates it."""
    path = data_dir / f"unfinished.{name}.lock"
    remedy = "make room there, change its mode, or name another directory"
    with explained(f"{path} cannot be written", OSError, remedy=remedy):
        opened = open_locked(path, f"{name} in {data_dir}")
    with opened:
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


# Worker processes. Each gets the encoders once.

_coding: _Coding = ({}, {})


def _make_piece(path: Path, first: int, samples: Mapping[str, Sequence], *dealt: Any) -> None:
    """Encodes samples (a list per field) and stores them; `first` is the number of the first."""
    encoders, prefixes = _coding
    coded = {
        side: [[*encoder.encode(prefixes.get(side, "") + text), EOS_ID] for text in samples[side]]
        for side, encoder in encoders.items()
    }
    write_piece(path, records.columns({**samples, **coded}, first + 1), *dealt)


def _make_shard(pieces: Sequence[Path], number: int, path: Path, finishing: _Finishing) -> Table:
    """Writes shard `number`, shuffled unless the seed is None; returns its part of the index."""
    seed, packed_length, packed_spacing = finishing
    fields = read_segment(pieces, number)
    order = list(range(len(next(iter(fields.values())).lengths)))
    if seed is not None:
        random.Random(f"{seed} {path.name}").shuffle(order)
    ends = range(_WRITTEN_AT_ONCE, len(order), _WRITTEN_AT_ONCE)
    parts = np.split(np.array(order, np.int64), ends)
    blocks = ({name: lists.take(part) for name, lists in fields.items()} for part in parts)
    rows = _packed(blocks, packed_length, packed_spacing) if packed_length else blocks
    measured = ["sizes", *(side for side in shard_files.SIDES if side in fields)]
    table = {column: [np.zeros(0, np.uint32)] for column in measured}
    unpublished = pieces[0].with_name(path.name)
    with unpublished.open("wb") as file:
        for block in rows:
            serialized = records.serialize(block)
            file.write(records.frame(serialized).values.data)
            for column, lengths in table.items():
                lists = serialized if column == "sizes" else block[column]
                lengths.append(lists.lengths.astype(np.uint32))
    publish({unpublished: path})
    return {column: np.concatenate(lengths) for column, lengths in table.items()}


def _packed(
    blocks: Iterable[Mapping[str, Lists]], length: int, spacing: int
) -> Iterator[dict[str, Lists]]:
    """Yields blocks of the rows that examples are packed into."""
    examples = (
        {f: ids.tolist() for f, ids in zip(block, row, strict=True) if f in shard_files.SIDES}
        for block in blocks
        for row in zip(*(np.split(a.values, a.starts[1:-1]) for a in block.values()), strict=True)
    )
    packed = records.pack(examples, length, spacing)
    while rows := list(itertools.islice(packed, _WRITTEN_AT_ONCE)):
        yield records.columns({field: [row[field] for row in rows] for field in rows[0]})


def pack_serialised(
    examples: Sequence[bytes], sides: Sequence[str], length: int, spacing: int
) -> list[bytes]:
    """Packs serialised examples into rows."""
    block = shard_files.parsed_examples(examples, lambda number: (Path("example"), number), sides)
    packed = map(records.serialize, _packed([block], length, spacing))
    split = (np.split(rows.values, rows.starts[1:-1]) for rows in packed)
    return [row.tobytes() for rows in split for row in rows]


def run_ordered(
    function: Callable[..., _T],
    arguments: Iterable[tuple],
    processes: int,
    coding: _Coding = ({}, {}),
) -> Iterator[_T]:
    """Yields `function(*item)` for each item of `arguments`, read as processes become free.

    A single item, or any with `processes` = 1, is processed in this process. `function` is one of
    this module; each process gets `coding` once, as `_coding`.
    """
    global _coding
    items = iter(arguments)
    first = list(itertools.islice(items, 2))
    items = itertools.chain(first, items)
    if processes == 1 or len(first) < 2:
        _coding = coding
        yield from itertools.starmap(function, items)
        return
    # Pickled here, because a process must import the classes of user directories before it unpickles.
    beginning = (pickle.dumps(coding), registry.user_directories())
    # Spawned, because forking a process that has TensorFlow's threads could hang.
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _begin, beginning)
    waiting: deque[Future] = deque()
    try:
        for item in items:
            with StopRequests() as stop:  # processes of an interrupted `submit` might never end
                # New processes inherit the mask: only this one speaks of Ctrl-C, and ends them.
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
                try:
                    waiting.append(pool.submit(function, *item))
                finally:
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            if stop.name:
                signal.raise_signal(signal.Signals[stop.name])
            if len(waiting) > 2 * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise UserError(
            f"One of {processes} processes was killed, perhaps for lack of memory: run again with "
            "fewer, see --num_concurrent_processes; finished parts are kept."
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
