"""What all text encoders share: the same work on whole tensors, inside a TensorFlow graph."""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from t2t_keras.errors import UserError

if TYPE_CHECKING:
    import tensorflow as tf


class TensorEncoder(abc.ABC):
    """An encoder of single texts that also takes tensors, with equal results.

    `graph` is made when first needed and not pickled.
    """

    @abc.abstractmethod
    def encode(self, text: str) -> list[int]:
        """Returns the ids of `text`."""

    @abc.abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of ids."""

    @abc.abstractmethod
    def _make_graph(self) -> Any:
        """Makes what `graph` holds."""

    @functools.cached_property
    def graph(self) -> Any:
        """The encoder as a `tf.Module` with the functions `encode` and `decode`.

        A `tf.Module` that is saved with `tf.saved_model.save` and calls `encode_tensor` or `decode_tensor`
        must hold it as an attribute, for the sake of its lookup table. Loading needs TensorFlow alone.
        """
        import tensorflow as tf

        with tf.init_scope(), tf.device("CPU:0"):
            return self._make_graph()

    def encode_tensor(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Encodes `[B]` strings, eagerly or in a graph.

        Args:
            strings: UTF-8; bytes that are not are left out, as in T2T.

        Returns:
            Ids, `[B, None]` int32.

        Raises:
            UserError: not a vector of strings, or `encode` refuses one of them. Within a graph,
                `tf.errors.InvalidArgumentError` stands for the latter.
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
                self.encode(text.decode("utf-8", "ignore"))  # says what is wrong
            raise

    def decode_tensor(self, ids: tf.RaggedTensor | tf.Tensor) -> tf.Tensor:
        """Decodes rows of ids, eagerly or in a graph.

        Args:
            ids: int32, ragged `[B, None]` or dense `[B, L]`; nothing is special about 0 and 1.

        Returns:
            UTF-8, `[B]` strings. A surrogate, which UTF-8 does not have, shows as U+FFFD.

        Raises:
            UserError: other shapes or types, or `decode` refuses an id. Within a graph,
                `tf.errors.InvalidArgumentError` stands for the latter.
        """
        import tensorflow as tf

        if not isinstance(ids, tf.RaggedTensor):
            ids = tf.convert_to_tensor(ids)
        if ids.dtype != tf.int32 or ids.shape.rank != 2:
            raise UserError(
                f"decode_tensor got {ids.dtype.name} of shape {ids.shape}; "
                "it takes rows of int32, ragged [B, None] or dense [B, L]."
            )
        if not isinstance(ids, tf.RaggedTensor):
            ids = tf.RaggedTensor.from_tensor(ids)
        try:
            return self.graph.decode(ids.with_row_splits_dtype(tf.int64))
        except tf.errors.InvalidArgumentError:
            for row in ids.to_list():
                self.decode(row)  # says what is wrong
            raise

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "graph"}
