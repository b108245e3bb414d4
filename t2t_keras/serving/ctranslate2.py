"""Translates text with a CTranslate2 model, without TensorFlow."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from t2t_keras import text
from t2t_keras.decode_settings import DecodeSettings
from t2t_keras.errors import UserError, explained, importing, several_texts
from t2t_keras.ids import EOS_ID, PAD_ID, until_eos
from t2t_keras.settings import INT32
from t2t_keras.text.encoders import spelled, tokens

ENCODERS_FILE = "encoders.json"
"""In the model's directory: kind and file of both encoders, and the number of positions."""

_MORE = 2  # hypotheses to request, as a multiple of the beam; 3 and more found no better ones
ENCODERS = {
    "subwords": text.SubwordTextEncoder,
    "sentencepiece": text.SentencePieceEncoder,
    "tokens": text.TokenTextEncoder,
    "bytes": text.ByteTextEncoder,
}


class CTranslate2Translator:
    """Translates lines of text with an export of `t2t-keras-export --format=ctranslate2`.

    It asks CTranslate2's search for twice `beam_size` hypotheses without a length penalty, and ranks
    those that have ended by T2T's score. What still differs from T2T's search, docs/serving.md says.

    Args:
        directory: the directory of the model.
        **options: options of `ctranslate2.Translator`, such as device="cuda", compute_type="int8".

    Raises:
        UserError: the package `ctranslate2` is missing, the directory does not contain such a model, or
            this machine does not support an option.
    """

    def __init__(self, directory: str, **options: Any):
        package = import_ctranslate2()
        self.encoders, self.positions = read_encoders(directory)
        what = f"{directory} cannot be loaded by CTranslate2"
        with explained(what, RuntimeError, ValueError, TypeError):
            if options.get("inter_threads") == 0:  # no workers: a translation would wait for ever
                raise ValueError("inter_threads must be 1 or more, got 0")
            self.engine = package.Translator(directory, **options)
        encoders = self.encoders.values()
        self._source_tokens, target_tokens = (tokens(each, each.vocab_size) for each in encoders)
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
        """Returns for each line the (text, score) of its hypotheses that have ended, or all if none has.

        Args:
            lines: the text to translate.
            beam_size: K; 1: greedy decoding, in which `alpha` has no effect.
            alpha: the exponent of T2T's length penalty.
            extra_length: how many tokens longer than its input an output may be.
            batch_size: how many sentences (of similar length) to decode together.
            top_beams: how many hypotheses to return for each line, at most K.

        Raises:
            UserError: a line has more tokens than the model has positions, or a number is out of range.
        """
        lines = several_texts("lines", lines)
        DecodeSettings(beam_size=beam_size, alpha=alpha, extra_length=extra_length)  # their ranges
        if top_beams not in range(1, beam_size + 1) or batch_size not in range(1, INT32):
            raise UserError(
                f"top_beams must be from 1 to beam_size={beam_size}, got {top_beams}, and batch_size "
                f"1 or more, got {batch_size}."
            )
        sources = [self._tokens(line, number) for number, line in enumerate(lines, start=1)]
        most = self.positions or INT32
        limits = [max(1, min(len(source) + 1 + extra_length, most)) for source in sources]
        results = self._search(sources, beam_size, max(limits, default=1), batch_size)
        found = []
        for source, limit, result in zip(sources, limits, results, strict=True):
            if max(map(len, result.hypotheses)) > limit:  # decoded with the limit of a longer line
                [result] = self._search([source], beam_size, limit, 1)
            found.append(self._best(result, alpha if beam_size > 1 else 0)[:top_beams])
        return [[(self._text(ids), score) for score, ids in best] for best in found]

    def _tokens(self, line: str, number: int) -> list[str]:
        ids = self.encoders["inputs"].encode(line.strip())
        if self.positions is not None and len(ids) >= self.positions:
            raise UserError(
                f"line {number} has {len(ids) + 1} tokens, but the model has {self.positions} "
                "positions: shorten the line."
            )
        if PAD_ID in ids:
            raise UserError(f"line {number} has <pad>, which CTranslate2 does not mask: remove it.")
        return [self._source_tokens[i] for i in ids]

    def _search(self, sources: list[list[str]], beam_size: int, limit: int, batch_size: int):
        """Decodes sentences, sorted by length in batches, to at most `limit` tokens each."""
        more = _MORE if beam_size > 1 else 1
        return self.engine.translate_batch(
            sources,
            max_batch_size=batch_size,
            beam_size=beam_size,
            num_hypotheses=more * beam_size,
            patience=more,
            length_penalty=0,
            max_input_length=0,
            min_decoding_length=0,
            max_decoding_length=limit,
            return_scores=True,
            return_end_token=True,
        )

    def _best(self, result, alpha: float) -> list[tuple[float, list[int]]]:
        """Returns T2T's score and ids of the hypotheses that have ended (all if none has), best first."""
        ended, cut = [], []
        for hypothesis, log_p in zip(result.hypotheses, result.scores, strict=True):
            # A token beyond the vocabulary holds its id; see `tokens`.
            known = self._target_ids
            ids = [known[t] if t in known else int(t.strip("<id >")) for t in hypothesis]
            if ids[-1:] == [EOS_ID] or not ids:
                ended.append((log_p / ((5 + len(ids)) / 6) ** alpha, ids))
            else:
                cut.append((log_p, ids))
        return sorted(ended or cut, key=lambda h: -h[0])

    def _text(self, ids: list[int]) -> str:
        encoder = self.encoders["targets"]
        return encoder.decode(spelled(encoder, until_eos(ids)))


def import_ctranslate2():
    """Returns the package `ctranslate2`, or raises UserError if it is missing."""
    with importing("CTranslate2 is missing", "pip install 't2t-keras[ctranslate2]'"):
        import ctranslate2
    return ctranslate2


def read_encoders(directory: str) -> tuple[dict[str, Any], int | None]:
    """Reads the encoders, and the number of positions, that `export_ctranslate2` stores."""
    try:
        found = json.loads(Path(directory, ENCODERS_FILE).read_bytes())
        encoders = {side: _encoder(directory, **found[side]) for side in ("inputs", "targets")}
        if not isinstance(found["positions"], int | None):
            raise ValueError("positions must be a number")
    except (UserError, OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise UserError(
            f"{directory} is not an export of t2t-keras-export --format=ctranslate2: {error!r}."
        ) from error
    return encoders, found["positions"]


def _encoder(directory: str, kind: str, file: str = "", **options: Any):
    return ENCODERS[kind](*[Path(directory, file)][: bool(file)], **options)
