"""T2T's English to Setswana: the Autshumato corpus of the RMA."""

from __future__ import annotations

from t2t_keras.data import DatasetSplit, TranslateProblem
from t2t_keras.registry import register_problem


def _part(part: str) -> list:
    url = "https://github.com/LauraMartinus/ukuxhumana/blob/master/data/en_tn"
    names = (f"entn_parallel.{part}.en", f"entn_parallel.{part}.tn")
    return [f"{url}/eng_tswane.{part}.tar.gz?raw=true", names]


@register_problem
class TranslateEntnRma(TranslateProblem):
    """Its vocabulary file has a name of T2T's own."""

    @property
    def vocab_filename(self) -> str:
        return f"vocab.entn.{self.approx_vocab_size}"

    def source_data_files(self, split: str) -> list:
        return [_part("train" if split == DatasetSplit.TRAIN else "dev")]
