"""Text encoders (text to ids and back) for bytes, listed tokens and T2T's subwords."""

from __future__ import annotations

import abc
import bisect
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from t2t_keras.errors import UserError, require_one_of, require_several
from t2t_keras.files import content_digest
from t2t_keras.ids import RESERVED_TOKENS, strip_ids
from t2t_keras.t2t_names import is_users_own
from t2t_keras.text import lines, subword_builder, tokenizer
from t2t_keras.text.tokenizer import ESCAPE_CHARACTERS, escape, unescape

if TYPE_CHECKING:
    import tensorflow as tf

_BYTES = [token.encode() for token in RESERVED_TOKENS] + [bytes([byte]) for byte in range(256)]
_CACHED = 2**17  # tokens
_LONGEST_CACHED = 64  # characters


class TensorEncoder(abc.ABC):
    """Base class of text encoders, which work on strings and, with the same results, on tensors.

    Tensors may be eager or in a graph. What raises a `UserError` eagerly because of the tensor's values
    raises `tf.errors.InvalidArgumentError` in a graph. `graph` is built when first used and is not pickled.
    """

    samples = False
    """True if `sample_tensor` draws one of several ways to split a text."""

    num_reserved_ids: int = len(RESERVED_TOKENS)
    _entries: Sequence[Any]  # the vocabulary, in the order of the ids

    @property  # which classes of users replace
    def vocab_size(self) -> int:
        """The number of ids, including those of padding and end of sentence."""
        return len(self._entries)

    @abc.abstractmethod
    def encode(self, text: str) -> list[int]:
        """Returns the ids of `text`."""

    @abc.abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of `ids`."""

    def decode_list(self, ids: Iterable[int]) -> list:
        """Returns the text of each id (T2T's name)."""
        return [self.decode([i]) for i in ids]

    @abc.abstractmethod
    def _make_graph(self, modules: ModuleType) -> Any:
        """Returns the `tf.Module` that `graph` caches, one of `t2t_keras.text.graph`."""

    @functools.cached_property
    def graph(self) -> Any:
        """The encoder as a `tf.Module` with the functions `encode` and `decode`.

        To be saved, a `tf.Module` that calls `encode_tensor` or `decode_tensor` must keep it as an
        attribute, for its tables. Loading needs only TensorFlow (SentencePiece: tensorflow-text).
        """
        import tensorflow as tf

        from t2t_keras.text import graph

        with tf.init_scope(), tf.device("CPU:0"):
            return self._make_graph(graph)

    def encode_tensor(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Encodes `[B]` strings as ids, `[B, None]` int32. Drops invalid UTF-8, as in T2T.

        Raises:
            UserError: not a vector of strings, or a string that cannot be encoded.
        """
        import tensorflow as tf

        strings = tf.convert_to_tensor(strings)
        if strings.dtype != tf.string or strings.shape.rank not in (1, None):
            raise UserError(
                f"encode_tensor got {strings.dtype.name} of shape {strings.shape}; "
                "it takes a vector of strings, [B]."
            )
        try:
            return self.graph.encode(strings)
        except tf.errors.InvalidArgumentError:
            for text in strings.numpy():
                self.encode(text.decode("utf-8", "ignore"))  # raises a UserError
            raise

    def decode_tensor(self, ids: tf.RaggedTensor | tf.Tensor) -> tf.Tensor:
        """Decodes int32 ids, ragged `[B, None]` or dense `[B, L]`, to `[B]` UTF-8 strings.

        0 and 1 are decoded like other ids; surrogates become U+FFFD.

        Raises:
            UserError: other shapes or types, or an id that cannot be decoded.
        """
        import tensorflow as tf

        ids = ids if isinstance(ids, tf.RaggedTensor) else tf.convert_to_tensor(ids)
        if ids.dtype != tf.int32 or ids.shape.rank != 2:
            raise UserError(
                f"decode_tensor got {ids.dtype.name} of shape {ids.shape}; "
                "it takes rows of int32, ragged [B, None] or dense [B, L]."
            )
        rows = ids if isinstance(ids, tf.RaggedTensor) else tf.RaggedTensor.from_tensor(ids)
        try:
            return self.graph.decode(rows.with_row_splits_dtype(tf.int64))
        except tf.errors.InvalidArgumentError:
            for row in rows.to_list():
                self.decode(row)  # raises a UserError
            raise

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "graph"}


class ByteTextEncoder(TensorEncoder):
    """UTF-8 bytes as ids 2 to 257 (T2T: `ByteTextEncoder`)."""

    _entries = _BYTES

    def encode(self, text: str) -> list[int]:
        """Returns one id per byte; half of a surrogate pair has none."""
        return [byte + len(RESERVED_TOKENS) for byte in text.encode("utf-8", "ignore")]

    def decode(self, ids: Iterable[int], strip_extraneous: bool = False) -> str:
        """Returns the text; ids 0 and 1 become `<pad>` and `<EOS>`, invalid UTF-8 U+FFFD.

        Raises:
            UserError: an id is not in 0 to 257.
        """
        ids = strip_ids(ids) if strip_extraneous else list(ids)
        for i in ids:
            if not 0 <= i < len(_BYTES):
                raise UserError(f"Byte id {i} is out of range; 0 to {len(_BYTES) - 1} are allowed.")
        return b"".join(_BYTES[i] for i in ids).decode("utf-8", "replace")

    def _make_graph(self, modules):
        return modules.ByteGraph(_BYTES)


class TokenTextEncoder(TensorEncoder):
    """White-space-separated tokens as ids (T2T: `TokenTextEncoder`)."""

    def __init__(
        self,
        vocab_filename: str | os.PathLike[str] | None = None,
        reverse: bool = False,
        vocab_list: Sequence[str] | None = None,
        replace_oov: str | None = None,
        num_reserved_ids: int = len(RESERVED_TOKENS),
    ):
        """Takes the tokens from a file, one per line, or a list, to which it adds `<pad>`, `<EOS>`.

        `replace_oov` is the token that stands for unknown ones. A token that is listed twice has the last
        of its ids. With `reverse`, the last token comes first. A file that is no vocabulary is a UserError.
        """
        self.num_reserved_ids = num_reserved_ids
        if vocab_filename is not None:
            self._entries = lines.read_vocabulary(vocab_filename, of_subwords=False)
        elif vocab_list is not None:
            require_several("vocab_list", vocab_list)
            listed = [token for token in vocab_list if token not in RESERVED_TOKENS]
            self._entries = [*RESERVED_TOKENS, *listed]
        else:
            raise UserError("TokenTextEncoder got no tokens: give vocab_filename or vocab_list.")
        self._token_to_id = {token: i for i, token in enumerate(self._entries)}  # T2T's names
        self.replace_oov, self._replace_oov, self._reverse = replace_oov, replace_oov, reverse
        self._replacement = None if replace_oov is None else self._token_to_id.get(replace_oov)

    def encode(self, text: str) -> list[int]:
        """Returns one id per token; raises UserError for an unknown one, if `replace_oov` is not known."""
        ids = []
        for token in text.split():
            token_id = self._token_to_id.get(token, self._replacement)
            if token_id is None:
                raise UserError(
                    f"Token {token!r} is not in the vocabulary of {self.vocab_size} tokens; "
                    "add it, or name a replacement that is there."
                )
            ids.append(token_id)
        return ids[::-1] if self._reverse else ids

    def decode(self, ids: Iterable[int], strip_extraneous: bool = False) -> str:
        """Returns the tokens, joined by single spaces; an unknown id 7 becomes `ID_7`."""
        ids = strip_ids(ids, range(self.num_reserved_ids)) if strip_extraneous else ids
        return " ".join(self.decode_list(ids))

    def decode_list(self, ids: Iterable[int]) -> list[str]:
        """Returns the tokens that `decode` joins."""
        known, ids = range(self.vocab_size), list(ids)[:: -1 if self._reverse else 1]
        return [self._entries[i] if i in known else f"ID_{i}" for i in ids]

    def store_to_file(self, filename: str | os.PathLike[str]) -> None:
        """Writes the vocabulary, one token per line."""
        lines.write_lines(filename, self._entries)

    def _make_graph(self, modules):
        if self._reverse:
            raise UserError("reversed tokens are not encoded in graphs: leave out reverse.")
        return modules.TokenGraph(self._entries, self._token_to_id, self._replacement)


class SubwordTextEncoder(TensorEncoder):
    """Lossless encoding of text as subword ids (T2T: `SubwordTextEncoder`).

    Each token of the text (`tokenizer.encode`) is escaped (`tokenizer.escape`), so that it contains
    only characters of the vocabulary, and cut from left to right into the longest subtokens.
    Ids 0 and 1 are padding and end of sentence; the latter is not appended.

    >>> encoder = SubwordTextEncoder("vocab.translate_ende_wmt32k.32768.subwords")
    >>> encoder.encode("Hello, world!")
    [26228, 145, 2, 178, 207]
    """

    def __init__(self, filename: str | os.PathLike[str] | None = None):
        """Reads a vocabulary file: one subtoken per line, in single, double or no quotes; None: no subtokens.

        Raises:
            UserError: the file cannot be read or is not a vocabulary.
        """
        known = [] if filename is None else lines.read_vocabulary(filename, of_subwords=True)
        self._set_subtokens(known)

    @classmethod
    def build_from_generator(
        cls,
        generator: Iterable[str],
        target_size: int,
        max_subtoken_length: int | None = None,
        reserved_tokens: Sequence[str] | None = None,
    ) -> SubwordTextEncoder:
        """Builds a vocabulary of about `target_size` subtokens from lines of text.

        The result equals T2T's, subtoken for subtoken, but that a reserved token is not listed twice:
        T2T's files then lose an id when they are read. A newline is the last, unused subtoken.

        Args:
            generator: lines of text.
            target_size: target number of subtokens; the search stops at the first size within 1 % of it,
                or else takes the nearest size found.
            max_subtoken_length: subtokens have fewer characters (as in T2T); None: at most 1,000.
            reserved_tokens: the tokens with the first ids: `<pad>`, `<EOS>` and others.

        Raises:
            UserError: there is no text, or an argument has an invalid value.
        """
        require_several("generator", generator)
        return cls.build_to_target_size(
            target_size, tokenizer.count(generator), 1, 1000, max_subtoken_length, reserved_tokens
        )

    @classmethod
    def build_to_target_size(
        cls,
        target_size: int,
        token_counts: Mapping[str, int],
        min_val: float,
        max_val: float,
        max_subtoken_length: int | None = None,
        reserved_tokens: Sequence[str] | None = None,
        num_iterations: int = 4,
    ) -> SubwordTextEncoder:
        """Builds a vocabulary of counted tokens (T2T's name).

        The least count of a subtoken is searched from `min_val` to `max_val`. `num_iterations` must be 4.
        """
        if num_iterations != 4:
            raise UserError(f"subwords take 4 iterations, got num_iterations={num_iterations}.")
        limits = int(min_val), int(max_val)
        given = token_counts, target_size, max_subtoken_length, reserved_tokens, limits
        encoder = cls.__new__(cls)
        encoder._set_subtokens(subword_builder.build_to_target_size(*given))
        return encoder

    def build_from_token_counts(
        self,
        token_counts: Mapping[str, int],
        min_count: int,
        num_iterations: int = 4,
        reserved_tokens: Sequence[str] | None = None,
        max_subtoken_length: int | None = None,
    ) -> None:
        """Takes the subtokens that are in counted tokens `min_count` times or more (T2T's name)."""
        given = token_counts, min_count, min_count, max_subtoken_length, reserved_tokens
        self._set_subtokens([*self.build_to_target_size(1, *given, num_iterations)._entries])

    def _set_subtokens(self, subtokens: list[str]) -> None:
        self._entries = subtokens
        self._ids = {subtoken: i for i, subtoken in enumerate(subtokens) if subtoken}
        self._alphabet = ESCAPE_CHARACTERS.union(*subtokens)
        # In order, and for each the place of the longest other that it begins with, at first "".
        self._sorted, self._shorter = ["", *sorted(self._ids)], [0]
        for place, subtoken in enumerate(self._sorted[1:]):
            self._shorter.append(self._prefix_of(subtoken, place))
        self._longest = max(map(len, self._sorted))
        self._recent: dict[str, tuple[int, ...]] = {}
        self._earlier: dict[str, tuple[int, ...]] = {}

    @property
    def all_subtoken_strings(self) -> tuple[str, ...]:
        """All subtokens in the order of their ids."""
        return tuple(self._entries)

    def subtoken(self, subtoken_id: int) -> str:
        """Returns the subtoken with this id; "" for an id out of range."""
        return self._entries[subtoken_id] if 0 <= subtoken_id < self.vocab_size else ""

    _subtoken_id_to_subtoken_string = subtoken  # T2T's name, in its notebooks

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        known = self._recent.get
        for token in tokenizer.encode(text):
            ids += known(token) or self._encode_uncached(token)
        return ids

    def encode_without_tokenizing(self, token_text: str) -> list[int]:
        """Returns the subtoken ids of a text that is one token (T2T's name)."""
        return [*self._encode_uncached(token_text)]

    def decode(self, ids: Iterable[int], strip_extraneous: bool = False) -> str:
        """Returns the text of subtoken ids; ids out of range are ignored."""
        entries, size = self._entries, len(self._entries)
        ids = strip_ids(ids) if strip_extraneous else ids
        spelled = "".join(entries[i] for i in ids if 0 <= i < size)
        tokens = (unescape(token) for token in spelled.split("_"))
        return tokenizer.decode([token for token in tokens if token])

    def decode_list(self, ids: Iterable[int]) -> list[str]:  # of subtokens
        return [*map(self.subtoken, ids)]

    def dump(self) -> None:
        """Prints the vocabulary as T2T does."""
        print(", ".join(f"{i} : '{subtoken}'" for i, subtoken in enumerate(self._entries)))

    def store_to_file(self, filename: str | os.PathLike[str], add_single_quotes=True) -> None:
        """Writes the vocabulary as T2T does, one subtoken per line, with or without single quotes."""
        quote = "'" * add_single_quotes
        lines.write_lines(filename, [f"{quote}{subtoken}{quote}" for subtoken in self._entries])

    def __getstate__(self) -> dict[str, Any]:
        return {"subtokens": self._entries}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set_subtokens(state["subtokens"])

    def _make_graph(self, modules):
        return modules.SubwordGraph(self._entries, self._ids, self._alphabet)

    def _encode_uncached(self, token: str) -> tuple[int, ...]:
        """Encodes a token that is not in the cache `_recent`.

        A full `_recent` becomes `_earlier`; tokens found there move back. So memory is bounded, and
        frequent tokens stay cached.
        """
        ids = self._earlier.get(token) or self._encode_token(token)
        if len(token) <= _LONGEST_CACHED:
            if len(self._recent) >= _CACHED:
                self._earlier, self._recent = self._recent, {}
            self._recent[token] = ids
        return ids

    def _encode_token(self, token: str) -> tuple[int, ...]:
        spelled = escape(token, self._alphabet)
        ids, start = [], 0
        while start < len(spelled):
            subtoken = spelled[start : start + self._longest]
            if subtoken not in self._ids:
                # Its prefixes are before it in the order, and are prefixes of all in between.
                place = bisect.bisect(self._sorted, subtoken) - 1
                subtoken = self._sorted[self._prefix_of(subtoken, place)]
            if not subtoken:
                raise UserError(
                    f"Cannot encode {token!r}: the vocabulary has no subtoken for the single "
                    f"character {spelled[start]!r}; rebuild it, or add that character."
                )
            ids.append(self._ids[subtoken])
            start += len(subtoken)
        return tuple(ids)

    def _prefix_of(self, text: str, place: int) -> int:
        """Returns the place of the longest prefix of `text`: `place`, or that of a shorter one."""
        while not text.startswith(self._sorted[place]):
            place = self._shorter[place]
        return place


class ClassLabelEncoder:
    """Class names as numbers, in the given order (T2T: `ClassLabelEncoder`)."""

    num_reserved_ids = 0

    def __init__(self, class_labels: Iterable[str] | None = None, class_labels_fname: str = ""):
        """Takes the names from a list, or from a file with one per line."""
        stored = lines.iterate_lines(class_labels_fname) if class_labels_fname else ()
        self.class_labels = [*(class_labels or map(str.strip, stored))]
        if len(set(self.class_labels)) < max(2, len(self.class_labels)):
            raise UserError(f"classes need two or more different names, got {self.class_labels}.")

    @property
    def vocab_size(self) -> int:
        """The number of classes."""
        return len(self.class_labels)

    def encode(self, text: str) -> int:
        """Returns the number of the class with this name; raises UserError if there is none."""
        require_one_of("class", text, self.class_labels)
        return self.class_labels.index(text)

    def decode(self, ids: Iterable[int], strip_extraneous: bool = False) -> str:
        """Returns the names of classes, joined by single spaces."""
        return " ".join(self.decode_list(ids))

    def decode_list(self, ids: Any) -> list[str]:
        """Returns the name of each class, of one too; raises UserError for another number."""
        ids = np.ravel(ids).tolist()
        if wrong := [i for i in ids if i not in range(self.vocab_size)]:
            raise UserError(f"class {wrong[0]} is not one of 0 to {self.vocab_size - 1}.")
        return [self.class_labels[i] for i in ids]


class OneHotClassLabelEncoder(ClassLabelEncoder):
    """Class names as rows of zeros with a one (T2T: `OneHotClassLabelEncoder`)."""

    def encode(self, label_str: str, on_value: int = 1, off_value: int = 0) -> Any:
        """Returns the row of a class."""
        chosen = super().encode(label_str)
        return [on_value if i == chosen else off_value for i in range(self.vocab_size)]

    def decode(self, ids: Iterable[int], strip_extraneous: bool = False) -> str:
        """Returns the name of the class of a row."""
        return super().decode([list(ids).index(1)])


class TextEncoder:
    """Base class of users' own encoders of strings (T2T: `TextEncoder`); as it is, of numbers."""

    def __init__(self, num_reserved_ids: int = len(RESERVED_TOKENS)):
        self.num_reserved_ids = self._num_reserved_ids = num_reserved_ids

    def encode(self, s: str) -> list[int]:
        """Returns the number of each word, behind the reserved ids."""
        return [int(word) + self.num_reserved_ids for word in s.split()]

    def decode(self, ids: Iterable[int], strip_extraneous: bool = False) -> str:
        """Returns the texts of ids, joined by single spaces."""
        ids = strip_ids(ids, range(self.num_reserved_ids)) if strip_extraneous else ids
        return " ".join(self.decode_list(ids))

    def decode_list(self, ids: Iterable[int]) -> list[str]:
        """Returns the text of each id."""
        n = self.num_reserved_ids
        return [RESERVED_TOKENS[i] if 0 <= i < n else str(i - n) for i in ids]


class RealEncoder(TextEncoder):
    """Numbers as they are (T2T: `RealEncoder`)."""

    encode = staticmethod(lambda s: [*map(float, s.split())])  # type: ignore[assignment]
    decode_list = staticmethod(lambda ids: [*map(str, ids)])


def require_tensors(encoders: Iterable[Any], what: str) -> None:
    """Raises UserError for an encoder whose `encode` or `decode` is a user's: tensors do not call it."""
    for encoder in encoders:
        kind, label = type(encoder), isinstance(encoder, ClassLabelEncoder)
        own = any(is_users_own(kind, method) for method in ("encode", "decode"))
        if not label and (own or not isinstance(encoder, TensorEncoder)):
            raise UserError(
                f"{what} encodes and decodes tensors, which {kind.__name__} does not: use generated data, "
                "and t2t-keras-decode."
            )


def vocabulary_digest(encoder: Any) -> str:
    """Returns a digest of a vocabulary: of its pieces in the order of their ids, or of its classes."""
    others = range(encoder.vocab_size)  # an encoder of a user may decode whole texts only
    pieces = getattr(encoder, "_entries", getattr(encoder, "class_labels", others))
    return content_digest(repr([*pieces]).encode())


_TABLES = {"inputs": "source_vocab_size", "targets": "target_vocab_size"}


def require_vocabulary(
    model, sizes: Mapping[str, int], run: Mapping[str, Any] | None = None, data_dir: str = ""
) -> str:
    """Checks the sizes of the vocabularies, by side, beside a model's; returns a warning or "".

    For T2T's checkpoints, without sizes in `run` (`run.json`), the model's are known only from the
    embedding tables, to which `vocab_divisor` may add rows; more extra rows are worth a warning.
    """
    for side, tokens in sizes.items():
        rows = getattr(model, _TABLES[side])
        where = f" in {data_dir}" if data_dir else ""
        vocabulary = f"the vocabulary of the {side}{where} has {tokens} tokens and the model"
        if tokens > rows or (run and tokens < rows and _TABLES[side] in run):
            raise UserError(f"{vocabulary} {rows}: give the data the model was trained on.")
        if run is not None and rows - tokens >= model.hp.vocab_divisor:
            return f"{vocabulary}'s table {rows} rows: make sure that the model was trained on it."
    return ""


def spelled(encoder, ids: list[int]) -> list[int]:
    """Returns the ids that have a text; all for a `TokenTextEncoder`, which shows an unknown id as `ID_7`."""
    by_name = isinstance(encoder, TokenTextEncoder)
    return ids if by_name else [i for i in ids if i < encoder.vocab_size]


def tokens(encoder, size: int) -> list[str]:
    """Returns `size` unique strings by id: subtokens or words; `<id 7>` if these are not unique."""
    taken = {name: i for i, name in enumerate(RESERVED_TOKENS)}
    for i in range(len(taken), size):
        name = ""
        if i < encoder.vocab_size:
            of_subwords = isinstance(encoder, SubwordTextEncoder)
            name = encoder.subtoken(i) if of_subwords else encoder.decode([i])
        if not name or name in taken or "\ufffd" in name:
            name = f"<id {i}>"
        while name in taken:
            name += ">"
        taken[name] = i
    return list(taken)
