"""Problems that leave it to an object where their pairs come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from t2t_keras.data.problem import DatasetSplit, missing_hook
from t2t_keras.data.text_problem import PathLike, Text2TextProblem

VOCAB_CHARACTERS = 10_000_000
"""How much text of each side a vocabulary is built from."""


class PairSource(Protocol):
    """Sentence pairs by split."""

    @property
    def splits(self) -> list[str]:
        """The splits that there are pairs of."""

    def pairs(self, split: str) -> Iterator[tuple[str, str]]:
        """Yields source and target of each pair, stripped, in the same order every time."""

    def vocabulary_text(self, split: str, characters: int) -> Iterator[str]:
        """Yields about so many characters of each side, from all over the split."""

    def description(self, split: str) -> dict:
        """Returns, as JSON has it, what it is "from" and an "identity" that changes with the pairs."""


class PairSourceProblem(Text2TextProblem):
    """Translation of the pairs of a `PairSource`."""

    def source(self, tmp_dir: PathLike) -> PairSource:
        """Hook: returns the source; `tmp_dir` is for what has to be fetched."""
        raise missing_hook(self, "source")

    @property
    def is_generate_per_split(self) -> bool:
        return True

    def generate_samples(
        self, data_dir: PathLike, tmp_dir: PathLike, split: str
    ) -> Iterator[dict[str, str]]:
        """Yields the pairs of a split; a pair with an empty side is left out and counted."""
        for inputs, targets in self.source(tmp_dir).pairs(split):
            if inputs and targets:
                yield {"inputs": inputs, "targets": targets}
            else:
                self.dropped["empty"] += 1

    def generate_text_for_vocab(self, data_dir: PathLike, tmp_dir: PathLike) -> Iterator[str]:
        """Yields evenly spaced sentences of training, up to `VOCAB_CHARACTERS` of each side."""
        return self.source(tmp_dir).vocabulary_text(DatasetSplit.TRAIN, VOCAB_CHARACTERS)


def with_shards(splits: Iterable[str]) -> list[dict]:
    """Returns `dataset_splits` of these splits: 100 shards for training and 1 for each other."""
    return [
        {"split": split, "shards": 100 if split == DatasetSplit.TRAIN else 1} for split in splits
    ]
