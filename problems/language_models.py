"""Language models and classifiers: problems of single texts.

The Penn Treebank, WikiText-103, the billion-word benchmark, Wikipedia, your own text; film reviews.
"""

import bz2
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from t2t_keras.data import ChoppedTextProblem, DatasetSplit, TfdsClassProblem, VocabType
from t2t_keras.data.problem import SPLITS, missing_hook, with_shards
from t2t_keras.data.sources import fetch, local_sources, reading_archive
from t2t_keras.data.text_problem import PathLike, Samples, Text2SelfProblem
from t2t_keras.problems.translate_files import WordListProblem
from t2t_keras.registry import derive_problem, register_problem
from t2t_keras.text.lines import iterate_lines


class LinesProblem(WordListProblem, Text2SelfProblem):
    """Text files in an archive; each line is an example."""

    is_generate_per_split = True

    def files(self, tmp_dir: PathLike, split: str) -> list[Path]:
        """Hook: returns the files of a split; fetches and unpacks absent ones."""
        raise missing_hook(self, "files")

    def lines(self, tmp_dir: PathLike, split: str) -> Iterator[str]:
        """Yields the non-blank lines, with single spaces between words."""
        for path in self.files(tmp_dir, split):
            for line in iterate_lines(path):
                if words := line.split():
                    yield " ".join(words)

    def generate_samples(self, data_dir: PathLike, tmp_dir: PathLike, split: str) -> Samples:
        return ({"targets": line} for line in self.lines(tmp_dir, split))

    def words(self, tmp_dir: PathLike) -> list[str]:
        """Returns the words of the training text, frequent ones first."""
        lines = self.lines(tmp_dir, DatasetSplit.TRAIN)
        words = Counter(word for line in lines for word in line.split())
        return sorted(words, key=lambda word: (-words[word], word))


def _files(tmp_dir: PathLike, archive: str, pattern: str) -> list[Path]:
    """Returns the files of an archive that match a pattern, sorted by name."""
    return local_sources(tmp_dir, [[archive, ("tsv", 0, 1, pattern)]])[0].paths


def _derived(base: type[Text2SelfProblem], name: str, **attributes) -> type[Text2SelfProblem]:
    return derive_problem(base, f"Languagemodel{name}", **attributes)


def _packed(base: type[Text2SelfProblem], length: int) -> type[Text2SelfProblem]:
    name = f"{base.__name__}Packed"
    return derive_problem(base, name, packed_length=length, vocab_filename=base().vocab_filename)


# The Penn Treebank, prepared by Mikolov: 930,000 words, rare ones replaced by <unk>


@register_problem
class LanguagemodelPtb10k(LinesProblem):
    """Penn Treebank, 42,000 sentences of 10,000 different words (T2T's name).

    T2T's vocabulary file gives the ids of padding and end of sentence to the two most frequent words, which
    excludes them from its loss. The file that this problem writes begins with the two reserved tokens
    instead. An existing file is used unchanged. T2T also appends the word <EOS> to each line, which with this
    file would be a second end of sentence.
    """

    vocab_type = VocabType.TOKEN
    vocab_filename: str | None = "vocab.lmptb.10000"
    dataset_splits = with_shards((DatasetSplit.TRAIN, DatasetSplit.EVAL), train=10)
    parts = "ptb.{}.txt"
    appended = ""

    def files(self, tmp_dir: PathLike, split: str) -> list[Path]:
        part = self.parts.format("train" if split == DatasetSplit.TRAIN else "valid")
        url = "http://www.fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz"
        return _files(tmp_dir, url, f"simple-examples/data/{part}")

    def lines(self, tmp_dir: PathLike, split: str) -> Iterator[str]:
        """Yields the lines, with what T2T appends to them."""
        return (line + self.appended for line in super().lines(tmp_dir, split))


LanguagemodelPtbCharacters = _derived(
    LanguagemodelPtb10k,
    "PtbCharacters",
    vocab_type=VocabType.CHARACTER,
    vocab_filename=None,
    parts="ptb.char.{}.txt",
    appended=" <EOS>",
)

# WikiText-103: 103 million words of good articles


@register_problem
class LanguagemodelWikitext103(LinesProblem):
    """WikiText-103 with its 267,735 words, one paragraph per example (T2T's name)."""

    vocab_type = VocabType.TOKEN
    dataset_splits = with_shards(SPLITS, train=10)
    folder, ending = "wikitext-103", "-v1.zip"

    def files(self, tmp_dir: PathLike, split: str) -> list[Path]:
        part = {DatasetSplit.EVAL: "valid"}.get(split, split)
        url = "https://s3.amazonaws.com/research.metamind.io/wikitext/"
        return _files(tmp_dir, url + self.folder + self.ending, f"{self.folder}/wiki.{part}.*")


LanguagemodelWikitext103Characters = _derived(
    LanguagemodelWikitext103,
    "Wikitext103Characters",
    vocab_type=VocabType.CHARACTER,
    folder="wikitext-103-raw",
)


@register_problem
class LanguagemodelWikitext103L4k(LanguagemodelWikitext103):
    """WikiText-103 in examples of several whole paragraphs, with less than 4,096 words in total.

    As in T2T, paragraphs that remain after the last full example are left out.
    """

    sequence_length = 4096

    def max_length(self, model_hparams) -> int:
        return self.sequence_length

    def generate_samples(self, data_dir: PathLike, tmp_dir: PathLike, split: str) -> Samples:
        words: list[str] = []
        for line in self.lines(tmp_dir, split):
            if words and len(words) + len(line.split()) >= self.sequence_length:
                yield {"targets": " ".join(words)}
                words = []
            words += line.split()


LanguagemodelWikitext103L16k = _derived(
    LanguagemodelWikitext103L4k, "Wikitext103L16k", sequence_length=2**14
)

# The billion-word benchmark (Chelba et al. 2013)

_LM1B = "1-billion-word-language-modeling-benchmark-r13output"


@register_problem
class LanguagemodelLm1b32k(LinesProblem):
    """Billion-word benchmark: 30 million sentences of news; dev is a fiftieth of its held-out text.

    Words outside of the vocabulary that published results use become UNK, as in T2T.
    """

    max_samples_for_vocab = 63000
    WORDS = "http://download.tensorflow.org/models/LM_LSTM_CNN/vocab-2016-09-10.txt"

    def files(self, tmp_dir: PathLike, split: str) -> list[Path]:
        kind, part = "heldout", ".heldout-00000-of-00050"
        if split == DatasetSplit.TRAIN:
            kind, part = "training", "-*-of-00100"
        url = f"http://www.statmt.org/lm-benchmark/{_LM1B}.tar.gz"
        return _files(tmp_dir, url, f"{_LM1B}/{kind}-monolingual.tokenized.shuffled/news.en{part}")

    def lines(self, tmp_dir: PathLike, split: str) -> Iterator[str]:
        path = fetch(self.WORDS, Path(tmp_dir) / "vocab-2016-09-10.txt.en")
        known = {line.strip() for line in iterate_lines(path)}
        for line in super().lines(tmp_dir, split):
            yield " ".join(word if word in known else "UNK" for word in line.split())


LanguagemodelLm1b8k = _derived(LanguagemodelLm1b32k, "Lm1b8k", approx_vocab_size=2**13)
LanguagemodelLm1bCharacters = _derived(
    LanguagemodelLm1b32k, "Lm1bCharacters", vocab_type=VocabType.CHARACTER
)
LanguagemodelLm1b32kPacked = _packed(LanguagemodelLm1b32k, 256)
LanguagemodelLm1b8kPacked = _packed(LanguagemodelLm1b8k, 256)
LanguagemodelLm1bCharactersPacked = _packed(LanguagemodelLm1bCharacters, 1024)

# English Wikipedia, cut into examples of equal length

_WIKIPEDIA = "https://archive.org/download/enwiki-20171201/enwiki-20171201-pages-articles.xml.bz2"
_PART = 4 * 2**20  # bytes; T2T cuts the dump into files of this size and uses every 5,000th for dev


@register_problem
class LanguagemodelWikiXmlV8kL1k(ChoppedTextProblem):
    """English Wikipedia of December 2017 as its XML, in examples of 1,024 subwords (T2T's name)."""

    approx_vocab_size = 2**13
    sequence_length = 1024
    max_chars_for_vocab = 41800829
    dev_fraction = 5000
    text_name = "wiki_xml"  # in the name of the vocabulary

    @property
    def vocab_filename(self) -> str:
        return f"vocab.{self.text_name}.{self.approx_vocab_size}"

    def documents(self, tmp_dir: PathLike, split: str) -> Iterator[str]:
        """Yields the text of each part of the dump that belongs to a split."""
        path = fetch(_WIKIPEDIA, Path(tmp_dir) / Path(_WIKIPEDIA).name)
        for number, part in enumerate(_parts(path)):
            if (number % self.dev_fraction == 0) == (split != DatasetSplit.TRAIN):
                yield self.text(part.decode("utf-8", "ignore"))

    def text(self, xml: str) -> str:
        """Returns the text to train on from a part of the dump."""
        return xml


def _parts(path: Path) -> Iterator[bytes]:
    """Yields a compressed file in pieces of whole lines, at most `_PART` bytes each."""
    with reading_archive(path), bz2.open(path) as file:
        rest = b""
        while block := file.read(_PART - len(rest)):
            rest += block
            if len(rest) == _PART:
                end = rest.rfind(b"\n") + 1 or _PART
                yield rest[:end]
                rest = rest[end:]
        if rest:
            yield rest


LanguagemodelWikiXmlV8kL4k = _derived(
    LanguagemodelWikiXmlV8kL1k, "WikiXmlV8kL4k", sequence_length=4096
)


@register_problem
class LanguagemodelWikiNorefV8kL1k(LanguagemodelWikiXmlV8kL1k):
    """Articles of English Wikipedia without references and links, each after a line with title and length."""

    max_chars_for_vocab = 21240483
    text_name = "wiki_noref"

    def text(self, xml: str) -> str:
        """Returns the articles that are complete in a part of the dump, cleaned as in T2T."""
        return "".join(map(_article, re.findall(r"<page>\n(.*?)</page>\n", xml, re.DOTALL)))


def _article(page: str) -> str:
    """Returns title, length and text of a page; "" if it is not an article."""
    title = re.search(r"<title>(.*?)</title>", page, re.DOTALL)
    content = re.search(r"<text.*?>(.*?)</text>", page, re.DOTALL)
    if not (title and content) or ":" in title[1]:
        return ""
    text = _replaced(content[1], "&lt;ref", "&lt;/ref&gt;", lambda inner: "")
    # What a link shows; nothing of those to categories and pictures.
    text = _replaced(text, "[[", "]]", lambda link: "" if ":" in link else link.split("|", 1)[-1])
    text = _replaced(text, "'''", "'''", lambda inner: inner)
    if len(text) <= 140:  # a redirect
        return ""
    return f'title: "{title[1]}" length: {len(text)}\n{text}\n'


def _replaced(text: str, start: str, end: str, replace: Callable[[str], str]) -> str:
    """Replaces the text between two marks, and the marks; drops the text after a mark without an end."""
    pattern = f"{re.escape(start)}(.*?)({re.escape(end)}|$(?!\n))"
    return re.sub(pattern, lambda m: replace(m[1]) if m[2] else "", text, flags=re.DOTALL)


LanguagemodelWikiNorefV8kL16k = _derived(
    LanguagemodelWikiNorefV8kL1k, "WikiNorefV8kL16k", sequence_length=2**14
)
LanguagemodelWikiNorefV32kL1k = _derived(
    LanguagemodelWikiNorefV8kL1k,
    "WikiNorefV32kL1k",
    approx_vocab_size=2**15,
    max_chars_for_vocab=10**8,
)
LanguagemodelWikiNorefV32kL16k = _derived(
    LanguagemodelWikiNorefV32kL1k, "WikiNorefV32kL16k", sequence_length=2**14
)
LanguagemodelWikiNorefV128kL1k = _derived(
    LanguagemodelWikiNorefV32kL1k, "WikiNorefV128kL1k", approx_vocab_size=2**17
)

# Your own text


@register_problem("text2self_tmpdir")
class Text2selfTmpdir(LinesProblem):
    """A language model of `targets.{train,eval}.txt` in `tmp_dir`, one example per line."""

    def files(self, tmp_dir: PathLike, split: str) -> list[Path]:
        part = "train" if split == DatasetSplit.TRAIN else "eval"
        return [Path(tmp_dir) / f"targets.{part}.txt"]

    def lines(self, tmp_dir: PathLike, split: str) -> Iterator[str]:
        """Yields the non-blank lines as they are: white space may be part of the language."""
        for path in self.files(tmp_dir, split):
            yield from filter(str.strip, iterate_lines(path))


# Sentiment of film reviews


@register_problem("sentiment_imdb")
class SentimentIMDB(TfdsClassProblem):
    """Film reviews of IMDB, 25,000 each for training and dev: negative or positive (T2T's name)."""

    tfds_name = "imdb_reviews"
    tfds_splits = {DatasetSplit.TRAIN: "train", DatasetSplit.EVAL: "test"}  # as in T2T
    num_classes = 2
    approx_vocab_size = 2**13

    def class_labels(self, data_dir=None) -> list[str]:
        return ["neg", "pos"]


@register_problem("sentiment_imdb_characters")
class SentimentIMDBCharacters(SentimentIMDB):
    """The same as bytes (T2T's name)."""

    vocab_type = VocabType.CHARACTER
