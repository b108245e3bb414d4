"""Text encoders as `tf.Module`s, for graphs, tf.data pipelines and SavedModels.

They use only core TensorFlow (except for SentencePiece), so a SavedModel loads without tensorflow-text.
Letters and white space are listed explicitly, because TensorFlow's character classes depend on its version.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import tensorflow as tf

from t2t_keras.ids import RESERVED_TOKENS
from t2t_keras.text.graph_subwords import SubwordCutter, SubwordJoiner, segments, splits_of
from t2t_keras.text.tokenizer import ALPHANUMERIC_RANGES, escape, unescape

_STRINGS = tf.TensorSpec([None], tf.string)
_IDS = tf.RaggedTensorSpec([None, None], tf.int32)
_RESERVED = len(RESERVED_TOKENS)
_BYTES = [token.encode() for token in RESERVED_TOKENS] + [bytes([byte]) for byte in range(256)]
_CPU = "CPU:0"  # other devices do not support strings

SPACES = "\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""The white space of `str.split` and `str.strip`, as the inside of a regex character class."""

_WORD = "".join(f"{chr(first)}-{chr(last)}" for first, last in ALPHANUMERIC_RANGES)
_MARK = b"\xff"  # never occurs in UTF-8
_SURROGATES = re.compile("[\ud800-\udfff]")  # nor do these


class SubwordGraph(tf.Module):
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

    @tf.function(input_signature=[_STRINGS], autograph=False)
    def encode(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Returns `[B, None]` int32 ids of `[B]` strings. Invalid UTF-8 is dropped."""
        with tf.device(_CPU):
            tokens, splits = _tokens(_valid(strings))
            ids = self._ids.lookup(tokens)
            is_whole = ids >= 0
            cut = tf.where(~is_whole)
            pieces, piece_splits = self._cutter(tf.gather_nd(tokens, cut))
            lengths = tf.tensor_scatter_nd_update(
                tf.ones_like(ids), cut, piece_splits[1:] - piece_splits[:-1]
            )
            places = splits_of(lengths)
            shift = tf.gather_nd(places, cut) - piece_splits[:-1]
            count = tf.size(pieces)
            piece_places = tf.range(count) + tf.gather(shift, segments(piece_splits, count))
            whole_places = tf.boolean_mask(places[:-1], is_whole)
            at = tf.concat([whole_places, piece_places], 0)
            values = tf.concat([tf.boolean_mask(ids, is_whole), pieces], 0)
            flat = tf.scatter_nd(at[:, tf.newaxis], values, places[-1][tf.newaxis])
            return _ragged(flat, tf.gather(places, splits))

    @tf.function(input_signature=[_IDS], autograph=False)
    def decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns `[B]` strings. Ids out of range are ignored, surrogates become U+FFFD."""
        with tf.device(_CPU):
            return self._joiner(ids.flat_values, tf.cast(ids.row_splits, tf.int32))


class ByteGraph(tf.Module):
    """`ByteTextEncoder` in a graph."""

    @tf.function(input_signature=[_STRINGS], autograph=False)
    def encode(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Returns `[B, None]` int32 ids of `[B]` strings. Invalid UTF-8 is dropped."""
        with tf.device(_CPU):
            strings = _valid(strings)
            every = tf.io.decode_raw(tf.strings.reduce_join(strings)[tf.newaxis], tf.uint8)[0]
            splits = splits_of(tf.strings.length(strings))
            return _ragged(tf.cast(every, tf.int32) + _RESERVED, splits)

    @tf.function(input_signature=[_IDS], autograph=False)
    def decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns `[B]` strings, with U+FFFD for invalid UTF-8; ids out of range are errors."""
        with tf.device(_CPU):
            flat = ids.flat_values
            is_known = (flat >= 0) & (flat < len(_BYTES))
            wrong = tf.boolean_mask(flat, ~is_known)[:1]
            message = f"Byte id out of range; 0 to {len(_BYTES) - 1} are allowed:"
            with tf.control_dependencies(
                [tf.debugging.Assert(tf.equal(tf.size(wrong), 0), [message, wrong])]
            ):
                joined = _joined(ids.with_flat_values(tf.gather(_BYTES, flat)), "")
            return tf.strings.unicode_transcode(joined, "UTF-8", "UTF-8", errors="replace")


class TokenGraph(tf.Module):
    """`TokenTextEncoder` in a graph."""

    def __init__(self, tokens: Sequence[str], ids: dict[str, int], replacement: int | None):
        """Builds the tables from the tokens by id, their ids, and the id for unknown tokens, if any."""
        super().__init__()
        self._tokens = tf.constant(tokens)
        self._ids = _table(ids)
        self._replacement = replacement

    @tf.function(input_signature=[_STRINGS], autograph=False)
    def encode(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Returns `[B, None]` int32 ids of `[B]` strings; an unknown token needs a replacement."""
        with tf.device(_CPU):
            tokens = tf.strings.split(tf.strings.regex_replace(_valid(strings), f"[{SPACES}]", " "))
            ids = self._ids.lookup(tokens.flat_values)
            if self._replacement is None:
                unknown = tf.boolean_mask(tokens.flat_values, ids < 0)[:1]
                message = "Token not in the vocabulary, which has no replacement for it:"
                tf.debugging.Assert(tf.equal(tf.size(unknown), 0), [message, unknown])
            else:
                ids = tf.where(ids < 0, self._replacement, ids)
            return tokens.with_flat_values(ids)

    @tf.function(input_signature=[_IDS], autograph=False)
    def decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns `[B]` strings, tokens joined by spaces; an unknown id 7 becomes `ID_7`."""
        with tf.device(_CPU):
            flat = ids.flat_values
            last = tf.size(self._tokens) - 1
            is_known = (flat >= 0) & (flat <= last)
            tokens = tf.gather(self._tokens, tf.clip_by_value(flat, 0, last))
            unknown = tf.strings.join(["ID_", tf.strings.as_string(flat)])
            return _joined(ids.with_flat_values(tf.where(is_known, tokens, unknown)), " ")


class SentencePieceGraph(tf.Module):
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

    @tf.function(input_signature=[_STRINGS], autograph=False)
    def encode(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Returns `[B, None]` int32 ids of `[B]` strings. Invalid UTF-8 is dropped."""
        import tensorflow_text

        with tf.device(_CPU):
            # Created in the graph: the op's kernel owns the model, and TensorFlow drops eager kernels
            # whenever a seed is set.
            tokenizer = tensorflow_text.SentencepieceTokenizer(self._model)
            ids = tokenizer.tokenize(_valid(strings))
            return ids if self._ids is None else tf.gather(self._ids, ids)

    @tf.function(input_signature=[_IDS], autograph=False)
    def decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns `[B]` strings, with U+FFFD for invalid UTF-8. Ids out of range are ignored."""
        with tf.device(_CPU):
            flat = ids.flat_values
            last = tf.size(self._texts) - 1
            texts = tf.gather(self._texts, tf.clip_by_value(flat, 0, last))
            texts = tf.where((flat >= 0) & (flat <= last), texts, "")
            joined = _joined(ids.with_flat_values(texts), "")
            if self._strip_space:
                joined = tf.strings.regex_replace(joined, r"\A ", "")
            return tf.strings.unicode_transcode(joined, "UTF-8", "UTF-8", errors="replace")


def _valid(strings: tf.Tensor) -> tf.Tensor:
    return tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", errors="ignore")


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


def _joined(strings: tf.RaggedTensor, separator: str) -> tf.Tensor:
    return tf.strings.reduce_join(strings, axis=1, separator=separator)
