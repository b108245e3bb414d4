"""T2T's English to Estonian: WMT 2018."""

from __future__ import annotations

from t2t_keras.data import DatasetSplit, TranslateProblem, VocabType
from t2t_keras.registry import register_problem

_WMT18 = "http://data.statmt.org/wmt18/translation-task"
_PARACRAWL = "paracrawl-release1.en-et.zipporah0-dedup-clean"
_TRAIN = [
    [
        f"{_WMT18}/training-parallel-ep-v8.tgz",
        ("training/europarl-v8.et-en.en", "training/europarl-v8.et-en.et"),
    ],
    [
        f"https://s3.amazonaws.com/web-language-models/paracrawl/release1/{_PARACRAWL}.tgz",
        (f"{_PARACRAWL}.en", f"{_PARACRAWL}.et"),
    ],
    [f"{_WMT18}/rapid2016.tgz", ("rapid2016.en-et.en", "rapid2016.en-et.et")],
]
_DEV = [
    [
        "https://github.com/stefan-it/nmt-en-et/raw/master/data/newsdev2018-enet.tar.gz",
        ("newsdev2018-enet-src.en", "newsdev2018-enet-ref.et"),
    ]
]


@register_problem
class TranslateEnetWmt32k(TranslateProblem):
    """2.2 million pairs."""

    def source_data_files(self, split: str) -> list:
        return _TRAIN if split == DatasetSplit.TRAIN else _DEV


@register_problem
class TranslateEnetWmtCharacters(TranslateEnetWmt32k):
    """The same as bytes."""

    vocab_type = VocabType.CHARACTER
