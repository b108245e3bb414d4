"""Multi30k: 29,000 short descriptions of images in English, German and French."""

from __future__ import annotations

from t2t_keras.data import DatasetSplit, TranslateProblem
from t2t_keras.registry import register_problem

_RAW_FILES = (
    "https://raw.githubusercontent.com/multi30k/dataset/"
    "a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw/"
)
_PARTS = {
    DatasetSplit.TRAIN: "train",
    DatasetSplit.EVAL: "val",
    DatasetSplit.TEST: "test_2016_flickr",
}


class Multi30kProblem(TranslateProblem):
    """Multi30k, task 1, from the corpus's own `.gz` files in `--tmp_dir`, fetched when absent."""

    languages: tuple[str, str]
    """Codes of the source and the target language: the last part of the file names."""

    @property
    def approx_vocab_size(self) -> int:
        return 2**12

    @property
    def dataset_splits(self) -> list[dict]:
        return [
            {"split": DatasetSplit.TRAIN, "shards": 10},
            {"split": DatasetSplit.EVAL, "shards": 1},
            {"split": DatasetSplit.TEST, "shards": 1},
        ]

    def source_data_files(self, split: str) -> list:
        source, target = (f"{_PARTS[split]}.{language}.gz" for language in self.languages)
        return [[(_RAW_FILES + source, _RAW_FILES + target), (source, target)]]


@register_problem
class TranslateEndeMulti30k(Multi30kProblem):
    """English to German."""

    languages = ("en", "de")


@register_problem
class TranslateEnfrMulti30k(Multi30kProblem):
    """English to French."""

    languages = ("en", "fr")
