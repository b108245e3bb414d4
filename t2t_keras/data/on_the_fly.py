"""Batches of token ids from raw text, encoded in the input pipeline, without shards."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from t2t_keras import registry
from t2t_keras.data.generation import Cleaner
from t2t_keras.data.problem import DatasetSplit
from t2t_keras.data.reading import (
    BatchOptions,
    Buckets,
    bucket_shapes,
    buckets_for,
    describe_shapes,
    example_lengths,
    length_limits,
    none_fits,
    plain_errors,
    require_pairs,
)
from t2t_keras.data.text_problem import (
    Text2TextProblem,
    make_directory,
    require_vocabulary,
    whole_samples,
)
from t2t_keras.errors import UserError
from t2t_keras.ids import EOS_ID

if TYPE_CHECKING:
    import tensorflow as tf

SHUFFLED_AT_ONCE = 2**16
"""Size of the shuffle buffer, in pairs. (With shards, the shuffle covers the whole split.)"""

_ENCODED_AT_ONCE = 256  # several times as fast as encoding and measuring pairs one by one


class TextBatches:
    """The batches of a split, made from the text that the problem generates.

    Shapes and contents are those of `Batches`; the order differs. Every epoch reads the text from the
    start; pairs are shuffled in a buffer of 65,536 and batches in one of `hp.batch_shuffle_size`, in a
    different order each epoch. The order depends only on the seed, but starting at a later step means
    reading and encoding everything before it.

    Args:
        problem: its `generate_samples` is called for each epoch; with `_rev` the sides are swapped.
        split: "train", "dev" or "test".
        data_dir: directory of the vocabulary, which is built there if it is absent.
        tmp_dir: directory of the source files.
        hp: see `Batches`.
        options: `BatchOptions`; each host encodes all text and keeps its rows of every batch.
        keywords: fields of `BatchOptions`, which take precedence.

    Raises:
        UserError: the text is absent, the problem does not generate text or packs it, no example fits
            the length limits, or the hosts cannot share the replicas.
    """

    def __init__(
        self,
        problem: Text2TextProblem,
        split: str,
        data_dir: str | os.PathLike,
        tmp_dir: str | os.PathLike,
        hp,
        options: BatchOptions | None = None,
        **keywords: Any,
    ):
        options = dataclasses.replace(options or BatchOptions(), **keywords).for_split(split)
        _require_text(problem)
        require_pairs(problem, hp)
        if not options.pad_to_boundary:
            raise UserError("pad_to_boundary=False needs shards: text is padded to static shapes.")
        self.options = options
        self._problem, self._split, self._hp = problem, split, hp
        self._directories = data_dir, tmp_dir
        self._limits = length_limits(hp, None)
        drop_long = split == DatasetSplit.TRAIN or hp.eval_drop_long_sequences
        self.buckets = buckets_for(hp, drop_long, options.replicas, problem.max_length(hp))
        self._encoders = stored_encoders(problem, data_dir, tmp_dir)
        self._sampling = hp.subword_sampling if split == DatasetSplit.TRAIN else 0.0
        if self._sampling and not all(encoder.samples for encoder in self._encoders.values()):
            raise UserError(
                f"subword_sampling={self._sampling} needs a SentencePiece vocabulary, and that of "
                f"{problem.name} is another: set it to 0."
            )
        self._require_examples()

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """The shapes (rows, length) that full batches can have."""
        longest = self._problem.max_length(self._hp)
        return bucket_shapes(self._hp, self.options.replicas, longest)

    def description(self) -> str:
        """Returns one line with the number of shapes."""
        return f"{describe_shapes(self.shapes)}; text is encoded as it is read"

    def dataset(self, start_step: int = 0) -> tf.data.Dataset:
        """Returns the batches from number `start_step` on; earlier ones are made and discarded.

        Returns:
            A dataset of `{"inputs": [B, S], "targets": [B, S]}`, int32, 0 for padding.
        """
        import tensorflow as tf

        endless, shuffle = bool(self.options.repeat), bool(self.options.shuffle)
        batches = _batches(self._examples(endless, shuffle), self.buckets, full=endless)
        if shuffle and self._hp.batch_shuffle_size > 0:
            batches = batches.shuffle(
                self._hp.batch_shuffle_size, seed=self.options.seed, reshuffle_each_iteration=False
            )
        batches = batches.skip(start_step)
        return batches.map(self._finished).prefetch(tf.data.AUTOTUNE)

    def _examples(self, endless: bool, shuffle: bool) -> tf.data.Dataset:
        """Returns `{"inputs": [S], "targets": [T], "bucket": []}` for each example of allowed length.

        S and T include padding, because texts are encoded, measured and padded in chunks.
        """
        import tensorflow as tf

        strings, seed = tf.TensorSpec([None], tf.string), tf.TensorSpec([], tf.int64)

        def texts(epoch):
            return tf.data.Dataset.from_generator(
                functools.partial(self._texts, shuffle),
                args=[epoch],
                output_signature=(*[strings] * len(self._problem.sides), seed),
            )

        epochs = tf.data.Dataset.range(2**62 if endless else 1)
        chunks = epochs.flat_map(texts)
        encoded = chunks.map(self._encode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        return encoded.unbatch()

    def _texts(self, shuffle: bool, epoch: int) -> Iterator[tuple[Any, ...]]:
        """Yields chunks of `_ENCODED_AT_ONCE` examples: the texts of each side, and a seed."""
        samples: Iterable[Mapping[str, str]] = _samples(
            self._problem, *self._directories, self._split
        )
        if shuffle:
            samples = _shuffled(samples, random.Random(f"{self.options.seed} {epoch}"))
        prefixes = {"inputs": self._problem.inputs_prefix, "targets": self._problem.targets_prefix}
        samples = iter(samples)
        seeds = random.Random(f"subwords {self.options.seed} {epoch}")
        while chunk := _next_samples(samples):
            texts = [
                [(prefixes[side] + sample[side]).encode("utf-8", "ignore") for sample in chunk]
                for side in self._problem.sides
            ]
            yield *texts, seeds.getrandbits(31)

    @functools.cached_property
    def _encode(self) -> Callable:
        """`_encoded` as a graph, traced once for both the check of the text and training."""
        import tensorflow as tf

        return tf.function(self._encoded, autograph=False)

    def _encoded(self, *texts_and_seed: tf.Tensor) -> dict[str, tf.Tensor]:
        import tensorflow as tf

        *all_texts, seed = texts_and_seed
        sides = {}
        for side, texts in zip(self._problem.sides, all_texts, strict=True):
            end = tf.fill([tf.size(texts), 1], EOS_ID)
            encoder = self._encoders[side]
            if self._sampling:
                ids = encoder.sample_tensor(texts, self._sampling, seed)
            else:
                ids = encoder.encode_tensor(texts)
            ids = tf.concat([ids, end], axis=1)
            limit = self._limits[side]  # as T2T: cut before any reversal
            sides[side] = ids[:, :limit] if limit else ids
        sides = self._problem.orient(sides)
        lengths = {side: ids.row_lengths() for side, ids in sides.items()}
        lengths = example_lengths(lengths, self._hp, tf.maximum)
        kept = (lengths >= self.buckets.shortest) & (lengths <= self.buckets.longest)
        edges = tf.constant(self.buckets.edges, tf.int64)
        bucket = tf.searchsorted(edges, tf.boolean_mask(lengths, kept), out_type=tf.int64)
        rows = {side: tf.ragged.boolean_mask(ids, kept).to_tensor() for side, ids in sides.items()}
        return {**rows, "bucket": bucket}

    def _finished(self, rows: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Pads a batch to the edge of its bucket and takes this host's rows."""
        import tensorflow as tf

        length = tf.constant(self.buckets.edges)[rows["bucket"][0]]
        batch = {}
        for side in self._problem.sides:
            ids = rows[side][:, :length]
            number, width = tf.unstack(tf.shape(ids))
            fill = -number % self.options.replicas
            ids = tf.pad(ids, [[0, fill], [0, length - width]])  # [B, S]
            batch[side] = ids[self.options.share(number + fill)]
        return batch

    def _require_examples(self) -> None:
        problem, split = self._problem, self._split
        if next(_samples(problem, *self._directories, split), None) is None:
            raise UserError(f"The {split} text of {problem.name} is empty: see --tmp_dir.")
        with plain_errors():
            found = any(True for _ in self._examples(endless=False, shuffle=False).take(1))
        if not found:
            raise none_fits(problem, split, self._hp, self.buckets)


def stored_encoders(
    problem: Text2TextProblem, data_dir: str | os.PathLike, tmp_dir: str | os.PathLike
) -> dict:
    """Returns the problem's encoders; builds the vocabulary if absent."""
    make_directory(data_dir, writable=False)
    require_vocabulary(problem, data_dir)
    try:
        return problem.get_or_create_encoders(data_dir, tmp_dir)
    except OSError as error:
        raise UserError(
            f"The vocabulary of {problem.name} cannot be written to {data_dir} "
            f"({error.strerror}): name another directory or change its mode."
        ) from error


def _next_samples(samples: Iterator[Mapping[str, str]]) -> list[Mapping[str, str]]:
    try:
        return list(itertools.islice(samples, _ENCODED_AT_ONCE))
    except (Exception, SystemExit) as error:
        if explained := registry.error_of_user_code(error):  # TensorFlow drops the traceback
            raise explained from error
        raise


def _samples(
    problem: Text2TextProblem, data_dir: str | os.PathLike, tmp_dir: str | os.PathLike, split: str
) -> Iterator[Mapping[str, str]]:
    """Yields the samples that the shards of a split would contain."""
    if problem.is_generate_per_split:
        samples = whole_samples(problem, split, problem.generate_samples(data_dir, tmp_dir, split))
        yield from _cleaned(problem, samples) if split == DatasetSplit.TRAIN else samples
        return
    shards = {item["split"]: item["shards"] for item in problem.dataset_splits}
    before = list(itertools.takewhile(lambda other: other != split, shards))
    first, total = sum(shards[other] for other in before), sum(shards.values())
    train = problem.generate_samples(data_dir, tmp_dir, DatasetSplit.TRAIN)
    samples = whole_samples(problem, DatasetSplit.TRAIN, train)
    for number, sample in enumerate(_cleaned(problem, samples)):
        if first <= number % total < first + shards[split]:
            yield sample


def _cleaned(
    problem: Text2TextProblem, samples: Iterable[Mapping[str, str]]
) -> Iterator[Mapping[str, str]]:
    if not problem.cleaning:
        yield from samples
        return
    cleaner = Cleaner(problem.cleaning)
    samples = iter(samples)
    while block := list(itertools.islice(samples, _ENCODED_AT_ONCE)):
        yield from cleaner.keep(block)


def _shuffled(
    samples: Iterable[Mapping[str, str]], generator: random.Random
) -> Iterator[Mapping[str, str]]:
    """Yields the samples in random order, through a buffer of `SHUFFLED_AT_ONCE`."""
    waiting: list[Mapping[str, str]] = []
    for sample in samples:
        if len(waiting) < SHUFFLED_AT_ONCE:
            waiting.append(sample)
            continue
        place = int(generator.random() * SHUFFLED_AT_ONCE)
        waiting[place], sample = sample, waiting[place]
        yield sample
    generator.shuffle(waiting)
    yield from waiting


def _batches(examples: tf.data.Dataset, buckets: Buckets, full: bool) -> tf.data.Dataset:
    """Returns batches, each from one bucket; `full` drops incomplete ones."""
    import tensorflow as tf

    def size(bucket):
        return tf.constant(buckets.sizes, tf.int64)[bucket]

    return examples.group_by_window(
        key_func=lambda example: example["bucket"],
        reduce_func=lambda bucket, rows: rows.padded_batch(size(bucket), drop_remainder=full),
        window_size_func=size,
    )


def _require_text(problem: Text2TextProblem) -> None:
    encodes = getattr(type(problem), "generate_encoded_samples", None)
    if encodes is not Text2TextProblem.generate_encoded_samples:
        raise UserError(
            f"{problem.name} overrides generate_encoded_samples, so it cannot be read on the fly: "
            "generate its data with t2t-keras-datagen and leave --on_the_fly out."
        )
    if problem.packed_length:
        raise UserError(
            f"{problem.name} packs several pairs into a row, which is not possible on the fly: generate "
            "its data with t2t-keras-datagen and leave --on_the_fly out."
        )
