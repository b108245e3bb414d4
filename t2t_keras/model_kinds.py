"""What a model and a problem are, and all that the library uses of a model."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

Kind = Literal["translation", "language_model", "classification"]

TRANSLATION: Kind = "translation"
"""A text becomes another: inputs and targets."""

LANGUAGE_MODEL: Kind = "language_model"
"""Texts are continued: targets only."""

CLASSIFICATION: Kind = "classification"
"""A text gets a label: inputs, and one class as target."""


class Model(Protocol):
    """What decoding, scoring, evaluation, export, averaging and inspection use of a model.

    `Transformer`, `TransformerClassifier` and `Ensemble` implement it; a model in 8 bits is one of
    these. A classifier has no steps of decoding.
    """

    kind: Kind
    source_vocab_size: int | None
    target_vocab_size: int
    num_logits: int  # of a token, which may be more than the target vocabulary
    has_memory: bool  # a decoder attends to an encoder's output

    @property
    def members(self) -> Sequence[Any]:
        """The models of an ensemble; of one model, itself. Each has settings, `hp`, and weights."""

    @property
    def variables(self) -> list:
        """All variables that a graph of the model may read."""

    def __call__(self, inputs, training: bool = False, **options):
        """Returns logits [B, T, V] for {"inputs": [B, S], "targets": [B, T]}, or [B, C] of classes."""

    def loss_sums(self, logits, targets, label_smoothing: float = 0.0):
        """Returns the summed loss, and the number of tokens or examples that it is of."""

    def right_sums(self, logits, targets):
        """Returns the number of correct tokens or classes, and that of all."""

    def encode_source(self, source):
        """Encodes source ids [B, S] once, for all steps of decoding."""

    def empty_caches(self, batch):
        """Returns the caches of keys and values before the first step."""

    def step_kernels(self, few_rows: bool = False):
        """Returns the matrices of a step, prepared once for all steps."""

    @property
    def keys_need_positions(self) -> bool:
        """True if attention counts positions, so that no key may be removed from the caches."""

    def decode_step(self, last_ids, position, caches, source, visible, kernels, append):
        """Returns logits [B, K, V] of the next token, and the caches including this step."""
