"""Text to text with a model of CTranslate2, without TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from t2t_keras.errors import UserError
from t2t_keras.ids import EOS_ID, until_eos
from t2t_keras.serving.ctranslate2_text import import_ctranslate2, read_encoders, tokens
from t2t_keras.text.vocabulary_size import spelled

_MORE = 2  # hypotheses asked for, as a multiple of the beam: 3 and more found no better ones


class CTranslate2Translator:
    """Translates lines of text with what `t2t-keras-export --format=ctranslate2` has written.

    CTranslate2's own beam search is not T2T's. It grows the same hypotheses, by the same sums of
    log-probabilities, but
    - it ranks finished ones by their sum over length^`length_penalty`, T2T by their sum over
      ((5 + length) / 6)^alpha, the end of sentence counted in both;
    - it ends when the likeliest hypothesis and as many as asked for have finished, without a
      penalty, or `beam_size` * `patience`, with one; T2T when no hypothesis that is alive can
      overtake the best finished one;
    - an end of sentence finishes a hypothesis if it is among the `beam_size` best continuations, in
      T2T's search among the 2 * `beam_size` best;
    - at the length limit the hypotheses that have not ended count as finished, in T2T's only where
      none has;
    - an empty line has an empty translation, and the model is not asked.

    This class asks for twice `beam_size` hypotheses without a penalty, drops those without an end,
    and ranks the others by T2T's score. The second, the third and the last difference are left; of
    a thousand sentences, three had another translation. Greedy search (`beam_size` 1) has only the
    last.

    Args:
        directory: of the model.
        **options: of `ctranslate2.Translator`, such as device="cuda", compute_type="int8",
            inter_threads=2.

    Raises:
        UserError: the package `ctranslate2` is absent, the directory holds no such model, or an
            option is none that this machine offers.
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
        """Translates every line; the result has the order of the input.

        Args:
            lines: the text to translate.
            beam_size: K; 1 is greedy search.
            alpha: weight of T2T's length penalty.
            extra_length: an output may be this much longer than its input.
            batch_size: sentences decoded at once, of about the same length.
            top_beams: how many hypotheses of a line, at most K.

        Returns:
            For each line (text, score) of its hypotheses, best first. A greedy score is the sum of
            the log-probabilities, another one that over the length penalty, as in T2T. Fewer than
            `top_beams` where fewer have ended.

        Raises:
            UserError: a line has more tokens than the model positions, or a number is out of range.
        """
        if not 1 <= top_beams <= beam_size:
            raise UserError(f"top_beams must be from 1 to beam_size={beam_size}, got {top_beams}.")
        if batch_size < 1:
            raise UserError(f"batch_size must be 1 or more, got {batch_size}.")
        sources = [self._tokens(line, number) for number, line in enumerate(lines, start=1)]
        limits = [self._limit(len(source) + 1 + extra_length) for source in sources]
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
                if max(map(len, result.hypotheses)) > limits[row]:  # it had a longer one's limit
                    [future] = self._search([sources[row]], beam_size, limits[row])
                    result = future.result()
                results[row] = self._best(result, alpha if beam_size > 1 else 0, top_beams)
        return [results[i] for i in range(len(lines))]

    def _tokens(self, line: str, number: int) -> list[str]:
        ids = self.encoders["inputs"].encode(line.strip())
        if self.positions is not None and len(ids) >= self.positions:
            raise UserError(
                f"line {number} has {len(ids) + 1} tokens, and the model {self.positions} "
                "positions: cut the line."
            )
        return [self._source_tokens[i] for i in ids]

    def _limit(self, length: int) -> int:
        return max(1, length if self.positions is None else min(length, self.positions))

    def _search(self, sources: list[list[str]], beam_size: int, limit: int):
        """Begins to decode sentences, to at most `limit` tokens each; returns one future for each."""
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
        """T2T's choice among CTranslate2's hypotheses."""
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
