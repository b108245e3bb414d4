"""Sentence pairs and texts from TensorFlow Datasets (TFDS), and problems on them."""

import html
import io
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from itertools import chain
from pathlib import Path
from typing import Any

from t2t_keras.data.problem import SPLITS, DatasetSplit, missing_hook, with_shards
from t2t_keras.data.text_problem import (
    PathLike,
    Samples,
    Text2ClassProblem,
    Text2SelfProblem,
    Text2TextProblem,
)
from t2t_keras.data.translate import PairSource, PairSourceProblem
from t2t_keras.errors import UserError, explained, nearest, reason_of
from t2t_keras.progress import Progress

_READ_AT_ONCE = 1024
_READ_BUFFER = 2**20
_INFO_FILE = "dataset_info.json"

USUAL_SPLITS = dict(zip(SPLITS, ("train", "validation", "test"), strict=True))
"""The names of train, dev and test in most datasets."""


class TfdsSource(PairSource):
    """The pairs of a translation dataset, in the order in which TFDS stored them.

    If the dataset is not prepared yet, TFDS downloads, verifies and prepares it in `tmp_dir/tfds`.
    Archives in `tmp_dir` that have their original names are used instead of downloads.

    Args:
        name: `dataset/config` such as "wmt14_translate/de-en", optionally with a version
            (":1.0.0"), or the directory of a prepared dataset. A name is looked up in TFDS's own
            directory (`TFDS_DATA_DIR`, else `~/tensorflow_datasets`), then in `tmp_dir/tfds`.
        tmp_dir: the directory of archives and of datasets that TFDS prepares.
        languages: the features of source and target; None: the dataset's supervised keys.
        splits: the part of the dataset by split, in TFDS's grammar, such as "train[:99%]" or
            "train+validation"; None: `USUAL_SPLITS`, without test if the dataset has none.
        escaped: the splits in which to decode entities such as `&amp;`.

    Raises:
        UserError: the dataset, config, version, language or a part is unknown, or it cannot be prepared.
    """

    def __init__(
        self,
        name: str,
        tmp_dir: PathLike,
        languages: Sequence[str] | None = None,
        splits: Mapping[str, str] | None = None,
        escaped: Collection[str] = (),
    ):
        self._builder = _prepared_builder(name, Path(tmp_dir))
        self.name: str = self._builder.info.full_name
        """The full name, including the version."""
        self.languages: tuple[str, str] = self._checked_languages(languages)
        """The features of source and target."""
        known = [*map(str, self._builder.info.splits)]
        usual = {split: part for split, part in USUAL_SPLITS.items() if part in known}
        for split in (DatasetSplit.TRAIN, DatasetSplit.EVAL):
            if splits is None and split not in usual:
                raise UserError(
                    f"{self.name} has no split {USUAL_SPLITS[split]!r}, only {', '.join(known)}: name the "
                    "parts for train and dev, such as --tfds_splits=train[:99%],train[99%:]."
                )
        self._parts = usual if splits is None else dict(splits)
        for split in self._parts:
            self.count(split)
        self._escaped = escaped

    @property
    def splits(self) -> list[str]:
        return list(self._parts)

    def count(self, split: str) -> int:
        return int(self._part(self._parts[split]).num_examples)

    def pairs(self, split: str) -> Iterator[tuple[str, str]]:
        """Yields source and target of each pair of a split, stripped."""
        read = html.unescape if split in self._escaped else str
        part, found = self._parts[split], 0
        for source, target in self._columns(part, self.languages, 1):
            found += len(source)
            yield from zip(map(read, source), map(read, target), strict=True)
        if found != self.count(split):
            raise UserError(
                f"{part} of {self.name} should have {self.count(split)} pairs, but has {found}: "
                f"delete {self._builder.data_dir} and prepare it again."
            )

    def every(self, k: int, split: str, side: int) -> Iterator[str]:
        columns = self._columns(self._parts[split], [self.languages[side]], k)
        return chain.from_iterable(texts for (texts,) in columns)

    def description(self, split: str) -> dict:
        """Returns the dataset's name, version, sizes and languages, and the part of it."""
        part, languages = self._parts[split], "-".join(self.languages)
        stored_bytes = int(self._builder.info.dataset_size)
        identity = [self.name, stored_bytes, languages, part, self.count(split)]
        return {"from": f"{self.name} ({languages}, {part})", "identity": identity}

    def _part(self, part: str) -> Any:
        """Returns TFDS's information on a part."""
        splits = self._builder.info.splits
        try:
            return splits[part]
        except Exception as error:  # TFDS's own types for slices, unknown names and bad grammar
            known, name = [*map(str, splits)], part.split("[")[0]
            if name in known:
                raise UserError(f"split {part!r} of {self.name}: {reason_of(error)}.") from error
            raise UserError(
                f"unknown split {part!r} of {self.name}.{nearest(name, known)} "
                f"It has {', '.join(known)}, and parts of them such as train[:99%]."
            ) from error

    def _checked_languages(self, asked: Sequence[str] | None) -> tuple[str, str]:
        import tensorflow_datasets as tfds

        info = self._builder.info
        features = info.features if isinstance(info.features, tfds.features.FeaturesDict) else {}
        texts = [key for key, value in features.items() if isinstance(value, tfds.features.Text)]
        named = asked or info.supervised_keys or ()
        there = f"{self.name} has {', '.join(texts) or 'no text at its top level'}"
        if len(named) != 2 or named[0] == named[1]:
            got = ",".join(map(str, named)) or "none"
            raise UserError(f"two languages are needed, source and target, got {got}: {there}.")
        for language in named:
            if language not in texts:
                raise UserError(f"no language {language!r}.{nearest(language, texts)} {there}.")
        return str(named[0]), str(named[1])

    def _columns(self, part: str, languages: Sequence[str], k: int) -> Iterator[list[list[str]]]:
        """Yields the texts by language of every k-th pair, in batches of `_READ_AT_ONCE`."""
        info = self._part(part)
        with explained(f"{self.name} cannot be read", Exception):
            if self._builder.info.file_format.value == "tfrecord":
                columns = _record_columns(info.file_instructions, languages, k)
            else:
                columns = _array_columns(self._builder.as_data_source(split=part), languages, k)
            for each in columns:
                yield [[text.decode("utf-8").strip() for text in texts] for texts in each]


def _record_columns(instructions: Sequence, languages: Sequence[str], k: int) -> Iterator[Iterable]:
    """Reads the TFRecord files directly: TFDS parses one example at a time, ten times slower."""
    import tensorflow as tf

    names = tf.constant([os.fspath(part.filename) for part in instructions], tf.string)
    ranges = tf.constant([(part.skip, part.take) for part in instructions], tf.int64)
    records = tf.data.Dataset.from_tensor_slices((names, tf.reshape(ranges, [-1, 2]))).flat_map(
        lambda name, at: (
            tf.data.TFRecordDataset(name, buffer_size=_READ_BUFFER).skip(at[0]).take(at[1])
        )
    )
    spec = {language: tf.io.FixedLenFeature([], tf.string) for language in languages}
    batches = records.shard(k, k - 1).batch(_READ_AT_ONCE)
    parsed = batches.map(lambda batch: tf.io.parse_example(batch, spec)).prefetch(2)
    for columns in parsed.as_numpy_iterator():
        yield [columns[language] for language in languages]


def _array_columns(source: Any, languages: Sequence[str], k: int) -> Iterator[Iterable]:
    places = range(k - 1, len(source), k)
    for start in range(0, len(places), _READ_AT_ONCE):
        rows = source.__getitems__(places[start : start + _READ_AT_ONCE])
        yield [[row[language] for row in rows] for language in languages]


@contextmanager
def _without_warnings() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


@_without_warnings()  # such as that a directory holds no dataset yet
def _prepared_builder(name: str, tmp_dir: Path) -> Any:
    import tensorflow_datasets as tfds

    directory = Path(name).expanduser()
    if (directory / _INFO_FILE).is_file():
        with explained(f"the dataset in {directory} cannot be read", Exception):
            return tfds.builder_from_directory(directory)
    if directory.is_dir():
        patterns = ("*/", "*/*/", "*/*/*/")
        below = [path for deep in patterns for path in sorted(directory.glob(deep + _INFO_FILE))]
        hint = f" Did you mean {str(below[0].parent)!r}?" if below else ""
        raise UserError(f"the directory {name} holds no prepared dataset: no {_INFO_FILE}.{hint}")
    default = _builder(name, os.environ.get("TFDS_DATA_DIR"))
    if default.is_prepared():
        return default
    builder = _builder(name, tmp_dir / "tfds")
    if not builder.is_prepared():
        remedy = f"archives fetched by hand go to {tmp_dir}, whole and under their own names"
        Progress().say(f"{name}: TFDS downloads and prepares it in {builder.data_dir}")
        tfds.disable_progress_bar()  # two that overwrite each other
        with (
            explained(f"TensorFlow Datasets cannot prepare {name}", Exception, remedy=remedy),
            redirect_stdout(io.StringIO()),
        ):
            config = tfds.download.DownloadConfig(manual_dir=str(tmp_dir), try_download_gcs=False)
            builder.download_and_prepare(download_config=config)
    return builder


def _builder(name: str, data_dir: str | os.PathLike | None) -> Any:
    import tensorflow_datasets as tfds

    try:
        return tfds.builder(name, data_dir=data_dir)
    except Exception as error:  # several types, and whatever a config raises
        dataset, _, config = name.split(":")[0].partition("/")
        known = tfds.list_builders(with_community_datasets=False)
        if dataset not in known:
            raise UserError(
                f"unknown dataset {name!r}: neither a directory nor one of the {len(known)} "
                f"of TensorFlow Datasets.{nearest(dataset, known)}"
            ) from error
        configs = list(tfds.builder_cls(dataset).builder_configs)
        if config and config not in configs:
            there = f"It has {', '.join(configs)}." if configs else "It has no configs."
            raise UserError(
                f"unknown config {config!r} of {dataset}.{nearest(config, configs)} {there}"
            ) from error
        raise UserError(f"dataset {name!r}: {reason_of(error)}.") from error


class TfdsTranslateProblem(PairSourceProblem):
    """Translation on a TFDS dataset: a subclass names the dataset, `tfds_name`, and two languages."""

    languages: Sequence[str] = ()
    """The language codes of source and target in the dataset."""

    tfds_splits: Mapping[str, str] = USUAL_SPLITS
    """The part of the dataset, in TFDS's grammar, of each split."""

    escaped_splits: Collection[str] = ()
    """Splits in which to decode entities such as `&amp;`, which TFDS leaves in text from `.sgm` files."""

    @property
    def dataset_splits(self) -> list[dict]:
        """100 training shards and 1 for each other split."""
        return with_shards(self.tfds_splits)

    def source(self, tmp_dir: PathLike) -> PairSource:
        """Returns the dataset; TFDS prepares it first if necessary."""
        if not self.tfds_name or not self.languages:
            raise missing_hook(self, "languages" if self.tfds_name else "tfds_name")
        return TfdsSource(
            self.tfds_name, tmp_dir, self.languages, self.tfds_splits, self.escaped_splits
        )


class _TfdsRows(Text2TextProblem):
    """Problem hooks for the rows of a TFDS dataset, which a subclass names."""

    tfds_splits: Mapping[str, str] = USUAL_SPLITS
    """The part of the dataset, in TFDS's grammar, of each split."""

    is_generate_per_split = True

    @property
    def dataset_splits(self) -> list[dict]:
        """10 training shards and 1 for each other split."""
        return with_shards(self.tfds_splits, train=10)

    def rows(self, tmp_dir: PathLike, split: str) -> Iterator[Mapping[str, Any]]:
        """Yields the rows of a split; TFDS prepares the dataset first if necessary."""
        if not self.tfds_name:
            raise missing_hook(self, "tfds_name")
        builder = _prepared_builder(self.tfds_name, Path(tmp_dir))
        with explained(f"{self.tfds_name} cannot be read", Exception):
            yield from builder.as_dataset(split=self.tfds_splits[split]).as_numpy_iterator()


class TfdsSelfProblem(_TfdsRows, Text2SelfProblem):
    """Language modelling on the text of a TFDS dataset, which a subclass names."""

    tfds_feature: str = "text"
    """The feature of the dataset that contains the text."""

    def generate_samples(self, data_dir: PathLike, tmp_dir: PathLike, split: str) -> Samples:
        """Yields the text of each row."""
        with explained(f"no text {self.tfds_feature!r} in {self.tfds_name}", Exception):
            for row in self.rows(tmp_dir, split):
                yield {"targets": row[self.tfds_feature].decode("utf-8").strip()}


class TfdsClassProblem(_TfdsRows, Text2ClassProblem):
    """Classification on a TFDS dataset: a subclass names the dataset and its classes."""

    tfds_features: tuple[str, str] = ("text", "label")
    """The features of the dataset that contain the text and the class number."""

    def generate_samples(self, data_dir: PathLike, tmp_dir: PathLike, split: str) -> Samples:
        """Yields the text and the label of each row."""
        text, label = self.tfds_features
        with explained(f"no text {text!r} and class {label!r} in {self.tfds_name}", Exception):
            for row in self.rows(tmp_dir, split):
                yield {"inputs": row[text].decode("utf-8").strip(), "label": int(row[label])}
