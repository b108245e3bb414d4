"""Text encoders as `tf.Module`s, for graphs, tf.data pipelines and SavedModels.

They use only core TensorFlow (except for SentencePiece), so a SavedModel loads without tensorflow-text.
Letters and white space are listed explicitly, because TensorFlow's character classes depend on its version.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.errors import importing
from t2t_keras.ids import RESERVED_TOKENS
from t2t_keras.text.tokenizer import ALPHANUMERIC_RANGES, UNDEFINED, escape, unescape

_BACKSLASH, _UNDERSCORE, _U, _SEMICOLON, _ZERO, _NINE, _SPACE = map(ord, "\\_u;09 ")
_END_OF_ROW = -1
_LAST_CODE_POINT = 0x10FFFF
_DIGITS = len(str(_LAST_CODE_POINT))
_POWERS_OF_TEN = [10**n for n in range(_DIGITS)]
_LONGEST_NUMBER = 4300  # the most digits that Python's `int` reads


def segments(splits: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Returns `[size]` int32: the row of each item, given `[rows + 1]` splits from 0 to `size`."""
    begun = tf.math.unsorted_segment_sum(tf.ones_like(splits[1:-1]), splits[1:-1], size + 1)
    return tf.cumsum(begun)[:size]


def splits_of(lengths: tf.Tensor) -> tf.Tensor:
    """Returns row splits, `[rows + 1]`: the start of each row, and the end of the last."""
    return tf.concat([tf.zeros([1], lengths.dtype), tf.cumsum(lengths)], 0)


def places_of(starts: tf.Tensor, splits: tf.Tensor) -> tf.Tensor:
    """Returns the place of each item of rows with these splits, if row r is put at `starts[r]`."""
    size = splits[-1]
    return tf.range(size) + tf.gather(starts - splits[:-1], segments(splits, size))


class SubwordCutter:
    """Escapes words with the alphabet of a vocabulary and cuts them into the longest subtokens."""

    def __init__(self, ids: dict[str, int], alphabet: frozenset[str]):
        """Builds the tables from the subtokens with their ids and the characters that need no escape."""
        # An escaped word has exactly one underscore, at its end.
        usable = {subtoken: i for subtoken, i in ids.items() if "_" not in subtoken[:-1]}
        table = build_table(usable, alphabet)
        arrays = {n: a for n, a in table._asdict().items() if isinstance(a, np.ndarray)}
        self._table = table._replace(**{name: tf.constant(array) for name, array in arrays.items()})
        numbers = table.numbers
        plain = {ord(c): numbers[c] for c in alphabet - set("\\_\n")}
        by_code_point = np.zeros(max(plain) + 2, np.int32)  # the last entry is for all larger ones
        by_code_point[list(plain)] = list(plain.values())
        self._numbers = tf.constant(by_code_point)
        self._digits = tf.constant([numbers[c] for c in "0123456789"])
        self._backslash, self._underscore, self._u, self._semicolon = map(numbers.get, "\\_u;")
        self._may_fail = not alphabet - {"\n"} <= ids.keys()

    def __call__(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the ids of `[N]` non-empty words of valid UTF-8, and `[N + 1]` int32 splits.

        Raises `tf.errors.InvalidArgumentError` if the vocabulary lacks a character.
        """
        spelled, word_splits = self._spell(words)
        ids, lengths = self._longest_matches(spelled)
        is_cut = _reached(word_splits, tf.range(tf.size(spelled)) + lengths)
        if self._may_fail:
            failed = tf.where(is_cut & (ids < 0))[:1, 0]
            at = tf.searchsorted(word_splits, tf.cast(failed, tf.int32), side="right") - 1
            message = "Cannot encode a word; the vocabulary lacks a subtoken for a character of it:"
            tf.debugging.Assert(tf.equal(tf.size(failed), 0), [message, tf.gather(words, at)])
        id_splits = tf.gather(splits_of(tf.cast(is_cut, tf.int32)), word_splits)
        return tf.boolean_mask(ids, is_cut), id_splits

    def _spell(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the numbers of the characters of all escaped words, and their splits into words."""
        decoded = tf.strings.unicode_decode(words, "UTF-8")
        characters = decoded.flat_values
        splits = tf.cast(decoded.row_splits, tf.int32)
        numbers = tf.gather(self._numbers, tf.minimum(characters, tf.size(self._numbers) - 1))
        escaped = tf.where(tf.equal(numbers, 0))
        escapes, escape_lengths = self._escapes(tf.gather_nd(characters, escaped))

        lengths = tf.tensor_scatter_nd_update(tf.ones_like(numbers), escaped, escape_lengths)
        ends = splits[1:, tf.newaxis]
        lengths = tf.tensor_scatter_nd_add(lengths, ends - 1, tf.ones_like(ends[:, 0]))
        places = splits_of(lengths)
        word_splits = tf.gather(places, splits)

        escape_places = places_of(tf.gather_nd(places, escaped), splits_of(escape_lengths))
        at = tf.concat([places[:-1], escape_places, word_splits[1:] - 1], 0)
        # An escaped character has number 0; `scatter_nd` adds the number of its backslash.
        values = tf.concat([numbers, escapes, tf.fill(tf.shape(words), self._underscore)], 0)
        return tf.scatter_nd(at[:, tf.newaxis], values, places[-1][tf.newaxis]), word_splits

    def _escapes(self, characters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the numbers of the characters of all escapes, flat, and the length of each escape."""
        is_backslash = tf.equal(characters, _BACKSLASH)
        is_short = is_backslash | tf.equal(characters, _UNDERSCORE)
        digits = tf.searchsorted([0, *_POWERS_OF_TEN[1:]], characters, side="right")
        lengths = tf.where(is_short, 2, digits + 2)
        splits = splits_of(lengths)
        row = segments(splits, splits[-1])
        offset = tf.range(splits[-1]) - tf.gather(splits, row)
        from_end = tf.gather(lengths, row) - 1 - offset
        power = tf.gather(_POWERS_OF_TEN, tf.clip_by_value(from_end - 1, 0, _DIGITS - 1))
        digit = tf.gather(self._digits, tf.gather(characters, row) // power % 10)
        long = tf.where(tf.equal(from_end, 0), self._semicolon, digit)
        short = tf.where(tf.gather(is_backslash, row), self._backslash, self._u)
        symbol = tf.where(tf.gather(is_short, row), short, long)
        return tf.where(tf.equal(offset, 0), self._backslash, symbol), lengths

    def _longest_matches(self, spelled: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns id and length of the longest subtoken at each position; -1 and 0 if there is none."""
        table, size = self._table, tf.size(spelled)
        blocks = [tf.concat([spelled, tf.zeros([2**table.levels], tf.int32)], 0)]
        for level in range(table.levels - 1):
            half = 2**level
            blocks.append(self._join(blocks[-1][:-half], blocks[-1][half:]))
        start = end = tf.range(size)
        beginning = tf.zeros_like(start)
        for level in reversed(range(table.levels)):
            if level == table.levels - 1:
                joined = blocks[level][:size]
            else:
                block = tf.gather(blocks[level], end)
                joined = tf.where(tf.equal(end, start), block, self._join(beginning, block))
            is_longer = joined >= table.first_beginning
            beginning = tf.where(is_longer, joined, beginning)
            end = tf.where(is_longer, end + 2**level, end)
        return tf.gather(table.match_id, beginning), tf.gather(table.match_length, beginning)

    def _join(self, first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        """Returns the numbers of concatenated strings; see `SubstringTable`."""
        table = self._table
        last = table.owner.shape[0] - 1
        slot = tf.bitwise.bitwise_and(tf.gather(table.base, first) + second, last)
        is_known = tf.equal(tf.gather(table.owner, slot), first)
        return tf.where(is_known, tf.gather(table.joined, slot), 0)


def _reached(starts: tf.Tensor, following: tf.Tensor) -> tf.Tensor:
    """Marks what is reached from `starts` by steps from i to `following[i]`; round n takes 2^n."""

    def mark(marked: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
        marks = tf.ones_like(places, tf.bool)
        return tf.tensor_scatter_nd_update(marked, places[:, tf.newaxis], marks)

    def double(marked: tf.Tensor, following: tf.Tensor, _: tf.Tensor):
        more = mark(marked, tf.boolean_mask(following, marked))
        return more, tf.gather(following, following), tf.reduce_any(tf.not_equal(more, marked))

    size = tf.size(following)
    marked = mark(tf.zeros([size + 1], tf.bool), starts)
    following = tf.concat([following, size[tf.newaxis]], 0)
    marked, _, _ = tf.while_loop(
        lambda marked, following, grew: grew, double, (marked, following, tf.constant(True))
    )
    return marked[:-1]


class SubwordJoiner:
    """Joins the subtokens of ids, resolves escapes, and inserts spaces between words."""

    def __init__(self, subtokens: Sequence[str]):
        """Builds the tables from the subtokens in the order of their ids."""
        rows = [*([ord(c) for c in subtoken] for subtoken in subtokens), [], [_END_OF_ROW]]
        self._no_subtoken, self._end_of_row = len(rows) - 2, len(rows) - 1
        self._characters = tf.constant([c for row in rows for c in row], tf.int32)
        self._lengths = tf.constant([len(row) for row in rows], tf.int32)
        self._begins = splits_of(self._lengths)[:-1]
        bounds = [bound for first, last in ALPHANUMERIC_RANGES for bound in (first, last + 1)]
        self._word_bounds = tf.constant(bounds, tf.int32)

    def __call__(self, ids: tf.Tensor, splits: tf.Tensor) -> tf.Tensor:
        """Returns `[B]` strings for flat int32 ids and their splits, `[B + 1]` int32."""
        characters, text_splits = self._spelled(ids, splits)
        is_break = tf.equal(characters, _UNDERSCORE) | tf.equal(characters, _END_OF_ROW)
        begins = tf.where(tf.concat([[True], is_break[:-1]], 0)[: tf.size(is_break)] & ~is_break)
        characters, is_dropped = _unescape(characters)

        before_word = self._spaced(tf.gather_nd(characters, begins), begins, text_splits)
        spaces = tf.fill(tf.shape(before_word)[:1], _SPACE)
        characters = tf.tensor_scatter_nd_update(characters, before_word, spaces)
        kept_breaks = tf.zeros_like(spaces, tf.bool)
        is_dropped |= tf.tensor_scatter_nd_update(is_break, before_word, kept_breaks)
        kept = tf.boolean_mask(characters, ~is_dropped)
        kept_splits = tf.gather(splits_of(tf.cast(~is_dropped, tf.int32)), text_splits)
        text = tf.RaggedTensor.from_row_splits(kept, kept_splits, validate=False)
        return tf.strings.unicode_encode(text, "UTF-8")

    def _spelled(self, ids: tf.Tensor, splits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the characters of all subtokens, `_END_OF_ROW` after each row, and the splits."""
        ids = tf.where((ids >= 0) & (ids < self._no_subtoken), ids, self._no_subtoken)
        closed_splits = splits + tf.range(tf.size(splits))
        at = tf.range(tf.size(ids)) + segments(splits, tf.size(ids))
        ends = tf.fill(closed_splits[-1][tf.newaxis], self._end_of_row)
        closed = tf.tensor_scatter_nd_update(ends, at[:, tf.newaxis], ids)
        id_splits = splits_of(tf.gather(self._lengths, closed))
        place = places_of(tf.gather(self._begins, closed), id_splits)
        return tf.gather(self._characters, place), tf.gather(id_splits, closed_splits)

    def _spaced(self, first: tf.Tensor, begins: tf.Tensor, text_splits: tf.Tensor) -> tf.Tensor:
        """Returns where underscores become spaces, [N, 1]; `first` of each token is at `begins`."""
        is_word = tf.searchsorted(self._word_bounds, first, side="right") % 2 > 0
        row = tf.searchsorted(text_splits, tf.cast(begins[:, 0], tf.int32), side="right")
        follows = is_word[1:] & is_word[:-1] & tf.equal(row[1:], row[:-1])
        return tf.boolean_mask(begins[1:], follows) - 1


def _unescape(characters: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    r"""Replaces the backslash of each escape by its character, and marks the rest of the escape.

    Of a run of backslashes every second belongs to the one before; a last one alone starts `\u` or `\10;`.
    """
    places = tf.where(tf.equal(characters, _BACKSLASH))[:, 0]
    none = tf.zeros([1], tf.bool)
    follows = tf.concat([none, tf.equal(places[1:], places[:-1] + 1)], 0)[: tf.size(places)]
    run_begins = tf.boolean_mask(places, ~follows)
    run = tf.cumsum(tf.cast(~follows, tf.int32)) - 1
    opens = tf.equal((places - tf.gather(run_begins, run)) % 2, 0)
    opening = tf.boolean_mask(places, opens)
    after = tf.gather(characters, opening + 1)  # exists: at least the end of the row
    pairs = tf.boolean_mask(opening, tf.equal(after, _BACKSLASH))
    underscores = tf.boolean_mask(opening, tf.equal(after, _U))
    numbers, code_points, number_places = _numeric_escapes(characters, opening)

    dropped = tf.concat([pairs + 1, underscores + 1, number_places], 0)[:, tf.newaxis]
    is_dropped = tf.tensor_scatter_nd_update(
        tf.zeros_like(characters, tf.bool), dropped, tf.ones_like(dropped[:, 0], tf.bool)
    )
    at = tf.concat([underscores, numbers], 0)[:, tf.newaxis]
    values = tf.concat([tf.fill(tf.shape(underscores), _UNDERSCORE), code_points], 0)
    return tf.tensor_scatter_nd_update(characters, at, values), is_dropped


def _numeric_escapes(
    characters: tf.Tensor, opening: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    r"""Returns where escapes such as `\10;` begin, their code points, and where all `10;` are."""
    is_digit = (characters >= _ZERO) & (characters <= _NINE)
    others = tf.where(~is_digit)[:, 0]
    # The first non-digit after each backslash (a backslash is a non-digit, too).
    ends = tf.gather(others, tf.searchsorted(others, opening, side="right"))
    ends_number = tf.equal(tf.gather(characters, ends), _SEMICOLON) & (ends > opening + 1)
    places = tf.boolean_mask(opening, ends_number)
    lengths = tf.boolean_mask(ends, ends_number) - places
    splits = splits_of(lengths)
    row = segments(splits, splits[-1])
    at = places_of(places + 1, splits)
    power = tf.gather(places + lengths, row) - at - 1  # -1 for the semicolon
    digit = tf.where(power < 0, 0, tf.gather(characters, at) - _ZERO)
    value = digit * tf.gather(_POWERS_OF_TEN, tf.clip_by_value(power, 0, _DIGITS - 1))
    is_too_large = (power >= _DIGITS) & (digit > 0)
    count = tf.size(places)
    code_points = tf.math.unsorted_segment_sum(value, row, count)
    beyond = tf.math.unsorted_segment_sum(tf.cast(is_too_large, tf.int32), row, count)
    is_undefined = (beyond > 0) | (code_points > _LAST_CODE_POINT) | (lengths - 1 > _LONGEST_NUMBER)
    return places, tf.where(is_undefined, ord(UNDEFINED), code_points), at


# A vocabulary as arrays that find the longest subtokens at many positions at once, in a few steps.
# A trie takes one step per character. Here a step takes a block of 2^k characters, for decreasing k, so
# the number of steps is the number of binary digits of the longest subtoken's length. Every string that
# matters has a number: the prefixes of subtokens, and the blocks that they consist of. One table gives the
# number of a string from the numbers of its two parts: for a block of 2^k characters its halves, for a
# prefix a shorter prefix and a block.

_ROUNDS = 100
_NONE = -1


class SubstringTable(NamedTuple):
    """The arrays of the table. Strings that do not matter have number 0.

    With `slot = (base[u] + v) % slots`, u + v is `joined[slot]` if `owner[slot] == u`, else 0.
    """

    numbers: dict[str, int]  # the numbers of single characters
    base: np.ndarray  # [strings + 1] int32
    owner: np.ndarray  # [slots] int32; slots is a power of two
    joined: np.ndarray  # [slots] int32
    first_beginning: int  # numbers from here on belong to prefixes of subtokens
    # [strings + 1] int32: the id of the longest subtoken that the string begins with, or -1
    match_id: np.ndarray
    match_length: np.ndarray  # [strings + 1] int32: its length, or 0
    levels: int  # blocks have 2^0 to 2^(levels - 1) characters


def build_table(ids: Mapping[str, int], alphabet: Iterable[str]) -> SubstringTable:
    """Returns the table of non-empty strings with ids; each character of `alphabet` gets a number."""
    found = {string[:end] for string in ids for end in range(1, len(string) + 1)}
    beginnings = sorted(found, key=lambda string: (len(string), string))
    blocks = set(alphabet)
    joins: list[tuple[str, str]] = []
    for string in beginnings:
        last = len(string) & -len(string)
        if last < len(string):
            joins.append((string[:-last], string[-last:]))
        _add_block(string[-last:], blocks, joins)
    others = sorted(blocks.difference(beginnings))
    numbers = {string: n for n, string in enumerate([*others, *beginnings], start=1)}
    rows = [[numbers[u], numbers[v], numbers[u + v]] for u, v in joins]
    first, second, both = np.array(rows, np.int32).reshape(-1, 3).T
    strings = len(numbers) + 1
    slots = 1 << (2 * max(len(joins), strings)).bit_length()
    base, owner, joined = _place(first, second, both, strings, slots)
    match_id = np.full(strings, _NONE, np.int32)
    match_length = np.zeros(strings, np.int32)
    for string in beginnings:  # shorter ones first
        n = numbers[string]
        if string in ids:
            match_id[n], match_length[n] = ids[string], len(string)
        elif len(string) > 1:
            shorter = numbers[string[:-1]]
            match_id[n], match_length[n] = match_id[shorter], match_length[shorter]
    return SubstringTable(
        numbers={string: n for string, n in numbers.items() if len(string) == 1},
        base=base,
        owner=owner,
        joined=joined,
        first_beginning=len(others) + 1,
        match_id=match_id,
        match_length=match_length,
        levels=max(map(len, beginnings), default=1).bit_length(),
    )


def _add_block(block: str, blocks: set[str], joins: list[tuple[str, str]]) -> None:
    if block not in blocks:
        blocks.add(block)
        if half := len(block) // 2:
            joins.append((block[:half], block[half:]))
            _add_block(block[:half], blocks, joins)
            _add_block(block[half:], blocks, joins)


def _place(
    u: np.ndarray, v: np.ndarray, joined: np.ndarray, strings: int, slots: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Finds bases so that no two joins share a slot; returns `base`, `owner`, `joined` by slot."""
    joins = u, v, joined
    random = np.random.default_rng(0)
    base = np.zeros(strings, np.int32)
    owner = np.full(slots, _NONE, np.int32)
    value = np.zeros(slots, np.int32)
    joins_of = np.bincount(u, minlength=strings)
    order = np.argsort(-joins_of[u], kind="stable")
    u, v, joined = u[order], v[order], joined[order]
    while len(u):
        # Strings with the most joins first, while there is room; those with similar numbers together.
        size = np.count_nonzero(joins_of[u] > joins_of[u[0]] // 2)
        wu, wv, wj = u[:size], v[:size], joined[:size]  # waiting
        u, v, joined = u[size:], v[size:], joined[size:]
        for _ in range(_ROUNDS):
            rows = np.unique(wu)
            base[rows] = random.integers(0, slots, len(rows))
            slot = (base[wu] + wv) & (slots - 1)
            claimed = np.full(slots, strings, np.int32)
            np.minimum.at(claimed, slot, wu)
            clash = (owner[slot] != _NONE) | (claimed[slot] != wu)
            fits = ~np.isin(wu, wu[clash])
            owner[slot[fits]] = wu[fits]
            value[slot[fits]] = wj[fits]
            wu, wv, wj = wu[~fits], wv[~fits], wj[~fits]
            if not len(wu):
                break
        else:
            return _place(*joins, strings, 2 * slots)
    return base, owner, value


# The encoders

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
            return self._encode(valid(strings))

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
        piece_lengths = piece_splits[1:] - piece_splits[:-1]
        lengths = tf.tensor_scatter_nd_update(tf.ones_like(ids), cut, piece_lengths)
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
        message = f"Byte id out of range; 0 to {size - 1} are allowed:"
        known = require_none((flat < 0) | (flat >= size), message, flat)
        with tf.control_dependencies([known]):
            return valid(_joined(ids, self._texts), errors="replace")


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
            message = "Token not in the vocabulary, which has no replacement for it:"
            require_none(ids < 0, message, tokens.flat_values)
        else:
            ids = tf.where(ids < 0, self._replacement, ids)
        return tokens.with_flat_values(ids)

    def _decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        unknown = tf.strings.join(["ID_", tf.strings.as_string(ids.flat_values)])
        return _joined(ids, self._tokens, unknown, separator=" ")


class SentencePieceGraph(TextGraph):
    """`SentencePieceEncoder` in a graph; encoding is an operation of tensorflow-text."""

    def __init__(
        self, model: bytes, texts: Sequence[bytes], ids: Sequence[int] | None, strip_space: bool
    ):
        """Takes the model, the text of each id, our id of each SentencePiece id, and how to decode."""
        super().__init__()
        self._model, self._texts, self._strip_space = model, tf.constant(texts), strip_space
        self._ids = None if ids is None else tf.constant(ids)

    def _encode(self, strings: tf.Tensor) -> tf.RaggedTensor:
        # Created in the graph: the op's kernel owns the model, and TensorFlow drops eager kernels
        # whenever a seed is set.
        ids = import_tensorflow_text().SentencepieceTokenizer(self._model).tokenize(strings)
        return ids if self._ids is None else tf.gather(self._ids, ids)

    def _decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        joined = _joined(ids, self._texts)
        if self._strip_space:
            joined = tf.strings.regex_replace(joined, r"\A ", "")
        return valid(joined, errors="replace")


def import_tensorflow_text() -> Any:
    """Imports tensorflow-text, whose operation of a graph encodes by SentencePiece."""
    remedy = "pip install 'tensorflow-text>=2.21.1,<2.22', which there is not for Windows"
    with importing("SentencePiece in a graph needs tensorflow-text", remedy):
        import tensorflow_text
    return tensorflow_text


def require_none(wrong: tf.Tensor, message: str, values: tf.Tensor | None = None) -> tf.Operation:
    """Returns an assertion that no element is `wrong`; its message has the first one's value or index."""
    first = tf.where(wrong)[:1] if values is None else tf.boolean_mask(values, wrong)[:1]
    return tf.debugging.Assert(tf.equal(tf.size(first), 0), [message, first])


def valid(strings: tf.Tensor, errors: str = "ignore") -> tf.Tensor:
    """Returns strings without bytes that are not UTF-8, or with U+FFFD in their place ("replace")."""
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


def _joined(
    ids: tf.RaggedTensor, texts: tf.Tensor, unknown: tf.Tensor | str = "", separator: str = ""
) -> tf.Tensor:
    """Joins the texts of each row of ids; `unknown` stands for ids out of range."""
    flat, last = ids.flat_values, tf.size(texts) - 1
    found = tf.gather(texts, tf.clip_by_value(flat, 0, last))
    found = tf.where((flat >= 0) & (flat <= last), found, unknown)
    return tf.strings.reduce_join(ids.with_flat_values(found), axis=1, separator=separator)
