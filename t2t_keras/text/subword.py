"""tensor2tensor's invertible subword encoder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from t2t_keras.errors import UserError
from t2t_keras.text import subword_builder, tokenizer, vocabulary_file
from t2t_keras.text.tensor_encoder import TensorEncoder
from t2t_keras.text.tokenizer import ESCAPE_CHARACTERS, escape, unescape

if TYPE_CHECKING:
    from t2t_keras.text.graph import SubwordGraph

_REMEMBERED = 2**17  # tokens
_LONGEST_REMEMBERED = 64  # characters
_START = 3  # characters


class SubwordTextEncoder(TensorEncoder):
    """Text to subword ids and back, without loss (T2T: `SubwordTextEncoder`).

    Text is split into tokens (`tokenizer`), each token is spelled with the alphabet of the vocabulary
    (`escaping`), and the spelling is cut, from left to right, into the longest subtokens there are.
    Ids 0 and 1 are padding and end of sentence. Any text round-trips; no id is added at the end.

    >>> encoder = SubwordTextEncoder("vocab.translate_ende_wmt32k.32768.subwords")
    >>> encoder.encode("Hello, world!")
    [26228, 145, 2, 178, 207]
    """

    def __init__(self, filename: str | os.PathLike[str]):
        """Reads a vocabulary file: one subtoken a line, in single, double or no quotes.

        Raises:
            UserError: the file cannot be read or is no such vocabulary.
        """
        self._set_subtokens(vocabulary_file.read_subtokens(filename))

    @classmethod
    def build_from_generator(
        cls,
        generator: Iterable[str],
        target_size: int,
        max_subtoken_length: int | None = None,
        reserved_tokens: Sequence[str] | None = None,
    ) -> SubwordTextEncoder:
        """Builds a vocabulary of about `target_size` subtokens from lines of text.

        The result is T2T's, subtoken for subtoken, with two exceptions in which T2T's files lose an id
        when read again: the newline is no subtoken, and a reserved token is not listed twice.

        Args:
            generator: lines of text.
            target_size: wanted number of subtokens; the nearest reachable size is taken, or the first
                found within 1 %.
            max_subtoken_length: subtokens have fewer characters than this (as in T2T).
            reserved_tokens: `<pad>`, `<EOS>` and further tokens to give the first ids to.

        Raises:
            UserError: there is no text, or an argument has an impossible value.
        """
        encoder = cls.__new__(cls)
        encoder._set_subtokens(
            subword_builder.build_to_target_size(
                tokenizer.count(generator), target_size, max_subtoken_length, reserved_tokens
            )
        )
        return encoder

    def _set_subtokens(self, subtokens: list[str]) -> None:
        self._subtokens = subtokens
        self._ids = {subtoken: i for i, subtoken in enumerate(subtokens) if subtoken}
        self._alphabet = ESCAPE_CHARACTERS.union(*subtokens)
        self._longest: dict[str, int] = {}  # of the subtokens with the same start
        for subtoken in self._ids:
            start = subtoken[:_START]
            self._longest[start] = max(self._longest.get(start, 0), len(subtoken))
        self._recent: dict[str, tuple[int, ...]] = {}
        self._earlier: dict[str, tuple[int, ...]] = {}

    @property
    def vocab_size(self) -> int:
        """Number of subtokens, the reserved ones included."""
        return len(self._subtokens)

    @property
    def all_subtoken_strings(self) -> tuple[str, ...]:
        """All subtokens in the order of their ids."""
        return tuple(self._subtokens)

    def subtoken(self, subtoken_id: int) -> str:
        """Returns the subtoken with this id, "" for an id out of range."""
        return self._subtokens[subtoken_id] if 0 <= subtoken_id < len(self._subtokens) else ""

    def encode(self, text: str) -> list[int]:
        """Returns the subtoken ids of `text`."""
        ids: list[int] = []
        known = self._recent.get
        for token in tokenizer.encode(text):
            ids += known(token) or self._remember(token)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of subtoken ids; ids out of range count for nothing."""
        spelled = "".join(map(self.subtoken, ids))
        tokens = (unescape(token) for token in spelled.split("_"))
        return tokenizer.decode([token for token in tokens if token])

    def store_to_file(self, filename: str | os.PathLike[str]) -> None:
        """Writes the vocabulary as T2T does, one subtoken a line in single quotes."""
        vocabulary_file.write_lines(filename, [f"'{subtoken}'" for subtoken in self._subtokens])

    def __getstate__(self) -> dict[str, Any]:
        return {"subtokens": self._subtokens}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set_subtokens(state["subtokens"])

    def _make_graph(self) -> SubwordGraph:
        from t2t_keras.text.graph import SubwordGraph

        return SubwordGraph(self._subtokens, self._ids, self._alphabet)

    def _remember(self, token: str) -> tuple[int, ...]:
        """Encodes a token that is not among the recent ones.

        When these are many, they become the earlier ones; from there a token that comes again moves
        back. So memory is bounded, and what keeps coming is never forgotten.
        """
        ids = self._earlier.get(token) or self._encode_token(token)
        if len(token) <= _LONGEST_REMEMBERED:
            if len(self._recent) >= _REMEMBERED:
                self._earlier, self._recent = self._recent, {}
            self._recent[token] = ids
        return ids

    def _encode_token(self, token: str) -> tuple[int, ...]:
        spelled = escape(token, self._alphabet)
        ids = []
        start = 0
        while start < len(spelled):
            # Without a longer subtoken that starts so, shorter ones remain.
            end = start + self._longest.get(spelled[start : start + _START], _START - 1)
            while (subtoken_id := self._ids.get(spelled[start:end])) is None:
                end -= 1
                if end == start:
                    raise UserError(
                        f"Cannot encode {token!r}: the vocabulary has no subtoken for the single "
                        f"character {spelled[start]!r}; build it again, or add that character."
                    )
            ids.append(subtoken_id)
            start = end
        return tuple(ids)
