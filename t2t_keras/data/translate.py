"""Problems whose data are parallel files: line N of one translates line N of the other."""

from __future__ import annotations

import gzip
import itertools
import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from t2t_keras.data.download import fetch
from t2t_keras.data.problem import DatasetSplit, missing_hook
from t2t_keras.data.text_problem import PathLike, Text2TextProblem
from t2t_keras.errors import UserError
from t2t_keras.text.lines import iterate_lines

_VOCAB_BUDGET = 1e6
"""How much of each file T2T reads for the vocabulary."""


class TranslateProblem(Text2TextProblem):
    """Translation from parallel files (T2T's `TranslateProblem`)."""

    @property
    def is_generate_per_split(self) -> bool:
        return True

    def source_data_files(self, split: str) -> list:
        """Hook: returns the sources of a split: `[url, (source file, target file)]` each.

        Files are named relative to `tmp_dir` and may end in `.gz`. When one is absent it is fetched:
        `url` is a tar archive that holds both, or a pair of URLs, one a file, or "" for nowhere.
        """
        raise missing_hook(self, "source_data_files")

    def vocab_data_files(self) -> list:
        """Returns the sources that the vocabulary is built from: the training files."""
        return self.source_data_files(DatasetSplit.TRAIN)

    def generate_samples(
        self, data_dir: PathLike, tmp_dir: PathLike, split: str
    ) -> Iterator[dict[str, str]]:
        """Yields the pairs of all sources of a split; a pair with an empty side is left out."""
        for source in self.source_data_files(split):
            for inputs, targets in read_pairs(*source_files(tmp_dir, source)):
                if inputs and targets:
                    yield {"inputs": inputs, "targets": targets}

    def generate_text_for_vocab(self, data_dir: PathLike, tmp_dir: PathLike) -> Iterator[str]:
        """Yields about a million characters of each file, from lines spread over the file."""
        for source in self.vocab_data_files():
            paths = source_files(tmp_dir, source)
            require_parallel(*paths)
            for path in paths:
                yield from _sample_lines(path)


def source_files(tmp_dir: PathLike, source: Sequence) -> tuple[Path, Path]:
    """Returns the paths of a source's two files, after fetching what is absent.

    Args:
        tmp_dir: the folder of the files.
        source: `[url, (source file, target file)]`, see `TranslateProblem.source_data_files`.

    Raises:
        UserError: a file is absent and cannot be fetched.
    """
    url, names = source
    first, second = (Path(tmp_dir) / name for name in names)
    if not (first.exists() and second.exists()):
        if isinstance(url, str) and url:
            _unpack(fetch(url, Path(tmp_dir) / os.path.basename(url)), Path(tmp_dir))
        elif url:
            for address, path in zip(url, (first, second), strict=True):
                fetch(address, path)
    for path in (first, second):
        if not path.exists():
            raise UserError(f"The source file {path} is absent: place it there, or see --tmp_dir.")
    return first, second


def read_pairs(first: Path, second: Path) -> Iterator[tuple[str, str]]:
    """Yields the lines of two parallel files side by side, stripped as T2T strips them.

    Raises:
        UserError: see `require_parallel`; it is checked before the first pair.
    """
    require_parallel(first, second)
    for one, other in zip(iterate_lines(first), iterate_lines(second), strict=True):
        yield one.strip(), other.strip()


def require_parallel(first: Path, second: Path) -> None:
    """Reads two files through and checks that they can be a parallel pair.

    Raises:
        UserError: a file is absent, empty or not UTF-8, or their numbers of lines differ.
    """
    counts = []
    for path in (first, second):
        counts.append(sum(1 for _ in iterate_lines(path)))
        if not counts[-1]:
            raise UserError(
                f"The source file {path} is empty: place the text there, one sentence a line."
            )
    if counts[0] != counts[1]:
        raise UserError(
            f"{first} has {counts[0]} lines and {second} has {counts[1]}: "
            "line N of one must translate line N of the other, so both need the same number."
        )


def _unpack(archive: Path, directory: Path) -> None:
    try:
        with tarfile.open(archive) as files:
            files.extractall(directory, filter="data")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise UserError(
            f"{archive} cannot be unpacked: {error}. Delete it and run again."
        ) from error


def _sample_lines(path: Path) -> Iterator[str]:
    """Yields lines as T2T takes them for its vocabulary: evenly spaced ones, up to the budget."""
    skipped = int(_text_size(path) / _VOCAB_BUDGET / 2)
    left = _VOCAB_BUDGET
    for line in itertools.islice(iterate_lines(path), skipped, None, skipped + 1):
        if left <= 0:
            return
        line = line.strip()
        left -= len(line)
        yield line


def _text_size(path: Path) -> int:
    """The bytes of a text file, decompressed."""
    if path.suffix != ".gz":
        return path.stat().st_size
    with gzip.open(path) as file:
        return file.seek(0, os.SEEK_END)
