"""T2T's English to Czech: CzEng 1.6 and WMT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from t2t_keras.data import DatasetSplit, TranslateProblem, VocabType
from t2t_keras.data.text_problem import PathLike
from t2t_keras.problems import wmt
from t2t_keras.registry import register_problem

_CZENG = [
    "https://lindat.mff.cuni.cz/repository/xmlui/bitstream/handle/11234/1-1458/"
    "data-plaintext-format.tar",
    ("tsv", 3, 2, "data.plaintext-format/*train.gz"),
]
_WMT = [wmt.news_commentary_v13("cs"), wmt.common_crawl("cs"), wmt.europarl_v7("cs")]


class EncsProblem(TranslateProblem):
    """CzEng and WMT, about 60 million pairs."""

    def source_data_files(self, split: str) -> list:
        return [_CZENG, *_WMT] if split == DatasetSplit.TRAIN else [wmt.newstest2013("cs")]


@register_problem
class TranslateEncsWmt32k(EncsProblem):
    """Subwords; their vocabulary takes a million characters of all text, and as many of each file."""

    def vocab_data_files(self) -> list:
        return _WMT

    def generate_text_of_sides(self, tmp_dir: PathLike, sides: Sequence[int]) -> Iterator[str]:
        yield from self.spread_pairs(tmp_dir, [_CZENG, *_WMT], sides)
        yield from super().generate_text_of_sides(tmp_dir, sides)


@register_problem
class TranslateEncsWmtCharacters(EncsProblem):
    """Bytes."""

    vocab_type = VocabType.CHARACTER
