"""Problems on your own text: files or a TFDS dataset given by flags, and files with T2T's names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from t2t_keras.data import DatasetSplit, Text2TextProblem, VocabType
from t2t_keras.data.problem import with_shards
from t2t_keras.data.shards import shard_paths
from t2t_keras.data.text_problem import (
    PathLike,
    Samples,
    absent_vocabulary,
    make_directory,
    require_vocabulary,
)
from t2t_keras.data.tfds import USUAL_SPLITS, TfdsSource
from t2t_keras.data.translate import (
    Corpus,
    MixedCorpora,
    PairSource,
    PairSourceProblem,
    ParallelFiles,
    check_and_note,
    read_pairs,
)
from t2t_keras.errors import UserError
from t2t_keras.files import atomic_write
from t2t_keras.registry import register_problem
from t2t_keras.text import TokenTextEncoder
from t2t_keras.text.lines import iterate_lines

_Files = Sequence[PathLike]


@register_problem
class TranslateFiles(PairSourceProblem):
    """Pairs of lines from any files, corpora or TFDS dataset: see `use_files`, `use_corpora`, `use_tfds`.

    Only data generation needs to know the source: vocabulary and shards have the same names for every
    source, and a note beside them records it.
    """

    def __init__(self, was_reversed: bool = False, was_copy: bool = False):
        super().__init__(was_reversed, was_copy)
        self._files: ParallelFiles | MixedCorpora | None = None
        self._tfds: tuple[str, Sequence[str] | None, Sequence[str] | None] | None = None
        self._opened: PairSource | None = None
        self._splits = [DatasetSplit.TRAIN, DatasetSplit.EVAL]

    def use_files(
        self,
        train: _Files,
        dev: _Files,
        test: _Files | None = None,
        vocab_size: int = 2**15,
        sentencepiece: str | None = None,
    ) -> None:
        """Sets the files to generate data from.

        Args:
            train: source file and target file, plain or `.gz`, one sentence per line.
            dev, test: like `train`; test is optional.
            vocab_size: approximate size of the vocabulary.
            sentencepiece: "unigram", "bpe" or the path of a model; None: T2T's subwords.
        """
        files = {DatasetSplit.TRAIN: train, DatasetSplit.EVAL: dev, DatasetSplit.TEST: test}
        source = ParallelFiles({split: pair for split, pair in files.items() if pair})
        self._use(source, None, vocab_size, sentencepiece)

    def use_corpora(
        self, corpora: Sequence[Corpus], vocab_size: int = 2**15, sentencepiece: str | None = None
    ) -> None:
        """Sets several corpora to generate data from, with weights and tags.

        Args:
            corpora: see `t2t_keras.data.translate.MixedCorpora`; its `read` reads them from a file.
            vocab_size, sentencepiece: as in `use_files`; each tag is a single piece.

        Raises:
            UserError: they cannot be mixed, or they have tags and the problem is `_rev` or `_copy`.
        """
        source = MixedCorpora(corpora)
        if source.tags and (self.was_reversed or self.was_copy):
            raise UserError(
                f"{self.name} would have the tags in its targets: use the problem without _rev or _copy, "
                "and name the files in the other order."
            )
        self._use(source, None, vocab_size, sentencepiece)

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
            name: see `t2t_keras.data.tfds.TfdsPairs`.
            languages: source and target; None: those of the dataset.
            splits: train, dev and optionally test in TFDS's grammar; None: "train", "validation" and, if it
                exists, "test".
            vocab_size, sentencepiece: as in `use_files`.
        """
        self._use(None, (name, languages, splits), vocab_size, sentencepiece)

    def _use(self, files, tfds, vocab_size: int, sentencepiece: str | None) -> None:
        self._files, self._tfds, self._opened = files, tfds, None
        self.approx_vocab_size = vocab_size
        self._set_vocabulary(sentencepiece)

    def _set_vocabulary(self, sentencepiece: str | None) -> None:
        """Sets the type of the vocabulary: T2T's subwords or a SentencePiece model."""
        self.vocab_type, self.additional_reserved_tokens = VocabType.SUBWORD, []
        if sentencepiece:  # T2T's tokenizer would split tags such as <2de> anyway
            self.vocab_type, self.sentencepiece_model = VocabType.SENTENCEPIECE, sentencepiece
            self.additional_reserved_tokens = getattr(self._files, "tags", [])

    @property
    def vocab_filename(self) -> str:
        """The file name; without the size, so that readers of the data need not know it."""
        return f"vocab.{self.dataset_filename()}.{self.vocab_type}"

    @property
    def dataset_splits(self) -> list[dict]:
        """100 training shards, 1 for dev and, if it exists, 1 for test."""
        return with_shards(self._splits)

    def source(self, tmp_dir: PathLike) -> PairSource:
        """Returns the files or the dataset; see `TfdsPairs` for `tmp_dir`.

        Raises:
            UserError: no source is set, or the dataset is unusable.
        """
        if self._opened is None:
            if self._files is not None:
                self._opened = self._files
            elif self._tfds is not None:
                name, languages, splits = self._tfds
                parts = dict(zip(USUAL_SPLITS, splits, strict=False)) if splits else None
                self._opened = TfdsSource(name, tmp_dir, languages, parts)
            else:
                raise UserError(
                    f"{self.name} has no source: give "
                    "--train_files=SOURCE,TARGET and --dev_files=SOURCE,TARGET, --corpora=FILE or "
                    "--tfds=NAME."
                )
            self._splits = self._opened.splits
        return self._opened

    def generate_data(self, data_dir: PathLike, tmp_dir: PathLike) -> None:
        """Writes vocabulary and shards; existing ones must come from the same source.

        Raises:
            UserError: the source is not set or unusable, or existing data comes from another one.
        """
        if not self._has_source() and self._is_generated(data_dir):
            self._find_vocabulary(data_dir)
            require_vocabulary(self, data_dir)
            return
        source = self.source(tmp_dir)
        make_directory(data_dir)
        check_and_note(self, source, data_dir)
        super().generate_data(data_dir, tmp_dir)

    def get_or_create_vocab(
        self, data_dir: PathLike, tmp_dir: PathLike | None, force_get: bool = False
    ):
        if not self._has_source():
            self._find_vocabulary(data_dir)
        elif tmp_dir is not None and not force_get:
            check_and_note(self, self.source(tmp_dir), data_dir)
        return super().get_or_create_vocab(data_dir, tmp_dir, force_get)

    def _has_source(self) -> bool:
        return self._files is not None or self._tfds is not None

    def _find_vocabulary(self, data_dir: PathLike) -> None:
        """Sets the type of the vocabulary to that of the existing file."""
        stored = Path(data_dir) / f"vocab.{self.dataset_filename()}.{VocabType.SENTENCEPIECE}"
        self._set_vocabulary(self.sentencepiece_model if stored.exists() else None)

    def _is_generated(self, data_dir: PathLike) -> bool:
        """Returns True if all shards exist; then sets the splits to the existing ones."""
        existing = [
            item["split"]
            for item in with_shards(USUAL_SPLITS)
            if all(path.exists() for path in shard_paths(data_dir, self.dataset_filename(), **item))
        ]
        if not {*self._splits} <= {*existing}:
            return False
        self._splits = existing
        return True


@register_problem("text2text_tmpdir")
class Text2textTmpdir(Text2TextProblem):
    """Pairs of lines from `{inputs,targets}.{train,eval}.txt` in `tmp_dir` (T2T's name)."""

    TRAIN_FILES = ("inputs.train.txt", "targets.train.txt")
    EVAL_FILES = ("inputs.eval.txt", "targets.eval.txt")

    is_generate_per_split = True

    def generate_samples(self, data_dir: PathLike, tmp_dir: PathLike, split: str) -> Samples:
        files = self.TRAIN_FILES if split == DatasetSplit.TRAIN else self.EVAL_FILES
        for inputs, targets in read_pairs(*(Path(tmp_dir) / name for name in files)):
            yield {"inputs": inputs, "targets": targets}


@register_problem("text2text_tmpdir_tokens")
class Text2textTmpdirTokens(Text2textTmpdir):
    """`text2text_tmpdir` with the vocabulary `vocab.txt`, one word per line (T2T's name).

    `<pad>`, `<EOS>` and `<UNK>` (for all other words) are added if absent.
    """

    vocab_type = VocabType.TOKEN
    oov_token = "<UNK>"

    def get_or_create_vocab(
        self, data_dir: PathLike, tmp_dir: PathLike | None, force_get: bool = False
    ):
        """Returns the encoder; copies the words from `tmp_dir` if `data_dir` has no vocabulary.

        Raises:
            UserError: there is no vocabulary in `data_dir` and (unless `force_get`) in `tmp_dir`.
        """
        path = Path(data_dir) / str(self.vocab_filename)
        if not path.exists():
            if force_get or tmp_dir is None:
                raise absent_vocabulary(self, data_dir)
            words = (line.strip() for line in iterate_lines(Path(tmp_dir) / "vocab.txt"))
            with atomic_write(path) as partial:
                TokenTextEncoder(vocab_list=[self.oov_token, *words]).store_to_file(partial)
        return super().get_or_create_vocab(data_dir, tmp_dir, force_get)
