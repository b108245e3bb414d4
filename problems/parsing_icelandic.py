"""T2T's parsing of Icelandic, on trees that one brings along."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from t2t_keras.data import DatasetSplit, SpaceID
from t2t_keras.data.text_problem import PathLike
from t2t_keras.data.translate import TwoVocabularyProblem
from t2t_keras.registry import register_problem
from t2t_keras.text.lines import iterate_lines


@register_problem("parsing_icelandic16k")
class ParsingIcelandic16k(TwoVocabularyProblem):
    """Sentences and their trees as text, read from `parsing_train.pairs` and `parsing_dev.pairs`.

    A line holds a sentence, a tab and its tree. Outputs are text, not trees: T2T leaves open how
    they are written.
    """

    approx_vocab_sizes = 2**14, 2**8
    vocab_filenames = "ice_source.tokens.vocab.16384", "ice_target.tokens.vocab.256"
    table_sizes = None, 2**8  # T2T's, however many tokens the vocabulary of trees has
    max_subtoken_length = None
    loss_multiplier = 2.5
    space_ids = SpaceID.ICE_TOK, SpaceID.ICE_PARSE_TOK
    dataset_splits = [
        {"split": DatasetSplit.TRAIN, "shards": 10},
        {"split": DatasetSplit.EVAL, "shards": 1},
    ]

    def generate_samples(
        self, data_dir: PathLike, tmp_dir: PathLike, split: str
    ) -> Iterator[dict[str, str]]:
        """Yields the pairs of a file; one with an empty side, or without a tab, is left out."""
        for inputs, targets in _pairs(tmp_dir, split):
            if inputs and targets:
                yield {"inputs": inputs, "targets": targets}
            else:
                self.dropped["empty"] += 1

    def generate_text_of_sides(self, tmp_dir: PathLike, sides: Sequence[int]) -> Iterator[str]:
        """Yields the inputs (0), the targets (1) or both of all training pairs."""
        for pair in _pairs(tmp_dir, DatasetSplit.TRAIN):
            for side in sides:
                yield pair[side]


def _pairs(tmp_dir: PathLike, split: str) -> Iterator[tuple[str, str]]:
    for line in iterate_lines(Path(tmp_dir) / f"parsing_{split}.pairs"):
        inputs, _, targets = line.partition("\t")
        yield inputs.strip(), targets.strip()
