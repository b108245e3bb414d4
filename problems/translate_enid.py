"""T2T's English to Indonesian: IWSLT 2017 and PANL-BPPT."""

from __future__ import annotations

from t2t_keras.data import DatasetSplit, TranslateProblem
from t2t_keras.registry import register_problem

_DATA = "https://github.com/prasastoadi/parallel-corpora-en-id/raw/master"


def _iwslt(name: str) -> list:
    return [f"{_DATA}/{name}.tgz", (f"{name}.en", f"{name}.id")]


def _panl(topic: str, words: str) -> list:
    names = (f"PANL-BPPT-{topic}-EN-{words}.txt", f"PANL-BPPT-{topic}-ID-{words}.txt")
    return [f"{_DATA}/PANL-BPPT-{topic}-EN-ID-{words}.tgz", names]


_TRAIN = [
    _iwslt("IWSLT17.train.en-id"),
    _panl("ECO", "150Kw"),
    _panl("INT", "150Kw"),
    _panl("SCI", "100Kw"),
    _panl("SPO", "100Kw"),
]
_DEV = [_iwslt("IWSLT17.TED.tst2017plus.en-id")]


@register_problem
class TranslateEnidIwslt32k(TranslateProblem):
    """133,000 pairs."""

    def source_data_files(self, split: str) -> list:
        return _TRAIN if split == DatasetSplit.TRAIN else _DEV
