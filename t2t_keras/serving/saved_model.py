"""A SavedModel in this process, called as if it were served."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from t2t_keras.errors import UserError
from t2t_keras.serving.client import Signature, choose, from_types


class SavedModel:
    """A SavedModel on this machine.

    Args:
        directory: of the SavedModel, or of its versions, of which the highest is taken, as
            TensorFlow Serving does.

    Raises:
        UserError: there is none, or it cannot be loaded.
    """

    def __init__(self, directory: str):
        self.directory = _version(directory)
        import tensorflow as tf

        try:
            # Its functions die with the object, so that is kept.
            self._loaded = tf.saved_model.load(self.directory)
        except (OSError, ValueError, tf.errors.OpError) as error:
            reason = str(error).split("\n", 1)[0]
            raise UserError(f"{self.directory} cannot be loaded: {reason}.") from error

    def signature(self, name: str) -> Signature:
        """The signature of this name, or UserError with those that there are."""
        functions = self._loaded.signatures

        def types(tensors):
            kinds = {key: tensor.dtype.name for key, tensor in tensors.items()}
            return {key: f"DT_{kind.upper()}" for key, kind in kinds.items()}

        signatures = {
            key: from_types(
                types(function.structured_input_signature[1]), types(function.structured_outputs)
            )
            for key, function in functions.items()
        }
        return choose(signatures, name, self.directory)

    def predict(
        self, name: str, signature: Signature, inputs: Mapping[str, Sequence[bytes]]
    ) -> dict[str, Any]:
        """Calls a signature with strings; returns its outputs as arrays.

        Raises:
            UserError: the model refuses the inputs.
        """
        import tensorflow as tf

        tensors = {
            key: tf.constant(list(values), tf.string, [len(values)])
            for key, values in inputs.items()
        }
        try:
            outputs = self._loaded.signatures[name](**tensors)
        except tf.errors.OpError as error:
            raise UserError(f"{self.directory}: {_reason(error.message)}") from error
        return {key: tensor.numpy() for key, tensor in outputs.items()}

    def close(self) -> None:
        """Does nothing: the model goes with this object."""


def _reason(message: str) -> str:
    """What TensorFlow says beside where it happened."""
    where = ("Graph execution error", "Detected at ", "<stack traces", " ", "\t")
    lines = [line for line in message.split("\n") if line and not line.startswith(where)]
    return (lines or [message])[0]


def _version(directory: str) -> str:
    """The directory that holds `saved_model.pb`."""
    if os.path.isfile(os.path.join(directory, "saved_model.pb")):
        return directory
    try:
        names = os.listdir(directory)
    except OSError as error:
        raise UserError(f"{directory} cannot be read: {error.strerror}.") from error
    numbers = [name for name in names if name.isascii() and name.isdigit()]
    for name in sorted(numbers, key=int, reverse=True):
        path = os.path.join(directory, name)
        if os.path.isfile(os.path.join(path, "saved_model.pb")):
            return path
    raise UserError(
        f"{directory} holds no SavedModel and no numbered versions of one: name what "
        "t2t-keras-export has written."
    )
