"""T2T's English to Macedonian: SETimes, with Orwell's "1984" as dev."""

from __future__ import annotations

from t2t_keras.data import DatasetSplit, TranslateProblem, VocabType
from t2t_keras.registry import register_problem

_TRAIN = [
    [
        "http://nlp.ffzg.hr/data/corpora/setimes/setimes.en-mk.txt.tgz",
        ("setimes.en-mk.en.txt", "setimes.en-mk.mk.txt"),
    ]
]
_DEV = [
    [
        "https://github.com/stefan-it/nmt-en-mk/raw/master/data/MTE-1984-dev.enmk.tgz",
        ("MTE1984-dev.en", "MTE1984-dev.mk"),
    ]
]


@register_problem
class TranslateEnmkSetimes32k(TranslateProblem):
    """208,000 pairs."""

    def source_data_files(self, split: str) -> list:
        return _TRAIN if split == DatasetSplit.TRAIN else _DEV


@register_problem
class TranslateEnmkSetimesCharacters(TranslateEnmkSetimes32k):
    """The same as bytes."""

    vocab_type = VocabType.CHARACTER
