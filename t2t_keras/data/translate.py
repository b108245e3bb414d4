"""Translation problems on parallel files, such as those of the WMT workshops."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from t2t_keras.data.problem import DatasetSplit, missing_hook
from t2t_keras.data.sources.data_files import (
    local_sources,
    read_pairs,
    read_sources,
    require_parallel,
    source_files,
    text_size,
)
from t2t_keras.data.text_problem import PathLike, Samples, Text2TextProblem
from t2t_keras.errors import UserError
from t2t_keras.text.lines import iterate_lines

__all__ = [
    "TranslateProblem",
    "TwoVocabularyProblem",
    "read_pairs",
    "require_parallel",
    "source_files",
]

_SIDES = ("inputs", "targets")


class TranslateProblem(Text2TextProblem):
    """Translation with data from parallel files (T2T's `TranslateProblem`)."""

    vocab_file_budget = 1e6
    """How many characters of each file to use for the vocabulary (T2T's `file_byte_budget`)."""

    datatypes_to_clean: Sequence[str] = ()
    """T2T's cleaning by rules for English, which is not supported: must be empty."""

    is_generate_per_split = True

    def source_data_files(self, split: str) -> list:
        """Hook: returns the sources of a split; most are `[url, (source file, target file)]`.

        Files are named relative to `tmp_dir`, and `url` is the archive that contains them: see
        `t2t_keras.data.sources.data_files` for all kinds of sources.
        """
        raise missing_hook(self, "source_data_files")

    def vocab_data_files(self) -> list:
        """Returns the sources to build the vocabulary from; default: the training files."""
        return self.source_data_files(DatasetSplit.TRAIN)

    def available(self, tmp_dir: PathLike, sources: Sequence) -> list:
        """Hook: returns the sources to use; default: all."""
        return list(sources)

    def generate_samples(self, data_dir: PathLike, tmp_dir: PathLike, split: str) -> Samples:
        """Yields the pairs of all sources of a split; drops pairs with an empty side."""
        if self.datatypes_to_clean:
            raise UserError(
                f"The problem {self.name} asks for T2T's cleaning of {self.datatypes_to_clean}, which "
                "is not supported: remove datatypes_to_clean and use the --clean_* flags."
            )
        sources = self.available(tmp_dir, self.source_data_files(split))
        for inputs, targets in read_sources(tmp_dir, sources, self.dropped):
            yield {"inputs": inputs, "targets": targets}

    def generate_text_for_vocab(self, data_dir: PathLike, tmp_dir: PathLike) -> Iterator[str]:
        """Yields about a million characters of each file, from lines spread over the file."""
        return self.generate_text_of_sides(tmp_dir, (0, 1))

    def generate_text_of_sides(self, tmp_dir: PathLike, sides: Sequence[int]) -> Iterator[str]:
        """Yields text for the vocabulary from the inputs (side 0), the targets (side 1) or both."""
        sources = self.available(tmp_dir, self.vocab_data_files())
        found = local_sources(tmp_dir, sources)
        for source in found:
            if source.kind == "text":
                require_parallel(*source.paths)
        for source, local in zip(sources, found, strict=True):
            if local.kind == "text":
                for side in sides:
                    path = local.paths[side]
                    lines = iterate_lines(path)
                    yield from _spread(lines, text_size(path).bytes, self.vocab_file_budget)
            else:
                yield from self.spread_pairs(tmp_dir, [source], sides)

    def spread_pairs(
        self, tmp_dir: PathLike, sources: Sequence, sides: Sequence[int]
    ) -> Iterator[str]:
        """Yields the text that T2T uses for the vocabulary after writing all pairs to two files."""

        def pairs() -> Iterator[tuple[str, str]]:
            return read_sources(tmp_dir, sources, Counter())

        sizes = [0, 0]
        for pair in pairs():
            for side in sides:
                sizes[side] += len(pair[side].encode()) + 1
        for side in sides:
            lines = (pair[side] for pair in pairs())
            yield from _spread(lines, sizes[side], self.vocab_file_budget)


class TwoVocabularyProblem(TranslateProblem):
    """Translation with a subword vocabulary for each language."""

    @property
    def vocab_filenames(self) -> tuple[str, str]:
        """Hook: the names, in `data_dir`, of the vocabulary files of inputs and targets."""
        raise missing_hook(self, "vocab_filenames")

    @property
    def approx_vocab_sizes(self) -> tuple[int, int]:
        """The approximate sizes of the vocabularies of inputs and of targets."""
        return self.approx_vocab_size, self.approx_vocab_size

    def get_or_create_encoders(self, data_dir: PathLike, tmp_dir: PathLike) -> dict[str, Any]:
        return self._encoders_of_sides(data_dir, tmp_dir)

    def feature_encoders(self, data_dir: PathLike) -> dict:
        return self._encoders_of_sides(data_dir, None)

    def _encoders_of_sides(self, data_dir: PathLike, tmp_dir: PathLike | None) -> dict[str, Any]:
        sides = {name: _Side(self, side) for side, name in enumerate(_SIDES)}
        return {name: side.get_or_create_vocab(data_dir, tmp_dir) for name, side in sides.items()}


class _Side(Text2TextProblem):
    """One side of a `TwoVocabularyProblem`, as a problem with one vocabulary."""

    def __init__(self, problem: TwoVocabularyProblem, side: int):
        super().__init__()
        self._problem, self._side = problem, side
        self.name = problem.name
        self.vocab_type, self.sentencepiece_model = problem.vocab_type, problem.sentencepiece_model
        self.approx_vocab_size = problem.approx_vocab_sizes[side]
        self.additional_reserved_tokens = problem.additional_reserved_tokens
        self.max_subtoken_length = problem.max_subtoken_length

    def dataset_filename(self) -> str:
        return self._problem.dataset_filename()

    @property
    def vocab_filename(self) -> str:
        return self._problem.vocab_filenames[self._side]

    def generate_text_for_vocab(self, data_dir: PathLike, tmp_dir: PathLike) -> Iterator[str]:
        return self._problem.generate_text_of_sides(tmp_dir, (self._side,))


def _spread(lines: Iterator[str], size: int, budget: float) -> Iterator[str]:
    """Yields the lines that T2T selects for its vocabulary: evenly spaced, up to `budget` characters."""
    skipped = int(size / budget / 2)
    left = budget
    for line in itertools.islice(lines, skipped, None, skipped + 1):
        if left <= 0:
            return
        line = line.strip()
        left -= len(line)
        yield line
