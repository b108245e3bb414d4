"""A client for exported models: text in, text out, for any of their signatures."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t2t_keras.allowed_values import INT32
from t2t_keras.errors import UserError
from t2t_keras.files import require_kind
from t2t_keras.ids import EOS_ID, until_eos
from t2t_keras.serving.models import Model
from t2t_keras.text.encoders import spelled

DEFAULT_SIGNATURE = "serving_default"
EXAMPLE_INPUT = "input"
"""Name of the input of T2T's exports: serialized `tf.train.Example`s."""


_OUTPUTS = (
    *(("translations", "scores"), ("completions", "scores")),
    *(("labels", "probabilities"), ("outputs", "scores")),
)
"""The possible outputs of a signature: its hypotheses for each text, and a number for each of them."""


class Answer(NamedTuple):
    """The translation of one text."""

    texts: list[str]
    """Hypotheses, best first."""
    scores: list[float]
    """The score of each hypothesis."""
    truncated: bool
    """True if only the first part of the text was translated."""


class TextClient:
    """Translates text with a model whose signature takes text or, like T2T's exports, Examples.

    Args:
        model: a `SavedModel`, or a result of `connect`.
        signature: the name of the signature to call.
        encoders: "inputs" and "targets" text encoders, needed for a signature that takes Examples.

    Raises:
        UserError: the model does not have this signature, the signature does not take text, or encoders
            are missing.
    """

    def __init__(
        self,
        model: Model,
        signature: str = DEFAULT_SIGNATURE,
        encoders: Mapping[str, Any] | None = None,
    ):
        self.model = model
        self.name = signature
        self.signature = model.signature(signature)
        self.encoders = encoders
        self.takes_examples = self.signature.inputs == {EXAMPLE_INPUT: True}
        found = [names for names in _OUTPUTS if {*names} <= {*self.signature.outputs}]
        takes_text = list(self.signature.inputs.values()) == [True]
        if not takes_text or not found or ("outputs" in found[0]) != self.takes_examples:
            raise UserError(
                f"signature {signature!r} takes {_listed(self.signature.inputs)} and returns "
                f"{_listed(self.signature.outputs)}: name one that takes only text, such as "
                "--signature_name=translate, or T2T's Examples."
            )
        self._outputs = found[0]
        if self.takes_examples and encoders is None:
            raise UserError(
                f"signature {signature!r} takes T2T's Examples, which need a vocabulary: give "
                "--problem and --data_dir, or --signature_name=translate if the model has it."
            )

    def translate(self, texts: Sequence[str | bytes]) -> list[Answer]:
        """Translates texts with one request.

        Args:
            texts: strings, or bytes, which need not be UTF-8.

        Raises:
            UserError: there is no answer in time, or it cannot be read.
        """
        (key,) = self.signature.inputs
        encoded = self._examples(texts) if self.takes_examples else [_bytes(t) for t in texts]
        outputs = self.model.predict(self.name, self.signature, {key: encoded})
        return self._answers(outputs, len(texts))

    def _answers(self, outputs: Mapping[str, Any], count: int) -> list[Answer]:
        plain = {name: _plain(values) for name, values in outputs.items()}
        name, values = self._outputs
        rows = plain.get(values)
        is_nested = isinstance(rows, list) and rows and isinstance(rows[0], list)
        is_one = self.takes_examples and not is_nested
        hypothesis = [range(INT32 + 1)] if self.takes_examples else str
        kinds: tuple = (hypothesis, float) if is_one else ([hypothesis], [float])
        kind = {name: [kinds[0]], values: [kinds[1]], "truncated?": [bool]}
        require_kind(plain, kind, "the answer")
        found, scores = plain[name], plain[values]
        if is_one:
            found, scores = [[ids] for ids in found], [[score] for score in scores]
        truncated = plain.get("truncated", [False] * count)
        if not count == len(found) == len(truncated) or [*map(len, found)] != [*map(len, scores)]:
            raise UserError(
                f"the answer to {count} texts has {len(found)} {name}, {len(scores)} {values} and "
                f"{len(truncated)} truncated, or not a score for each hypothesis."
            )
        return [
            Answer([self._text(one) for one in hypotheses], [*map(float, row)], cut)
            for hypotheses, row, cut in zip(found, scores, truncated, strict=True)
        ]

    def _examples(self, texts: Sequence[str | bytes]) -> list[bytes]:
        from t2t_keras.data.generation import records

        encode = self.encoders["inputs"].encode  # type: ignore[index]
        ids = [[*encode(_string(text).strip()), EOS_ID] for text in texts]
        rows = records.serialize(records.columns({"inputs": ids}))
        return [rows.values[a:b].tobytes() for a, b in itertools.pairwise(rows.starts)]

    def _text(self, hypothesis) -> str:
        if not self.takes_examples:
            return _string(hypothesis)
        encoder = self.encoders["targets"]  # type: ignore[index]
        return encoder.decode(spelled(encoder, until_eos(hypothesis)))


def _plain(values: Any) -> Any:
    """Converts an array to nested lists of numbers or strings."""
    if isinstance(values, list):
        return [_plain(part) for part in values]
    if isinstance(values, np.ndarray):
        return _plain(values.tolist())
    return _string(values) if isinstance(values, bytes) else values


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def _string(text: str | bytes) -> str:
    return _bytes(text).decode("utf-8", "ignore")


def _listed(names) -> str:
    return ", ".join(sorted(names)) or "nothing"
