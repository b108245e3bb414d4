"""Embedded default problem: spelled-out numbers, English to German, no download."""

from __future__ import annotations

from collections.abc import Iterator

from t2t_keras.data.problem import DatasetSplit
from t2t_keras.data.text_problem import PathLike, Text2TextProblem
from t2t_keras.problems.numbers import pairs
from t2t_keras.registry import register_problem


@register_problem
class TranslateEndeNumbers(Text2TextProblem):
    """Numbers, dates, times, prices and phrases with them, in English and German words.

    24,000 pairs for training, 500 for dev, 500 for test, the same every time. Values in dev and test
    are in no training sentence of the same family of phrases (`pairs.split_of`), so that a good score
    shows that the rules were learned. Each English sentence has one German translation: BLEU 100
    is possible.
    """

    approx_vocab_size = 2**9  # long German numbers become a few pieces
    dataset_splits = [
        {"split": split, "shards": 1}
        for split in (DatasetSplit.TRAIN, DatasetSplit.EVAL, DatasetSplit.TEST)
    ]
    is_generate_per_split = True  # each split has its own values

    def generate_samples(
        self, data_dir: PathLike, tmp_dir: PathLike, split: str
    ) -> Iterator[dict[str, str]]:
        """Yields `{"inputs": English, "targets": German}`; both directories are unused."""
        for english, german in pairs.pairs(split):
            yield {"inputs": english, "targets": german}
