"""Problems on your own text: files or a TFDS dataset given by flags, and files with T2T's names."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from t2t_keras.data import DatasetSplit, Text2TextProblem, VocabType, text_problem, translate
from t2t_keras.data.problem import missing_hook, with_shards
from t2t_keras.data.shards import shard_paths
from t2t_keras.data.text_problem import PathLike, Samples
from t2t_keras.data.tfds import USUAL_SPLITS, TfdsSource
from t2t_keras.errors import UserError
from t2t_keras.files import atomic_write
from t2t_keras.registry import register_problem
from t2t_keras.text import TokenTextEncoder
from t2t_keras.text.lines import iterate_lines, require_unique

_Files = Sequence[PathLike]


@register_problem
class TranslateFiles(translate.PairSourceProblem):
    """Pairs of lines from any files, corpora or TFDS dataset: see `use_files`, `use_corpora`, `use_tfds`.

    Only data generation needs to know the source: vocabulary and shards have the same names for every
    source, and a note beside them records it.
    """

    def __init__(self, was_reversed: bool = False, was_copy: bool = False):
        super().__init__(was_reversed, was_copy)
        self._open: Callable[[PathLike], translate.PairSource] | None = None  # called with tmp_dir
        self._source: translate.PairSource | None = None
        self._splits = [DatasetSplit.TRAIN, DatasetSplit.EVAL]

    def use_files(
        self,
        train: _Files,
        dev: _Files | None = None,
        test: _Files | None = None,
        vocab_size: int = 2**15,
        sentencepiece: str | None = None,
        dev_pairs: int = 0,
        skip_bad_lines: bool = False,
    ) -> None:
        """Sets the files to generate data from.

        Args:
            train: source file and target file, plain or `.gz`, one sentence per line.
            dev, test: like `train`; test is optional, and there is either dev or `dev_pairs`.
            vocab_size: approximate size of the vocabulary.
            sentencepiece: "unigram", "bpe" or the path of a model; None: T2T's subwords.
            dev_pairs, skip_bad_lines: see `t2t_keras.data.translate.ParallelFiles`.
        """
        if bool(dev) == bool(dev_pairs):
            raise UserError("give --dev_files=SOURCE,TARGET or --dev_pairs=N, one of them.")
        files = {DatasetSplit.TRAIN: train, DatasetSplit.EVAL: dev or train}
        if test:
            files[DatasetSplit.TEST] = test
        source = translate.ParallelFiles(files, dev_pairs, skip_bad_lines)
        self._use(lambda tmp_dir: source, vocab_size, sentencepiece)

    def use_corpora(
        self,
        corpora: Sequence[translate.Corpus],
        vocab_size: int = 2**15,
        sentencepiece: str | None = None,
    ) -> None:
        """Sets several corpora to generate data from, with weights and tags.

        Args:
            corpora: see `t2t_keras.data.translate.MixedCorpora`; its `read` reads them from a file.
            vocab_size, sentencepiece: as in `use_files`; each tag is a single piece.

        Raises:
            UserError: they cannot be mixed, or they have tags and the problem is `_rev` or `_copy`.
        """
        source = translate.MixedCorpora(corpora)
        if source.tags and (self.was_reversed or self.was_copy):
            raise UserError(
                f"{self.name} would put the tags on targets, but they belong to sources: leave out _rev or "
                "_copy, and swap the files."
            )
        self._use(lambda tmp_dir: source, vocab_size, sentencepiece, source.tags)

    def use_tfds(
        self,
        name: str,
        languages: Sequence[str] | None = None,
        splits: Sequence[str] | None = None,
        vocab_size: int = 2**15,
        sentencepiece: str | None = None,
    ) -> None:
        """Sets the dataset to generate data from.

        Args:
            name: see `t2t_keras.data.tfds.TfdsSource`.
            languages: source and target; None: those of the dataset.
            splits: train, dev and optionally test in TFDS's grammar; None: `USUAL_SPLITS`.
            vocab_size, sentencepiece: as in `use_files`.
        """
        parts = dict(zip(USUAL_SPLITS, splits, strict=False)) if splits else None
        dataset = partial(TfdsSource, name, languages=languages, splits=parts)
        self._use(dataset, vocab_size, sentencepiece)

    def _use(self, opens, vocab_size: int, sentencepiece: str | None, tags=()) -> None:
        self._open, self._source = opens, None
        self.approx_vocab_size = vocab_size
        self._set_vocabulary(sentencepiece, tags)

    def _set_vocabulary(self, sentencepiece: str | None, tags: Collection[str] = ()) -> None:
        """Sets the type of the vocabulary: T2T's subwords or a SentencePiece model."""
        self.vocab_type, self.additional_reserved_tokens = VocabType.SUBWORD, []
        if sentencepiece:  # T2T's tokenizer would split tags such as <2de> anyway
            self.vocab_type, self.sentencepiece_model = VocabType.SENTENCEPIECE, sentencepiece
            self.additional_reserved_tokens = [*tags]

    @property
    def vocab_filename(self) -> str:
        """The file name; without the size, so that readers of the data need not know it."""
        return f"vocab.{self.dataset_filename()}.{self.vocab_type}"

    @property
    def dataset_splits(self) -> list[dict]:
        """100 training shards, 1 for dev and, if it exists, 1 for test."""
        return with_shards(self._splits)

    def source(self, tmp_dir: PathLike) -> translate.PairSource:
        """Returns the files or the dataset; see `TfdsSource` for `tmp_dir`.

        Raises:
            UserError: no source is set, or the dataset is unusable.
        """
        if self._open is None:
            raise UserError(
                f"{self.name} has no source: give --train_files=SOURCE,TARGET and "
                "--dev_files=SOURCE,TARGET or --dev_pairs=N, --corpora=FILE or --tfds=NAME."
            )
        if self._source is None:
            self._source = self._open(tmp_dir)
        self._splits = self._source.splits
        return self._source

    def generate_data(self, data_dir: PathLike, tmp_dir: PathLike, task_id: int = -1) -> None:
        """Writes vocabulary and shards; existing ones must come from the same source.

        Raises:
            UserError: the source is not set or unusable, or existing data comes from another one.
        """
        if self._open is None:
            existing = [
                item["split"]
                for item in with_shards(USUAL_SPLITS)
                if all(map(Path.exists, shard_paths(data_dir, self.dataset_filename(), **item)))
            ]
            if {*self._splits} <= {*existing}:
                self._splits = existing
                self._find_vocabulary(data_dir)
                text_problem.require_vocabulary(self, data_dir)
                return
        source = self.source(tmp_dir)
        text_problem.make_directory(data_dir)
        translate.check_and_note(self, source, data_dir)
        super().generate_data(data_dir, tmp_dir)

    def get_or_create_vocab(
        self, data_dir: PathLike, tmp_dir: PathLike | None, force_get: bool = False
    ):
        if self._open is None:
            self._find_vocabulary(data_dir)
        elif tmp_dir is not None and not force_get:
            translate.check_and_note(self, self.source(tmp_dir), data_dir)
        return super().get_or_create_vocab(data_dir, tmp_dir, force_get)

    def _find_vocabulary(self, data_dir: PathLike) -> None:
        """Sets the type of the vocabulary to that of the existing file."""
        stored = Path(data_dir) / f"vocab.{self.dataset_filename()}.{VocabType.SENTENCEPIECE}"
        self._set_vocabulary(self.sentencepiece_model if stored.exists() else None)


class WordListProblem(Text2TextProblem):
    """A base class that builds the word list of a `VocabType.TOKEN` problem."""

    def words(self, tmp_dir: PathLike) -> list[str]:
        """Hook: returns the words of an absent list."""
        raise missing_hook(self, "words")

    def get_or_create_vocab(
        self, data_dir: PathLike, tmp_dir: PathLike | None, force_get: bool = False
    ):
        path = Path(data_dir) / str(self.vocab_filename)
        if self.vocab_type == VocabType.TOKEN and not path.exists():
            if force_get or tmp_dir is None:
                raise text_problem.absent_vocabulary(self, path)
            words = self.words(tmp_dir)
            with atomic_write(path) as partial:
                TokenTextEncoder(vocab_list=words).store_to_file(partial)
        return super().get_or_create_vocab(data_dir, tmp_dir, force_get)


@register_problem("text2text_tmpdir")
class Text2textTmpdir(Text2TextProblem):
    """Pairs of lines from `{inputs,targets}.{train,eval}.txt` in `tmp_dir` (T2T's name)."""

    TRAIN_FILES = ("inputs.train.txt", "targets.train.txt")
    EVAL_FILES = ("inputs.eval.txt", "targets.eval.txt")

    is_generate_per_split = True
    _tmp_dir_override = None  # T2T's: the directory of the files, in place of tmp_dir

    def generate_samples(self, data_dir: PathLike, tmp_dir: PathLike, split: str) -> Samples:
        place = Path(self._tmp_dir_override or tmp_dir)
        files = self.TRAIN_FILES if split == DatasetSplit.TRAIN else self.EVAL_FILES
        for inputs, targets in translate.read_pairs(*(place / name for name in files)):
            yield {"inputs": inputs, "targets": targets}


@register_problem("text2text_tmpdir_tokens")
class Text2textTmpdirTokens(WordListProblem, Text2textTmpdir):
    """`text2text_tmpdir` with the vocabulary `vocab.txt`, one word per line (T2T's name).

    `<pad>`, `<EOS>` and `<UNK>` (for all other words) are added if absent.
    """

    vocab_type = VocabType.TOKEN
    oov_token = "<UNK>"

    def words(self, tmp_dir: PathLike) -> list[str]:
        """Returns the words of the file, each listed once."""
        path = Path(tmp_dir) / "vocab.txt"
        words = [line.strip() for line in iterate_lines(path)]
        require_unique(words, str(path))
        return [self.oov_token] * (self.oov_token not in words) + words
