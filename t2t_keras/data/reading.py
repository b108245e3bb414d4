"""Batches of token ids from shards: bucketed as T2T buckets, padded to few static shapes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from t2t_keras.data.batching import scheme_for
from t2t_keras.data.problem import DatasetSplit, Problem
from t2t_keras.data.shards import READ_BUFFER, count_examples, find_shards, read_records
from t2t_keras.errors import UserError
from t2t_keras.ids import PAD_ID

if TYPE_CHECKING:
    import tensorflow as tf

_RECORD_SHUFFLE = 1024  # as T2T: records are mixed among so many, besides the order of shards
_SHARDS_AT_ONCE = 8  # as T2T
_PARSED_AT_ONCE = 256  # parsing and measuring in chunks is several times as fast as one by one
_LONGEST = 2**30


def dataset(
    problem: Problem,
    split: str,
    data_dir: str | os.PathLike,
    hp,
    *,
    seed: int = 0,
    replicas: int = 1,
    repeat: bool | None = None,
    shuffle: bool | None = None,
    pad_to_boundary: bool = True,
) -> tf.data.Dataset:
    """Returns the batches of a split, as T2T's `input_fn` makes them.

    Training batches ("train") are endless, shuffled, always full, and hold only sentences of
    `hp.min_length` to `hp.max_length` ids on the longer side. Their shapes are
    `bucket_shapes(hp, replicas)`. "dev" and "test" come once, every example in exactly one batch;
    their longer sentences (unless `hp.eval_drop_long_sequences`) go to buckets of 2, 4, 8... times
    `hp.max_length` with accordingly fewer rows. A last batch that is not full keeps its size,
    but for rows of zeros that make it a multiple of `replicas`.

    The order depends on `seed` alone. An iterator can be saved and restored with
    `tf.train.Checkpoint(iterator=iterator)` and goes on exactly where it was: the checkpoint holds
    the batches that wait in the shuffle buffer, `hp.batch_shuffle_size` of them.

    All shards are read through once at the start, to name one that is damaged before training is
    under way.

    Args:
        problem: with `_rev` the sides change places.
        split: "train", "dev" or "test".
        data_dir: where `t2t-keras-datagen` wrote the shards.
        hp: `batch_size` (tokens a replica), `max_input_seq_length` and `max_target_seq_length`
            (longer sentences are cut), `max_length`, `min_length`, `min_length_bucket`,
            `length_bucket_step`, `batch_shuffle_size`, `eval_drop_long_sequences`.
        seed: of all shuffling.
        replicas: the batch sizes are multiples of it.
        repeat: endless or once; by default endless for training. What fills no batch carries over
            to the next epoch when endless, and makes smaller batches when once.
        shuffle: by default for training.
        pad_to_boundary: False pads each side to the longest of its batch, as T2T does, which gives
            thousands of shapes.

    Returns:
        A dataset of `{"inputs": [B, S], "targets": [B, T]}`, int32, 0 for padding; S = T unless
        `pad_to_boundary` is False.

    Raises:
        UserError: shards are absent, missing or damaged, or no example fits the length limits.
    """
    training = split == DatasetSplit.TRAIN
    repeat = training if repeat is None else repeat
    shuffle = training if shuffle is None else shuffle
    buckets = _buckets(hp, training or hp.eval_drop_long_sequences, replicas)
    paths = find_shards(data_dir, problem.dataset_filename(), split)
    if not count_examples(paths):
        raise UserError(f"The {split} shards of {problem.name} in {data_dir} hold no example.")
    _require_fields(paths[0])

    records = _records(paths, seed if shuffle else None)
    limits = {"inputs": hp.max_input_seq_length, "targets": hp.max_target_seq_length}
    if not any(True for _ in _examples(problem, records, buckets, limits).take(1)):
        raise _none_fits(problem, split, hp, buckets)
    examples = _examples(problem, records.repeat() if repeat else records, buckets, limits)
    batches = _batches(examples, buckets, full=repeat)
    batches = batches.map(lambda rows: _padded(rows, buckets if pad_to_boundary else None))
    if not repeat and replicas > 1:
        batches = batches.map(lambda batch: _fill_rows(batch, replicas))
    if shuffle and hp.batch_shuffle_size:
        batches = batches.shuffle(hp.batch_shuffle_size, seed=seed)
    return batches.prefetch(2)


class _Buckets(NamedTuple):
    """Bucket i takes lengths from lower[i-1] (0) to below lower[i]; [N] buckets in all."""

    lower: list[int]
    """Lengths at which the next bucket begins, [N - 1]."""
    edges: list[int]
    """The longest length of each bucket, [N]."""
    sizes: list[int]
    """Rows of a full batch, [N]."""
    shortest: int
    """Lengths that are kept: from `shortest`..."""
    longest: int
    """...to `longest`."""


def _buckets(hp, drop_long: bool, replicas: int) -> _Buckets:
    """T2T's buckets; unless long sentences are dropped, its last one goes on in doubling ones."""
    scheme = scheme_for(hp, drop_long, replicas)
    max_length = hp.max_length or hp.batch_size
    edges = [boundary - 1 for boundary in scheme["boundaries"]] + [max_length]
    sizes = list(scheme["batch_sizes"])
    if drop_long:
        shortest, longest = scheme["min_length"], max_length
    else:
        shortest, longest = 0, _LONGEST
        while edges[-1] < _LONGEST:
            edges.append(2 * edges[-1])
            sizes.append(max(1, hp.batch_size // edges[-1]) * replicas)
    return _Buckets([edge + 1 for edge in edges[:-1]], edges, sizes, shortest, longest)


def _records(paths: Sequence[Path], seed: int | None) -> tf.data.Dataset:
    """One epoch of serialised examples; in file order when `seed` is None."""
    import tensorflow as tf

    def read(path):
        return tf.data.TFRecordDataset(path, buffer_size=READ_BUFFER)

    files = tf.data.Dataset.from_tensor_slices([str(path) for path in paths])
    if seed is None:
        return read(files)
    records = files.shuffle(len(paths), seed=seed).interleave(read, cycle_length=_SHARDS_AT_ONCE)
    return records.shuffle(_RECORD_SHUFFLE, seed=seed)


def _examples(
    problem: Problem, records: tf.data.Dataset, buckets: _Buckets, limits: Mapping[str, int]
) -> tf.data.Dataset:
    """`{"inputs": [S], "targets": [T], "bucket": []}` of the examples whose length is kept.

    S and T leave room for padding: a chunk of examples is parsed, measured and padded at once.
    """
    import tensorflow as tf

    feature = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)

    def parse(chunk):
        parsed = tf.io.parse_example(chunk, {"inputs": feature, "targets": feature})
        sides = {side: tf.cast(ids, tf.int32) for side, ids in parsed.items()}
        for side, limit in limits.items():  # as T2T: cut before any reversal
            if limit:
                sides[side] = sides[side][:, :limit]
        sides = problem.orient(sides)
        # T2T's length of an example: that of its longer side, end of sentence included.
        lengths = tf.maximum(sides["inputs"].row_lengths(), sides["targets"].row_lengths())
        kept = (lengths >= buckets.shortest) & (lengths <= buckets.longest)
        rows = {side: tf.boolean_mask(ids.to_tensor(), kept) for side, ids in sides.items()}
        lower = tf.constant(buckets.lower, tf.int64)
        bucket = tf.searchsorted(lower, tf.boolean_mask(lengths, kept), side="right")
        return {**rows, "bucket": tf.cast(bucket, tf.int64)}

    return records.batch(_PARSED_AT_ONCE).map(parse).unbatch()


def _batches(examples: tf.data.Dataset, buckets: _Buckets, full: bool) -> tf.data.Dataset:
    """Batches of examples of one bucket each; `full` leaves out those below its size."""
    import tensorflow as tf

    def size(bucket):
        return tf.constant(buckets.sizes, tf.int64)[bucket]

    return examples.group_by_window(
        key_func=lambda example: example["bucket"],
        reduce_func=lambda bucket, rows: rows.padded_batch(size(bucket), drop_remainder=full),
        window_size_func=size,
    )


def _padded(rows, buckets: _Buckets | None) -> dict:
    """Pads or cuts both sides to the bucket's edge; None: to the longest of the side."""
    import tensorflow as tf

    def pad(ids):
        if buckets is None:
            length = tf.cast(tf.reduce_max(tf.where(ids != PAD_ID)[:, 1]) + 1, tf.int32)
        else:
            length = tf.constant(buckets.edges)[rows["bucket"][0]]
        return tf.pad(ids[:, :length], [[0, 0], [0, tf.maximum(0, length - tf.shape(ids)[1])]])

    return {side: pad(rows[side]) for side in ("inputs", "targets")}


def _fill_rows(batch, replicas: int) -> dict:
    """Adds rows of zeros until the rows can be shared equally, as T2T's `pad_batch`."""
    import tensorflow as tf

    def fill(ids):
        return tf.pad(ids, [[0, -tf.shape(ids)[0] % replicas], [0, 0]])

    return {side: fill(ids) for side, ids in batch.items()}


def _require_fields(path: Path) -> None:
    """Checks that the first example of a shard, if any, is what a text problem stores."""
    import tensorflow as tf

    record = next(read_records(path), None)
    if record is None:
        return
    feature = tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)
    try:
        sides = tf.io.parse_single_example(record, {"inputs": feature, "targets": feature})
        complete = all(tf.size(ids) for ids in sides.values())
    except tf.errors.InvalidArgumentError:
        complete = False
    if not complete:
        raise UserError(
            f"The shard {path} does not hold tf.Examples with the int64 lists inputs and "
            "targets: check that it comes from t2t-keras-datagen or t2t-datagen."
        )


def _none_fits(problem: Problem, split: str, hp, buckets: _Buckets) -> UserError:
    return UserError(
        f"Every {split} example of {problem.name} is shorter than min_length={hp.min_length} or "
        f"longer than {buckets.longest} ids (max_length={hp.max_length}, where 0 stands for "
        f"batch_size={hp.batch_size}), so none is left: raise max_length or lower min_length."
    )
