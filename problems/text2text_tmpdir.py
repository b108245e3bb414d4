"""Any parallel text of one's own, from files in `--tmp_dir` that bear T2T's names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from t2t_keras.data import DatasetSplit, Text2TextProblem, VocabType
from t2t_keras.data.text_problem import PathLike, absent_vocabulary
from t2t_keras.data.translate import read_pairs
from t2t_keras.files import atomic_write
from t2t_keras.registry import register_problem
from t2t_keras.text import TokenTextEncoder
from t2t_keras.text.lines import iterate_lines


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


@register_problem("text2text_tmpdir_tokens")
class Text2textTmpdirTokens(Text2textTmpdir):
    """The same with the words of `vocab.txt` as its vocabulary, one a line (T2T's name).

    `<pad>`, `<EOS>` and `<UNK>`, which stands for all other words, need not be among them.
    """

    vocab_type = VocabType.TOKEN
    oov_token = "<UNK>"

    def get_or_create_vocab(
        self, data_dir: PathLike, tmp_dir: PathLike | None, force_get: bool = False
    ):
        """Returns the encoder; takes the words from `tmp_dir` if `data_dir` has none yet.

        Raises:
            UserError: there are none, or none may be taken.
        """
        path = Path(data_dir) / str(self.vocab_filename)
        if not path.exists():
            if force_get or tmp_dir is None:
                raise absent_vocabulary(self, data_dir)
            words = (line.strip() for line in iterate_lines(Path(tmp_dir) / "vocab.txt"))
            with atomic_write(path) as partial:
                TokenTextEncoder(vocab_list=[self.oov_token, *words]).store_to_file(partial)
        return super().get_or_create_vocab(data_dir, tmp_dir, force_get)
