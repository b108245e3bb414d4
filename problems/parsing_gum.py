"""Parsing on a treebank that anybody can have: files of bracketed trees, such as GUM's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from t2t_keras.data import DatasetSplit, VocabType
from t2t_keras.data.parsing_problem import ParsingProblem, TreeCorpus
from t2t_keras.data.text_problem import PathLike, absent_vocabulary
from t2t_keras.files import atomic_write
from t2t_keras.registry import register_problem
from t2t_keras.text import TokenTextEncoder

UNKNOWN = "<UNK>"
"""Stands for a tag or bracket that no training tree has."""


@register_problem
class ParsingEnglishGum(ParsingProblem):
    """`train.trees`, `dev.trees` and `test.trees`, plain or `.gz`, with a vocabulary a side.

    Words have one of 8 K subwords. Of tags and brackets each is one token, so that outputs are
    nearly a quarter shorter than in subwords, where the slash of "/NP" stands apart. Both
    vocabularies are of the training trees alone; any other tag is "<UNK>".

    Any treebank will do. GUM, the Georgetown University Multilayer corpus
    (https://gucorpling.org/gum), has trees of about 13,000 sentences in its folder `const`.
    """

    approx_vocab_size = 2**13

    @property
    def vocab_filenames(self) -> tuple[str, str]:
        """The names of the vocabulary files in `data_dir`: of words, and of tags and brackets."""
        tags = f"vocab.{self.dataset_filename()}.tags.{VocabType.TOKEN}"
        return str(self.vocab_filename), tags

    def corpora(self, split: str) -> Sequence[TreeCorpus]:
        return [TreeCorpus((f"{split}.trees",))]

    def generate_text_for_vocab(self, data_dir: PathLike, tmp_dir: PathLike) -> Iterator[str]:
        """Yields the words of all training trees."""
        for sample in self.generate_samples(data_dir, tmp_dir, DatasetSplit.TRAIN):
            yield sample["inputs"]

    def get_or_create_encoders(self, data_dir: PathLike, tmp_dir: PathLike) -> dict[str, Any]:
        """Returns both encoders; builds the vocabularies that are absent."""
        words = self.get_or_create_vocab(data_dir, tmp_dir)
        path = self._tags_path(data_dir)
        if not path.exists():
            samples = self.generate_samples(data_dir, tmp_dir, DatasetSplit.TRAIN)
            symbols = {symbol for sample in samples for symbol in sample["targets"].split()}
            with atomic_write(path) as partial:
                TokenTextEncoder(vocab_list=[UNKNOWN, *sorted(symbols)]).store_to_file(partial)
        return {"inputs": words, "targets": _tags_encoder(path)}

    def feature_encoders(self, data_dir: PathLike) -> dict:
        """Returns both encoders; their vocabularies must exist."""
        words = self.get_or_create_vocab(data_dir, None, force_get=True)
        path = self._tags_path(data_dir)
        if not path.exists():
            raise absent_vocabulary(self, data_dir, path.name)
        return {"inputs": words, "targets": _tags_encoder(path)}

    def _tags_path(self, data_dir: PathLike) -> Path:
        return Path(data_dir) / self.vocab_filenames[1]


def _tags_encoder(path: Path) -> TokenTextEncoder:
    """Reads the vocabulary of tags; one of version 0.1.0, of all splits, has no unknown ones."""
    known = path.read_text("utf-8").split()
    return TokenTextEncoder(path, replace_oov=UNKNOWN if UNKNOWN in known else None)
