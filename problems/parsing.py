"""Parsing problems: the Wall Street Journal (section 6.3 of the paper), free treebanks, Icelandic."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from t2t_keras.data import DatasetSplit, SpaceID, VocabType
from t2t_keras.data.parsing_problem import ParsingProblem, TreeCorpus, spaced_trees
from t2t_keras.data.problem import SPLITS, with_shards
from t2t_keras.data.text_problem import PathLike, Samples, absent_vocabulary
from t2t_keras.data.translate import TwoVocabularyProblem, read_pairs
from t2t_keras.files import atomic_write, read_json, write_json
from t2t_keras.parsing import Tree
from t2t_keras.parsing.grammar import TagEncoder, learn_grammar
from t2t_keras.parsing.repair import UNKNOWN_SYMBOL
from t2t_keras.registry import register_problem
from t2t_keras.text import TokenTextEncoder
from t2t_keras.text.lines import iterate_lines

# How much of each corpus a vocabulary is built from, including brackets.
_VOCAB_CHARACTERS = 40_000_000
_GRAMMAR_TREES = 100_000  # how many training trees the grammar is learned from

_WSJ = {
    split: TreeCorpus((f"wsj.{split}.trees", f"wsj{name}.trees", file), sections)
    for split, name, file, sections in (
        (DatasetSplit.TRAIN, "Train", "02-21.10way.clean", range(2, 22)),
        (DatasetSplit.EVAL, "Eval", "22.auto.clean", range(22, 23)),
        (DatasetSplit.TEST, "Test", "23.auto.clean", range(23, 24)),
    )
}


@register_problem
class ParsingEnglishPtb16k(ParsingProblem):
    """Penn Treebank, about 40,000 sentences: sections 2-21, 22 for dev, 23 for test.

    The paper's "WSJ only" setting with a vocabulary of 16 K tokens, here shared by words and tags.
    """

    approx_vocab_size = 2**14

    def corpora(self, split: str) -> Sequence[TreeCorpus]:
        return [_WSJ[split]]


@register_problem
class ParsingEnglishSemisup32k(ParsingProblem):
    """Penn Treebank and about 17 million automatically parsed sentences, 32 K tokens.

    The paper's "semi-supervised" setting, with the high-confidence and BerkeleyParser corpora of
    Vinyals et al. (2015), "Grammar as a Foreign Language".
    """

    dataset_splits = with_shards(SPLITS)

    def corpora(self, split: str) -> Sequence[TreeCorpus]:
        parsed = [TreeCorpus(("high_confidence.trees",)), TreeCorpus(("berkeley_parser.trees",))]
        return [_WSJ[split], *(parsed if split == DatasetSplit.TRAIN else [])]

    def generate_text_for_vocab(self, data_dir: PathLike, tmp_dir: PathLike) -> Iterator[str]:
        """Yields words and tags of evenly spaced trees of each corpus, up to `_VOCAB_CHARACTERS`."""
        for files in self.tree_files(tmp_dir, DatasetSplit.TRAIN):
            for sample in self.samples_of(spaced_trees(files, _VOCAB_CHARACTERS)):
                yield from (sample[field] for field in self.text_fields)


@register_problem
class WsjParsing(ParsingProblem):
    """T2T's problem on its files `wsjTrain.trees` and `wsjEval.trees`, without stripping trees.

    The outermost bracket of every tree is dropped, whatever its label. The vocabulary is built from the
    first 1000 lines of `wsj.train.text.txt` and `wsj.train.tags.txt`, or else the first 1000 trees.
    """

    VOCAB_FILES = ("wsj.train.text.txt", "wsj.train.tags.txt")

    max_samples_for_vocab = 1000
    dataset_splits = with_shards((DatasetSplit.TRAIN, DatasetSplit.EVAL))

    def corpora(self, split: str) -> Sequence[TreeCorpus]:
        return [TreeCorpus(("wsjTrain.trees" if split == DatasetSplit.TRAIN else "wsjEval.trees",))]

    def prepare(self, tree: Tree) -> Tree:
        return tree

    def generate_text_for_vocab(self, data_dir: PathLike, tmp_dir: PathLike) -> Iterator[str]:
        """Yields the lines of T2T's text files if they exist, otherwise the words and tags of trees."""
        words, tags = (Path(tmp_dir) / name for name in self.VOCAB_FILES)
        if words.exists() or tags.exists():
            pairs = itertools.islice(read_pairs(words, tags), self.max_samples_for_vocab)
            yield from itertools.chain.from_iterable(pairs)
        else:
            yield from super().generate_text_for_vocab(data_dir, tmp_dir)


# Tags and brackets as tokens


class TagTokens(ParsingProblem):
    """A parsing problem with subwords for inputs, and tags and brackets as single tokens for targets.

    Outputs are nearly a quarter shorter than in subwords, where the slash of "/NP" is a separate token, and
    decoding can be restricted to trees (see `TreeGrammar`). Both vocabularies are built only from the
    training trees; other tags are "<UNK>".
    """

    text_fields = ("inputs",)  # of subwords

    @property
    def vocab_filenames(self) -> tuple[str, str]:
        """The file names of the vocabularies of inputs and targets."""
        return str(self.vocab_filename), f"vocab.{self.dataset_filename()}.tags.{VocabType.TOKEN}"

    def get_or_create_encoders(self, data_dir: PathLike, tmp_dir: PathLike) -> dict[str, Any]:
        self.get_or_create_vocab(data_dir, tmp_dir)
        path, learned = self._paths(data_dir)
        if not path.exists():
            samples = self.generate_samples(data_dir, tmp_dir, DatasetSplit.TRAIN)
            symbols = {symbol for sample in samples for symbol in sample["targets"].split()}
            with atomic_write(path) as partial:
                encoder = TokenTextEncoder(vocab_list=[UNKNOWN_SYMBOL, *sorted(symbols)])
                encoder.store_to_file(partial)
        if not learned.exists():
            samples = self.generate_samples(data_dir, tmp_dir, DatasetSplit.TRAIN)
            write_json(learned, learn_grammar(itertools.islice(samples, _GRAMMAR_TREES)))
        return self.feature_encoders(data_dir)

    def feature_encoders(self, data_dir: PathLike) -> dict:
        words = self.get_or_create_vocab(data_dir, None, force_get=True)
        path, learned = self._paths(data_dir)
        if not path.exists():
            raise absent_vocabulary(self, path)
        tags = TagEncoder(path, replace_oov=UNKNOWN_SYMBOL)
        if learned.exists():  # version 0.1.0, whose vocabulary has no "<UNK>", wrote none
            tags.grammar = read_json(learned, {"tags": dict, "openings": int}, "delete it")
        return {"inputs": words, "targets": tags}

    def _paths(self, data_dir: PathLike) -> tuple[Path, Path]:
        """Returns the paths of the vocabulary of tags and of the grammar."""
        grammar = f"grammar.{self.dataset_filename()}.json"
        return Path(data_dir) / self.vocab_filenames[1], Path(data_dir) / grammar


@register_problem
class ParsingEnglishGum(TagTokens):
    """Trees in `train.trees`, `dev.trees` and `test.trees`, plain or `.gz`, with 8 K subwords for words.

    Any treebank can be used. GUM, the Georgetown University Multilayer corpus
    (https://gucorpling.org/gum), has trees of about 13,000 sentences in its folder `const`.
    """

    approx_vocab_size = 2**13

    def corpora(self, split: str) -> Sequence[TreeCorpus]:
        return [TreeCorpus((f"{split}.trees",))]


@register_problem
class ParsingEnglishPtb16kTags(TagTokens, ParsingEnglishPtb16k):
    """`ParsingEnglishPtb16k` with tags and brackets as tokens."""


@register_problem
class ParsingEnglishSemisup32kTags(TagTokens, ParsingEnglishSemisup32k):
    """`ParsingEnglishSemisup32k` with tags and brackets as tokens."""


# Icelandic


@register_problem("parsing_icelandic16k")
class ParsingIcelandic16k(TwoVocabularyProblem):
    """T2T's parsing of Icelandic, from lines of sentence, tab and tree in `parsing_{train,dev}.pairs`.

    Outputs are text, not trees, because T2T does not define the format of its trees.
    """

    approx_vocab_sizes = 2**14, 2**8
    vocab_filenames = "ice_source.tokens.vocab.16384", "ice_target.tokens.vocab.256"
    max_subtoken_length = None
    loss_multiplier = 2.5
    space_ids = SpaceID.ICE_TOK, SpaceID.ICE_PARSE_TOK
    dataset_splits = with_shards((DatasetSplit.TRAIN, DatasetSplit.EVAL), train=10)

    def hparams(self, defaults, model_hparams) -> None:
        """Sets 256 rows for trees, as in T2T, regardless of the size of their vocabulary."""
        super().hparams(defaults, model_hparams)
        defaults.vocab_size["targets"] = 2**8

    def generate_samples(self, data_dir: PathLike, tmp_dir: PathLike, split: str) -> Samples:  # type: ignore[override]
        """Yields the pairs of a file; drops those with an empty side or without a tab."""
        return self.samples_of_pairs(_pairs(tmp_dir, split))

    def generate_text_of_sides(self, tmp_dir: PathLike, sides: Sequence[int]) -> Iterator[str]:
        """Yields the inputs (side 0), the targets (side 1) or both of all training pairs."""
        for pair in filter(all, _pairs(tmp_dir, DatasetSplit.TRAIN)):
            yield from (pair[side] for side in sides)


def _pairs(tmp_dir: PathLike, split: str) -> Iterator[tuple[str, str]]:
    for line in iterate_lines(Path(tmp_dir) / f"parsing_{split}.pairs"):
        inputs, _, targets = line.strip().partition("\t")
        yield inputs.strip(), targets.strip()
