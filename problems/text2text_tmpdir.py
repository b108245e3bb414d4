"""Any parallel text of one's own, from four files in `--tmp_dir`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from t2t_keras.data import DatasetSplit, Text2TextProblem
from t2t_keras.data.text_problem import PathLike
from t2t_keras.data.translate import read_pairs
from t2t_keras.registry import register_problem


@register_problem("text2text_tmpdir")
class Text2textTmpdir(Text2TextProblem):
    """Pairs of lines of `inputs.{train,eval}.txt` and `targets.{train,eval}.txt` (T2T's name)."""

    TRAIN_FILES = ("inputs.train.txt", "targets.train.txt")
    EVAL_FILES = ("inputs.eval.txt", "targets.eval.txt")

    @property
    def is_generate_per_split(self) -> bool:
        return True

    def generate_samples(
        self, data_dir: PathLike, tmp_dir: PathLike, split: str
    ) -> Iterator[dict[str, str]]:
        files = self.TRAIN_FILES if split == DatasetSplit.TRAIN else self.EVAL_FILES
        for inputs, targets in read_pairs(*(Path(tmp_dir) / name for name in files)):
            yield {"inputs": inputs, "targets": targets}
