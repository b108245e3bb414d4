"""T2T's English to German: WMT with News Commentary v13, and ParaCrawl."""

from __future__ import annotations

from t2t_keras.data import DatasetSplit, TranslateProblem, VocabType
from t2t_keras.problems import wmt
from t2t_keras.registry import register_problem

_WMT = [wmt.news_commentary_v13("de"), wmt.common_crawl("de"), wmt.europarl_v7("de")]
_PARACRAWL = [
    "https://s3.amazonaws.com/web-language-models/paracrawl/release4/en-de.bicleaner07.tmx.gz",
    ("tmx", "en-de.bicleaner07.tmx.gz"),
]
_DEV = [wmt.newstest2013("de")]


@register_problem
class TranslateEndeWmt32k(TranslateProblem):
    """WMT, 4.6 million pairs, not quite the paper's: its News Commentary was v9."""

    def source_data_files(self, split: str) -> list:
        return _WMT if split == DatasetSplit.TRAIN else _DEV


@register_problem
class TranslateEndeWmt32kPacked(TranslateEndeWmt32k):
    """The same, several pairs to a row of 256."""

    packed_length = 256

    @property
    def use_vocab_from_other_problem(self) -> TranslateProblem:
        return TranslateEndeWmt32k()


@register_problem
class TranslateEndeWmt8k(TranslateEndeWmt32k):
    """The same with a small vocabulary."""

    approx_vocab_size = 2**13


@register_problem
class TranslateEndeWmt8kPacked(TranslateEndeWmt8k):
    """The small vocabulary, several pairs to a row of 256."""

    packed_length = 256

    @property
    def use_vocab_from_other_problem(self) -> TranslateProblem:
        return TranslateEndeWmt8k()


@register_problem
class TranslateEndeWmtCharacters(TranslateEndeWmt32k):
    """The same as bytes."""

    vocab_type = VocabType.CHARACTER


@register_problem
class TranslateEndePc32k(TranslateEndeWmt32k):
    """ParaCrawl alone, with the vocabulary of WMT."""

    @property
    def use_vocab_from_other_problem(self) -> TranslateProblem:
        return TranslateEndeWmt32k()

    def source_data_files(self, split: str) -> list:
        return [_PARACRAWL] if split == DatasetSplit.TRAIN else _DEV


@register_problem
class TranslateEndeWmtPc32k(TranslateEndePc32k):
    """WMT and ParaCrawl, with the vocabulary of WMT."""

    def source_data_files(self, split: str) -> list:
        return [*_WMT, _PARACRAWL] if split == DatasetSplit.TRAIN else _DEV
