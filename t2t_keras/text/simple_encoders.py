"""Encoders that need no learned subwords: bytes, and whole tokens from a list."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from t2t_keras.errors import UserError
from t2t_keras.text import vocabulary_file
from t2t_keras.text.tensor_encoder import TensorEncoder
from t2t_keras.text.vocabulary_file import RESERVED_TOKENS

if TYPE_CHECKING:
    from t2t_keras.text.graph import ByteGraph, TokenGraph

_RESERVED = len(RESERVED_TOKENS)


class ByteTextEncoder(TensorEncoder):
    """UTF-8 bytes as ids 2 to 257 (T2T: `ByteTextEncoder`)."""

    vocab_size = _RESERVED + 256

    def encode(self, text: str) -> list[int]:
        """Returns one id a byte."""
        return [byte + _RESERVED for byte in text.encode("utf-8")]

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text; ids 0 and 1 show as `<pad>` and `<EOS>`, broken UTF-8 as U+FFFD.

        Raises:
            UserError: an id is not in 0 to 257.
        """
        return b"".join(map(self._bytes, ids)).decode("utf-8", "replace")

    def _make_graph(self) -> ByteGraph:
        from t2t_keras.text.graph import ByteGraph

        return ByteGraph()

    def _bytes(self, byte_id: int) -> bytes:
        if not 0 <= byte_id < self.vocab_size:
            raise UserError(
                f"Byte id {byte_id} is out of range; 0 to {self.vocab_size - 1} are allowed."
            )
        if byte_id < _RESERVED:
            return RESERVED_TOKENS[byte_id].encode()
        return bytes([byte_id - _RESERVED])


class TokenTextEncoder(TensorEncoder):
    """Tokens between white space as ids (T2T: `TokenTextEncoder`)."""

    def __init__(
        self,
        vocab_filename: str | os.PathLike[str] | None = None,
        vocab_list: Sequence[str] | None = None,
        replace_oov: str | None = None,
    ):
        """Takes its tokens from a file or from a list, one of the two.

        Args:
            vocab_filename: a file with one token a line, `<pad>` and `<EOS>` first.
            vocab_list: tokens to put after `<pad>` and `<EOS>`.
            replace_oov: the token to read instead of a token that is not listed.

        Raises:
            UserError: the file is no such vocabulary, or `replace_oov` is not a token of it.
        """
        if vocab_filename is not None:
            self._tokens = vocabulary_file.read_tokens(vocab_filename)
        elif vocab_list is not None:
            listed = [token for token in vocab_list if token not in RESERVED_TOKENS]
            self._tokens = [*RESERVED_TOKENS, *listed]
        else:
            raise UserError("TokenTextEncoder got no tokens: give vocab_filename or vocab_list.")
        self._ids = {token: i for i, token in enumerate(self._tokens)}
        self.replace_oov = replace_oov
        if replace_oov is not None and replace_oov not in self._ids:
            raise UserError(
                f"replace_oov is {replace_oov!r}, which is not in the vocabulary; add it there."
            )

    @property
    def vocab_size(self) -> int:
        """Number of tokens, the reserved ones included."""
        return len(self._tokens)

    def encode(self, text: str) -> list[int]:
        """Returns one id a token.

        Raises:
            UserError: a token is not in the vocabulary and there is no `replace_oov`.
        """
        return [self._id(token) for token in text.split()]

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the tokens with single spaces between them; an unknown id 7 shows as `ID_7`."""
        known = range(len(self._tokens))
        return " ".join(self._tokens[i] if i in known else f"ID_{i}" for i in ids)

    def store_to_file(self, filename: str | os.PathLike[str]) -> None:
        """Writes the vocabulary, one token a line."""
        vocabulary_file.write_lines(filename, self._tokens)

    def _make_graph(self) -> TokenGraph:
        from t2t_keras.text.graph import TokenGraph

        replacement = None if self.replace_oov is None else self._ids[self.replace_oov]
        return TokenGraph(self._tokens, self._ids, replacement)

    def _id(self, token: str) -> int:
        found = self._ids.get(token)
        if found is not None:
            return found
        if self.replace_oov is None:
            raise UserError(
                f"Token {token!r} is not in the vocabulary of {self.vocab_size} tokens; "
                "add it, or name a replacement for unknown tokens."
            )
        return self._ids[self.replace_oov]
