"""Translates text with a CTranslate2 model, without TensorFlow."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_keras.allowed_values import INT32
from t2t_keras.errors import UserError
from t2t_keras.files import read_json
from t2t_keras.ids import EOS_ID, PAD_ID, RESERVED_TOKENS, until_eos
from t2t_keras.text import (
    ByteTextEncoder,
    SentencePieceEncoder,
    SubwordTextEncoder,
    TokenTextEncoder,
)
from t2t_keras.text.encoders import spelled

_MORE = 2  # hypotheses to request, as a multiple of the beam; 3 and more found no better ones


class CTranslate2Translator:
    """Translates lines of text with an export of `t2t-keras-export --format=ctranslate2`.

    CTranslate2's own beam search differs from T2T's. It extends the same hypotheses, by the same sums of
    log-probabilities, but
    - it ranks finished hypotheses by sum / length^`length_penalty`, T2T by
      sum / ((5 + length) / 6)^alpha; both lengths include the end of sentence;
    - without a penalty it stops when the most likely hypothesis and as many as requested have finished,
      with one when `beam_size` * `patience` have; T2T stops when no unfinished hypothesis can overtake
      the best finished one;
    - an end of sentence finishes a hypothesis if it is among the `beam_size` best continuations; in T2T's
      search, if it is among the 2 * `beam_size` best;
    - at the length limit, unfinished hypotheses count as finished; in T2T's search only if none has
      finished;
    - an empty line gets an empty translation without calling the model.

    This class requests twice `beam_size` hypotheses without a penalty, drops those without an end of
    sentence, and ranks the others by T2T's score. The second, third and last difference remain: 3 of
    1,000 sentences got a different translation. For greedy decoding (`beam_size` 1), only the last
    difference remains.

    Args:
        directory: the directory of the model.
        **options: options of `ctranslate2.Translator`, such as device="cuda", compute_type="int8",
            inter_threads=2.

    Raises:
        UserError: the package `ctranslate2` is missing, the directory does not contain such a model, or
            this machine does not support an option.
    """

    def __init__(self, directory: str, **options: Any):
        package = import_ctranslate2()
        self.encoders, self.positions = read_encoders(directory)
        try:
            self.engine = package.Translator(directory, **options)
        except (RuntimeError, ValueError, TypeError) as error:
            raise UserError(f"{directory} cannot be loaded by CTranslate2: {error}.") from error
        self._source_tokens, target_tokens = (
            tokens(self.encoders[side], self.encoders[side].vocab_size)
            for side in ("inputs", "targets")
        )
        self._target_ids = {token: i for i, token in enumerate(target_tokens)}

    def translate(
        self,
        lines: Sequence[str],
        *,
        beam_size: int = 4,
        alpha: float = 0.6,
        extra_length: int = 100,
        batch_size: int = 32,
        top_beams: int = 1,
    ) -> list[list[tuple[str, float]]]:
        """Translates every line; results are in the order of the input.

        Args:
            lines: the text to translate.
            beam_size: K; 1: greedy decoding.
            alpha: the exponent of T2T's length penalty.
            extra_length: how many tokens longer than its input an output may be.
            batch_size: how many sentences (of similar length) to decode together.
            top_beams: how many hypotheses to return for each line, at most K.

        Returns:
            For each line the (text, score) of its hypotheses, best first; fewer than `top_beams` if fewer
            have ended. In greedy decoding the score is the sum of the log-probabilities; in beam search
            this sum is divided by the length penalty, as in T2T.

        Raises:
            UserError: a line has more tokens than the model has positions, or a number is out of range.
        """
        if not 1 <= top_beams <= beam_size:
            raise UserError(f"top_beams must be from 1 to beam_size={beam_size}, got {top_beams}.")
        if batch_size < 1:
            raise UserError(f"batch_size must be 1 or more, got {batch_size}.")
        sources = [self._tokens(line, number) for number, line in enumerate(lines, start=1)]
        most = self.positions or INT32
        limits = [max(1, min(len(source) + 1 + extra_length, most)) for source in sources]
        by_length = sorted(range(len(lines)), key=lambda i: -len(sources[i]))
        batches = [by_length[i : i + batch_size] for i in range(0, len(lines), batch_size)]
        running = [
            self._search([sources[i] for i in rows], beam_size, max(limits[i] for i in rows))
            for rows in batches
        ]
        results: dict[int, list[tuple[str, float]]] = {}
        for rows, futures in zip(batches, running, strict=True):
            for row, future in zip(rows, futures, strict=True):
                result = future.result()
                # It was decoded with the limit of a longer sentence in its batch.
                if max(map(len, result.hypotheses)) > limits[row]:
                    [future] = self._search([sources[row]], beam_size, limits[row])
                    result = future.result()
                results[row] = self._best(result, alpha if beam_size > 1 else 0, top_beams)
        return [results[i] for i in range(len(lines))]

    def _tokens(self, line: str, number: int) -> list[str]:
        ids = self.encoders["inputs"].encode(line.strip())
        if self.positions is not None and len(ids) >= self.positions:
            raise UserError(
                f"line {number} has {len(ids) + 1} tokens, but the model has {self.positions} "
                "positions: shorten the line."
            )
        return [self._source_tokens[i] for i in ids]

    def _search(self, sources: list[list[str]], beam_size: int, limit: int):
        """Starts decoding sentences to at most `limit` tokens each; returns a future for each."""
        more = _MORE if beam_size > 1 else 1
        return self.engine.translate_batch(
            sources,
            beam_size=beam_size,
            num_hypotheses=more * beam_size,
            patience=more,
            length_penalty=0,
            max_input_length=0,
            min_decoding_length=0,
            max_decoding_length=limit,
            return_scores=True,
            return_end_token=True,
            asynchronous=True,
        )

    def _best(self, result, alpha: float, top_beams: int) -> list[tuple[str, float]]:
        """Returns the best hypotheses by T2T's score, best first."""
        ended, cut = [], []
        for hypothesis, log_p in zip(result.hypotheses, result.scores, strict=True):
            ids = [self._target_id(token) for token in hypothesis]
            if ids[-1:] == [EOS_ID] or not ids:
                ended.append((log_p / ((5 + len(ids)) / 6) ** alpha, ids))
            else:
                cut.append((log_p, ids))
        best = sorted(ended or cut, key=lambda h: -h[0])[:top_beams]
        return [(self._text(ids), score) for score, ids in best]

    def _target_id(self, token: str) -> int:
        if token in self._target_ids:
            return self._target_ids[token]
        return int(token.strip("<id >"))  # beyond the vocabulary; see `tokens`

    def _text(self, ids: list[int]) -> str:
        encoder = self.encoders["targets"]
        return encoder.decode(spelled(encoder, until_eos(ids)))


# The encoders, which are stored beside the model, and CTranslate2's tokens.


ENCODERS_FILE = "encoders.json"
"""File in the model's directory with type and file of both encoders, and the number of positions."""

PAD, EOS = RESERVED_TOKENS

_KINDS = {
    "subwords": SubwordTextEncoder,
    "sentencepiece": SentencePieceEncoder,
    "tokens": TokenTextEncoder,
    "bytes": ByteTextEncoder,
}


_ENCODER = {"kind": str, "file?": str, "replace_oov?": (str, None)}
_ENCODERS = {"inputs": _ENCODER, "targets": _ENCODER, "positions": (range(1, 2**31), None)}


def import_ctranslate2():
    """Returns the package `ctranslate2`, or raises UserError if it is missing."""
    try:
        import ctranslate2
    except ImportError as error:
        raise UserError(
            f"CTranslate2 is missing ({error}): pip install 't2t-keras[ctranslate2]'."
        ) from error
    return ctranslate2


def tokens(encoder, size: int) -> list[str]:
    """Returns `size` unique strings, one for each id, as CTranslate2 identifies tokens by strings.

    They are the subtokens or words if these are unique, otherwise `<id 7>`.
    """
    taken = {PAD: PAD_ID, EOS: EOS_ID}
    for i in range(len(taken), size):
        name = ""
        if i < encoder.vocab_size:
            named = hasattr(encoder, "subtoken")
            name = encoder.subtoken(i) if named else encoder.decode([i])
        if not name or name in taken or "\ufffd" in name:
            name = f"<id {i}>"
        while name in taken:
            name += ">"
        taken[name] = i
    return list(taken)


def require_storable(encoders: Mapping[str, Any]) -> None:
    """Raises UserError if an encoder cannot be stored."""
    for side, encoder in encoders.items():
        if _kind(encoder) is None:
            names = ", ".join(kind.__name__ for kind in _KINDS.values())
            raise UserError(
                f"the encoder of the {side} is a {type(encoder).__name__}, which cannot be stored "
                f"beside a CTranslate2 model; allowed: {names}."
            )


def write_encoders(directory: Path, encoders: Mapping[str, Any], positions: int | None) -> None:
    """Writes the "inputs" and "targets" encoders and the number of positions (None: no limit)."""
    text: dict[str, Any] = {"positions": positions}
    for side in ("inputs", "targets"):
        encoder, kind = encoders[side], _kind(encoders[side])
        text[side] = {"kind": kind}
        if kind != "bytes":
            text[side]["file"] = f"{side}.{kind}"
            encoder.store_to_file(directory / text[side]["file"])
        if kind == "tokens":
            text[side]["replace_oov"] = encoder.replace_oov
    (directory / ENCODERS_FILE).write_text(json.dumps(text, indent=2) + "\n", encoding="utf-8")


def read_encoders(directory: str) -> tuple[dict[str, Any], int | None]:
    """Reads the files that `write_encoders` writes."""
    try:
        found = read_json(os.path.join(directory, ENCODERS_FILE), _ENCODERS)
        encoders = {side: _read(directory, found[side]) for side in ("inputs", "targets")}
    except (UserError, KeyError) as error:
        raise UserError(
            f"{directory} is not an export of t2t-keras-export --format=ctranslate2: {error}"
        ) from error
    return encoders, found["positions"]


def _kind(encoder) -> str | None:
    return next((name for name, kind in _KINDS.items() if type(encoder) is kind), None)


def _read(directory: str, entry: Mapping[str, Any]):
    kind = entry["kind"]
    if kind == "bytes":
        return ByteTextEncoder()
    path = os.path.join(directory, entry["file"])
    if kind == "tokens":
        return TokenTextEncoder(path, replace_oov=entry["replace_oov"])
    return _KINDS[kind](path)
