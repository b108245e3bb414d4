"""Problems with one text per example: language models, where it is the target, and classification."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from t2t_keras.data.problem import DatasetSplit, missing_field, missing_hook
from t2t_keras.data.text_problem import PathLike, Text2TextProblem
from t2t_keras.errors import UserError
from t2t_keras.ids import EOS_ID
from t2t_keras.text import ClassLabelEncoder


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
    """Language modelling (T2T's `Text2SelfProblem`).

    `generate_samples` yields `{"targets": text}`.
    """

    has_inputs = False

    @property
    def quality_metric(self) -> str:
        return "loss"


class ChoppedTextProblem(Text2SelfProblem):
    """Text as one stream, cut into examples of `sequence_length` ids (T2T's `ChoppedTextProblem`).

    The last example may be shorter. Examples have no end-of-sentence id.
    """

    max_dev_chars = 10**7
    """Limit on the characters of the dev and test texts (T2T's name)."""

    max_chars_for_vocab = 10**7
    """Limit on the characters of the text that the vocabulary is built from (T2T's name)."""

    is_generate_per_split = True

    @property
    def sequence_length(self) -> int:
        """Hook: returns the number of ids in an example."""
        raise missing_hook(self, "sequence_length")

    def max_length(self, model_hparams) -> int:
        """Returns `sequence_length`, regardless of the hparam `max_length`, as in T2T."""
        return self.sequence_length

    def documents(self, tmp_dir: PathLike, split: str) -> Iterator[str]:
        """Hook: yields the text of a split in pieces of any length."""
        raise missing_hook(self, "documents")

    def generate_samples(
        self, data_dir: PathLike, tmp_dir: PathLike, split: str
    ) -> Iterator[dict[str, str]]:
        """Yields the pieces of text; outside training at most `max_dev_chars` in total."""
        documents = self.documents(tmp_dir, split)
        if split != DatasetSplit.TRAIN:
            documents = _first_characters(documents, self.max_dev_chars)
        return ({"targets": text} for text in documents)

    def generate_text_for_vocab(self, data_dir: PathLike, tmp_dir: PathLike) -> Iterator[str]:
        """Yields the first `max_chars_for_vocab` characters of the training text."""
        documents = self.documents(tmp_dir, DatasetSplit.TRAIN)
        return _first_characters(documents, self.max_chars_for_vocab)

    def generate_encoded_samples(
        self, data_dir: PathLike, tmp_dir: PathLike, split: str
    ) -> Iterator[dict[str, list[int]]]:
        """Yields `{"targets": ids}` with `sequence_length` ids, fewer in the last example."""
        encoder = self.get_or_create_vocab(data_dir, tmp_dir)
        samples = self.generate_samples(data_dir, tmp_dir, split)
        ids = itertools.chain.from_iterable(encoder.encode(each["targets"]) for each in samples)
        while example := list(itertools.islice(ids, self.sequence_length)):
            yield {"targets": example}


def _first_characters(documents: Iterator[str], characters: int) -> Iterator[str]:
    for text in documents:
        yield text[:characters]
        characters -= len(text)
        if characters <= 0:
            return


class Text2ClassProblem(SingleTextProblem):
    """Text classification (T2T's `Text2ClassProblem`), for `--model=transformer_encoder`.

    `generate_samples` yields `{"inputs": text, "label": number}`; a subclass must set `num_classes`.
    `inputs_prefix` is not used, as in T2T.
    """

    num_classes: int
    loss_multiplier = 1.0  # of characters, too: one class is predicted, not every character

    def __init__(self, was_reversed: bool = False, was_copy: bool = False):
        super().__init__(was_reversed, was_copy)
        if self.packed_length:
            raise UserError(f"{self.name} has a class for each text: do not set packed_length.")

    def class_labels(self, data_dir: PathLike | None = None) -> Sequence[str]:
        """Hook: returns the name of each class."""
        return [f"ID_{number}" for number in range(self.num_classes)]

    @property
    def quality_metric(self) -> str:
        return "f1"

    def generate_text_for_vocab(self, data_dir: PathLike, tmp_dir: PathLike) -> Iterator[str]:
        """Yields the texts of the training samples."""
        samples = self.generate_samples(data_dir, tmp_dir, DatasetSplit.TRAIN)
        for sample in itertools.islice(samples, self.max_samples_for_vocab):
            yield sample["inputs"]

    def feature_encoders(self, data_dir: PathLike) -> dict:
        """Returns the encoder of the texts and the encoder of the class labels."""
        encoder = self.get_or_create_vocab(data_dir, None, force_get=True)
        return {"inputs": encoder, "targets": ClassLabelEncoder(self.class_labels(data_dir))}

    def get_or_create_encoders(self, data_dir: PathLike, tmp_dir: PathLike) -> dict[str, Any]:
        """Like `feature_encoders`, but builds the vocabulary if absent."""
        self.get_or_create_vocab(data_dir, tmp_dir)
        return self.feature_encoders(data_dir)

    def generate_encoded_samples(
        self, data_dir: PathLike, tmp_dir: PathLike, split: str
    ) -> Iterator[dict[str, list[int]]]:
        """Yields `{"inputs": ids, ending in EOS_ID, "targets": [class number]}`."""
        encoder = self.get_or_create_vocab(data_dir, tmp_dir)
        for sample in self.generate_samples(data_dir, tmp_dir, split):
            ids = encoder.encode(self._field(sample, "inputs", split))
            label = self._field(sample, "label", split)
            if label not in range(self.num_classes):
                raise UserError(
                    f"a {split} sample of {self.name} has the label {label!r}; it must be from 0 to "
                    f"{self.num_classes - 1}."
                )
            yield {"inputs": [*ids, EOS_ID], "targets": [int(label)]}

    def _field(self, sample: Mapping[str, Any], name: str, split: str) -> Any:
        if name not in sample:
            raise missing_field(self, split, name, ("inputs", "label"))
        return sample[name]
