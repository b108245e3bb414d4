"""Text encoders as `tf.Module`s, for graphs, tf.data pipelines and SavedModels.

They use only core TensorFlow (except for SentencePiece), so a SavedModel loads without tensorflow-text.
Letters and white space are listed explicitly, because TensorFlow's character classes depend on its version.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import tensorflow as tf

from t2t_keras.ids import RESERVED_TOKENS
from t2t_keras.text.graph_subwords import SubwordCutter, SubwordJoiner, places_of, splits_of
from t2t_keras.text.tokenizer import ALPHANUMERIC_RANGES, escape, unescape

_STRINGS = tf.TensorSpec([None], tf.string)
_IDS = tf.RaggedTensorSpec([None, None], tf.int32)

SPACES = "\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""The white space of `str.split` and `str.strip`, as the inside of a regex character class."""

_WORD = "".join(f"{chr(first)}-{chr(last)}" for first, last in ALPHANUMERIC_RANGES)
_MARK = b"\xff"  # never occurs in UTF-8
_SURROGATES = re.compile("[\ud800-\udfff]")  # nor do these


class TextGraph(tf.Module):
    """Base class of encoders in a graph."""

    @tf.function(input_signature=[_STRINGS], autograph=False)
    def encode(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Returns `[B, None]` int32 ids of `[B]` strings. Invalid UTF-8 is dropped."""
        with tf.device("CPU:0"):  # other devices do not support strings
            return self._encode(_valid(strings))

    @tf.function(input_signature=[_IDS], autograph=False)
    def decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns `[B]` strings, with U+FFFD for invalid UTF-8 and surrogates; ignores ids out of range."""
        with tf.device("CPU:0"):
            return self._decode(ids)


class SubwordGraph(TextGraph):
    """`SubwordTextEncoder` in a graph."""

    def __init__(self, subtokens: Sequence[str], ids: dict[str, int], alphabet: frozenset[str]):
        """Builds the tables from the subtokens by id, the ids of non-empty ones, and the alphabet."""
        super().__init__()
        self._cutter = SubwordCutter(ids, alphabet)
        self._joiner = SubwordJoiner(subtokens)
        # Most tokens are a single subtoken and are looked up whole.
        whole = {}
        for subtoken, i in ids.items():
            token = unescape(subtoken[:-1])
            if token and escape(token, alphabet) == subtoken and not _SURROGATES.search(token):
                whole[token] = i
        self._ids = _table(whole)

    def _encode(self, strings: tf.Tensor) -> tf.RaggedTensor:
        tokens, splits = _tokens(strings)
        ids = self._ids.lookup(tokens)
        is_whole = ids >= 0
        cut = tf.where(~is_whole)
        pieces, piece_splits = self._cutter(tf.gather_nd(tokens, cut))
        lengths = tf.tensor_scatter_nd_update(
            tf.ones_like(ids), cut, piece_splits[1:] - piece_splits[:-1]
        )
        places = splits_of(lengths)
        whole_places = tf.boolean_mask(places[:-1], is_whole)
        piece_places = places_of(tf.gather_nd(places, cut), piece_splits)
        at = tf.concat([whole_places, piece_places], 0)
        values = tf.concat([tf.boolean_mask(ids, is_whole), pieces], 0)
        flat = tf.scatter_nd(at[:, tf.newaxis], values, places[-1][tf.newaxis])
        return _ragged(flat, tf.gather(places, splits))

    def _decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        return self._joiner(ids.flat_values, tf.cast(ids.row_splits, tf.int32))


class ByteGraph(TextGraph):
    """`ByteTextEncoder` in a graph; ids out of range are errors."""

    def __init__(self, texts: Sequence[bytes]):
        super().__init__()
        self._texts = tf.constant(texts)

    def _encode(self, strings: tf.Tensor) -> tf.RaggedTensor:
        every = tf.io.decode_raw(tf.strings.reduce_join(strings)[tf.newaxis], tf.uint8)[0]
        splits = splits_of(tf.strings.length(strings))
        return _ragged(tf.cast(every, tf.int32) + len(RESERVED_TOKENS), splits)

    def _decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        flat, size = ids.flat_values, self._texts.shape[0]
        wrong = tf.boolean_mask(flat, (flat < 0) | (flat >= size))[:1]
        message = f"Byte id out of range; 0 to {size - 1} are allowed:"
        check = tf.debugging.Assert(tf.equal(tf.size(wrong), 0), [message, wrong])
        with tf.control_dependencies([check]):
            joined = _joined(ids, tf.gather(self._texts, flat))
        return _valid(joined, errors="replace")


class TokenGraph(TextGraph):
    """`TokenTextEncoder` in a graph; an unknown id 7 becomes `ID_7`."""

    def __init__(self, tokens: Sequence[str], ids: dict[str, int], replacement: int | None):
        """Builds the tables from the tokens by id, their ids, and the id for unknown tokens, if any."""
        super().__init__()
        self._tokens = tf.constant(tokens)
        self._ids = _table(ids)
        self._replacement = replacement

    def _encode(self, strings: tf.Tensor) -> tf.RaggedTensor:
        tokens = tf.strings.split(tf.strings.regex_replace(strings, f"[{SPACES}]", " "))
        ids = self._ids.lookup(tokens.flat_values)
        if self._replacement is None:
            unknown = tf.boolean_mask(tokens.flat_values, ids < 0)[:1]
            message = "Token not in the vocabulary, which has no replacement for it:"
            tf.debugging.Assert(tf.equal(tf.size(unknown), 0), [message, unknown])
        else:
            ids = tf.where(ids < 0, self._replacement, ids)
        return tokens.with_flat_values(ids)

    def _decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        unknown = tf.strings.join(["ID_", tf.strings.as_string(ids.flat_values)])
        return _joined(ids, _texts(ids, self._tokens, unknown), separator=" ")


class SentencePieceGraph(TextGraph):
    """`SentencePieceEncoder` in a graph; encoding is an operation of tensorflow-text."""

    def __init__(
        self, model: bytes, texts: Sequence[bytes], ids: Sequence[int] | None, strip_space: bool
    ):
        """Takes the model, the text of each id, our id of each SentencePiece id, and how to decode."""
        super().__init__()
        self._model = model
        self._texts = tf.constant(texts)
        self._ids = None if ids is None else tf.constant(ids)
        self._strip_space = strip_space

    def _encode(self, strings: tf.Tensor) -> tf.RaggedTensor:
        import tensorflow_text

        # Created in the graph: the op's kernel owns the model, and TensorFlow drops eager kernels
        # whenever a seed is set.
        tokenizer = tensorflow_text.SentencepieceTokenizer(self._model)
        ids = tokenizer.tokenize(strings)
        return ids if self._ids is None else tf.gather(self._ids, ids)

    def _decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        joined = _joined(ids, _texts(ids, self._texts, unknown=""))
        if self._strip_space:
            joined = tf.strings.regex_replace(joined, r"\A ", "")
        return _valid(joined, errors="replace")


def _valid(strings: tf.Tensor, errors: str = "ignore") -> tf.Tensor:
    return tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", errors)


def _tokens(strings: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Tokenizes like `tokenizer.encode`; returns all tokens and their splits, `[B + 1]` int32."""
    marked = tf.strings.regex_replace(strings, f"[^{_WORD}]+", _MARK + rb"\0" + _MARK)
    parts = tf.strings.split(marked, _MARK)
    flat = parts.flat_values
    # Each part between two marks has two neighbours; they are empty only at the ends of the string.
    is_empty = tf.equal(flat, "")
    edge = tf.ones([1], tf.bool)
    beside_edge = tf.concat([edge, is_empty[:-1]], 0) | tf.concat([is_empty[1:], edge], 0)
    is_token = ~is_empty & (tf.not_equal(flat, " ") | beside_edge[: tf.size(flat)])
    splits = tf.gather(splits_of(tf.cast(is_token, tf.int32)), parts.row_splits)
    return tf.boolean_mask(flat, is_token), splits


def _table(ids: dict[str, int]) -> tf.lookup.StaticHashTable:
    keys = tf.constant(list(ids), tf.string)
    values = tf.constant(list(ids.values()), tf.int32)
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1)


def _ragged(flat: tf.Tensor, splits: tf.Tensor) -> tf.RaggedTensor:
    return tf.RaggedTensor.from_row_splits(flat, tf.cast(splits, tf.int64), validate=False)


def _texts(ids: tf.RaggedTensor, texts: tf.Tensor, unknown: tf.Tensor | str) -> tf.Tensor:
    """Returns the text of each id; `unknown` for ids out of range."""
    flat, last = ids.flat_values, tf.size(texts) - 1
    found = tf.gather(texts, tf.clip_by_value(flat, 0, last))
    return tf.where((flat >= 0) & (flat <= last), found, unknown)


def _joined(ids: tf.RaggedTensor, texts: tf.Tensor, separator: str = "") -> tf.Tensor:
    """Joins the texts of each row of ids."""
    return tf.strings.reduce_join(ids.with_flat_values(texts), axis=1, separator=separator)
