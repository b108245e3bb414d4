"""Problems whose data TensorFlow Datasets has."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterator, Mapping, Sequence

from t2t_keras.data.pair_source import PairSource, PairSourceProblem, with_shards
from t2t_keras.data.problem import DatasetSplit, missing_hook
from t2t_keras.data.sources.tfds_pairs import TfdsPairs
from t2t_keras.data.text_problem import PathLike
from t2t_keras.errors import UserError

USUAL_SPLITS = {
    DatasetSplit.TRAIN: "train",
    DatasetSplit.EVAL: "validation",
    DatasetSplit.TEST: "test",
}
"""How most datasets name what we call train, dev and test."""


class TfdsSource:
    """A dataset as the source of our splits.

    Args:
        name, tmp_dir, languages: see `TfdsPairs`.
        splits: what of the dataset, in TFDS's grammar, each of our splits is; None: the usual names,
            and no test if the dataset has none.
        escaped: those of our splits whose entities, such as `&amp;`, are decoded.

    Raises:
        UserError: see `TfdsPairs`; or one of the splits is unknown.
    """

    def __init__(
        self,
        name: str,
        tmp_dir: PathLike,
        languages: Sequence[str] | None = None,
        splits: Mapping[str, str] | None = None,
        escaped: Collection[str] = (),
    ):
        self._dataset = TfdsPairs(name, tmp_dir, languages)
        self._splits = self._usual_splits() if splits is None else dict(splits)
        for part in self._splits.values():
            self._dataset.count(part)
        self._escaped = escaped

    @property
    def splits(self) -> list[str]:
        """Our splits."""
        return list(self._splits)

    def pairs(self, split: str) -> Iterator[tuple[str, str]]:
        """Yields source and target of each pair, stripped, in the order of the stored dataset."""
        pairs = self._dataset.pairs(self._splits[split])
        if split not in self._escaped:
            return pairs
        return ((html.unescape(source), html.unescape(target)) for source, target in pairs)

    def vocabulary_text(self, split: str, characters: int) -> Iterator[str]:
        """Yields so many characters of each language of a split, from evenly spaced pairs."""
        return self._dataset.vocabulary_text(self._splits[split], characters)

    def description(self, split: str) -> dict:
        """Returns dataset, version, sizes, languages and part."""
        part, dataset = self._splits[split], self._dataset
        languages = "-".join(dataset.languages)
        identity = [dataset.name, dataset.stored_bytes, languages, part, dataset.count(part)]
        return {"from": f"{dataset.name} ({languages}, {part})", "identity": identity}

    def _usual_splits(self) -> dict[str, str]:
        there = self._dataset.splits
        splits = {ours: part for ours, part in USUAL_SPLITS.items() if part in there}
        missing = [
            USUAL_SPLITS[ours]
            for ours in (DatasetSplit.TRAIN, DatasetSplit.EVAL)
            if ours not in splits
        ]
        if missing:
            raise UserError(
                f"{self._dataset.name} has no split {missing[0]!r}, only {', '.join(there)}: name those "
                "of train and dev, such as --tfds_splits=train[:99%],train[99%:]."
            )
        return splits


class TfdsTranslateProblem(PairSourceProblem):
    """Translation of a dataset of TensorFlow Datasets: a subclass names it and two languages."""

    tfds_name: str
    """The dataset and its config, such as "wmt14_translate/de-en"; see `TfdsPairs`."""

    languages: tuple[str, str]
    """The codes of source and target, as the dataset names them."""

    tfds_splits: Mapping[str, str] = USUAL_SPLITS
    """What of the dataset, in TFDS's grammar, each split is."""

    escaped_splits: Collection[str] = ()
    """Splits that TFDS takes from `.sgm` files and leaves escaped: `&amp;` and the like are decoded."""

    @property
    def dataset_splits(self) -> list[dict]:
        """100 shards for training and 1 for each other split."""
        return with_shards(self.tfds_splits)

    def source(self, tmp_dir: PathLike) -> PairSource:
        """The dataset, prepared by TFDS if it is not yet."""
        for hook in ("tfds_name", "languages"):
            if not hasattr(self, hook):
                raise missing_hook(self, hook)
        return TfdsSource(
            self.tfds_name, tmp_dir, self.languages, self.tfds_splits, self.escaped_splits
        )
