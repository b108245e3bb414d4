"""T2T's English to Romanian: WMT 2016."""

from __future__ import annotations

from t2t_keras.data import DatasetSplit, TranslateProblem, VocabType
from t2t_keras.registry import register_problem

_TRAIN = [
    [
        "http://www.statmt.org/europarl/v7/ro-en.tgz",
        ("europarl-v7.ro-en.en", "europarl-v7.ro-en.ro"),
    ],
    [
        "http://opus.nlpl.eu/download.php?f=SETIMES/v2/moses/en-ro.txt.zip",
        ("SETIMES.en-ro.en", "SETIMES.en-ro.ro"),
    ],
]
_DEV = [
    [
        "http://data.statmt.org/wmt16/translation-task/dev-romanian-updated.tgz",
        ("dev/newsdev2016-roen-ref.en.sgm", "dev/newsdev2016-roen-src.ro.sgm"),
    ]
]


@register_problem
class TranslateEnroWmt32k(TranslateProblem):
    """614,000 pairs."""

    def source_data_files(self, split: str) -> list:
        return _TRAIN if split == DatasetSplit.TRAIN else _DEV


@register_problem
class TranslateEnroWmt8k(TranslateEnroWmt32k):
    """The same with a small vocabulary."""

    approx_vocab_size = 2**13


@register_problem
class TranslateEnroWmtCharacters(TranslateEnroWmt32k):
    """The same as bytes."""

    vocab_type = VocabType.CHARACTER
