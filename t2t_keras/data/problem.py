"""`Problem`: a task with a name, data in shards by split, and text encoders."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partialmethod
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from t2t_keras.data.shards import PathLike, shard_paths
from t2t_keras.errors import UserError, require_one_of
from t2t_keras.model_kinds import CLASSIFICATION, LANGUAGE_MODEL, TRANSLATION, Kind
from t2t_keras.registry import default_name
from t2t_keras.settings import HParams, declare, from_to

if TYPE_CHECKING:
    from t2t_keras.decoding.logits import Constraint


class DatasetSplit:
    """Names of the splits, as in file names (T2T's `DatasetSplit`)."""

    TRAIN = "train"
    EVAL = "dev"
    TEST = "test"


SPLITS = (DatasetSplit.TRAIN, DatasetSplit.EVAL, DatasetSplit.TEST)


def with_shards(splits: Iterable[str], train: int = 100, other: int = 1) -> list[dict]:
    """Returns `dataset_splits` with `train` training shards and `other` shards for each other split."""
    return [{"split": s, "shards": train if s == DatasetSplit.TRAIN else other} for s in splits]


_SHARDS = declare(1, from_to(1, 99_999))  # file names have five digits


def shards_by_split(problem: Problem) -> dict[str, int]:
    """Returns the number of shards of each split; raises UserError for a wrong one."""
    name = f"the number of {{}} shards of {problem.name}"
    pairs = [(item["split"], item["shards"]) for item in problem.dataset_splits]
    for split, _ in pairs:
        require_one_of(f"a split of {problem.name}.dataset_splits", split, SPLITS)
    return {split: _SHARDS.checked(name.format(split), shards, "") for split, shards in pairs}


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


_SYMBOL, _CLASS_LABEL = "symbol", "class_label"  # T2T's modalities


class ProblemHParams(SimpleNamespace):
    """What a model takes from a problem (T2T's `problem_hparams`)."""

    vocab_size: dict[str, int]  # rows of the embedding tables, by side
    vocabulary: dict[str, Any]  # the encoders, by side
    modality: dict[str, str]  # "symbol" or "class_label", by side
    loss_multiplier: float  # factor of the loss that training minimises and reports
    input_space_id: int
    target_space_id: int  # the row of the target-space table

    add_hparam = object.__setattr__  # T2T's


class Problem:
    """A task with its data (T2T's `Problem`). Subclasses define the data.

    Args:
        was_reversed: the name ends in `_rev`: inputs and targets are swapped when data is read.
        was_copy: the name ends in `_copy`: the inputs are used as targets (after any reversal).
    """

    name: str
    """The full name, including `_rev` and `_copy`; registration sets it on the class."""

    random_seed = 429459
    """Seed of the shuffle in `generate_data` (T2T's default for `--random_seed`)."""

    loss_multiplier: float = 1.0
    """Factor of the loss that training minimises and reports (T2T's `loss_multiplier`)."""

    space_ids: tuple[int, int] = SpaceID.GENERIC, SpaceID.GENERIC
    """The `SpaceID`s of inputs and of targets, before any reversal."""

    has_inputs: bool = True
    """False: examples have targets only (language modelling)."""

    num_classes: int | None = None
    """The number of classes of a classification problem; None: targets are sequences."""

    packed_length: int | None = None
    """Ids of a row that holds several examples (T2T's `packed_length`); None: one example per row."""

    tfds_name: str | None = None
    """The TFDS dataset of the examples, such as "wmt14_translate/de-en"; None: they are from elsewhere."""

    def __init__(self, was_reversed: bool = False, was_copy: bool = False):
        self.was_reversed = self._was_reversed = was_reversed
        self.was_copy = self._was_copy = was_copy
        named = vars(type(self)).get("name") or default_name(type(self).__name__)
        if isinstance(named, property):  # of a user
            self._base_name = self.name
        else:
            self._base_name = named
            self.name = named + "_copy" * was_copy + "_rev" * was_reversed
        self.sides = ("inputs", "targets") if self.has_inputs else ("targets",)
        """The names of the sequences of an example."""
        # Before any reversal, as hooks of T2T's users expect them.
        self._encoders: dict[str, Any] | None = None
        self._hparams: ProblemHParams | None = None
        self._data_dir: str | None = None  # where the encoders are from

    @property
    def kind(self) -> Kind:
        """What a model of the problem does; see `model_kinds`."""
        if self.num_classes:
            return CLASSIFICATION
        return TRANSLATION if self.has_inputs else LANGUAGE_MODEL

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

    def filepattern(self, data_dir: PathLike, split: str) -> str:
        """Returns the glob pattern of the shards of a split."""
        return os.path.join(data_dir, f"{self.dataset_filename()}-{split}-*")

    def data_filepaths(
        self, split: str, data_dir: PathLike, num_shards: int, shuffled: bool
    ) -> list[str]:
        """Returns the paths of the shards of a split (T2T's); their names tell if not `shuffled`."""
        name = self.dataset_filename() + ("" if shuffled else "-unshuffled")
        return [*map(os.fspath, shard_paths(data_dir, name, split, num_shards))]

    training_filepaths = partialmethod(data_filepaths, DatasetSplit.TRAIN)
    dev_filepaths = partialmethod(data_filepaths, DatasetSplit.EVAL)
    test_filepaths = partialmethod(data_filepaths, DatasetSplit.TEST)

    def generate_data(self, data_dir: PathLike, tmp_dir: PathLike, task_id: int = -1) -> None:
        """Hook: writes the vocabulary and the shards of all splits into `data_dir`."""
        raise missing_hook(self, "generate_data")

    def feature_encoders(self, data_dir: PathLike) -> dict:
        """Hook: returns the encoder of "inputs" and of "targets", before any reversal."""
        raise missing_hook(self, "feature_encoders")

    def get_feature_encoders(self, data_dir: PathLike | None = None) -> dict:
        """Returns the encoders of "inputs" and "targets" as the model sees them; caches them."""
        key = (self._data_dir or "") if data_dir is None else os.fspath(data_dir)
        if self._encoders is None or self._data_dir != key:
            self._encoders, self._hparams = self.feature_encoders(key), None
            self._data_dir = key
        return self.orient(self._encoders)

    def hparams(self, defaults: ProblemHParams, model_hparams: Any) -> None:
        """Hook: sets in `defaults` what a model takes from the problem, before any reversal (T2T's).

        It may read the encoders in `self._encoders`. The default sets all that is not T2T's default.
        """
        assert self._encoders is not None
        for side in self.sides:
            defaults.vocab_size[side] = self._encoders[side].vocab_size
            defaults.modality[side] = _SYMBOL
        if self.num_classes:
            defaults.modality["targets"] = _CLASS_LABEL
        defaults.loss_multiplier = self.loss_multiplier
        defaults.input_space_id, defaults.target_space_id = self.space_ids

    def get_hparams(
        self, model_hparams: Any = None, data_dir: PathLike | None = None
    ) -> ProblemHParams:
        """Returns what `hparams` sets, as the model sees it; caches it.

        Args:
            model_hparams: settings for the hook; may have a `data_dir`, as in T2T.
            data_dir: the directory of the vocabulary.

        Raises:
            UserError: a vocabulary has more tokens than its table has rows, or a modality is neither
                of symbols nor of classes.
        """
        data_dir = data_dir or getattr(model_hparams, "data_dir", None)
        vocabulary = self.get_feature_encoders(data_dir)
        if self._hparams is not None:
            return self._hparams
        p = ProblemHParams(vocab_size={}, modality={}, loss_multiplier=1.0, stop_at_eos=False)
        p.input_space_id = p.target_space_id = SpaceID.GENERIC
        given = HParams() if model_hparams is None else model_hparams
        if isinstance(given, HParams) and "data_dir" not in given.to_dict():  # as T2T's has
            given = given.add_hparam("data_dir", os.fspath(data_dir or ""))
        self.hparams(p, given)
        p.was_reversed, p.was_copy, p.vocabulary = self.was_reversed, self.was_copy, vocabulary
        for side in self.sides:
            wanted = _CLASS_LABEL if self.num_classes and side == "targets" else _SYMBOL
            if (modality := p.modality.get(side, wanted)) != wanted:
                raise UserError(
                    f"modality {modality!r} of the {side} of {self.name} is not supported; allowed: "
                    f"{_SYMBOL!r} or, for targets of a Text2ClassProblem, {_CLASS_LABEL!r}."
                )
        p.vocab_size = self.orient(dict.fromkeys(self.sides) | p.vocab_size)
        spaces = self.orient({"inputs": p.input_space_id, "targets": p.target_space_id})
        p.input_space_id = spaces.get("inputs", SpaceID.GENERIC)
        p.target_space_id = spaces["targets"]
        for side, encoder in vocabulary.items():
            rows = p.vocab_size[side] = p.vocab_size[side] or encoder.vocab_size
            if encoder.vocab_size > rows:
                raise UserError(
                    f"the vocabulary of the {side} in {self._data_dir} has {encoder.vocab_size} tokens, "
                    f"and the table of {self.name} has {rows} rows: build a smaller vocabulary."
                )
        self._hparams = p
        return p

    @property
    def quality_metric(self) -> str:
        """Hook: the name of the metric that `quality` computes; of a language model, "loss"."""
        return "bleu" if self.has_inputs else "loss"

    def quality(
        self, inputs: Sequence[str], references: Sequence[str], outputs: Sequence[str]
    ) -> float:
        """Hook: returns the quality of a model's outputs, 0 to 100."""
        from t2t_keras.metrics import bleu

        return bleu(references, outputs).sacrebleu

    def eval_metrics(self) -> list[str]:
        """Hook: names T2T's metrics for evaluation to compute, besides its own, if you define it.

        The default is T2T's list for texts, for your `super().eval_metrics()`; it adds none by itself.
        """
        return [
            *("accuracy", "accuracy_top5", "accuracy_per_sequence", "neg_log_perplexity"),
            *("approx_bleu_score", "rouge_2_fscore", "rouge_L_fscore"),
        ]

    def constraint(self, encoders: Mapping[str, Any]) -> Constraint | None:
        """Hook: returns a `logits.Constraint`, called with the input texts of each batch, or None.

        What that returns is called as a logits processor is, and says which tokens may come next; None: all may.
        """
        return None

    def format_output(self, inputs: str, outputs: str) -> str:
        """Hook: postprocesses a model's output for an input."""
        return outputs

    def format_report(self) -> str:
        """Hook: returns a one-line summary of what `format_output` has done so far, or ""."""
        return ""

    def orient(self, features: Mapping) -> dict:
        """Applies the swap of `_rev` and the copy of `_copy` to "inputs" and "targets"."""
        if not self.has_inputs:
            return {"targets": features["targets"]}
        if "inputs" not in features:
            raise UserError(f"{self.name} encodes no inputs: set has_inputs = False in its class.")
        inputs, targets = features["inputs"], features["targets"]
        if self.was_reversed:
            inputs, targets = targets, inputs
        if self.was_copy:
            targets = inputs
        return {"inputs": inputs, "targets": targets}


def missing_hook(problem: Problem, hook: str) -> UserError:
    """Returns the error of a problem that lacks a required hook."""
    return UserError(
        f"The problem {problem.name} has no {hook}: its class {type(problem).__name__} must define it."
    )
