"""Problems on your own text: files or a TFDS dataset named by flags, and files with T2T's names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from t2t_keras.data import DatasetSplit, Text2TextProblem, VocabType
from t2t_keras.data.pair_source import (
    PairSource,
    PairSourceProblem,
    ParallelFiles,
    check_and_note,
    with_shards,
)
from t2t_keras.data.shards import shard_paths
from t2t_keras.data.text_problem import (
    PathLike,
    absent_vocabulary,
    make_directory,
    require_vocabulary,
)
from t2t_keras.data.tfds import USUAL_SPLITS, TfdsSource
from t2t_keras.data.translate import read_pairs
from t2t_keras.errors import UserError
from t2t_keras.files import whole_file
from t2t_keras.registry import register_problem
from t2t_keras.text import TokenTextEncoder
from t2t_keras.text.lines import iterate_lines

_Files = Sequence[PathLike]


@register_problem
class TranslateFiles(PairSourceProblem):
    """Pairs of lines of any files, or any prepared dataset: see `use_files` and `use_tfds`.

    Only generating data needs to be told which; vocabulary and shards bear one name, whatever they
    were made from, and a note beside them says what that was.
    """

    def __init__(self, was_reversed: bool = False, was_copy: bool = False):
        super().__init__(was_reversed, was_copy)
        self._size = 2**15
        self._files: ParallelFiles | None = None
        self._tfds: tuple[str, Sequence[str] | None, Sequence[str] | None] | None = None
        self._opened: PairSource | None = None
        self._splits = [DatasetSplit.TRAIN, DatasetSplit.EVAL]

    def use_files(
        self, train: _Files, dev: _Files, test: _Files | None = None, vocab_size: int = 2**15
    ) -> None:
        """Says which files the data is generated from.

        Args:
            train: the source file and the target file, each plain or `.gz`, a sentence a line.
            dev, test: the same; there may be no test.
            vocab_size: what the size of the subword vocabulary is to come near.
        """
        files = {DatasetSplit.TRAIN: train, DatasetSplit.EVAL: dev, DatasetSplit.TEST: test}
        self._files = ParallelFiles({split: pair for split, pair in files.items() if pair})
        self._tfds, self._opened, self._size = None, None, vocab_size

    def use_tfds(
        self,
        name: str,
        languages: Sequence[str] | None = None,
        splits: Sequence[str] | None = None,
        vocab_size: int = 2**15,
    ) -> None:
        """Says which dataset the data is generated from.

        Args:
            name: see `t2t_keras.data.tfds.TfdsPairs`.
            languages: source and target; None: those that the dataset names.
            splits: train, dev and, if wanted, test in TFDS's grammar; None: "train", "validation", and
                "test" if there is one.
            vocab_size: what the size of the subword vocabulary is to come near.
        """
        self._tfds = (name, languages, splits)
        self._files, self._opened, self._size = None, None, vocab_size

    @property
    def approx_vocab_size(self) -> int:
        """As told by `use_files` or `use_tfds`."""
        return self._size

    @property
    def vocab_filename(self) -> str:
        """The same for every size, so that what reads the data need not know it."""
        return f"vocab.{self.dataset_filename()}.{self.vocab_type}"

    @property
    def dataset_splits(self) -> list[dict]:
        """100 shards for training, 1 for dev and, where there is one, 1 for test."""
        return with_shards(self._splits)

    def source(self, tmp_dir: PathLike) -> PairSource:
        """The files or the dataset; see `TfdsPairs` for `tmp_dir`.

        Raises:
            UserError: neither was named, or the dataset is not as it should be.
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
                    f"{self.name} does not know what to make its data from: give "
                    "--train_files=SOURCE,TARGET and --dev_files=SOURCE,TARGET, or --tfds=NAME."
                )
            self._splits = self._opened.splits
        return self._opened

    def generate_data(self, data_dir: PathLike, tmp_dir: PathLike) -> None:
        """Writes the vocabulary and the shards; those that exist must be of the same text.

        Raises:
            UserError: the text is not known or not as it should be, or there is data of other text.
        """
        if self._files is None and self._tfds is None and self._is_generated(data_dir):
            require_vocabulary(self, data_dir)
            return
        source = self.source(tmp_dir)
        make_directory(data_dir)
        check_and_note(self, source, data_dir)
        super().generate_data(data_dir, tmp_dir)

    def get_or_create_vocab(
        self, data_dir: PathLike, tmp_dir: PathLike | None, force_get: bool = False
    ):
        """Returns the encoder; see `Text2TextProblem.get_or_create_vocab`."""
        if tmp_dir is not None and not force_get and (self._files or self._tfds):
            check_and_note(self, self.source(tmp_dir), data_dir)
        return super().get_or_create_vocab(data_dir, tmp_dir, force_get)

    def _is_generated(self, data_dir: PathLike) -> bool:
        """Whether all shards lie there; if so, their splits are ours."""
        there = [
            item["split"]
            for item in with_shards(USUAL_SPLITS)
            if all(path.exists() for path in shard_paths(data_dir, self.dataset_filename(), **item))
        ]
        if not {*self._splits} <= {*there}:
            return False
        self._splits = there
        return True


@register_problem("text2text_tmpdir")
class Text2textTmpdir(Text2TextProblem):
    """Pairs of lines of `inputs.{train,eval}.txt` and `targets.{train,eval}.txt` (T2T's name)."""

    TRAIN_FILES = ("inputs.train.txt", "targets.train.txt")
    EVAL_FILES = ("inputs.eval.txt", "targets.eval.txt")

    @property
    def is_generate_per_split(self) -> bool:
        return True

    def generate_samples(
        self, data_dir: PathLike, tmp_dir: PathLike, split: str
    ) -> Iterator[dict[str, str]]:
        files = self.TRAIN_FILES if split == DatasetSplit.TRAIN else self.EVAL_FILES
        for inputs, targets in read_pairs(*(Path(tmp_dir) / name for name in files)):
            yield {"inputs": inputs, "targets": targets}


@register_problem("text2text_tmpdir_tokens")
class Text2textTmpdirTokens(Text2textTmpdir):
    """The same with the words of `vocab.txt` as its vocabulary, one a line (T2T's name).

    `<pad>`, `<EOS>` and `<UNK>`, which stands for all other words, need not be among them.
    """

    vocab_type = VocabType.TOKEN
    oov_token = "<UNK>"

    def get_or_create_vocab(
        self, data_dir: PathLike, tmp_dir: PathLike | None, force_get: bool = False
    ):
        """Returns the encoder; takes the words from `tmp_dir` if `data_dir` has none yet.

        Raises:
            UserError: there are none, or none may be taken.
        """
        path = Path(data_dir) / str(self.vocab_filename)
        if not path.exists():
            if force_get or tmp_dir is None:
                raise absent_vocabulary(self, data_dir)
            words = (line.strip() for line in iterate_lines(Path(tmp_dir) / "vocab.txt"))
            with whole_file(path) as partial:
                TokenTextEncoder(vocab_list=[self.oov_token, *words]).store_to_file(partial)
        return super().get_or_create_vocab(data_dir, tmp_dir, force_get)
