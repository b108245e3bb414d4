"""`Problem`: a task with a name, data in shards by split, and text encoders."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t2t_keras import t2t_names
from t2t_keras.errors import UserError
from t2t_keras.model_kinds import CLASSIFICATION, LANGUAGE_MODEL, TRANSLATION, Kind
from t2t_keras.registry import default_name

if TYPE_CHECKING:
    from t2t_keras.decoding.logits import Constraint


class DatasetSplit:
    """Names of the splits, as in file names (T2T's `DatasetSplit`)."""

    TRAIN = "train"
    EVAL = "dev"
    TEST = "test"


SPLITS = (DatasetSplit.TRAIN, DatasetSplit.EVAL, DatasetSplit.TEST)


def with_shards(splits: Iterable[str], train: int = 100) -> list[dict]:
    """Returns `dataset_splits` with `train` training shards and 1 shard for each other split."""
    return [{"split": s, "shards": train if s == DatasetSplit.TRAIN else 1} for s in splits]


class VocabType:
    """Kinds of vocabularies (T2T's `VocabType`)."""

    CHARACTER = "character"
    SUBWORD = "subwords"
    TOKEN = "tokens"
    SENTENCEPIECE = "sentencepiece"  # not in T2T


class SpaceID:
    """Ids of languages in T2T's target-space embedding; translation uses GENERIC for both sides."""

    GENERIC, IMAGE_LABEL = range(2)
    EN_CHR, EN_TOK, EN_BPE_TOK, FR_CHR, FR_TOK, DE_CHR, DE_TOK, DE_BPE_TOK = range(2, 10)
    DIGIT_0, DIGIT_1, AUDIO_WAV, AUDIO_SPECTRAL = range(10, 14)
    PARSE_CHR, PARSE_TOK, ZH_TOK, ICE_CHAR, ICE_TOK, ICE_PARSE_TOK = range(14, 20)
    MK_TOK, CS_TOK, CS_CHR = range(20, 23)
    DNA, REAL, IMAGE, PEPTIDE, PY_TOK, CPP_TOK, STROKES, PICKLED_PYTHON = range(23, 31)


class Problem:
    """A task with its data (T2T's `Problem`). Subclasses define the data.

    Args:
        was_reversed: the name ends in `_rev`: inputs and targets are swapped when data is read.
        was_copy: the name ends in `_copy`: the inputs are used as targets (after any reversal).

    Raises:
        UserError: the subclass defines T2T hooks that are not called here.
    """

    name: str
    """The full name, including `_rev` and `_copy`; registration sets it on the class."""

    random_seed = 429459
    """Seed of the shuffle in `generate_data` (T2T's default for `--random_seed`)."""

    loss_multiplier: float = 1.0
    """Factor of the loss that training minimises and reports (T2T's `loss_multiplier`)."""

    has_inputs: bool = True
    """False: examples have targets only (language modelling)."""

    num_classes: int | None = None
    """The number of classes of a classification problem; None: targets are sequences."""

    packed_length: int | None = None
    """Ids of a row that holds several examples (T2T's `packed_length`); None: one example per row."""

    tfds_name: str | None = None
    """The TFDS dataset of the examples, such as "wmt14_translate/de-en"; None: they are from elsewhere."""

    table_sizes: tuple[int | None, int | None] = (None, None)
    """Rows of the embedding tables of inputs and of targets, before any reversal (T2T's `vocab_size`
    of a problem); None: the size of the vocabulary."""

    def __init__(self, was_reversed: bool = False, was_copy: bool = False):
        self.was_reversed = was_reversed
        self.was_copy = was_copy
        self._base_name = type(self).__dict__.get("name") or default_name(type(self).__name__)
        self.name = self._base_name + "_copy" * was_copy + "_rev" * was_reversed
        self._encoders: tuple[str, dict] | None = None
        if hooks := t2t_names.uncalled_hooks(type(self)):
            raise UserError(
                f"The problem {self.name} defines hooks of tensor2tensor that are not called here; remove "
                f"them: {hooks}."
            )

    @property
    def kind(self) -> Kind:
        """What a model of the problem does; see `model_kinds`."""
        if self.num_classes:
            return CLASSIFICATION
        return TRANSLATION if self.has_inputs else LANGUAGE_MODEL

    @property
    def sides(self) -> tuple[str, ...]:
        """The names of the sequences of an example."""
        return ("inputs", "targets") if self.has_inputs else ("targets",)

    def max_length(self, model_hparams) -> int:
        """Hook: returns the length of the longest training example; default: hparam `max_length`."""
        return model_hparams.max_length

    def dataset_filename(self) -> str:
        """Returns the prefix of the names of all data files: the name without `_rev` and `_copy`."""
        return self._base_name

    @property
    def dataset_splits(self) -> list[dict]:
        """The splits and their numbers of shards: 100 for training and 1 for dev, as in T2T."""
        return with_shards((DatasetSplit.TRAIN, DatasetSplit.EVAL))

    @property
    def vocab_filename(self) -> str | None:
        """The name of the vocabulary file in `data_dir`; None: the problem has none."""
        return None

    @property
    def vocab_filenames(self) -> tuple[str | None, ...]:
        """The names of all vocabulary files in `data_dir`: `vocab_filename`, unless each side has its own."""
        return (self.vocab_filename,)

    def filepattern(self, data_dir: str | os.PathLike, split: str) -> str:
        """Returns the glob pattern of the shards of a split."""
        return os.path.join(data_dir, f"{self.dataset_filename()}-{split}-*")

    def generate_data(self, data_dir: str | os.PathLike, tmp_dir: str | os.PathLike) -> None:
        """Hook: writes the vocabulary and the shards of all splits into `data_dir`."""
        raise missing_hook(self, "generate_data")

    def feature_encoders(self, data_dir: str | os.PathLike) -> dict:
        """Hook: returns the encoder of "inputs" and of "targets", before any reversal."""
        raise missing_hook(self, "feature_encoders")

    def get_feature_encoders(self, data_dir: str | os.PathLike) -> dict:
        """Returns the encoders of "inputs" and "targets" as the model sees them; caches them."""
        key = os.fspath(data_dir)
        if self._encoders is None or self._encoders[0] != key:
            self._encoders = (key, self.orient(self.feature_encoders(data_dir)))
        return self._encoders[1]

    def vocab_sizes(self, data_dir: str | os.PathLike) -> dict[str, int]:
        """Returns the number of rows of the model's embedding tables, by side.

        Raises:
            UserError: a vocabulary has more tokens than `table_sizes` allows.
        """
        sizes = self.orient(dict(zip(("inputs", "targets"), self.table_sizes, strict=True)))
        for side, encoder in self.get_feature_encoders(data_dir).items():
            sizes[side] = sizes[side] or encoder.vocab_size
            if encoder.vocab_size > sizes[side]:
                raise UserError(
                    f"the vocabulary of the {side} in {data_dir} has {encoder.vocab_size} tokens, and "
                    f"the table of {self.name} has {sizes[side]} rows: build a smaller vocabulary."
                )
        return sizes

    @property
    def quality_metric(self) -> str:
        """Hook: the name of the metric that `quality` computes."""
        return "bleu"

    def quality(
        self, inputs: Sequence[str], references: Sequence[str], outputs: Sequence[str]
    ) -> float:
        """Hook: returns the quality of a model's outputs, 0 to 100."""
        from t2t_keras.metrics import bleu

        return bleu(references, outputs).sacrebleu

    def constraint(self, encoders: Mapping[str, Any]) -> Constraint | None:
        """Hook: returns a function from the input texts of a batch to a logits processor.

        The processor restricts decoding to valid outputs of the problem; None: no restriction.
        """
        return None

    def format_output(self, inputs: str, outputs: str) -> str:
        """Hook: postprocesses a model's output for an input."""
        return outputs

    def format_report(self) -> str:
        """Hook: returns a one-line summary of what `format_output` has done so far, or ""."""
        return ""

    @property
    def space_ids(self) -> tuple[int, int]:
        """Hook: the `SpaceID`s of inputs and of targets, before any reversal."""
        return SpaceID.GENERIC, SpaceID.GENERIC

    @property
    def input_space_id(self) -> int:
        """The `SpaceID` of the model's inputs."""
        return self.orient(dict(zip(("inputs", "targets"), self.space_ids, strict=True)))["inputs"]

    @property
    def target_space_id(self) -> int:
        """The `SpaceID` of the model's targets: the row of the target-space embedding to use."""
        return self.orient(dict(zip(("inputs", "targets"), self.space_ids, strict=True)))["targets"]

    def orient(self, features: Mapping) -> dict:
        """Applies the swap of `_rev` and the copy of `_copy` to "inputs" and "targets"."""
        if not self.has_inputs:
            return {"targets": features["targets"]}
        inputs, targets = features["inputs"], features["targets"]
        if self.was_reversed:
            inputs, targets = targets, inputs
        if self.was_copy:
            targets = inputs
        return {"inputs": inputs, "targets": targets}


def missing_field(problem: Problem, split: str, field: str, fields: Sequence[str]) -> UserError:
    """Returns the error of a sample that lacks a required field."""
    return UserError(
        f"A {split} sample of {problem.name} has no {field!r}; "
        f"every sample needs the fields {', '.join(fields)}."
    )


def missing_hook(problem: Problem, hook: str) -> UserError:
    """Returns the error of a problem that lacks a required hook."""
    return UserError(
        f"The problem {problem.name} has no {hook}: its class {type(problem).__name__} must define it."
    )
