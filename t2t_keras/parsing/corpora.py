"""Where the trees of a corpus lie: files of a tree a line, sections of the Penn Treebank."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from t2t_keras.errors import UserError
from t2t_keras.parsing.trees import Tree, iterate_trees
from t2t_keras.text.lines import iterate_lines

_TREE_FILE = re.compile(r"\.(trees|mrg)(\.gz)?$", re.IGNORECASE)
_PLACES_OF_SECTIONS = ("", "wsj", "mrg/wsj", "parsed/mrg/wsj", "treebank_3/parsed/mrg/wsj")
_EXAMPLE = "(TOP (NP (NN tea)))"


@dataclasses.dataclass(frozen=True)
class TreeCorpus:
    """The trees of a split: the first of its files that is there, or else its sections.

    Args:
        names: of files relative to `--tmp_dir`; each may be a directory of `.trees` or `.mrg` files
            instead, by its name without `.trees`, and all may be `.gz`.
        sections: numbers of directories of the Wall Street Journal, such as `range(2, 22)`.
    """

    names: tuple[str, ...]
    sections: range = range(0)

    def find(self, directory: str | os.PathLike) -> list[Path]:
        """Returns its files, in their order; none if there are none."""
        directory = Path(directory)
        for name in self.names:
            folder = directory / name.removesuffix(".trees")
            for file in (directory / name, directory / f"{name}.gz"):
                if file.is_file():
                    return [file]
            if folder.is_dir() and (files := _tree_files(folder)):
                return files
        return self._files_of_sections(directory)

    def describe(self) -> str:
        """Returns in words what `find` looks for."""
        words = " or ".join(self.names) + " (a tree a line)"
        if self.sections:
            below = ", ".join(place for place in _PLACES_OF_SECTIONS if place)
            words += (
                f" or sections {self._range()} ({self.sections[0]:02}/*.mrg, also below {below})"
            )
        return words

    def _files_of_sections(self, directory: Path) -> list[Path]:
        for place in (p for name in _PLACES_OF_SECTIONS for p in (name, name.upper())):
            files = {n: _tree_files(directory / place / f"{n:02}") for n in self.sections}
            absent = [f"{number:02}" for number, found in files.items() if not found]
            if len(absent) < len(files):
                if absent:
                    _warn(f"{directory / place} has no section {', '.join(absent)}: read without")
                return [file for found in files.values() for file in found]
        return []

    def _range(self) -> str:
        first, last = self.sections[0], self.sections[-1]
        return f"{first:02}" if first == last else f"{first:02} to {last:02}"


def require_corpora(
    directory: str | os.PathLike, corpora: Sequence[TreeCorpus], wanted_by: str
) -> list[list[Path]]:
    """Returns the files of each corpus.

    Raises:
        UserError: some have none; it says which files are expected.
    """
    found = [corpus.find(directory) for corpus in corpora]
    absent = [c.describe() for c, files in zip(corpora, found, strict=True) if not files]
    if absent:
        raise UserError(
            f"{wanted_by} needs trees in brackets, such as {_EXAMPLE}, in {directory}; absent: "
            f"{'; '.join(absent)}. Place them there, plain or .gz, or give another --tmp_dir."
        )
    return found


def spaced_trees(files: Sequence[Path], characters: int) -> Iterator[Tree]:
    """Yields evenly spaced trees of some files, about so many characters of them in brackets."""
    blocks = ((file, *block) for file in files for block in _blocks(file))
    step = max(1, math.ceil(sum(map(_characters, files)) / characters))
    for number, (file, first_line, lines) in enumerate(blocks):
        if number % step == 0:
            yield from iterate_trees(lines, os.fspath(file), first_line)


def _blocks(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Yields the lines of each tree, unread, after the number of the first: a tenth of the work."""
    block: list[str] = []
    depth = 0
    for number, line in enumerate(iterate_lines(file), start=1):
        block.append(line)
        depth += line.count("(") - line.count(")")
        if depth <= 0:
            if any(block):
                yield number - len(block) + 1, block
            block, depth = [], 0
    if block:
        yield number - len(block) + 1, block


def _characters(file: Path) -> int:
    return sum(map(len, iterate_lines(file)))


def _tree_files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if _TREE_FILE.search(path.name))


def _warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr, flush=True)
