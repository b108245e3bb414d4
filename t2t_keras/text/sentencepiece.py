"""SentencePiece vocabularies, unigram and byte-pair. They need the optional package `sentencepiece`."""

from __future__ import annotations

import functools
import io
import os
import tempfile
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from t2t_keras.errors import UserError, explained, importing, require_one_of, require_several
from t2t_keras.ids import EOS_ID, PAD_ID, RESERVED_TOKENS
from t2t_keras.text.encoders import TensorEncoder
from t2t_keras.text.lines import require_unique

if TYPE_CHECKING:
    import tensorflow as tf

MODEL_TYPES = ("unigram", "bpe")  # that can be built
UNKNOWN = " \u2047 "  # a model's text for an unknown character, unless it has its own

_SPACE = "\u2581"  # represents a space in a piece
_BYTES_FROM = 1024  # vocabulary size; smaller ones cannot afford 256 byte tokens
_LONGEST_LINE = {"unigram": 2**20, "bpe": 2**16 - 1}  # bytes; longer lines would abort BPE
_SEEDED = threading.Lock()  # SentencePiece's random generator is global to the process


class SentencePieceEncoder(TensorEncoder):
    """Text as ids of the pieces of a SentencePiece model (Kudo and Richardson 2018).

    Id 0 is padding and 1 the end of sentence, which is not appended. A model with other ids, such as
    SentencePiece's defaults, is renumbered: its other pieces follow these two in their order. Both ids,
    and ids out of range, decode to no text.

    `encode_tensor` calls an op of tensorflow-text, which a program must import before it loads a
    SavedModel with it. `decode` and `decode_tensor` are SentencePiece's, except that at most one space
    is removed from the beginning.
    """

    def __init__(self, filename: str | os.PathLike[str]):
        """Reads a model file; raises UserError if it is none, or if the package is missing."""
        with explained(f"Cannot read {os.fspath(filename)}", OSError), open(filename, "rb") as file:
            model = file.read()
        self._set_model(model, os.fspath(filename))

    @classmethod
    def build_from_generator(
        cls,
        generator: Iterable[str],
        target_size: int,
        model_type: str = "unigram",
        reserved_tokens: Sequence[str] = (),
    ) -> SentencePieceEncoder:
        """Builds a model from lines of text, which is not normalised.

        In a vocabulary of 1,024 tokens or more, 256 of them are bytes, so any text without U+2581
        round-trips; in a smaller one unknown characters are lost.

        Args:
            generator: lines of text.
            target_size: number of tokens; fewer if the text does not yield that many.
            model_type: one of `MODEL_TYPES`.
            reserved_tokens: strings, such as "<2de>", that are always one token.

        Raises:
            UserError: there is no text, its characters do not fit into the size, or the package is missing.
        """
        require_several("generator", generator)
        train = import_sentencepiece().SentencePieceTrainer.train
        require_one_of("the type of a SentencePiece model", model_type, MODEL_TYPES)
        require_unique([*RESERVED_TOKENS, *reserved_tokens], "reserved_tokens", "place")
        with_bytes = target_size >= _BYTES_FROM
        model = io.BytesIO()
        raised: list[BaseException] = []

        def lines():
            try:
                yield from (line.encode("utf-8", "ignore") for line in generator)
            except (Exception, KeyboardInterrupt, SystemExit) as error:
                raised.append(error)  # SentencePiece would take it for the end of the text

        with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
            # Without any rule tensorflow-text would print a message to standard error at every start.
            rules.write("FFFE\tFFFD\n")  # U+FFFE is not a character
            rules.flush()
            try:
                train(
                    sentence_iterator=lines(),
                    model_writer=model,
                    vocab_size=target_size,
                    hard_vocab_limit=False,
                    model_type=model_type,
                    pad_id=PAD_ID,
                    eos_id=EOS_ID,
                    unk_id=EOS_ID + 1,
                    bos_id=-1,
                    pad_piece=RESERVED_TOKENS[PAD_ID],
                    eos_piece=RESERVED_TOKENS[EOS_ID],
                    user_defined_symbols=list(reserved_tokens),
                    byte_fallback=with_bytes,
                    character_coverage=0.9995 if with_bytes else 1.0,
                    normalization_rule_tsv=rules.name,
                    remove_extra_whitespaces=False,
                    max_sentence_length=_LONGEST_LINE[model_type],
                    minloglevel=2,
                )
            except (RuntimeError, ValueError, OSError) as error:
                if not raised:
                    # Without its advice on an option that a command of its own has.
                    reason = str(error).rpartition("] ")[2].partition(" or decrease ")[0]
                    what = f"No SentencePiece model of {target_size} tokens can be built"
                    raise UserError(f"{what}: {reason or 'there is no text'}") from error
        if raised:
            raise raised[0]
        encoder = cls.__new__(cls)
        encoder._set_model(model.getvalue(), "the new model")
        # The same text must give the same file.
        encoder._processor.override_normalizer_spec(normalization_rule_tsv="")
        encoder._model = encoder._processor.serialized_model_proto()
        return encoder

    def _set_model(self, model: bytes, name: str) -> None:
        from google.protobuf.message import DecodeError

        self._model = model
        self._processor = processor = import_sentencepiece().SentencePieceProcessor()
        try:
            if any(b"\0" in text for piece in _field_1(model) for text in _field_1(piece)):
                raise ValueError("a piece has a zero byte")  # which would abort the process
            processor.LoadFromSerializedProto(model)
            pieces = processor.encode("a", out_type=str) or [""]
            reserved = (processor.pad_id(), processor.eos_id())
            others = [i for i in range(processor.vocab_size()) if i not in reserved]
            self._entries = [b"", b"", *map(self._text, others)]
        except (RuntimeError, ValueError, DecodeError) as error:
            raise UserError(f"{name} is not a model of SentencePiece, or is damaged.") from error
        if pieces[-1].endswith(_SPACE):
            raise UserError(
                f"{name} puts spaces at the end of pieces (treat_whitespace_as_suffix), "
                "which is not supported: train it without that option."
            )
        self._begins_with_space = pieces[0].startswith(_SPACE)
        self._theirs = [*reserved, *others]  # SentencePiece's id by our id; -1: none
        ours = {theirs: i for i, theirs in enumerate(self._theirs)}
        renumbered = self._theirs != list(range(processor.vocab_size()))
        self._ours = [ours[i] for i in range(processor.vocab_size())] if renumbered else None

    def _text(self, piece: int) -> bytes:
        processor = self._processor
        spelled = processor.id_to_piece(piece)
        if processor.is_byte(piece):
            return bytes([int(spelled[1:-1], 16)])
        if processor.is_unknown(piece):
            return processor.decode([piece]).encode()
        return b"" if processor.is_control(piece) else spelled.replace(_SPACE, " ").encode()

    def subtoken(self, subtoken_id: int) -> str:
        """Returns the piece with this id, with U+2581 for spaces; "" for an id out of range."""
        if subtoken_id in (PAD_ID, EOS_ID):
            return RESERVED_TOKENS[subtoken_id]
        known = 0 <= subtoken_id < self.vocab_size
        return self._processor.id_to_piece(self._theirs[subtoken_id]) if known else ""

    def encode(self, text: str) -> list[int]:
        """Returns the ids of `text`, without end of sentence."""
        return self._numbered(self._processor.encode(text.encode("utf-8", "ignore")))

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of ids, with U+FFFD for bytes that are not UTF-8."""
        text = b"".join(self._entries[i] for i in ids if i in range(self.vocab_size))
        if self._begins_with_space:
            text = text.removeprefix(b" ")
        return text.decode("utf-8", "replace")

    def sample(self, texts: Sequence[bytes], amount: float, seed: int) -> list[list[int]]:
        """Returns random segmentations of UTF-8 texts, reproducible by a seed from 0 to 2**32 - 1.

        `amount` is, for a unigram model, the exponent of the probabilities when all segmentations are sampled
        (Kudo 2018); for byte pairs, the probability of dropping a merge (Provilkov et al. 2020).
        """
        with _SEEDED:
            import_sentencepiece().set_random_generator_seed(seed)
            options = {"alpha": amount, "nbest_size": -1, "num_threads": 1}
            rows = self._processor.encode(list(texts), enable_sampling=True, **options)
        return list(map(self._numbered, rows))

    samples = True

    def sample_tensor(self, strings: tf.Tensor, amount: float, seed: tf.Tensor) -> tf.RaggedTensor:
        """`sample` for `[B]` strings in a tf.data pipeline; returns `[B, None]` int32."""
        import numpy as np
        import tensorflow as tf

        def sampled(strings, seed):
            rows = self.sample(strings.tolist(), amount, int(seed))
            flat = [i for row in rows for i in row]
            return np.array(flat, np.int32), np.array([len(row) for row in rows], np.int64)

        parts = tf.numpy_function(sampled, [strings, seed], [tf.int32, tf.int64])
        flat, lengths = (tf.ensure_shape(part, [None]) for part in parts)
        return tf.RaggedTensor.from_row_lengths(flat, lengths, validate=False)

    def store_to_file(self, filename: str | os.PathLike[str]) -> None:
        """Writes the model unchanged."""
        with open(filename, "wb") as file:
            file.write(self._model)

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self._model}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set_model(state["model"], "the model")

    def _make_graph(self, modules):
        parts = self._model, self._entries, self._ours, self._begins_with_space
        return modules.SentencePieceGraph(*parts)

    def _numbered(self, pieces: list[int]) -> list[int]:
        return [self._ours[i] for i in pieces] if self._ours else pieces


def _field_1(message: bytes) -> list[bytes]:
    """Returns field 1 of a protobuf message: of a model, its pieces; of a piece, its text."""
    from google.protobuf import empty_pb2, unknown_fields

    fields = unknown_fields.UnknownFieldSet(empty_pb2.Empty.FromString(message))
    return [each.data for each in fields if (each.field_number, each.wire_type) == (1, 2)]


@functools.cache
def import_sentencepiece():
    """Returns the package `sentencepiece`, or raises UserError if it is missing."""
    with importing("SentencePiece is missing", "pip install 't2t-keras[sentencepiece]'"):
        import sentencepiece
    return sentencepiece
