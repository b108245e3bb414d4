"""Parsing of the Wall Street Journal, section 6.3 of the paper, and T2T's own problem for it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from t2t_keras.data import DatasetSplit
from t2t_keras.data.parsing_problem import ParsingProblem, TreeCorpus, spaced_trees
from t2t_keras.data.text_problem import PathLike
from t2t_keras.data.translate import read_pairs
from t2t_keras.parsing import Tree
from t2t_keras.registry import register_problem

_VOCAB_CHARACTERS = 40_000_000
"""How much of each corpus a vocabulary is built from, brackets included."""

_WSJ = {
    DatasetSplit.TRAIN: TreeCorpus(
        ("wsj.train.trees", "wsjTrain.trees", "02-21.10way.clean"), range(2, 22)
    ),
    DatasetSplit.EVAL: TreeCorpus(
        ("wsj.dev.trees", "wsjEval.trees", "22.auto.clean"), range(22, 23)
    ),
    DatasetSplit.TEST: TreeCorpus(
        ("wsj.test.trees", "wsjTest.trees", "23.auto.clean"), range(23, 24)
    ),
}


@register_problem
class ParsingEnglishPtb16k(ParsingProblem):
    """The Penn Treebank alone, about 40,000 sentences: sections 2-21, 22 for dev, 23 for test.

    The paper's "WSJ only" with its vocabulary of 16 K tokens, here one for words and tags.
    """

    approx_vocab_size = 2**14

    def corpora(self, split: str) -> Sequence[TreeCorpus]:
        return [_WSJ[split]]


@register_problem
class ParsingEnglishSemisup32k(ParsingProblem):
    """The Penn Treebank and about 17 million sentences that parsers have parsed, 32 K tokens.

    The paper's "semi-supervised" setting, with the high-confidence and the BerkeleyParser corpus
    of Vinyals et al. (2015), "Grammar as a Foreign Language".
    """

    approx_vocab_size = 2**15
    dataset_splits = [
        {"split": DatasetSplit.TRAIN, "shards": 100},
        {"split": DatasetSplit.EVAL, "shards": 1},
        {"split": DatasetSplit.TEST, "shards": 1},
    ]

    def corpora(self, split: str) -> Sequence[TreeCorpus]:
        parsed = [TreeCorpus(("high_confidence.trees",)), TreeCorpus(("berkeley_parser.trees",))]
        return [_WSJ[split], *(parsed if split == DatasetSplit.TRAIN else [])]

    def generate_text_for_vocab(self, data_dir: PathLike, tmp_dir: PathLike) -> Iterator[str]:
        """Yields words and tags of evenly spaced trees of each corpus; of the smallest, all."""
        for files in self.tree_files(tmp_dir, DatasetSplit.TRAIN):
            for sample in self.samples_of(spaced_trees(files, _VOCAB_CHARACTERS)):
                yield sample["inputs"]
                yield sample["targets"]


@register_problem
class WsjParsing(ParsingProblem):
    """T2T's problem, on its files `wsjTrain.trees` and `wsjEval.trees`, with nothing stripped.

    The outermost bracket of every tree is left out, whatever its label. The vocabulary is built
    from the first 1000 lines of `wsj.train.text.txt` and `wsj.train.tags.txt` or, where these are
    absent, from the first 1000 trees.
    """

    VOCAB_FILES = ("wsj.train.text.txt", "wsj.train.tags.txt")

    approx_vocab_size = 2**15
    max_samples_for_vocab = 1000
    dataset_splits = [
        {"split": DatasetSplit.TRAIN, "shards": 100},
        {"split": DatasetSplit.EVAL, "shards": 1},
    ]

    def corpora(self, split: str) -> Sequence[TreeCorpus]:
        return [TreeCorpus(("wsjTrain.trees" if split == DatasetSplit.TRAIN else "wsjEval.trees",))]

    def prepare(self, tree: Tree) -> Tree:
        """Returns the tree as it is."""
        return tree

    def generate_text_for_vocab(self, data_dir: PathLike, tmp_dir: PathLike) -> Iterator[str]:
        """Yields T2T's files line by line, if they are there."""
        words, tags = (Path(tmp_dir) / name for name in self.VOCAB_FILES)
        if words.exists() or tags.exists():
            pairs = itertools.islice(read_pairs(words, tags), self.max_samples_for_vocab)
            yield from itertools.chain.from_iterable(pairs)
        else:
            yield from super().generate_text_for_vocab(data_dir, tmp_dir)
