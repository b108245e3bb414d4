"""Constituency parsing as text to text (words in, tags and brackets out), and treebank files."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_keras.data.problem import SPLITS, missing_hook, with_shards
from t2t_keras.data.shards import shard_paths
from t2t_keras.data.text_problem import PathLike, Samples, Text2TextProblem
from t2t_keras.errors import UserError, warn
from t2t_keras.parsing import Repairs, Tree, linearize, read_tree_file, repair_tree
from t2t_keras.parsing.grammar import tree_grammar
from t2t_keras.parsing.trees import iterate_trees, strip_for_parsing, with_tags
from t2t_keras.text.lines import iterate_lines

if TYPE_CHECKING:
    from t2t_keras.decoding.logits import Constraint

_TREE_FILE = re.compile(r"\.(trees|mrg)(\.gz)?$", re.IGNORECASE)
_PLACES_OF_SECTIONS = ("", "wsj", "mrg/wsj", "parsed/mrg/wsj", "treebank_3/parsed/mrg/wsj")


class ParsingProblem(Text2TextProblem):
    """Constituency parsing (section 6.3 of the paper), learned from bracketed trees in `--tmp_dir`.

    Trees are read leniently, stripped of traces and functional tags, and linearised as in T2T. Both sides
    have one vocabulary, as in T2T's `wsj_parsing`, whose `transformer_parsing_big` shares the embedding.
    With an hparams set that does not share it, words and tags have separate tables.
    """

    is_generate_per_split = True
    dataset_splits = with_shards(SPLITS, train=10)  # as for parsing in T2T's early versions

    def __init__(self, was_reversed: bool = False, was_copy: bool = False):
        super().__init__(was_reversed, was_copy)
        self.formatted = self.repaired = 0
        self.repairs = Repairs()  # by `format_output`, beside its counts of trees

    def corpora(self, split: str) -> Sequence[TreeCorpus]:
        """Hook: returns the corpora of a split; all are required."""
        raise missing_hook(self, "corpora")

    def tree_files(self, tmp_dir: PathLike, split: str) -> list[list[Path]]:
        """Returns the files of each corpus of a split.

        Raises:
            UserError: a corpus has no files; the message names the expected ones.
        """
        corpora = self.corpora(split)
        found = [corpus.find(tmp_dir) for corpus in corpora]
        if absent := [c.describe() for c, at in zip(corpora, found, strict=True) if not at]:
            raise UserError(
                f"The {split} data of {self.name} needs trees in brackets, such as (TOP (NP (NN tea))), "
                f"in {tmp_dir}; absent: {'; '.join(absent)}. Place them there, plain or .gz, or give "
                "another --tmp_dir."
            )
        return found

    def prepare(self, tree: Tree) -> Tree | None:
        """Hook: returns the tree to train on; None: it is dropped."""
        return strip_for_parsing(tree)

    def generate_data(self, data_dir: PathLike, tmp_dir: PathLike, task_id: int = -1) -> None:
        """Writes the vocabulary and the shards; see `Text2TextProblem`.

        Raises:
            UserError: files are absent (checked before anything is written), or brackets do not match.
        """
        for item in self.dataset_splits:
            paths = shard_paths(data_dir, self.dataset_filename(), item["split"], item["shards"])
            if not all(path.exists() for path in paths):
                self.tree_files(tmp_dir, item["split"])
        super().generate_data(data_dir, tmp_dir)

    def generate_samples(self, data_dir: PathLike, tmp_dir: PathLike, split: str) -> Samples:
        """Yields words and tags of all trees of a split; drops trees without words."""
        for path in itertools.chain.from_iterable(self.tree_files(tmp_dir, split)):
            yield from self.samples_of(read_tree_file(path))

    def samples_of(self, trees: Iterator[Tree]) -> Iterator[dict[str, str]]:
        """Yields the words and tags of trees."""
        prepared = map(self.prepare, trees)
        return self.samples_of_pairs(linearize(tree) if tree else ("", "") for tree in prepared)

    @property
    def quality_metric(self) -> str:
        """F1; BLEU if the outputs are words (`_rev`, `_copy`)."""
        return super().quality_metric if self._writes_words else "f1"

    def quality(
        self, inputs: Sequence[str], references: Sequence[str], outputs: Sequence[str]
    ) -> float:
        """Returns EVALB's F1 (0 to 100) of the trees made from words and tags; see `repair_tree`.

        Only the phrases of the outputs count: each word gets its gold tag, because EVALB skips sentences
        in which, for example, a comma is tagged as a word.
        """
        if self._writes_words:
            return super().quality(inputs, references, outputs)
        from t2t_keras.metrics import parsing_f1

        gold, predicted = [], []
        for words, reference, output in zip(inputs, references, outputs, strict=True):
            gold.append(repair_tree(words, reference)[0])
            tags = [tag for tag, _ in gold[-1].tagged_words()]
            predicted.append(with_tags(repair_tree(words, output, realign=True)[0], tags))
        return parsing_f1(gold, predicted).f1

    def constraint(self, encoders: Mapping[str, Any]) -> Constraint | None:
        """Returns the grammar of linearised trees, if the vocabulary supports it; see `TreeGrammar`."""
        return None if self._writes_words else tree_grammar(encoders["targets"])

    def format_output(self, inputs: str, outputs: str) -> str:
        """Returns the tree of words (`inputs`) and tags (`outputs`), repaired if necessary."""
        if self._writes_words:
            return outputs
        tree, repairs = repair_tree(inputs, outputs, realign=True)
        self.formatted += 1
        self.repaired += bool(repairs)
        self.repairs += repairs
        return str(tree)

    def format_report(self) -> str:
        """Returns a line with the number and kinds of repairs."""
        if not self.formatted:
            return ""
        line = f"{self.repaired} of {self.formatted} trees were repaired"
        return f"{line} ({self.repairs})" if self.repaired else line

    @property
    def _writes_words(self) -> bool:
        return self.was_reversed or self.was_copy


@dataclasses.dataclass(frozen=True)
class TreeCorpus:
    """The tree files of a corpus: the first of `names` that exists, or else `sections` of the WSJ."""

    names: tuple[str, ...]
    """File names relative to `--tmp_dir`. Instead of a file there may be a directory (its name without
    `.trees`) of `.trees` or `.mrg` files; all files may be `.gz`."""
    sections: range = range(0)
    """Section numbers of the Wall Street Journal, such as `range(2, 22)`."""

    def find(self, directory: str | os.PathLike) -> list[Path]:
        """Returns the files in order; an empty list if there are none."""
        directory = Path(directory)
        for name in self.names:
            for file in (directory / name, directory / f"{name}.gz"):
                if file.is_file():
                    return [file]
            if files := _tree_files(directory / name.removesuffix(".trees")):
                return files
        for place in (p for name in _PLACES_OF_SECTIONS for p in (name, name.upper())):
            sections = {n: _tree_files(directory / place / f"{n:02}") for n in self.sections}
            absent = [f"{number:02}" for number, files in sections.items() if not files]
            if len(absent) < len(sections):
                if absent:
                    warn(f"{directory / place} has no section {', '.join(absent)}: read without it")
                return [*itertools.chain.from_iterable(sections.values())]
        return []

    def describe(self) -> str:
        """Describes the files that `find` looks for."""
        words = " or ".join(self.names) + " (one tree per line)"
        if self.sections:
            below = ", ".join(place for place in _PLACES_OF_SECTIONS if place)
            numbers = " to ".join(f"{n:02}" for n in sorted({self.sections[0], self.sections[-1]}))
            words += f" or sections {numbers} ({self.sections[0]:02}/*.mrg, also below {below})"
        return words


def spaced_trees(files: Sequence[Path], characters: int) -> Iterator[Tree]:
    """Yields evenly spaced trees of the files, about `characters` of bracketed text in total."""
    blocks = ((file, *block) for file in files for block in _blocks(file))
    total = sum(len(line) for file in files for line in iterate_lines(file))
    step = max(1, math.ceil(total / characters))
    for number, (file, first_line, lines) in enumerate(blocks):
        if number % step == 0:
            yield from iterate_trees(lines, os.fspath(file), first_line)


def _blocks(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Yields each tree's first line number and its lines, ten times as fast as parsing."""
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


def _tree_files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if _TREE_FILE.search(path.name))
