"""Text-to-text problems: vocabulary, encoders, and generation of shards."""

import itertools
import math
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras import text
from t2t_keras.data.generation import (
    CleaningRules,
    Generation,
    Sample,
    generating_alone,
    pack_serialised,
)
from t2t_keras.data.problem import DatasetSplit, Problem, VocabType, missing_hook, shards_by_split
from t2t_keras.data.shards import PathLike, shard_paths
from t2t_keras.errors import UserError, explained, require_kind, require_one_of
from t2t_keras.files import atomic_write
from t2t_keras.ids import EOS_ID, RESERVED_TOKENS
from t2t_keras.settings import at_least, declare
from t2t_keras.text.lines import decompressed
from t2t_keras.text.sentencepiece import MODEL_TYPES

Samples = Iterator[dict[str, Any]]
Ids = Iterator[dict[str, list[int]]]
_COUNT = declare(0, at_least(0))


class Text2TextProblem(Problem):
    """Pairs of texts with one vocabulary for both sides (T2T's `Text2TextProblem`).

    A subclass defines `is_generate_per_split` and `generate_samples`, and other hooks as needed.
    """

    processes = 1
    """Number of processes that `generate_data` uses. With more than one, the main module must be
    importable without side effects (a requirement of Python's `multiprocessing`)."""
    cleaning: CleaningRules | None = None
    """Rules by which `generate_data` drops training pairs; None: keep all."""
    vocab_type: str = VocabType.SUBWORD
    """`VocabType.SUBWORD`, `SENTENCEPIECE`, `CHARACTER` (bytes) or `TOKEN` (a list of words)."""
    sentencepiece_model: str = "unigram"
    """For `SENTENCEPIECE`: "unigram" or "bpe" to train a model, or the path of an existing model."""
    approx_vocab_size: int = 2**15
    """The approximate size of the subword or SentencePiece vocabulary."""
    additional_reserved_tokens: list[str] = []
    """Tokens with reserved ids, after padding and end of sentence."""
    oov_token: str | None = None
    """The token that stands for unknown words in a `TOKEN` vocabulary."""
    inputs_prefix: str = ""
    """Prefix of every input text."""
    targets_prefix: str = ""
    """Prefix of every target text."""
    packed_spacing: int = 0
    """The number of zeros between packed pairs."""
    already_shuffled: bool = False
    """True: examples keep their order within a shard."""
    max_samples_for_vocab: int | None = None
    """How many samples `generate_text_for_vocab` reads; None or 0: all."""
    max_subtoken_length: int | None = 200
    """Subwords have fewer characters than this; None: at most 1,000."""
    use_vocab_from_other_problem: Any = None
    """The problem whose vocabulary this problem uses; None: it has its own."""
    batch_size_means_tokens: bool = True
    """True: the hparam `batch_size` counts tokens, for every problem."""
    text_fields: Sequence[str] = ()
    """The fields of a sample that the vocabulary is for; by default all `sides`."""

    def __init__(self, was_reversed: bool = False, was_copy: bool = False):
        super().__init__(was_reversed, was_copy)
        self.text_fields = self.text_fields or self.sides
        self.dropped: Counter[str] = Counter()
        """The number of samples that `generate_samples` has dropped, by reason."""

    @property
    def is_generate_per_split(self) -> bool:
        """Hook: True if `generate_samples` is called once for each split; False: it is called only
        for "train", and its samples are distributed over the shards of all splits."""
        raise missing_hook(self, "is_generate_per_split")

    def generate_samples(self, data_dir: PathLike, tmp_dir: PathLike, split: str) -> Samples:
        """Hook: yields `{"inputs": text, "targets": text}`, a text for each of `sides`."""
        raise missing_hook(self, "generate_samples")

    def samples_of_pairs(self, pairs: Iterable[tuple[str, str]]) -> Samples:
        """Yields `{"inputs": text, "targets": text}` of pairs; drops and counts those with an empty side."""
        for inputs, targets in pairs:
            if inputs and targets:
                yield {"inputs": inputs, "targets": targets}
            else:
                self.dropped["empty"] += 1

    @property
    def text_prefixes(self) -> dict[str, str]:
        """The prefixes of a sample's texts, by field; others have none."""
        return {"inputs": self.inputs_prefix, "targets": self.targets_prefix}

    def max_length(self, model_hparams) -> int:
        """Returns `packed_length` if examples are packed, else the hparam `max_length`."""
        return self.packed_length or model_hparams.max_length

    @property
    def loss_multiplier(self) -> float:  # type: ignore[override]
        """Factor of the training loss: 2 for characters, as in T2T, else 1."""
        return 2.0 if self.vocab_type == VocabType.CHARACTER else 1.0

    @property
    def _vocab_owner(self) -> Any:
        of_characters = self.vocab_type == VocabType.CHARACTER  # first, as in T2T
        return None if of_characters else self.use_vocab_from_other_problem

    @property
    def vocab_filename(self) -> str | None:
        """The name of the vocabulary file in `data_dir`; None for characters."""
        if self._vocab_owner is not None:
            return self._vocab_owner.vocab_filename
        start = f"vocab.{self.dataset_filename()}"
        if self.vocab_type in (VocabType.SUBWORD, VocabType.SENTENCEPIECE):
            return f"{start}.{int(self.approx_vocab_size)}.{self.vocab_type}"
        return f"{start}.{VocabType.TOKEN}" if self.vocab_type == VocabType.TOKEN else None

    def generate_text_for_vocab(self, data_dir: PathLike, tmp_dir: PathLike) -> Iterator[str]:
        """Yields the text to build the vocabulary from: all texts of the training samples."""
        samples = self.generate_samples(data_dir, tmp_dir, DatasetSplit.TRAIN)
        whole = whole_samples(self, DatasetSplit.TRAIN, samples, self.text_fields)
        for sample in itertools.islice(whole, self._most_for_vocab()):
            yield from (sample[field] for field in self.text_fields)

    def _most_for_vocab(self) -> int | None:
        name, most = f"max_samples_for_vocab of {self.name}", self.max_samples_for_vocab or 0
        return _COUNT.checked(name, most, what="") or None

    def get_or_create_vocab(
        self, data_dir: PathLike, tmp_dir: PathLike | None, force_get: bool = False
    ):
        """Returns the encoder; builds and stores the subword or SentencePiece vocabulary if absent.

        An absent file is a `UserError` if `force_get`, or without a `tmp_dir` of source files.
        """
        if self._vocab_owner is not None:
            return self._vocab_owner.get_or_create_vocab(data_dir, tmp_dir, force_get)
        kinds = [kind for name, kind in vars(VocabType).items() if name.isupper()]
        require_one_of(f"vocab_type of {self.name}", self.vocab_type, kinds)
        if self.vocab_filename is None:
            return text.ByteTextEncoder()
        lines = None
        if tmp_dir is not None and not force_get:
            lines = lambda: self.generate_text_for_vocab(data_dir, tmp_dir)  # noqa: E731
        return self.stored_encoder(data_dir, self.vocab_filename, self.approx_vocab_size, lines)

    def stored_encoder(self, data_dir: PathLike, filename: str, size: int, lines: Callable | None):
        """Returns the encoder of a vocabulary file; an absent one is built of lines, if any."""
        path = Path(data_dir) / filename
        if self.vocab_type == VocabType.TOKEN:
            if not os.path.exists(path):
                raise UserError(
                    f"{path} is absent: place the list of words of {self.name} there, one per line."
                )
            return text.TokenTextEncoder(path, replace_oov=self.oov_token)
        is_pieces = self.vocab_type == VocabType.SENTENCEPIECE
        kind = text.SentencePieceEncoder if is_pieces else text.SubwordTextEncoder
        if os.path.exists(path):  # unlike `Path.exists`, no error for a name that is too long
            return kind(path)
        if lines is None:
            raise absent_vocabulary(self, path)
        reserved, model = self.additional_reserved_tokens, self.sentencepiece_model
        if not is_pieces:
            encoder: Any = text.SubwordTextEncoder.build_from_generator(
                lines(), size, self.max_subtoken_length, [*RESERVED_TOKENS, *reserved]
            )
        elif model in MODEL_TYPES:
            encoder = text.SentencePieceEncoder.build_from_generator(lines(), size, model, reserved)
        else:
            encoder = text.SentencePieceEncoder(model)
        with atomic_write(path) as partial:
            encoder.store_to_file(partial)
        return kind(path)  # as it is read: a newline in a subword makes two of it

    def feature_encoders(self, data_dir: PathLike) -> dict:
        """Returns the encoder that all texts of a sample share; its vocabulary must exist."""
        return dict.fromkeys(self.text_fields, self.get_or_create_vocab(data_dir, None, True))

    def get_or_create_encoders(self, data_dir: PathLike, tmp_dir: PathLike) -> dict[str, Any]:
        """Hook: returns the encoder of each side for generating data; builds the vocabulary if absent."""
        return dict.fromkeys(self.text_fields, self.get_or_create_vocab(data_dir, tmp_dir))

    def generate_encoded_samples(self, data_dir: PathLike, tmp_dir: PathLike, split: str) -> Ids:
        """Yields `{"inputs": ids, "targets": ids}`, each ending in `EOS_ID`.

        If a subclass overrides this, `generate_data` encodes in a single process.
        """
        samples = self.generate_samples(data_dir, tmp_dir, split)  # it may bring the vocabulary
        encoders = self.get_or_create_encoders(data_dir, tmp_dir)
        for sample in whole_samples(self, split, samples, encoders):
            yield {
                side: [*encoder.encode(self.text_prefixes.get(side, "") + sample[side]), EOS_ID]
                for side, encoder in encoders.items()
            }

    def generate_data(self, data_dir: PathLike, tmp_dir: PathLike, task_id: int = -1) -> None:
        """Writes the vocabulary and the shards of all splits; keeps existing shards.

        Resumes an interrupted generation. A second process waits for the first. Before each split,
        the global random generators of Python and NumPy are seeded.

        Raises:
            UserError: a directory cannot be created or written to, the source is malformed, or
                existing data cannot be completed: shards lack their vocabulary, or some shards of a
                split are there that are not from an interrupted generation.
        """
        make_directory(data_dir)
        make_directory(tmp_dir, writable=False)
        name = self.dataset_filename()
        shards = shards_by_split(self).items()
        splits = {split: shard_paths(data_dir, name, split, number) for split, number in shards}
        jobs = {DatasetSplit.TRAIN: splits}
        if self.is_generate_per_split:
            jobs = {split: {split: paths} for split, paths in splits.items()}
        with generating_alone(Path(data_dir), name):
            require_vocabulary(self, data_dir)
            for split, paths in jobs.items():
                generation = Generation(self, split, paths)
                if generation.is_complete():
                    self._report_unused_settings(split, data_dir)
                else:
                    self._generate(data_dir, tmp_dir, generation)

    def _pack_fn(self) -> Callable[[list[bytes]], list[bytes]] | None:
        """Returns what a `generate_data` of users gives T2T's `shuffle_dataset`: it packs examples."""
        if not (length := self.packed_length):
            return None
        return lambda examples: pack_serialised(examples, self.sides, length, self.packed_spacing)

    def _report_unused_settings(self, split: str, data_dir: PathLike) -> None:
        """Prints a line if the user gave settings that have no effect on existing shards."""
        given, own_seed = vars(self), type(self).random_seed  # a flag sets the instance's attribute
        unused = []
        if split == DatasetSplit.TRAIN and given.get("cleaning"):
            unused.append("cleaning (--clean_...)")
        if given.get("random_seed", own_seed) != own_seed:
            unused.append(f"random_seed={self.random_seed}")
        if unused:
            print(
                f"{self.name}: {data_dir} has the {split} shards already, so {' and '.join(unused)} "
                "has no effect: delete them to regenerate them",
                file=sys.stderr,
                flush=True,
            )

    def _generate(self, data_dir: PathLike, tmp_dir: PathLike, generation: Generation) -> None:
        encoders, split, ours = {}, generation.split, Text2TextProblem.generate_encoded_samples
        by_us = type(self).generate_encoded_samples is ours
        generate = self.generate_samples if by_us else self.generate_encoded_samples
        self._seed(split)
        samples = generate(data_dir, tmp_dir, split)  # in T2T's order: it may bring the vocabulary
        if by_us:
            encoders = self.get_or_create_encoders(data_dir, tmp_dir)
            self._seed(split)
        generation.run(whole_samples(self, split, samples, encoders), encoders)

    def _seed(self, split: str) -> None:
        """Seeds Python and NumPy for a split: if resumed, it must not depend on draws made before it."""
        first = split == DatasetSplit.TRAIN  # as in T2T, whose further splits go on with its draws
        random.seed(self.random_seed if first else f"{self.random_seed} {split}")
        np.random.seed(self.random_seed % 2**32 if first else random.getrandbits(32))


def whole_samples(
    problem: Problem, split: str, samples: Iterable[Sample], fields: Collection[str] | None = None
) -> Iterator[Sample]:
    """Yields samples, checked for texts in `fields` (None: the problem's sides; empty: none)."""
    fields = problem.sides if fields is None else fields
    encoded = not fields  # each has the fields of the first
    what = f"the {split} samples of {problem.name}"
    require_kind(what, samples, Iterable, "an iterable of dicts")
    for number, sample in enumerate(samples, start=1):
        if sample is None and encoded:  # T2T leaves it out
            continue
        name = f"{split} sample {number} of {problem.name}"
        require_kind(name, sample, Mapping, "a dict of fields")
        fields = fields or [*sample]
        for field in fields:
            if field not in sample:
                raise UserError(
                    f"A {split} sample of {problem.name} has no {field!r}; "
                    f"every sample needs the fields {', '.join(fields)}."
                )
            try:
                if not encoded and field != "label":
                    str.encode(sample[field])
            except (TypeError, UnicodeEncodeError):
                wrong = f"must be text that UTF-8 can hold, got {sample[field]!r:.60}"
                raise UserError(f"{field!r} in {name} {wrong}.") from None
        yield sample


def absent_vocabulary(problem: Text2TextProblem, path: Path) -> UserError:
    return UserError(
        f"The vocabulary {path} is absent: run "
        f"t2t-keras-datagen --problem={problem.dataset_filename()} --data_dir={path.parent} first."
    )


def require_vocabulary(problem: Text2TextProblem, data_dir: PathLike) -> None:
    """Checks that shards in `data_dir` have their vocabulary: a rebuilt one could have other ids."""
    names = filter(None, problem.vocab_filenames)
    absent = [name for name in names if not (Path(data_dir) / name).exists()]
    file = problem.dataset_filename()
    shards = (shard_paths(data_dir, file, *item) for item in shards_by_split(problem).items())
    there = (path.name for path in itertools.chain.from_iterable(shards) if path.exists())
    if absent and (shard := next(there, None)):
        try:
            problem.feature_encoders(data_dir)  # a subclass may not need the file
        except UserError as error:
            raise UserError(
                f"{data_dir} holds {shard} but not its vocabulary {absent[0]}: copy the vocabulary "
                f"there, or delete the shards of {problem.name} to make both again."
            ) from error


def make_directory(directory: PathLike, writable: bool = True) -> None:
    """Creates a directory unless it exists; with `writable`, also checks that it is writable."""
    what = f"The directory {directory} cannot be created"
    with explained(what, OSError, remedy="name another one"):
        Path(directory).mkdir(parents=True, exist_ok=True)
    if writable and not os.access(directory, os.W_OK | os.X_OK):
        raise UserError(f"Directory {directory} is not writable: name another or change its mode.")


class QuestionAndContext2TextProblem(Text2TextProblem):
    """Pairs with a third text, "context", which is stored, and which no model here reads (T2T's)."""

    QUESTION_SEPARATOR, QUESTION_SEPARATOR_ID = "<EOQ>", 2
    additional_reserved_tokens = [QUESTION_SEPARATOR]
    text_fields = ("inputs", "context", "targets")


# Problems with one text per example: language models, where it is the target, and classification


class SingleTextProblem(Text2TextProblem):
    """A problem whose sides cannot be swapped or copied."""

    def __init__(self, was_reversed: bool = False, was_copy: bool = False):
        super().__init__(was_reversed, was_copy)
        if was_reversed or was_copy:
            suffix = "_rev" if was_reversed else "_copy"
            raise UserError(
                f"{self.dataset_filename()} has no pairs of texts: drop {suffix} from {self.name}."
            )


class Text2SelfProblem(SingleTextProblem):
    """Language models (T2T's `Text2SelfProblem`): `generate_samples` yields `{"targets": text}`."""

    has_inputs = False


class ChoppedTextProblem(Text2SelfProblem):
    """Text as one stream, cut into examples of `sequence_length` ids (T2T's `ChoppedTextProblem`).

    The last example may be shorter. Examples have no end-of-sentence id.
    """

    max_dev_chars = 10**7  # limit on the characters of the dev and test texts (T2T's name)
    max_chars_for_vocab = 10**7  # and of the text that the vocabulary is built from (T2T's name)

    is_generate_per_split = True

    @property
    def sequence_length(self) -> int:
        """Hook: returns the number of ids in an example."""
        raise missing_hook(self, "sequence_length")

    def max_length(self, model_hparams) -> int:
        """Returns `sequence_length`, regardless of the hparam `max_length`, as in T2T."""
        return self.sequence_length

    def train_text_filepaths(self, tmp_dir: PathLike) -> Sequence[str]:
        """Hook: returns the paths of the training text."""
        raise missing_hook(self, "train_text_filepaths")

    def dev_text_filepaths(self, tmp_dir: PathLike) -> Sequence[str]:
        """Hook: returns the paths of the dev text."""
        raise missing_hook(self, "dev_text_filepaths")

    def filepath_to_unicode_strings(self, filepath: str) -> Iterator[str]:
        """Hook: yields the text of a file in pieces of any length; default: all, without invalid UTF-8."""
        with explained(f"Cannot read {filepath}", OSError), open(filepath, "rb") as stored:
            yield decompressed(stored, str(filepath)).read().decode("utf-8", "ignore")

    def documents(self, tmp_dir: PathLike, split: str) -> Iterator[str]:
        """Hook: yields the text of a split in pieces of any length; default: of its files."""
        is_train = split == DatasetSplit.TRAIN
        paths = self.train_text_filepaths if is_train else self.dev_text_filepaths
        return itertools.chain.from_iterable(map(self.filepath_to_unicode_strings, paths(tmp_dir)))

    def generate_samples(self, data_dir: PathLike, tmp_dir: PathLike, split: str) -> Samples:
        """Yields the pieces of text; outside training at most `max_dev_chars` in total."""
        documents = self.documents(tmp_dir, split)
        if split != DatasetSplit.TRAIN:
            documents = _first_characters(documents, self.max_dev_chars)
        return ({"targets": document} for document in documents)

    def generate_text_for_vocab(self, data_dir: PathLike, tmp_dir: PathLike) -> Iterator[str]:
        """Yields the first `max_chars_for_vocab` characters of the training text."""
        documents = self.documents(tmp_dir, DatasetSplit.TRAIN)
        return _first_characters(documents, self.max_chars_for_vocab)

    def generate_encoded_samples(self, data_dir: PathLike, tmp_dir: PathLike, split: str) -> Ids:
        """Yields `{"targets": ids}` with `sequence_length` ids, fewer in the last example."""
        encoder = self.get_or_create_vocab(data_dir, tmp_dir)
        samples = self.generate_samples(data_dir, tmp_dir, split)
        ids = itertools.chain.from_iterable(encoder.encode(each["targets"]) for each in samples)
        while example := list(itertools.islice(ids, self.sequence_length)):
            yield {"targets": example}


def _first_characters(documents: Iterator[str], characters: int) -> Iterator[str]:
    for document in documents:
        yield document[:characters]
        characters -= len(document)
        if characters <= 0:
            return


class Text2ClassProblem(SingleTextProblem):
    """Text classification (T2T's `Text2ClassProblem`), for `--model=transformer_encoder`.

    `generate_samples` yields `{"inputs": text, "label": number}`; a subclass must set `num_classes`.
    `inputs_prefix` is not used, as in T2T.
    """

    num_classes: int
    loss_multiplier = 1.0  # of characters, too: one class is predicted, not every character
    quality_metric = "f1"
    text_fields = ("inputs",)

    def __init__(self, was_reversed: bool = False, was_copy: bool = False):
        super().__init__(was_reversed, was_copy)
        if self.packed_length:
            raise UserError(f"{self.name} has a class for each text: do not set packed_length.")

    def class_labels(self, data_dir: PathLike | None = None) -> Sequence[str]:
        """Hook: returns the name of each class."""
        return [f"ID_{number}" for number in range(self.num_classes)]

    def feature_encoders(self, data_dir: PathLike) -> dict:
        """Returns the encoder of the texts and the encoder of the class labels."""
        encoder = self.get_or_create_vocab(data_dir, None, force_get=True)
        labels = self.class_labels(data_dir)
        if len(labels) != self.num_classes:
            wrong = f"has {self.num_classes} num_classes but {len(labels)} class_labels"
            raise UserError(f"{self.name} {wrong}: make them as many.")
        return {"inputs": encoder, "targets": text.ClassLabelEncoder(labels)}

    def orient(self, features: Any) -> dict:
        """As `Problem.orient`; adds the encoder of class labels, without which T2T trains."""
        if "targets" not in features:
            features["targets"] = text.ClassLabelEncoder(self.class_labels(self._data_dir))
        return super().orient(features)

    def generate_encoded_samples(self, data_dir: PathLike, tmp_dir: PathLike, split: str) -> Ids:
        """Yields `{"inputs": ids, ending in EOS_ID, "targets": [class number]}`."""
        encoder = self.get_or_create_vocab(data_dir, tmp_dir)
        samples = self.generate_samples(data_dir, tmp_dir, split)
        for sample in labelled_samples(self, split, samples):
            ids = encoder.encode(sample["inputs"])
            yield {"inputs": [*ids, EOS_ID], "targets": [sample["label"]]}


def labelled_samples(problem: Problem, split: str, samples: Iterable[Sample]) -> Iterator[Sample]:
    """Yields the samples of a `Text2ClassProblem`."""
    for sample in whole_samples(problem, split, samples, ("inputs", "label")):
        yield {**sample, "label": _label(problem, split, sample)}


def _label(problem: Problem, split: str, sample: Sample) -> int:
    given: Any = sample.get("label")  # a number, or a list of one
    label, classes = [*np.ravel(given)], problem.num_classes or 0
    if len(label) != 1 or label[0] not in range(classes):
        raise UserError(
            f"a {split} sample of {problem.name} has the label {given!r}; it must be from 0 to "
            f"{classes - 1}."
        )
    return int(label[0])


class TextConcat2ClassProblem(Text2ClassProblem):
    """Several texts, joined by `CONCAT_TOKEN`, with a class: `{"inputs": texts, "label": number}` (T2T's)."""

    CONCAT_TOKEN = "$"

    def generate_text_for_vocab(self, data_dir: PathLike, tmp_dir: PathLike) -> Iterator[str]:
        samples = self.generate_samples(data_dir, tmp_dir, DatasetSplit.TRAIN)
        most = self._most_for_vocab() or math.inf
        whole = whole_samples(self, DatasetSplit.TRAIN, samples, [])
        # From the last one on, T2T takes the first text.
        for number, sample in enumerate(whole, start=1):
            yield from sample["inputs"][: 1 if number >= most else None]

    def generate_encoded_samples(self, data_dir: PathLike, tmp_dir: PathLike, split: str) -> Ids:
        samples = self.generate_samples(data_dir, tmp_dir, split)
        encode = self.get_or_create_vocab(data_dir, tmp_dir).encode
        joint = encode(self.CONCAT_TOKEN)[:1]
        for sample in samples:
            parts = (joint + encode(each) for each in sample["inputs"])
            ids = itertools.islice(itertools.chain.from_iterable(parts), 1, None)
            yield {"inputs": [*ids, EOS_ID], "targets": [_label(self, split, sample)]}
