"""Batches of token ids from shards: random access by batch number, padded to a few static shapes."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import functools
import itertools
import math
import re
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from t2t_keras.data.problem import DatasetSplit, Problem
from t2t_keras.data.shards import SIDES, PathLike, StoredExamples, read_index
from t2t_keras.errors import UserError, require_kind
from t2t_keras.settings import INT64, SETTINGS, HParams, at_least, declare
from t2t_keras.text.encoders import vocabulary_digest

if TYPE_CHECKING:
    import tensorflow as tf

_NO_LIMIT = 10**9
_SEED, START_STEP = declare(0), declare(0, at_least(0, INT64))

# How fast the edges approach the longest length: 1 is T2T's geometric growth; less puts more edges among
# short sentences. On news and captions, 0.7 to 0.85 pads less than T2T; on byte-level text, 1 pads least.
_GROWTH_EXPONENT = 0.8

# https://oeis.org/A002182: each has more divisors than any smaller number.
_HIGHLY_COMPOSITE = (
    1, 2, 4, 6, 12, 24, 36, 48, 60, 120, 180, 240, 360, 720, 840, 1260, 1680, 2520, 5040, 7560,
    10080, 15120, 20160, 25200, 27720, 45360, 50400, 55440, 83160, 110880, 166320, 221760, 277200,
    332640, 498960, 554400, 665280, 720720, 1081080, 1441440, 2162160, 2882880, 3603600, 4324320,
    6486480, 7207200, 8648640, 10810800, 14414400, 17297280, 21621600, 32432400, 36756720,
    43243200, 61261200, 73513440, 110270160,
)  # fmt: skip


class Buckets(NamedTuple):
    """K buckets: bucket k holds lengths above edges[k-1], up to edges[k]."""

    edges: list[int]  # the longest length of each bucket, [K]
    sizes: list[int]  # rows of a full batch, [K]
    shortest: int  # the shortest length that is kept
    longest: int  # the longest length that is kept

    def of(self, lengths: np.ndarray) -> np.ndarray:
        """Returns the bucket of each length, -1 if it is not kept: [N] int16."""
        found = np.searchsorted(self.edges, lengths).astype(np.int16)
        found[(lengths < self.shortest) | (lengths > self.longest)] = -1
        return found


def bucket_shapes(hp, replicas: int = 1, longest: int | None = None) -> list[tuple[int, int]]:
    """Returns every (batch, length) shape that a training run with `hp` can see, shortest first.

    There are as many shapes as T2T has buckets with these settings, or fewer, if `hp.length_bucket_multiple`
    is above 1. The first length is `hp.min_length_bucket` (one less with `hp.t2t_batches`), the last is
    `hp.max_length`, or `longest` as in `buckets_for`. A batch has as many rows as fit into `hp.batch_size` ids per side (with
    `hp.t2t_batches`: T2T's number of rows), times `replicas`.
    """
    edges, sizes, shortest, _ = buckets_for(hp, True, replicas, longest)
    shapes = zip(sizes, edges, strict=True)
    return [(size, edge) for size, edge in shapes if edge >= max(1, shortest)]


def buckets_for(
    hp,
    drop_long: bool,
    replicas: int = 1,
    longest: int | None = None,
    packed_length: int | None = None,
    t2t_batches: bool = False,
) -> Buckets:
    """Returns the buckets with the shapes that `bucket_shapes` lists.

    Args:
        hp: uses `batch_size`, `max_length`, `min_length`, `min_length_bucket`, `length_bucket_step`,
            `length_bucket_multiple` and `t2t_batches`.
        drop_long: True: drop sentences longer than `max_length`. False: keep them, in extra buckets of 2,
            4, 8... times `max_length`. Those shorter than `min_length` are always dropped.
        replicas: every batch size is multiplied by it.
        longest: the problem's `max_length`, which replaces that of `hp`; 0: `hp.batch_size`; None:
            the problem has no other.
        packed_length: the problem's `packed_length`: without `hp.t2t_batches`, there is a single bucket.
        t2t_batches: T2T's own boundaries and batch sizes, as with `hp.t2t_batches`. As in T2T, these
            follow from `hp.max_length`, and `longest` only decides what is dropped: longer examples than
            `hp.max_length` are in the last bucket, whose edge is 10**9 if none are dropped.

    Raises:
        UserError: a setting is out of range.
    """
    last = (hp.max_length if longest is None else longest) or hp.batch_size
    t2t = hp.t2t_batches or t2t_batches
    top = hp.max_length if t2t else last
    scheme = batching_scheme(
        hp.batch_size, top, hp.min_length_bucket, hp.length_bucket_step, shard_multiplier=replicas
    )
    if packed_length and not hp.t2t_batches:
        edges, last, t2t = [packed_length], packed_length, False
    elif t2t:
        if t2t_batches and not drop_long:
            last = _NO_LIMIT
        edges = [boundary - 1 for boundary in scheme["boundaries"] if boundary <= last] + [last]
    else:  # log(last / edge) falls as a power of the number of edges left
        edges = [min(hp.min_length_bucket, last)]
        for left in range(len(scheme["batch_sizes"]) - 1, 0, -1):
            distance = math.log(last / edges[-1]) * ((left - 1) / left) ** _GROWTH_EXPONENT
            edge = math.floor(last / math.exp(distance) + 0.5)
            edges.append(min(max(edge, edges[-1] + 1), last - left + 1))
        multiple = hp.length_bucket_multiple
        edges = sorted({min(-(-edge // multiple) * multiple, last) for edge in edges})
    if t2t:  # an edge may be 0
        sizes = scheme["batch_sizes"][: len(edges)]
    else:
        sizes = [max(1, hp.batch_size // edge) * replicas for edge in edges]
    while not drop_long and edges[-1] < _NO_LIMIT:
        edges.append(2 * edges[-1])
        sizes.append(max(1, hp.batch_size // edges[-1]) * replicas)
    return Buckets(edges, sizes, hp.min_length, last if drop_long else edges[-1])


def batching_scheme(
    batch_size: int = 4096,
    max_length: int = 256,
    min_length_bucket: int = 8,
    length_bucket_step: float = 1.1,
    drop_long_sequences: bool = False,
    shard_multiplier: int = 1,
    min_length: int = 0,
) -> dict:
    """Returns T2T's batching scheme (`data_reader.batching_scheme`), number for number.

    A batch holds about `batch_size` tokens of the longer side, including padding, so batches of short
    sentences have many rows and batches of long ones few.

    Args:
        batch_size: tokens per batch on one replica: examples times the length of the longer side, padded.
        max_length: the longest sentence in training, including the end of sentence; 0: `batch_size`.
        min_length_bucket: the first boundary.
        length_bucket_step: ratio of consecutive boundaries, above 1.
        drop_long_sequences: True: drop sentences longer than `max_length`.
        shard_multiplier: number of replicas; every batch size is multiplied by it.
        min_length: the shortest sentence to keep.

    Returns:
        `boundaries` [N]: bucket i holds lengths in [boundaries[i-1], boundaries[i]), the last one
        holds the rest; `batch_sizes` [N+1]; `min_length` and `max_length` of the sentences to keep (10**9:
        no limit); `shuffle_queue_size`: minimum size of the shuffle buffer, in batches.

    Raises:
        UserError: a setting is out of range.
    """
    names = ("batch_size", "max_length", "min_length_bucket", "length_bucket_step")
    values = (batch_size, max_length, min_length_bucket, length_bucket_step)
    for name, value in zip(names, values, strict=True):
        SETTINGS[name].checked(name, value, what="")
    if shard_multiplier < 1:
        raise UserError(f"shard_multiplier must be a positive integer, got {shard_multiplier}")
    max_length = max_length or batch_size
    boundaries, length = [], min_length_bucket
    while length < max_length:
        boundaries.append(length)
        length = max(length + 1, int(length * length_bucket_step))
    wanted = [max(1, batch_size // length) for length in [*boundaries, max_length]]
    window = max(number for number in _HIGHLY_COMPOSITE if number <= 3 * max(wanted))
    sizes = [
        next(number for number in range(min(size, window), 0, -1) if window % number == 0)
        for size in wanted
    ]
    return {
        "boundaries": boundaries,
        "batch_sizes": [size * shard_multiplier for size in sizes],
        "min_length": min_length,
        "max_length": max_length if drop_long_sequences else _NO_LIMIT,
        "shuffle_queue_size": 3 * (window // min(sizes)),
    }


# The order of the data: the examples of batch number `step` depend only on the seed and the step

_ORDER_OF_BATCHES = 0  # part of the seed of a permutation; bucket k uses 1 + k


class Batch(NamedTuple):
    """The bucket and the example numbers of a batch, before its examples are read."""

    bucket: int
    rows: np.ndarray  # example numbers: [B] uint32


class Plan:
    """Base class of plans: assigns examples to buckets and permutes them.

    Args:
        lengths: the length of each example: [N] integers.
        buckets: K buckets; examples whose length is not kept are in no batch.
        seed: the seed of all permutations.
        shuffle: True: permute the examples in each epoch; False: keep their order.
        mix: True: permute the batches of each epoch; False: order them by when they are full.
    """

    def __init__(self, lengths: np.ndarray, buckets: Buckets, seed: int, shuffle: bool, mix: bool):
        found = buckets.of(lengths)
        order = np.argsort(found, kind="stable").astype(np.uint32)
        ends = np.cumsum(np.bincount(found + 1, minlength=len(buckets.edges) + 1))
        self.members = [order[start:end] for start, end in itertools.pairwise(ends)]
        """The examples of each bucket, in ascending order: K arrays [n_k] uint32."""
        self.examples = int(ends[-1] - ends[0])
        self.sizes = np.array(buckets.sizes, np.int64)
        self.seed, self.shuffle, self.mix = seed, shuffle, mix
        self._counts = np.diff(ends)

    def _random(self, epoch: int, purpose: int) -> np.random.RandomState:
        low, high = self.seed % 2**32, self.seed // 2**32 % 2**32
        return np.random.RandomState([low, high, epoch, purpose])

    def _permuted(self, bucket: int, epoch: int) -> np.ndarray:
        rows = self.members[bucket]
        if self.shuffle:
            rows = rows.copy()
            self._random(epoch, 1 + bucket).shuffle(rows)
        return rows


class EndlessPlan(Plan):
    """Endless batches for training, all full.

    Each bucket is an endless sequence of examples, one permutation of its members after another, cut
    into batches. The last batch of an epoch is filled up from the next epoch, so that no example is lost
    and none is repeated before all others have occurred. A batch belongs to the epoch that completes it. A
    bucket of n examples has completed (e + 1) n // size batches at the end of epoch e, so the epoch of a
    step can be computed without going through earlier ones.

    Memory: 4 bytes per example, and 4 more for the permutations of the current epoch.
    """

    def __init__(self, lengths: np.ndarray, buckets: Buckets, seed: int, shuffle: bool, mix: bool):
        super().__init__(lengths, buckets, seed, shuffle, mix)
        self.batches_per_epoch = float(np.sum(self._counts / self.sizes))
        """The mean number of batches in an epoch."""
        self._lock = threading.Lock()
        self._epoch = _Epoch(0, 0, *np.zeros((2, 0), np.int64))
        self._permutations: dict[int, tuple[int, np.ndarray]] = {}  # epoch and rows, by bucket

    def batches_before(self, epoch: int) -> int:
        """Returns the number of batches in the epochs before this one."""
        return int(np.sum(epoch * self._counts // self.sizes))

    def epoch_of(self, step: int) -> int:
        """Returns the epoch, from 0, that completes batch number `step`, from 0."""
        # Each bucket is less than one batch behind the average.
        epochs = range(
            max(0, int(step / self.batches_per_epoch) - 1),
            int((step + len(self.members) + 1) / self.batches_per_epoch) + 1,
        )
        return epochs[bisect.bisect_right(epochs, step, key=self.batches_before) - 1]

    def batch(self, step: int) -> Batch:
        """Returns batch number `step`, from 0."""
        with self._lock:
            if not self._epoch.first <= step < self._epoch.first + len(self._epoch.buckets):
                self._epoch = self._order(self.epoch_of(step))
            place = step - self._epoch.first
            bucket, number = int(self._epoch.buckets[place]), int(self._epoch.numbers[place])
            # A slice of the bucket's sequence of permutations.
            size, count = int(self.sizes[bucket]), int(self._counts[bucket])
            place, end, pieces = number * size, (number + 1) * size, []
            while place < end:
                epoch, start = divmod(place, count)
                stop = min(count, start + end - place)
                kept, rows = self._permutations.get(bucket, (-1, self.members[bucket]))
                if kept != epoch:
                    rows = self._permuted(bucket, epoch)
                    if epoch == self._epoch.number:  # of earlier ones, a batch or two take the end
                        self._permutations[bucket] = epoch, rows
                pieces.append(rows[start:stop])
                place += stop - start
            return Batch(bucket, np.concatenate(pieces))

    def _order(self, epoch: int) -> _Epoch:
        """Returns the batches of an epoch in order."""
        filled = epoch * self._counts // self.sizes
        new = (epoch + 1) * self._counts // self.sizes - filled
        buckets = np.repeat(np.arange(len(new)), new)
        numbers = np.arange(new.sum()) + np.repeat(filled - (np.cumsum(new) - new), new)
        if self.mix:
            order = self._random(epoch, _ORDER_OF_BATCHES).permutation(len(buckets))
        else:
            # The place of a batch's last row in the bucket's permutation, and when that comes.
            last = (numbers + 1) * self.sizes[buckets] - 1 - epoch * self._counts[buckets]
            if self.shuffle:
                when = (last + 1) / self._counts[buckets]
            else:
                starts = np.cumsum(self._counts) - self._counts
                when = np.concatenate(self.members)[starts[buckets] + last]
            order = np.argsort(when, kind="stable")
        return _Epoch(epoch, self.batches_before(epoch), buckets[order], numbers[order])


class _Epoch(NamedTuple):
    number: int
    first: int  # the step of its first batch
    buckets: np.ndarray  # the bucket of each batch
    numbers: np.ndarray  # the number of each batch within its bucket


class OncePlan(Plan):
    """Batches for evaluation: every example is in exactly one batch; incomplete batches are kept.

    Incomplete batches come last, in order of length, unless `mix` permutes the batches.
    """

    def __init__(self, lengths: np.ndarray, buckets: Buckets, seed: int, shuffle: bool, mix: bool):
        super().__init__(lengths, buckets, seed, shuffle, mix)
        full, partial = [], []
        for bucket, size in enumerate(buckets.sizes):
            rows = self._permuted(bucket, 0)
            pieces = [Batch(bucket, rows[i : i + size]) for i in range(0, len(rows), size)]
            if pieces and len(pieces[-1].rows) < size:
                partial.append(pieces.pop())
            full += pieces
        if not self.shuffle:
            full.sort(key=lambda batch: int(batch.rows[-1]))
        self._batches = full + partial
        self.batches_per_epoch = len(self._batches)
        if self.mix:
            order = self._random(0, _ORDER_OF_BATCHES).permutation(len(self._batches))
            self._batches = [self._batches[i] for i in order]

    def __len__(self) -> int:
        return len(self._batches)

    def batch(self, step: int) -> Batch:
        """Returns batch number `step`, 0 <= step < len(self)."""
        return self._batches[step]


# The batches of a split, from shards

_PACKED = ("", "_segmentation", "_position")


@dataclasses.dataclass(frozen=True)
class BatchOptions:
    """The order of the batches of a split, and which rows of each batch this host reads.

    Raises:
        UserError: the hosts cannot share the replicas.
    """

    seed: int = 0
    """Seed of all permutations."""
    replicas: int = 1
    """The number of replicas on all hosts together; batch sizes are multiples of it."""
    hosts: int = 1
    """The number of programs that share the data; each reads its rows of every batch."""
    host: int = 0
    """The index of this program, from 0."""
    repeat: bool | None = None
    """True: batches are endless. None: only for the training split."""
    shuffle: bool | None = None
    """True: examples are shuffled. None: only for the training split."""
    pad_to_boundary: bool = True
    """False: T2T's buckets, and each side is padded to the longest of its batch, as T2T does, so shapes
    are not known in advance."""

    def __post_init__(self) -> None:
        _SEED.checked("seed", self.seed, what="")
        if self.hosts < 1 or self.replicas < 1 or self.replicas % self.hosts:
            raise UserError(
                f"{self.replicas} replicas cannot be divided among {self.hosts} hosts: give a "
                "multiple of their number."
            )
        if not 0 <= self.host < self.hosts:
            raise UserError(f"host must be from 0 to {self.hosts - 1}, got {self.host}.")

    def share(self, rows) -> slice:
        """Returns this host's slice of a batch of `rows` rows, an integer or a tensor."""
        size = rows // self.hosts
        return slice(self.host * size, (self.host + 1) * size)


def dataset(
    problem: Problem, split: str, data_dir: PathLike, hp, *, start_step: int = 0, **options
) -> tf.data.Dataset:
    """Returns the batches of a split: `Batches(..., **options).dataset(start_step)`."""
    return Batches(problem, split, data_dir, hp, **options).dataset(start_step)


def unconverted(function):
    """Keeps AutoGraph from converting the functions that `function` maps over datasets.

    AutoGraph, which looks for Python's `if` and `while` in their source, takes a fifth of a second for each.
    """

    @functools.wraps(function)
    def call(*args, **kwargs):
        import tensorflow as tf

        return tf.autograph.experimental.do_not_convert(function)(*args, **kwargs)

    return call


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns a dataset whose iterators end without delay.

    TensorFlow tunes buffers in a thread of each iterator, at intervals that double. The thread may miss
    that its iterator ends, which then takes until the interval is over.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


@unconverted
def trim_padding(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Removes the columns that are padding in every row, from each side separately.

    For programs that accept batches of any shape, such as `t2t-keras-train` without XLA. `Batches` pads
    both sides to the same length; with parse trees as targets that is more than twice the inputs' length.

    Args:
        batches: {"inputs": [B, S], "targets": [B, T]}; packed batches are unchanged.
    """
    import tensorflow as tf

    def trimmed(ids):
        last = tf.reduce_max(tf.where(ids != 0, tf.range(tf.shape(ids)[1]), 0))
        return ids[:, : last + 1]

    def finished(batch):
        packed = len(batch) > len(SIDES)
        return batch if packed else {side: trimmed(ids) for side, ids in batch.items()}

    return batches.map(finished, num_parallel_calls=1, deterministic=True)


class SplitBatches:
    """Base class of the batches of a split: options, buckets, limits, and the checks of these.

    The arguments and errors are those of `Batches`.

    Attributes:
        shards: a digest of the number of examples and their lengths, or of dev's text; "" of training's.
    """

    shards = ""

    def __init__(
        self, problem: Problem, split: str, hp, options: BatchOptions | None, keywords: Mapping
    ):
        options = dataclasses.replace(options or BatchOptions(), **keywords)
        training = split == DatasetSplit.TRAIN
        unset = [name for name in ("repeat", "shuffle") if getattr(options, name) is None]
        self.options = dataclasses.replace(options, **dict.fromkeys(unset, training))
        self._problem, self._split, self._hp = problem, split, hp
        packed = problem.packed_length
        is_pair = problem.has_inputs and not problem.num_classes
        if hp.prepend_mode != "none" and (packed or not is_pair):
            raise UserError(
                f"prepend_mode={hp.prepend_mode} puts inputs before targets, and {problem.name} "
                + ("packs several pairs into a row" if is_pair else "has no pairs of texts")
                + ": set it to none."
            )
        settings = {"inputs": hp.max_input_seq_length, "targets": hp.max_target_seq_length}
        # How many ids of each stored side to keep; 0 means all, also for negative settings.
        self._limits = {side: max(0, limit) for side, limit in settings.items()}
        if packed and any(self._limits.values()):
            raise UserError(
                "max_input_seq_length={inputs} and max_target_seq_length={targets} would cut rows of "
                "several pairs: leave them at 0 for a packed problem.".format(**self._limits)
            )
        drop_long = training or hp.eval_drop_long_sequences
        longest, t2t = problem.max_length(hp), not options.pad_to_boundary
        self.buckets = buckets_for(hp, drop_long, options.replicas, longest, packed, t2t)

    @property
    def shapes(self) -> list[tuple[int, int]] | None:
        """The shapes (rows, length) of full batches; None if shapes are not static."""
        return bucket_shapes(self._hp, self.options.replicas, self._problem.max_length(self._hp))

    def description(self) -> str:
        """Returns a line such as "42 batch shapes, from 512 x 8 to 16 x 256"."""
        if self.shapes is None:
            return "batch shapes vary"
        first, last = ("{} x {}".format(*shape) for shape in (self.shapes[0], self.shapes[-1]))
        if len(self.shapes) == 1:
            return f"1 batch shape, {first}"
        return f"{len(self.shapes)} batch shapes, from {first} to {last}"

    def _none_fits(self) -> UserError:
        hp, problem = self._hp, self._problem
        return UserError(
            f"Every {self._split} example of {problem.name} is shorter than min_length={hp.min_length} "
            f"or longer than {self.buckets.longest} ids (max_length={problem.max_length(hp)}, where 0 "
            f"stands for batch_size={hp.batch_size}), so none is left: raise max_length or lower "
            "min_length."
        )


class Batches(SplitBatches):
    """The batches of a split, as T2T's `input_fn` makes them.

    Training batches ("train") are endless, shuffled, always full, and hold only sentences of `hp.min_length`
    to `hp.max_length` ids on the longer side. Their shapes are `bucket_shapes(hp, replicas)`. "dev" and
    "test" are read once, every example of at least `hp.min_length` ids in exactly one batch; longer sentences
    (unless `hp.eval_drop_long_sequences`) go to buckets of 2, 4, 8... times `hp.max_length` with accordingly
    fewer rows; with `hp.t2t_batches`, to the last one of T2T's, and sides are padded to the longest of their
    batch. An incomplete last batch is only filled up with rows of zeros to a multiple of `replicas`.

    The content of a batch depends only on the seed and the batch number: a run resumed after step n
    starts with batch n. In each epoch every example is in one batch; examples that do not fill a batch
    are carried over to the next epoch (or, if not endless, make smaller batches). Examples are permuted
    over the whole split, and batches over the whole epoch.

    With packed shards, batches have all their fields; in training they have the single shape
    [batch_size // packed_length * replicas, packed_length] (with `t2t_batches`, T2T's buckets).

    The constructor reads the index of the split; shards are read when their examples are needed. The first
    time an example is read, its checksum is verified and its ids are checked against the vocabulary. Memory
    is about 20 bytes per example: its offset, lengths, bucket and the permutation of the current epoch.

    Args:
        problem: with `_rev`, inputs and targets are swapped.
        split: "train", "dev" or "test".
        data_dir: where `t2t-keras-datagen` wrote the shards.
        hp: `batch_size` (tokens per replica), `max_input_seq_length` and `max_target_seq_length`
            (longer sentences are cut), `max_length`, `min_length`, `min_length_bucket`,
            `length_bucket_step`, `eval_drop_long_sequences`, `batch_shuffle_size` (0: the batches of
            an epoch are not permuted but ordered by when they are full), `t2t_batches`.
        options, keywords: `BatchOptions`, and fields of it, which take precedence.

    Raises:
        UserError: shards are absent, missing or damaged, no example fits the length limits, or the
            hosts cannot share the replicas.
    """

    def __init__(
        self,
        problem: Problem,
        split: str,
        data_dir: PathLike,
        hp,
        options: BatchOptions | None = None,
        **keywords: Any,
    ):
        require_kind("problem", problem, Problem, "a problem, as from registry.problem")
        require_kind("hp", hp, HParams, "settings, as from registry.hparams")
        if hp.t2t_batches and split != DatasetSplit.TRAIN:
            keywords["pad_to_boundary"] = False  # T2T's last bucket has no longest length
        super().__init__(problem, split, hp, options, keywords)
        index = read_index(data_dir, problem.dataset_filename(), split, problem.sides)
        self.shards = index.digest()
        if not len(index.sizes):
            raise UserError(f"The {split} shards of {problem.name} in {data_dir} hold no example.")
        cut = {  # 0 means no limit
            side: np.minimum(index.lengths[side], self._limits[side] or _NO_LIMIT)
            for side in problem.sides
        }
        sides = problem.orient(cut)
        plan = EndlessPlan if self.options.repeat else OncePlan
        shuffle, seed = bool(self.options.shuffle), self.options.seed
        # As in T2T, of the longer side; with `prepend_mode`, of inputs and targets joined by a 0.
        lengths = functools.reduce(np.maximum, sides.values())
        if hp.prepend_mode != "none":
            lengths = sides["inputs"] + 1 + sides["targets"]
        mix = shuffle and hp.batch_shuffle_size > 0
        self._plan = plan(lengths, self.buckets, seed, shuffle, mix)
        self.examples: int = self._plan.examples
        """The number of examples in an epoch."""
        if not self.examples:
            raise self._none_fits()
        self.batches_per_epoch: float = self._plan.batches_per_epoch
        """The number of batches in an epoch; the mean if batches are endless."""
        kept = self.buckets.of(lengths) >= 0
        target_tokens = int(np.sum(sides["targets"], where=kept, dtype=np.int64))
        self.target_tokens_per_batch = target_tokens / self.batches_per_epoch
        """The mean number of target tokens, without padding, in a batch over all replicas."""
        static = self.options.pad_to_boundary or (problem.packed_length and not hp.t2t_batches)
        self._lengths = None if static else [*sides.values()]
        # The exclusive upper limit of the ids of each stored side; 2**31 without a vocabulary.
        most, is_another = dict.fromkeys(problem.sides, 2**31), False
        with contextlib.suppress(UserError):  # code that needs the vocabulary reports its absence
            found = problem.get_hparams(hp, data_dir)
            for side, stored in problem.orient({side: side for side in problem.sides}).items():
                most[stored] = min(most[stored], found.vocab_size[side])
                if f"{stored}=" in index.made_with:
                    digest = vocabulary_digest(found.vocabulary[side])
                    is_another |= f"{stored}={digest}" not in index.made_with
        if is_another:
            raise UserError(
                f"The {split} shards of {problem.name} in {data_dir} were made with another "
                "vocabulary: bring it back, or delete them and run t2t-keras-datagen again. (A class that "
                "overrides feature_encoders must override get_or_create_encoders, too.)"
            )
        self._stored = StoredExamples(index, most)
        if problem.packed_length:
            self._require_packed()

    @property
    def shapes(self) -> list[tuple[int, int]] | None:
        if self._lengths is not None:
            return None
        columns = zip(self.buckets.sizes, self.buckets.edges, self._plan.members, strict=True)
        return [(size, edge) for size, edge, rows in columns if len(rows)]

    def description(self) -> str:
        """Returns one line with the number of shapes, examples and batches."""
        left_out = len(self._stored) - self.examples
        return (
            f"{super().description()}; {self.examples:,} examples"
            + (f" ({left_out:,} others are too long or too short)" if left_out else "")
            + f", {self.batches_per_epoch:,.0f} batches per epoch"
        )

    @unconverted
    def dataset(self, start_step: int = 0) -> tf.data.Dataset:
        """Returns the batches from number `start_step` on.

        Returns:
            A dataset of `{"inputs": [B, S], "targets": [B, T]}`, int32, 0 for padding; S = T unless
            `pad_to_boundary` is False. Packed problems also have "inputs_segmentation" and
            "inputs_position", and the same for targets. Problems without inputs have only the target
            fields. In classification T is 1.
        """
        import tensorflow as tf

        START_STEP.checked("start_step", start_step, what="")
        end = np.iinfo(np.int64).max if isinstance(self._plan, EndlessPlan) else len(self._plan)
        steps = tf.data.Dataset.range(start_step, end)
        # TensorFlow keeps every `numpy_function` for ever: not these, but the dataset holds the batches.
        steps.batches = self
        me = weakref.proxy(self)
        plans = steps.map(
            lambda step: tf.numpy_function(lambda n: me._planned(n), [step], [tf.int64, tf.int32])
        )
        batches = plans.map(self._read, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        return untuned(batches.prefetch(tf.data.AUTOTUNE))

    def _planned(self, step: np.int64) -> tuple[np.ndarray, np.ndarray]:
        """Returns this host's rows of a batch (-1 for rows of zeros) and the lengths [2] to pad to."""
        bucket, rows = self._plan.batch(int(step))
        if self._lengths is None:
            lengths = [self.buckets.edges[bucket]] * len(self._problem.sides)
        else:
            lengths = [int(column[rows].max()) for column in self._lengths]
        if self._problem.num_classes:
            lengths[-1] = 1
        replicas = self.options.replicas
        filled = np.full(-(-len(rows) // replicas) * replicas, -1, np.int64)
        filled[: len(rows)] = rows
        return filled[self.options.share(len(filled))], np.array(lengths, np.int32)

    def _read(self, rows: tf.Tensor, lengths: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns padded ids; rows of -1 become rows of zeros."""
        import tensorflow as tf

        stored = weakref.proxy(self._stored)  # see `dataset`

        def read(rows):
            records = np.full(len(rows), b"", object)
            real = rows >= 0
            records[real] = stored.read(rows[real])
            return records

        records = tf.numpy_function(read, [rows], tf.string)
        records.set_shape([None])
        lengths.set_shape([len(self._problem.sides)])
        feature = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
        packed_length = self._problem.packed_length
        kinds = _PACKED if packed_length else _PACKED[:1]
        names = [side + kind for side in self._problem.sides for kind in kinds]
        parsed = tf.io.parse_example(records, dict.fromkeys(names, feature))
        padded = {}
        for kind in kinds:
            # Ids fit into int32: `StoredExamples` has checked this.
            ids = {side: tf.cast(parsed[side + kind], tf.int32) for side in self._problem.sides}
            for side, limit in self._limits.items():  # as T2T: cut before any reversal
                if limit and side in ids:
                    ids[side] = ids[side][:, :limit]
            for number, (side, oriented) in enumerate(self._problem.orient(ids).items()):
                shape = tf.stack([-1, lengths[number]])
                padded[side + kind] = oriented.to_tensor(shape=shape)  # [B, S]
                # All batches have one static shape:
                if packed_length and self._lengths is None and len(self.buckets.edges) == 1:
                    rows = self.buckets.sizes[0] // self.options.hosts
                    static = [rows if self.options.repeat else None, packed_length]
                    padded[side + kind] = tf.ensure_shape(padded[side + kind], static)
        return padded

    def _require_packed(self) -> None:
        """Checks that the first example has all fields of packed examples."""
        import tensorflow as tf

        (record,) = self._stored.read(np.zeros(1, np.int64))
        feature = tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)
        names = [side + kind for side in self._problem.sides for kind in _PACKED]
        fields = tf.io.parse_single_example(record, dict.fromkeys(names, feature))
        if missing := [name for name in names if not tf.size(fields[name])]:
            raise UserError(
                f"The shard {self._stored.place(0)[0]} has no {missing[0]}, but {self._problem.name} is "
                "packed: delete the shards of its splits and run t2t-keras-datagen again."
            )


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Unwraps a `UserError` that TensorFlow wrapped; a failed assertion becomes one, too."""
    import tensorflow as tf

    try:
        yield
    except (tf.errors.UnknownError, tf.errors.InvalidArgumentError) as error:
        raised = re.search(r"UserError: (.*)", error.message)
        failed = re.search(r"assertion failed: \[(.*?)\] \[(.*?)\]", error.message)
        if raised:
            raise UserError(raised[1].strip()) from error
        if failed:
            raise UserError(f"{failed[1]} {failed[2]}") from error
        raise
