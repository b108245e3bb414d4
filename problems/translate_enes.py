"""T2T's English to Spanish: WMT 2013 and ParaCrawl."""

from __future__ import annotations

from t2t_keras.data import DatasetSplit, TranslateProblem, VocabType
from t2t_keras.problems import wmt
from t2t_keras.registry import register_problem

_PARACRAWL = [
    "https://s3.amazonaws.com/web-language-models/paracrawl/release1/"
    "paracrawl-release1.en-es.zipporah0-dedup-clean.tgz",
    (
        "paracrawl-release1.en-es.zipporah0-dedup-clean.en",
        "paracrawl-release1.en-es.zipporah0-dedup-clean.es",
    ),
]
_TRAIN = [wmt.common_crawl("es"), wmt.europarl_v7("es"), wmt.un_2000("es"), _PARACRAWL]


@register_problem
class TranslateEnesWmt32k(TranslateProblem):
    """All of it."""

    def source_data_files(self, split: str) -> list:
        return _TRAIN if split == DatasetSplit.TRAIN else [wmt.newstest2013("es")]


@register_problem
class TranslateEnesWmt32kPacked(TranslateEnesWmt32k):
    """The same, several pairs to a row of 256."""

    packed_length = 256

    @property
    def use_vocab_from_other_problem(self) -> TranslateProblem:
        return TranslateEnesWmt32k()


@register_problem
class TranslateEnesWmt8k(TranslateEnesWmt32k):
    """The same with a small vocabulary."""

    approx_vocab_size = 2**13


@register_problem
class TranslateEnesWmt8kPacked(TranslateEnesWmt8k):
    """The small vocabulary, several pairs to a row of 256."""

    packed_length = 256

    @property
    def use_vocab_from_other_problem(self) -> TranslateProblem:
        return TranslateEnesWmt8k()


@register_problem
class TranslateEnesWmtCharacters(TranslateEnesWmt32k):
    """The same as bytes."""

    vocab_type = VocabType.CHARACTER
