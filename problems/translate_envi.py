"""T2T's English to Vietnamese: IWSLT 2015."""

from __future__ import annotations

from t2t_keras.data import DatasetSplit, TranslateProblem
from t2t_keras.registry import register_problem

_DATA = "https://github.com/stefan-it/nmt-en-vi/raw/master/data"
_TRAIN = [[f"{_DATA}/train-en-vi.tgz", ("train.en", "train.vi")]]
_DEV = [[f"{_DATA}/dev-2012-en-vi.tgz", ("tst2012.en", "tst2012.vi")]]


@register_problem
class TranslateEnviIwslt32k(TranslateProblem):
    """133,000 pairs."""

    def source_data_files(self, split: str) -> list:
        return _TRAIN if split == DatasetSplit.TRAIN else _DEV
