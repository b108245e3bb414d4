"""T2T's English to Chinese: News Commentary, and two corpora that are to be asked for."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path

from t2t_keras.data import DatasetSplit
from t2t_keras.data.text_problem import PathLike
from t2t_keras.data.translate import TwoVocabularyProblem
from t2t_keras.problems import wmt
from t2t_keras.registry import register_problem

_CWMT = [
    ["cwmt.tgz", (f"cwmt/{stem}_en.txt", f"cwmt/{stem}_{chinese}.txt")]
    for stem, chinese in (
        ("casia2015/casia2015", "ch"),
        ("casict2015/casict2015", "ch"),
        ("neu2017/NEU", "cn"),
        ("datum2015/datum", "ch"),
        *((f"datum2017/Book{number}", "cn") for number in range(1, 21)),
    )
]
_UN = ["UNv1.0.en-zh.tar.gz", ("en-zh/UNv1.0.en-zh.en", "en-zh/UNv1.0.en-zh.zh")]
_DEV = [
    "http://data.statmt.org/wmt18/translation-task/dev.tgz",
    ("dev/newsdev2017-enzh-src.en.sgm", "dev/newsdev2017-enzh-ref.zh.sgm"),
]


@register_problem
class TranslateEnzhWmt8k(TwoVocabularyProblem):
    """News Commentary alone, 252,000 pairs, with a small vocabulary for each language."""

    approx_vocab_size = 2**13
    vocab_file_budget = 1e8
    dataset_splits = [
        {"split": DatasetSplit.TRAIN, "shards": 10},
        {"split": DatasetSplit.EVAL, "shards": 1},
    ]

    @property
    def vocab_filenames(self) -> tuple[str, str]:
        return f"{self.vocab_filename}.en", f"{self.vocab_filename}.zh"

    def source_data_files(self, split: str) -> list:
        return [wmt.news_commentary_v13("zh")] if split == DatasetSplit.TRAIN else [_DEV]


@register_problem
class TranslateEnzhWmt32k(TranslateEnzhWmt8k):
    """WMT 2018, 24 million pairs, with a vocabulary for each language.

    The archives of CWMT (http://nlp.nju.edu.cn/cwmt-wmt/) and of the UN Parallel Corpus
    (https://conferences.unite.un.org/UNCorpus) have to be asked for and placed in `tmp_dir`; one that
    is not there is left out.
    """

    approx_vocab_size = 2**15
    dataset_splits = [
        {"split": DatasetSplit.TRAIN, "shards": 100},
        {"split": DatasetSplit.EVAL, "shards": 1},
    ]

    def source_data_files(self, split: str) -> list:
        more = [*_CWMT, _UN] if split == DatasetSplit.TRAIN else []
        return [*super().source_data_files(split), *more]

    def available(self, tmp_dir: PathLike, sources: Sequence) -> list:
        """Returns the sources without those of an archive that is to be placed and is not."""
        placed = {source[0] for source in sources if "://" not in source[0]}
        absent = {archive for archive in placed if not (Path(tmp_dir) / archive).exists()}
        for archive in sorted(absent):
            _tell(f"{self.name}: without {archive}, which is not in {tmp_dir}")
        return [source for source in sources if source[0] not in absent]


@functools.cache
def _tell(line: str) -> None:
    """Tells it once."""
    print(line, file=sys.stderr, flush=True)
