"""Tokens for display: the text of each id, and the words that they make up."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from t2t_keras.ids import EOS_ID
from t2t_keras.text import ByteTextEncoder, SentencePieceEncoder, SubwordTextEncoder
from t2t_keras.text.encoders import spelled
from t2t_keras.text.tokenizer import unescape

END = "</s>"  # the end of sentence as it is shown
SPACE = "\u2423"  # each space of a token of spaces only
NOTHING = "\u00b7"  # a subtoken that only ends a word


class Tokens(NamedTuple):
    """The tokens of a text, including end of sentence."""

    text: str  # the whole text, without the end of sentence
    tokens: list[str]  # text of each token
    words: list[int]  # word number of each token, from 0
    word_texts: list[str]  # text of each word

    def by_words(self) -> Tokens:
        """Returns the same with one token per word."""
        texts = self.word_texts
        return self._replace(tokens=texts, words=list(range(len(texts))))


def shown_tokens(encoder, ids: Sequence[int], split_at_space: bool = False) -> Tokens:
    """Returns the tokens of ids for display.

    With subwords, a word is a token of T2T's tokenizer, which separates letters and digits from other
    characters, or with `split_at_space` what is between white space, so that "/NP" is one word; with
    bytes and SentencePiece it is what is between white space; with a vocabulary of words, a token.
    """
    words = list(_words(encoder, ids, split_at_space))
    return Tokens(
        text=encoder.decode(spelled(encoder, [i for i in ids if i != EOS_ID])),
        tokens=[token for word in words for token in word.tokens],
        words=[number for number, word in enumerate(words) for _ in word.tokens],
        word_texts=[word.text for word in words],
    )


class _Word(NamedTuple):
    text: str
    tokens: list[str]

    def stripped(self) -> _Word:
        return self._replace(text=_shown(self.text))


def _words(encoder, ids: Sequence[int], split_at_space: bool) -> Iterator[_Word]:
    for ends, group in itertools.groupby(ids, key=lambda i: i == EOS_ID):
        if ends:
            yield from (_Word(END, [END]) for _ in group)
        elif isinstance(encoder, SubwordTextEncoder):
            tokens = _subword_tokens(encoder, list(group))
            yield from _join_at_space(tokens) if split_at_space else map(_Word.stripped, tokens)
        elif isinstance(encoder, ByteTextEncoder):
            yield from _byte_words(encoder, list(group))
        elif isinstance(encoder, SentencePieceEncoder):
            yield from _piece_words(encoder, list(group))
        else:
            for i in group:
                text = _shown(encoder.decode([i]))
                yield _Word(text, [text])


def _subword_tokens(encoder: SubwordTextEncoder, ids: Sequence[int]) -> Iterator[_Word]:
    """Yields the tokens of T2T's tokenizer, with the spaces that belong to them."""
    pieces, tokens = "", []
    for i in ids:
        piece = encoder.subtoken(i) or f"ID_{i}_"  # an extra row of the embedding table
        pieces += piece
        tokens.append(_shown(unescape(piece.removesuffix("_"))))
        if piece.endswith("_"):
            yield _Word(unescape(pieces[:-1]), tokens)
            pieces, tokens = "", []
    if tokens:
        yield _Word(unescape(pieces), tokens)


def _join_at_space(words: Iterator[_Word]) -> Iterator[_Word]:
    """Joins tokens of T2T's tokenizer that have no white space between them."""
    joined = _Word("", [])
    for word in words:
        # T2T's tokenizer drops a single space between letters or digits.
        letters = joined.text[-1:].isalnum() and word.text[:1].isalnum()
        if joined.tokens and (letters or joined.text[-1:].isspace() or word.text[:1].isspace()):
            yield joined.stripped()
            joined = _Word("", [])
        joined = _Word(joined.text + word.text, joined.tokens + word.tokens)
    if joined.tokens:
        yield joined.stripped()


def _byte_words(encoder: ByteTextEncoder, ids: Sequence[int]) -> Iterator[_Word]:
    def token(i):
        return encoder.decode([i]) if spelled(encoder, [i]) else f"ID_{i}"

    for _, group in itertools.groupby(ids, key=lambda i: token(i).isspace()):
        word = list(group)
        text = encoder.decode(spelled(encoder, word))  # U+FFFD for a part of a character
        yield _Word(_shown(text), [_shown(token(i)) for i in word])


def _piece_words(encoder: SentencePieceEncoder, ids: Sequence[int]) -> Iterator[_Word]:
    """Yields words: each from a piece that begins with a space up to the next such piece."""
    pieces = [encoder.subtoken(i).replace("\u2581", " ") or f"ID_{i}" for i in ids]
    starts = [i for i, piece in enumerate(pieces) if piece[:1].isspace() or not i]
    for start, stop in zip(starts, [*starts[1:], len(ids)], strict=True):
        text = encoder.decode(ids[start:stop])  # several byte pieces may form one character
        yield _Word(_shown(text), [_shown(piece) for piece in pieces[start:stop]])


def _shown(text: str) -> str:
    """Returns a token without surrounding spaces, or visible signs if it is only spaces or empty."""
    return text.strip() or SPACE * len(text) or NOTHING
