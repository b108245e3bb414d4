"""T2T's English to French: WMT 2014 whole, and a million pairs of it."""

from __future__ import annotations

from t2t_keras.data import DatasetSplit, TranslateProblem, VocabType
from t2t_keras.problems import wmt
from t2t_keras.registry import register_problem

_GIGA = [
    "http://www.statmt.org/wmt10/training-giga-fren.tar",
    ("giga-fren.release2.fixed.en.gz", "giga-fren.release2.fixed.fr.gz"),
]
_WMT = [
    wmt.common_crawl("fr"),
    wmt.europarl_v7("fr"),
    wmt.news_commentary_v9("fr"),
    _GIGA,
    wmt.un_2000("fr"),
]
_DEV = [wmt.newstest2013("fr")]


def _million(part: str) -> list:
    stem = f"baseline-1M-enfr/baseline-1M_{part}"
    url = "https://s3.amazonaws.com/opennmt-trainingdata/baseline-1M-enfr.tgz"
    return [url, (f"{stem}.en", f"{stem}.fr")]


class EnfrProblem(TranslateProblem):
    """WMT 2014, about 40 million pairs."""

    def source_data_files(self, split: str) -> list:
        return _WMT if split == DatasetSplit.TRAIN else _DEV


class EnfrSmallProblem(TranslateProblem):
    """A million pairs, with dev sentences of their own."""

    def source_data_files(self, split: str) -> list:
        return [_million("train" if split == DatasetSplit.TRAIN else "valid")]


@register_problem
class TranslateEnfrWmt32k(EnfrProblem):
    """WMT 2014."""


@register_problem
class TranslateEnfrWmt32kPacked(EnfrProblem):
    """WMT 2014, several pairs to a row of 256."""

    packed_length = 256

    @property
    def use_vocab_from_other_problem(self) -> TranslateProblem:
        return TranslateEnfrWmt32k()


@register_problem
class TranslateEnfrWmt8k(EnfrProblem):
    """WMT 2014 with a small vocabulary."""

    approx_vocab_size = 2**13


@register_problem
class TranslateEnfrWmtCharacters(EnfrProblem):
    """WMT 2014 as bytes."""

    vocab_type = VocabType.CHARACTER


@register_problem
class TranslateEnfrWmtSmall32k(EnfrSmallProblem):
    """The million pairs."""


@register_problem
class TranslateEnfrWmtSmall8k(EnfrSmallProblem):
    """The million pairs with a small vocabulary."""

    approx_vocab_size = 2**13


@register_problem
class TranslateEnfrWmtSmallCharacters(EnfrSmallProblem):
    """The million pairs as bytes."""

    vocab_type = VocabType.CHARACTER
