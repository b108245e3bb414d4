"""Batches of token ids from shards: any batch of a run at once, padded to few static shapes."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from t2t_keras.data.buckets import Buckets, buckets_for, packed_buckets, tensor2tensor_buckets
from t2t_keras.data.plan import EndlessPlan, OncePlan
from t2t_keras.data.problem import DatasetSplit, Problem
from t2t_keras.data.shards import SIDES, StoredExamples, read_index
from t2t_keras.errors import UserError

if TYPE_CHECKING:
    import tensorflow as tf


_PACKED = ("", "_segmentation", "_position")


def dataset(
    problem: Problem,
    split: str,
    data_dir: str | os.PathLike,
    hp,
    *,
    seed: int = 0,
    replicas: int = 1,
    hosts: int = 1,
    host: int = 0,
    start_step: int = 0,
    repeat: bool | None = None,
    shuffle: bool | None = None,
    pad_to_boundary: bool = True,
) -> tf.data.Dataset:
    """Returns the batches of a split: `Batches(...).dataset(start_step)`, see there."""
    batches = Batches(
        problem,
        split,
        data_dir,
        hp,
        seed=seed,
        replicas=replicas,
        hosts=hosts,
        host=host,
        repeat=repeat,
        shuffle=shuffle,
        pad_to_boundary=pad_to_boundary,
    )
    return batches.dataset(start_step)


def without_spare_columns(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Leaves out the columns that are padding in every row, of each side by itself.

    For programs that take batches of any shape: `t2t-keras-train` does it without XLA. Sources are
    padded to the length of their targets, which of parse trees is more than twice their own.

    Args:
        batches: of {"inputs": [B, S], "targets": [B, T]}; packed batches stay as they are.
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
    `bucket_shapes(hp, replicas)`. "dev" and "test" come once, every example in exactly one batch;
    their longer sentences (unless `hp.eval_drop_long_sequences`) go to buckets of 2, 4, 8... times
    `hp.max_length` with accordingly fewer rows. A last batch that is not full keeps its size,
    but for rows of zeros that make it a multiple of `replicas`.

    What is in a batch depends on the seed and its number alone: a run that goes on after step n
    begins with batch n. In each epoch every example is in one batch; what fills no batch carries
    over to the next epoch (when not endless, it makes smaller batches). Examples are permuted over
    the whole split, and batches over the whole epoch.

    A problem whose shards are packed gives all its fields, in the one shape
    [batch_size // packed_length * replicas, packed_length] while training (with `t2t_batches` in
    T2T's buckets).

    Opening reads the index of the split (`index.py`); shards are read when their examples are
    needed, and each example's checksum is checked the first time. Memory is about 15 bytes an
    example: its place, its bucket and the permutation of the present epoch.

    Args:
        problem: with `_rev` the sides change places.
        split: "train", "dev" or "test".
        data_dir: where `t2t-keras-datagen` wrote the shards.
        hp: `batch_size` (tokens a replica), `max_input_seq_length` and `max_target_seq_length`
            (longer sentences are cut), `max_length`, `min_length`, `min_length_bucket`,
            `length_bucket_step`, `eval_drop_long_sequences`, `batch_shuffle_size` (0: the batches
            of an epoch come in the order in which they fill, not permuted), `t2t_batches`.
        seed: of all permutations.
        replicas: of all hosts; the batch sizes are multiples of it.
        hosts: how many programs read together; each gets its rows of every batch.
        host: which of them this one is, from 0.
        repeat: endless or once; by default endless for training.
        shuffle: by default for training.
        pad_to_boundary: False takes T2T's own buckets and pads each side to the longest of its
            batch, as T2T does, so that shapes are known when they come.

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
        *,
        seed: int = 0,
        replicas: int = 1,
        hosts: int = 1,
        host: int = 0,
        repeat: bool | None = None,
        shuffle: bool | None = None,
        pad_to_boundary: bool = True,
    ):
        require_shares(replicas, hosts, host)
        training = split == DatasetSplit.TRAIN
        self.endless = training if repeat is None else repeat
        shuffle = training if shuffle is None else shuffle
        self._problem = problem
        self._packed_length = getattr(problem, "packed_length", None)
        self._limits = length_limits(hp, self._packed_length)
        self._replicas, self._hosts, self._host = replicas, hosts, host
        drop_long = training or hp.eval_drop_long_sequences
        self.buckets = self._choose_buckets(hp, drop_long, pad_to_boundary)

        index = read_index(data_dir, problem.dataset_filename(), split)
        if not len(index.sizes):
            raise UserError(f"The {split} shards of {problem.name} in {data_dir} hold no example.")
        sides = problem.orient({side: self._cut(side, index.lengths[side]) for side in SIDES})
        make = EndlessPlan if self.endless else OncePlan
        mix = shuffle and hp.batch_shuffle_size > 0
        # T2T's length of an example: that of its longer side, end of sentence included.
        longer = np.maximum(sides["inputs"], sides["targets"])
        self._plan = make(longer, self.buckets, seed, shuffle, mix)
        if not self._plan.examples:
            raise none_fits(problem, split, hp, self.buckets)
        kept = self.buckets.of(longer) >= 0
        self._target_tokens = int(np.sum(sides["targets"], where=kept, dtype=np.int64))
        self._lengths = None if pad_to_boundary or self._packed_length else sides
        self._stored = StoredExamples(index)
        if self._packed_length:
            self._require_packed()

    @property
    def examples(self) -> int:
        """How many examples an epoch has."""
        return self._plan.examples

    @property
    def batches_an_epoch(self) -> float:
        """How many batches an epoch has; on the average when endless."""
        plan = self._plan
        return len(plan) if isinstance(plan, OncePlan) else plan.batches_an_epoch

    @property
    def target_tokens_a_batch(self) -> float:
        """How many target tokens, without padding, a batch of all replicas has on the average."""
        return self._target_tokens / self.batches_an_epoch

    @property
    def shapes(self) -> list[tuple[int, int]] | None:
        """The shapes (rows, length) of full batches that there will be; None: no static ones."""
        if self._lengths is not None:
            return None
        members = self._plan.members
        columns = zip(self.buckets.sizes, self.buckets.edges, members, strict=True)
        return [(size, edge) for size, edge, rows in columns if len(rows)]

    def description(self) -> str:
        """Says how many shapes, examples and batches there are, in a line."""
        return (
            f"{describe_shapes(self.shapes)}; {self.examples:,} examples, "
            f"{self.batches_an_epoch:,.0f} batches an epoch"
        )

    def dataset(self, start_step: int = 0) -> tf.data.Dataset:
        """Returns the batches from number `start_step` on.

        Returns:
            A dataset of `{"inputs": [B, S], "targets": [B, T]}`, int32, 0 for padding; S = T unless
            `pad_to_boundary` is False. Packed problems have "inputs_segmentation",
            "inputs_position" and those of the targets besides.
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

    def _choose_buckets(self, hp, drop_long: bool, pad_to_boundary: bool) -> Buckets:
        if self._packed_length and not hp.t2t_batches:
            return packed_buckets(hp, self._packed_length, drop_long, self._replicas)
        choose = buckets_for if pad_to_boundary else tensor2tensor_buckets
        return choose(hp, drop_long, self._replicas)

    def _cut(self, side: str, lengths: np.ndarray) -> np.ndarray:
        limit = self._limits[side]
        return np.minimum(lengths, limit) if limit else lengths

    def _planned(self, step: np.int64) -> tuple[np.ndarray, np.ndarray]:
        """This host's rows of a batch, -1 for one of zeros, and the lengths [2] to pad to."""
        bucket, rows = self._plan.batch(int(step))
        if self._lengths is None:
            lengths = [self.buckets.edges[bucket]] * 2
        else:
            lengths = [int(self._lengths[side][rows].max()) for side in SIDES]
        filled = np.full(-(-len(rows) // self._replicas) * self._replicas, -1, np.int64)
        filled[: len(rows)] = rows
        share = len(filled) // self._hosts
        mine = filled[self._host * share : (self._host + 1) * share]
        return mine, np.array(lengths, np.int32)

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
        lengths.set_shape([2])
        feature = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
        kinds = _PACKED if self._packed_length else _PACKED[:1]
        names = [side + kind for side in SIDES for kind in kinds]
        parsed = tf.io.parse_example(records, dict.fromkeys(names, feature))
        padded = {}
        for kind in kinds:
            ids = {side: tf.cast(parsed[side + kind], tf.int32) for side in SIDES}
            for side, limit in self._limits.items():  # as T2T: cut before any reversal
                if limit:
                    ids[side] = ids[side][:, :limit]
            for number, (side, oriented) in enumerate(self._problem.orient(ids).items()):
                shape = tf.stack([-1, lengths[number]])
                padded[side + kind] = self._shaped(oriented.to_tensor(shape=shape))
        return padded

    def _shaped(self, ids: tf.Tensor) -> tf.Tensor:
        """Ids with what is known of their shape."""
        import tensorflow as tf

        if self._packed_length and len(self.buckets.edges) == 1:
            rows = self.buckets.sizes[0] // self._hosts if self.endless else None
            return tf.ensure_shape(ids, [rows, self._packed_length])
        return ids

    def _require_packed(self) -> None:
        """Checks that an example has all fields of packed ones."""
        import tensorflow as tf

        (record,) = self._stored.read(np.zeros(1, np.int64))
        feature = tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)
        names = [side + kind for side in SIDES for kind in _PACKED]
        fields = tf.io.parse_single_example(record, dict.fromkeys(names, feature))
        missing = [name for name in names if not tf.size(fields[name])]
        if missing:
            raise UserError(
                f"The shard {self._stored.place(0)[0]} has no {missing[0]}, but {self._problem.name} is packed: delete "
                "the shards of its splits and run t2t-keras-datagen again."
            )


def describe_shapes(shapes: list[tuple[int, int]] | None) -> str:
    """Returns "42 batch shapes, from 512 x 8 to 16 x 256"; None: as many as T2T's."""
    if shapes is None:
        return "batch shapes as they come"
    first, last = ("{} x {}".format(*shape) for shape in (shapes[0], shapes[-1]))
    if len(shapes) == 1:
        return f"1 batch shape, {first}"
    return f"{len(shapes)} batch shapes, from {first} to {last}"


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Turns what TensorFlow makes of a `UserError` while batches are read into that again.

    A check in a graph that failed becomes one, too.
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
    """Returns the error of a split of which nothing is within the limits of length."""
    return UserError(
        f"Every {split} example of {problem.name} is shorter than min_length={hp.min_length} or "
        f"longer than {buckets.longest} ids (max_length={hp.max_length}, where 0 stands for "
        f"batch_size={hp.batch_size}), so none is left: raise max_length or lower min_length."
    )


def length_limits(hp, packed_length: int | None) -> Mapping[str, int]:
    """Returns how many ids of each stored side are taken; 0, and any negative setting: all."""
    settings = {"inputs": hp.max_input_seq_length, "targets": hp.max_target_seq_length}
    limits = {side: max(0, limit) for side, limit in settings.items()}
    if packed_length and any(limits.values()):
        raise UserError(
            f"max_input_seq_length={limits['inputs']} and max_target_seq_length="
            f"{limits['targets']} would cut rows of several pairs: leave them at 0 for a packed problem."
        )
    return limits


def require_shares(replicas: int, hosts: int, host: int) -> None:
    """Checks that hosts can share the rows of every batch."""
    if hosts < 1 or replicas < 1 or replicas % hosts:
        raise UserError(
            f"{replicas} replicas cannot be shared by {hosts} hosts: their number must be a multiple."
        )
    if not 0 <= host < hosts:
        raise UserError(f"host is {host}; it must be from 0 to {hosts - 1}, one for each host.")
