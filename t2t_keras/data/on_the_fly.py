"""Batches of token ids from raw text, encoded in the input pipeline, without shards."""

import functools
import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from t2t_keras import registry
from t2t_keras.data import reading, text_problem
from t2t_keras.data.generation import samples_by_split, with_reasons
from t2t_keras.data.problem import DatasetSplit, shards_by_split
from t2t_keras.data.text_problem import PathLike, Text2ClassProblem, Text2TextProblem
from t2t_keras.errors import UserError, explained, warn
from t2t_keras.files import content_digest
from t2t_keras.ids import EOS_ID
from t2t_keras.text.encoders import require_tensors

SHUFFLED_AT_ONCE = 2**16
"""Size of the shuffle buffer, in pairs. (With shards, the shuffle covers the whole split.)"""

_ENCODED_AT_ONCE = 256  # several times as fast as encoding and measuring pairs one by one


class TextBatches(reading.SplitBatches):
    """The batches of a split, made from the text that the problem generates.

    Shapes and contents are those of `Batches`; the order differs. Every epoch reads the text from the
    start; pairs are shuffled in a buffer of 65,536 and batches in one of `hp.batch_shuffle_size`, in a
    different order each epoch. The order depends only on the seed, but starting at a later step means
    reading and encoding everything before it.

    Args:
        problem: its `generate_samples` is called for each epoch; with `_rev` the sides are swapped.
        data_dir: directory of the vocabulary, which is built there if it is absent.
        tmp_dir: directory of the source files.
        split, hp, options, keywords: see `Batches`; each host encodes all text and keeps its rows.

    Raises:
        UserError: the text is absent, the problem does not generate text or packs it, no example fits
            the length limits, or the hosts cannot share the replicas.
    """

    _problem: Text2TextProblem

    def __init__(
        self,
        problem: Text2TextProblem,
        split: str,
        data_dir: PathLike,
        tmp_dir: PathLike,
        hp,
        options: reading.BatchOptions | None = None,
        **keywords: Any,
    ):
        encodes = getattr(type(problem), "generate_encoded_samples", None)
        why = "packs several pairs into a row" if problem.packed_length else ""
        ours = [kind.generate_encoded_samples for kind in (Text2TextProblem, Text2ClassProblem)]
        if encodes not in ours:
            why = "overrides generate_encoded_samples"
        if why:
            raise UserError(
                f"{problem.name} {why}, so it cannot be read on the fly: generate its data with "
                "t2t-keras-datagen and leave --on_the_fly out."
            )
        super().__init__(problem, split, hp, options, keywords)
        if not self.options.pad_to_boundary:
            raise UserError("pad_to_boundary=False needs shards: text is padded to static shapes.")
        self._directories = data_dir, tmp_dir
        self._encoders = stored_encoders(problem, data_dir, tmp_dir)
        if split not in (splits := shards_by_split(problem)):
            raise UserError(f"{problem.name} has no {split} data, only {' and '.join(splits)}.")
        require_tensors(self._encoders.values(), "--on_the_fly")
        trains = split == DatasetSplit.TRAIN
        self._sampling = hp.subword_sampling if trains else 0.0
        if self._sampling and not all(encoder.samples for encoder in self._encoders.values()):
            raise UserError(
                f"subword_sampling={self._sampling} needs a SentencePiece vocabulary, which "
                f"{problem.name} does not have: set it to 0."
            )
        # Traced once for both the check of the text and training.
        self._encode = tf.function(self._encoded, autograph=False)
        samples = _samples(problem, *self._directories, split)
        if not (first := [*itertools.islice(samples, 1 if trains else 1000)]):
            raise UserError(f"The {split} text of {problem.name} is empty: see --tmp_dir.")
        with reading.plain_errors():
            if not any(True for _ in self._examples(endless=False, shuffle=False).take(1)):
                raise self._none_fits()
        self.shards = "" if trains else content_digest(repr(first).encode())

    def description(self) -> str:
        return f"{super().description()}; text is encoded as it is read"

    @reading.unconverted
    def dataset(self, start_step: int = 0) -> tf.data.Dataset:
        """Returns what `Batches.dataset` does; batches before `start_step` are made and discarded."""
        reading.START_STEP.checked("start_step", start_step, what="")
        endless, shuffle = bool(self.options.repeat), bool(self.options.shuffle)
        sizes = tf.constant(self.buckets.sizes, tf.int64)
        batches = self._examples(endless, shuffle).group_by_window(
            key_func=lambda example: example["bucket"],
            reduce_func=lambda k, rows: rows.padded_batch(sizes[k], drop_remainder=endless),
            window_size_func=lambda k: sizes[k],
        )
        if shuffle and self._hp.batch_shuffle_size > 0:
            batches = batches.shuffle(
                self._hp.batch_shuffle_size, seed=self.options.seed, reshuffle_each_iteration=False
            )
        batches = batches.skip(start_step)
        return reading.untuned(batches.map(self._finished).prefetch(tf.data.AUTOTUNE))

    def _examples(self, endless: bool, shuffle: bool) -> tf.data.Dataset:
        """Returns `{"inputs": [S], "targets": [T], "bucket": []}` for each example of allowed length.

        S and T include padding, because texts are encoded, measured and padded in chunks.
        """
        texts, strings = functools.partial(self._texts, shuffle), tf.TensorSpec([None], tf.string)
        spec = (*[strings] * len(self._problem.sides), tf.TensorSpec([], tf.int64))
        epochs = tf.data.Dataset.range(2**62 if endless else 1)
        chunks = epochs.flat_map(
            lambda epoch: tf.data.Dataset.from_generator(texts, args=[epoch], output_signature=spec)
        )
        encoded = chunks.map(self._encode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        return encoded.unbatch()

    def _texts(self, shuffle: bool, epoch: int) -> Iterator[tuple[Any, ...]]:
        """Yields chunks of `_ENCODED_AT_ONCE` examples: the texts of each side, and a seed."""
        samples = _samples(self._problem, *self._directories, self._split)
        dropped = self._problem.dropped
        is_first = shuffle and self._split == DatasetSplit.TRAIN and not epoch
        if is_first:
            dropped.clear()  # of what the constructor has read
        if shuffle:
            samples = _shuffled(samples, random.Random(f"{self.options.seed} {epoch}"))
        prefixes = {} if self._problem.num_classes else self._problem.text_prefixes
        seeds = random.Random(f"subwords {self.options.seed} {epoch}")
        for number in itertools.count():
            try:
                chunk = list(itertools.islice(samples, _ENCODED_AT_ONCE))
            except (Exception, SystemExit) as error:
                one_line = registry.error_of_user_code(error)  # TensorFlow drops the traceback
                if one_line is None:
                    raise
                raise one_line from error
            if not chunk and not number:  # endless epochs of nothing would never end
                raise UserError(f"The {self._split} text of {self._problem.name} has become empty.")
            if not chunk:
                if is_first and dropped:
                    warn(f"left out of the training text: {with_reasons(dropped)}")
                return
            texts = [
                [(prefixes.get(side, "") + sample[side]).encode() for sample in chunk]
                for side in self._problem.sides
            ]
            yield *texts, seeds.getrandbits(31)

    def _encoded(self, *texts_and_seed: tf.Tensor) -> dict[str, tf.Tensor]:
        *all_texts, seed = texts_and_seed
        sides = {}
        for side, texts in zip(self._problem.sides, all_texts, strict=True):
            if side == "targets" and self._problem.num_classes:
                classes = tf.strings.to_number(texts, tf.int32)[:, tf.newaxis]
                sides[side] = tf.RaggedTensor.from_tensor(classes)
                continue
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
        of_side = {side: ids.row_lengths() for side, ids in sides.items()}
        lengths = functools.reduce(tf.maximum, of_side.values())  # see `Batches`
        if self._hp.prepend_mode != "none":
            lengths = of_side["inputs"] + 1 + of_side["targets"]
        kept = (lengths >= self.buckets.shortest) & (lengths <= self.buckets.longest)
        edges = tf.constant(self.buckets.edges, tf.int64)
        bucket = tf.searchsorted(edges, tf.boolean_mask(lengths, kept), out_type=tf.int64)
        rows = {side: tf.ragged.boolean_mask(ids, kept).to_tensor() for side, ids in sides.items()}
        return {**rows, "bucket": bucket}

    def _finished(self, rows: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Pads a batch to the edge of its bucket and takes this host's rows."""
        length = tf.constant(self.buckets.edges)[rows["bucket"][0]]
        batch = {}
        for side in self._problem.sides:
            ids = rows[side][:, :length]
            number, width = tf.unstack(tf.shape(ids))
            if side == "targets" and self._problem.num_classes:
                length = 1
            fill = -number % self.options.replicas
            ids = tf.pad(ids, [[0, fill], [0, length - width]])  # [B, S]
            batch[side] = ids[self.options.share(number + fill)]
        return batch


def stored_encoders(problem: Text2TextProblem, data_dir: PathLike, tmp_dir: PathLike) -> dict:
    """Returns the problem's encoders; builds the vocabulary if absent."""
    text_problem.make_directory(data_dir, writable=False)
    text_problem.require_vocabulary(problem, data_dir)
    what = f"The vocabulary of {problem.name} cannot be written to {data_dir}"
    with explained(what, OSError, remedy="name another directory or change its mode"):
        return problem.get_or_create_encoders(data_dir, tmp_dir)


def _samples(
    problem: Text2TextProblem, data_dir: PathLike, tmp_dir: PathLike, split: str
) -> Iterator[Mapping[str, str]]:
    """Yields the samples that the shards of a split would contain."""
    source = split if problem.is_generate_per_split else DatasetSplit.TRAIN
    raw = problem.generate_samples(data_dir, tmp_dir, source)
    classes = problem.num_classes
    whole = text_problem.labelled_samples if classes else text_problem.whole_samples
    for its, sample in samples_by_split(problem, source, whole(problem, source, raw)):
        if its == split:
            yield {**sample, "targets": str(int(sample["label"]))} if classes else sample


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
