"""Embedded default problem: spelled-out numbers, English to German, no download."""

from __future__ import annotations

from collections.abc import Iterator

from t2t_keras.data.problem import DatasetSplit
from t2t_keras.data.text_problem import PathLike, Text2TextProblem
from t2t_keras.problems.numbers import pairs
from t2t_keras.registry import register_problem


@register_problem
class TranslateEndeNumbers(Text2TextProblem):
    """Numbers, dates, times, prices and phrases made of them, in English and German words.

    24,000 pairs for training, 500 for dev, 500 for test, the same every time. What dev and test
    spell is spelled in no training sentence of the same kind, and 345 kept for test is kept there as
    a cardinal, an ordinal and a count alike (`pairs.split_of`): a good score shows that the
    rules were learned. Each English sentence has one German translation, so BLEU 100 is possible.
    """

    @property
    def approx_vocab_size(self) -> int:
        """About 512 subwords, so that long German numbers fall into a few pieces."""
        return 2**9

    @property
    def dataset_splits(self) -> list[dict]:
        """One shard for each of train, dev and test."""
        return [
            {"split": split, "shards": 1}
            for split in (DatasetSplit.TRAIN, DatasetSplit.EVAL, DatasetSplit.TEST)
        ]

    @property
    def is_generate_per_split(self) -> bool:
        """True: every split has values of its own."""
        return True

    def generate_samples(
        self, data_dir: PathLike, tmp_dir: PathLike, split: str
    ) -> Iterator[dict[str, str]]:
        """Yields `{"inputs": English, "targets": German}`; both directories are unused."""
        for english, german in pairs.pairs(split):
            yield {"inputs": english, "targets": german}
