"""Batches of token ids from shards: random access by batch number, padded to a few static shapes."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from t2t_keras.data.buckets import Buckets, buckets_for, packed_buckets, tensor2tensor_buckets
from t2t_keras.data.plan import EndlessPlan, OncePlan
from t2t_keras.data.problem import DatasetSplit, Problem
from t2t_keras.data.shards import SIDES, StoredExamples, read_index
from t2t_keras.errors import UserError

if TYPE_CHECKING:
    import tensorflow as tf


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
        if self.hosts < 1 or self.replicas < 1 or self.replicas % self.hosts:
            raise UserError(
                f"{self.replicas} replicas cannot be shared by {self.hosts} hosts: their number must "
                "be a multiple."
            )
        if not 0 <= self.host < self.hosts:
            raise UserError(
                f"host is {self.host}; it must be from 0 to {self.hosts - 1}, one for each host."
            )

    def for_split(self, split: str) -> BatchOptions:
        """Returns the options with the defaults of a split filled in."""
        training = split == DatasetSplit.TRAIN
        return dataclasses.replace(
            self,
            repeat=training if self.repeat is None else self.repeat,
            shuffle=training if self.shuffle is None else self.shuffle,
        )

    def share(self, rows) -> slice:
        """Returns this host's slice of a batch of `rows` rows, an integer or a tensor."""
        size = rows // self.hosts
        return slice(self.host * size, (self.host + 1) * size)


def dataset(
    problem: Problem,
    split: str,
    data_dir: str | os.PathLike,
    hp,
    *,
    start_step: int = 0,
    **options: Any,
) -> tf.data.Dataset:
    """Returns the batches of a split: `Batches(..., **options).dataset(start_step)`."""
    return Batches(problem, split, data_dir, hp, **options).dataset(start_step)


def trim_padding(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Removes the columns that are padding in every row, from each side separately.

    For programs that accept batches of any shape, such as `t2t-keras-train` without XLA. `Batches` pads
    both sides to the same length; with parse trees as targets that is more than twice the inputs' length.

    Args:
        batches: {"inputs": [B, S], "targets": [B, T]}; packed batches are unchanged.
    """
    import tensorflow as tf

    def trimmed(ids):
        used = tf.reduce_any(ids != 0, axis=0)
        last = tf.reduce_max(tf.where(used, tf.range(tf.size(used)), 0))
        return ids[:, : last + 1]

    def finished(batch):
        if len(batch) > len(SIDES):
            return batch
        return {side: trimmed(ids) for side, ids in batch.items()}

    return batches.map(finished, num_parallel_calls=1, deterministic=True)


class Batches:
    """The batches of a split, as T2T's `input_fn` makes them.

    Training batches ("train") are endless, shuffled, always full, and hold only sentences of
    `hp.min_length` to `hp.max_length` ids on the longer side. Their shapes are
    `bucket_shapes(hp, replicas)`. "dev" and "test" are read once, every example of at least
    `hp.min_length` ids in exactly one batch; longer sentences (unless
    `hp.eval_drop_long_sequences`) go to buckets of 2, 4, 8... times `hp.max_length` with accordingly
    fewer rows. An incomplete last batch is only filled up with rows of zeros to a multiple of
    `replicas`.

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
        options: `BatchOptions`.
        keywords: fields of `BatchOptions`, which take precedence.

    Raises:
        UserError: shards are absent, missing or damaged, no example fits the length limits, or the
            hosts cannot share the replicas.
    """

    def __init__(
        self,
        problem: Problem,
        split: str,
        data_dir: str | os.PathLike,
        hp,
        options: BatchOptions | None = None,
        **keywords: Any,
    ):
        options = dataclasses.replace(options or BatchOptions(), **keywords).for_split(split)
        self.options = options
        self._problem = problem
        self._packed_length = getattr(problem, "packed_length", None)
        self._limits = length_limits(hp, self._packed_length)
        require_pairs(problem, hp)
        drop_long = split == DatasetSplit.TRAIN or hp.eval_drop_long_sequences
        self.buckets = self._choose_buckets(hp, drop_long, problem.max_length(hp))

        index = read_index(data_dir, problem.dataset_filename(), split, problem.sides)
        if not len(index.sizes):
            raise UserError(f"The {split} shards of {problem.name} in {data_dir} hold no example.")
        sides = problem.orient(
            {side: self._cut(side, index.lengths[side]) for side in problem.sides}
        )
        make = EndlessPlan if options.repeat else OncePlan
        mix = bool(options.shuffle) and hp.batch_shuffle_size > 0
        lengths = example_lengths(sides, hp, np.maximum)
        self._plan = make(lengths, self.buckets, options.seed, bool(options.shuffle), mix)
        if not self._plan.examples:
            raise none_fits(problem, split, hp, self.buckets)
        kept = self.buckets.of(lengths) >= 0
        self._target_tokens = int(np.sum(sides["targets"], where=kept, dtype=np.int64))
        self._lengths = (
            None if options.pad_to_boundary or self._packed_length else [*sides.values()]
        )
        self._stored = StoredExamples(index, _vocab_sizes(problem, data_dir))
        if self._packed_length:
            self._require_packed()

    @property
    def examples(self) -> int:
        """The number of examples in an epoch."""
        return self._plan.examples

    @property
    def batches_per_epoch(self) -> float:
        """The number of batches in an epoch; the mean if batches are endless."""
        plan = self._plan
        return len(plan) if isinstance(plan, OncePlan) else plan.batches_per_epoch

    @property
    def target_tokens_per_batch(self) -> float:
        """The mean number of target tokens, without padding, in a batch over all replicas."""
        return self._target_tokens / self.batches_per_epoch

    @property
    def shapes(self) -> list[tuple[int, int]] | None:
        """The shapes (rows, length) of full batches; None if shapes are not static."""
        if self._lengths is not None:
            return None
        members = self._plan.members
        columns = zip(self.buckets.sizes, self.buckets.edges, members, strict=True)
        return [(size, edge) for size, edge, rows in columns if len(rows)]

    def description(self) -> str:
        """Returns one line with the number of shapes, examples and batches."""
        return (
            f"{describe_shapes(self.shapes)}; {self.examples:,} examples, "
            f"{self.batches_per_epoch:,.0f} batches per epoch"
        )

    def dataset(self, start_step: int = 0) -> tf.data.Dataset:
        """Returns the batches from number `start_step` on.

        Returns:
            A dataset of `{"inputs": [B, S], "targets": [B, T]}`, int32, 0 for padding; S = T unless
            `pad_to_boundary` is False. Packed problems also have "inputs_segmentation" and
            "inputs_position", and the same for targets. Problems without inputs have only the target
            fields. In classification T is 1.
        """
        import tensorflow as tf

        end = np.iinfo(np.int64).max if isinstance(self._plan, EndlessPlan) else len(self._plan)
        steps = tf.data.Dataset.range(start_step, end)
        plans = steps.map(
            lambda step: tf.numpy_function(self._planned, [step], [tf.int64, tf.int32])
        )
        stored = plans.map(self._read, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        batches = stored.map(self._parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        return batches.prefetch(tf.data.AUTOTUNE)

    def _choose_buckets(self, hp, drop_long: bool, longest: int) -> Buckets:
        replicas = self.options.replicas
        if self._packed_length and not hp.t2t_batches:
            return packed_buckets(hp, self._packed_length, drop_long, replicas)
        choose = buckets_for if self.options.pad_to_boundary else tensor2tensor_buckets
        return choose(hp, drop_long, replicas, longest)

    def _cut(self, side: str, lengths: np.ndarray) -> np.ndarray:
        limit = self._limits[side]
        return np.minimum(lengths, limit) if limit else lengths

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

    def _read(self, rows: tf.Tensor, lengths: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        import tensorflow as tf

        def read(rows):
            records = np.full(len(rows), b"", object)
            real = rows >= 0
            records[real] = self._stored.read(rows[real])
            return records

        return tf.numpy_function(read, [rows], tf.string), lengths

    def _parse(self, records: tf.Tensor, lengths: tf.Tensor) -> dict[str, tf.Tensor]:
        """Serialised examples -> padded ids; an empty record becomes a row of zeros."""
        import tensorflow as tf

        records.set_shape([None])
        lengths.set_shape([len(self._problem.sides)])
        feature = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
        kinds = _PACKED if self._packed_length else _PACKED[:1]
        names = [side + kind for side in self._problem.sides for kind in kinds]
        parsed = tf.io.parse_example(records, dict.fromkeys(names, feature))
        padded = {}
        for kind in kinds:
            # Ids fit into int32: `StoredExamples` has checked this.
            sides = self._problem.sides
            ids = {side: tf.cast(parsed[side + kind], tf.int32) for side in sides}
            for side, limit in self._limits.items():  # as T2T: cut before any reversal
                if limit and side in ids:
                    ids[side] = ids[side][:, :limit]
            for number, (side, oriented) in enumerate(self._problem.orient(ids).items()):
                shape = tf.stack([-1, lengths[number]])
                padded[side + kind] = self._shaped(oriented.to_tensor(shape=shape))  # [B, S]
        return padded

    def _shaped(self, ids: tf.Tensor) -> tf.Tensor:
        """Sets the static shape of packed ids; other shapes are not static."""
        import tensorflow as tf

        if self._packed_length and len(self.buckets.edges) == 1:
            rows = self.buckets.sizes[0] // self.options.hosts if self.options.repeat else None
            return tf.ensure_shape(ids, [rows, self._packed_length])
        return ids

    def _require_packed(self) -> None:
        """Checks that the first example has all fields of packed examples."""
        import tensorflow as tf

        (record,) = self._stored.read(np.zeros(1, np.int64))
        feature = tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)
        names = [side + kind for side in self._problem.sides for kind in _PACKED]
        fields = tf.io.parse_single_example(record, dict.fromkeys(names, feature))
        missing = [name for name in names if not tf.size(fields[name])]
        if missing:
            raise UserError(
                f"The shard {self._stored.place(0)[0]} has no {missing[0]}, but {self._problem.name} is "
                "packed: delete the shards of its splits and run t2t-keras-datagen again."
            )


def _vocab_sizes(problem: Problem, data_dir: str | os.PathLike) -> dict[str, int]:
    """Returns the exclusive upper limit of the ids of each stored side; 2**31 without a vocabulary."""
    limits = dict.fromkeys(problem.sides, 2**31)
    try:
        sizes = problem.vocab_sizes(data_dir)
    except UserError:  # code that needs the vocabulary reports that it is absent
        return limits
    for side, stored in problem.orient({side: side for side in problem.sides}).items():
        limits[stored] = min(limits[stored], sizes[side])
    return limits


def describe_shapes(shapes: list[tuple[int, int]] | None) -> str:
    """Returns "42 batch shapes, from 512 x 8 to 16 x 256"; `shapes` is None if they are not static."""
    if shapes is None:
        return "batch shapes vary"
    first, last = ("{} x {}".format(*shape) for shape in (shapes[0], shapes[-1]))
    if len(shapes) == 1:
        return f"1 batch shape, {first}"
    return f"{len(shapes)} batch shapes, from {first} to {last}"


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Unwraps a `UserError` that TensorFlow wrapped while reading batches.

    A failed assertion in a graph also becomes a `UserError`.
    """
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


def none_fits(problem: Problem, split: str, hp, buckets: Buckets) -> UserError:
    """Returns the error for a split with no example within the length limits."""
    return UserError(
        f"Every {split} example of {problem.name} is shorter than min_length={hp.min_length} or "
        f"longer than {buckets.longest} ids (max_length={problem.max_length(hp)}, where 0 stands for "
        f"batch_size={hp.batch_size}), so none is left: raise max_length or lower min_length."
    )


def example_lengths(sides: Mapping[str, Any], hp, longer: Callable[[Any, Any], Any]) -> Any:
    """Returns the lengths of examples as T2T defines them: of the longer side, with end of sentence.

    With `prepend_mode`: of inputs and targets joined by a 0.

    Args:
        sides: the lengths of each side.
        longer: elementwise maximum of two arrays of lengths.
    """
    if hp.prepend_mode != "none":
        return sides["inputs"] + 1 + sides["targets"]
    return functools.reduce(longer, sides.values())


def require_pairs(problem: Problem, hp) -> None:
    """Raises a `UserError` if `prepend_mode` is set but examples are not single pairs of texts."""
    is_pair = problem.has_inputs and not problem.num_classes
    packed = getattr(problem, "packed_length", None)
    if hp.prepend_mode != "none" and (packed or not is_pair):
        raise UserError(
            f"prepend_mode={hp.prepend_mode} puts inputs before targets, and {problem.name} "
            + ("packs several pairs into a row" if is_pair else "has no pairs of texts")
            + ": set it to none."
        )


def length_limits(hp, packed_length: int | None) -> Mapping[str, int]:
    """Returns how many ids of each stored side to keep; 0 means all (also for negative settings)."""
    settings = {"inputs": hp.max_input_seq_length, "targets": hp.max_target_seq_length}
    limits = {side: max(0, limit) for side, limit in settings.items()}
    if packed_length and any(limits.values()):
        raise UserError(
            f"max_input_seq_length={limits['inputs']} and max_target_seq_length="
            f"{limits['targets']} would cut rows of several pairs: leave them at 0 for a packed problem."
        )
    return limits
