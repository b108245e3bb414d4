"""From text to text with a trained model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from t2t_keras.decoding.beam import beam_search
from t2t_keras.decoding.greedy import greedy
from t2t_keras.decoding.settings import DecodeSettings
from t2t_keras.ids import EOS_ID, PAD_ID


class Translation(NamedTuple):
    """The hypotheses for one input, best first."""

    texts: list[str]
    scores: list[float]


class Translator:
    """Translates lines of text.

    Args:
        model: a `Transformer`.
        encoders: "inputs" and "targets" text encoders, as `Problem.get_feature_encoders` gives.
        settings: how to decode.
    """

    def __init__(self, model, encoders, settings: DecodeSettings | None = None):
        self.model = model
        self.encoders = encoders
        self.settings = settings or DecodeSettings()

    def translate(
        self, lines: Sequence[str], done: Callable[[int], None] | None = None
    ) -> list[Translation]:
        """Translates every line; the result has the order of the input.

        Lines are decoded together with others of about their length, longest first, as in T2T.

        Args:
            lines: the text to translate.
            done: called with the number of lines translated so far, after every batch.
        """
        by_length = sorted(range(len(lines)), key=lambda i: -len(lines[i].split()))
        results: dict[int, Translation] = {}
        size = self.settings.batch_size
        for start in range(0, len(lines), size):
            rows = by_length[start : start + size]
            ids = pad([self._encode(lines[i]) for i in rows])
            results.update(zip(rows, self.translate_ids(ids), strict=True))
            if done:
                done(len(results))
        return [results[i] for i in range(len(lines))]

    def translate_ids(self, ids) -> Iterator[Translation]:
        """Translates a batch [B, S] of source ids."""
        s = self.settings
        if s.beam_size == 1:
            outputs, scores = greedy(self.model, ids, extra_length=s.extra_length)
            outputs, scores = outputs[:, None], scores[:, None]
        else:
            outputs, scores = beam_search(
                self.model,
                ids,
                beam_size=s.beam_size,
                alpha=s.alpha,
                extra_length=s.extra_length,
                top_beams=s.beam_size if s.return_beams else 1,
            )
        for hypotheses, row in zip(outputs.numpy(), scores.numpy(), strict=True):
            yield Translation([self.text(h) for h in hypotheses], [float(x) for x in row])

    def text(self, ids) -> str:
        """The text of target ids up to their end of sentence."""
        return self.encoders["targets"].decode(until_eos(ids))

    def _encode(self, line: str) -> list[int]:
        ids = self.encoders["inputs"].encode(line.strip())
        limit = self.settings.max_input_size
        if limit > 0:
            ids = ids[: limit - 1]
        return [*ids, EOS_ID]


def until_eos(ids) -> list[int]:
    """The ids before the first end of sentence or padding."""
    ids = [int(i) for i in ids]
    end = next((n for n, i in enumerate(ids) if i in (PAD_ID, EOS_ID)), len(ids))
    return ids[:end]


def pad(sequences: Sequence[Sequence[int]]) -> np.ndarray:
    """Puts sequences below one another: [B, longest] int32, 0 where they are shorter."""
    batch = np.full((len(sequences), max(map(len, sequences))), PAD_ID, np.int32)
    for row, ids in enumerate(sequences):
        batch[row, : len(ids)] = ids
    return batch
