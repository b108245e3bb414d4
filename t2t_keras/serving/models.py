"""Models that answer requests: in TensorFlow Serving, by REST or gRPC, or in this process."""

from __future__ import annotations

import abc
import base64
import concurrent.futures
import http
import http.client
import json
import math
import os
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from t2t_keras.errors import UserError, nearest
from t2t_keras.files import Kind, parse_json

ANSWER_BYTES = 2**24
"""Maximal size of an answer; parsed JSON takes twenty times as much memory."""

_SHOWN = 300  # characters of a server's message
_BLOCK = 2**16

_TENSORS = {str: {"dtype?": str}}
_SIGNATURES = {str: {"inputs?": _TENSORS, "outputs?": _TENSORS}}
_METADATA = {"metadata": {"signature_def": {"signature_def": _SIGNATURES}}}
"""The kind (see `files.Kind`) of TensorFlow Serving's answer about signatures."""


def connect(server: str, name: str, timeout: float = 10.0) -> Model:
    """Returns a model that TensorFlow Serving serves; sends no request yet.

    Args:
        server: "HOST:PORT" for gRPC; "http://HOST:PORT" or https for REST.
        name: the name of the model.
        timeout: seconds that a request may take.

    Raises:
        UserError: the address has neither form, or the package for gRPC is missing.
    """
    if re.fullmatch(r"https?://[^/\s]+/?", server):
        return RestModel(server.rstrip("/"), name, timeout)
    if re.fullmatch(r"[^/\s]+:\d{1,5}", server):
        return GrpcModel(server, name, timeout)
    raise UserError(
        f"--server must be HOST:PORT for gRPC or http://HOST:PORT for REST, got {server!r}."
    )


class Signature(NamedTuple):
    """A signature of a SavedModel: names of its inputs and outputs."""

    inputs: dict[str, bool]  # True for an input that takes strings
    outputs: tuple[str, ...]


class Model(abc.ABC):
    """A model with signatures."""

    def __init__(self, place: str):
        self.place = place

    def signature(self, name: str) -> Signature:
        """Returns the signature with this name.

        Raises:
            UserError: there is no answer, no such model or signature, or the server is not TensorFlow
                Serving.
        """
        found = self.types()
        if name not in found:
            existing = ", ".join(sorted(n for n in found if not n.startswith("__")))
            raise UserError(
                f"{self.place} has no signature {name!r}; it has: {existing or 'none'}."
                f"{nearest(name, found)}"
            )
        inputs, outputs = found[name]
        return Signature({key: kind == "DT_STRING" for key, kind in inputs.items()}, tuple(outputs))

    @abc.abstractmethod
    def types(self) -> Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]]:
        """Returns the types of the inputs and of the outputs of each signature, such as "DT_STRING"."""

    @abc.abstractmethod
    def predict(
        self, name: str, signature: Signature, inputs: Mapping[str, Sequence[bytes]]
    ) -> dict[str, Any]:
        """Calls a signature with strings; returns its outputs as arrays or nested lists.

        Raises:
            UserError: there is no answer in time, or the model rejects the inputs.
        """

    def close(self) -> None:  # noqa: B027 - only gRPC has something to close
        """Closes the connection, if any."""


class ServerModel(Model):
    """A model on a server, with the errors that both protocols share."""

    port_hint: str

    def __init__(self, server: str, name: str, timeout: float):
        super().__init__(f"{name!r} at {server}")
        self.server = server
        self.name = name
        self.timeout = timeout

    def timed_out(self) -> UserError:
        """Returns the error for a request without an answer."""
        return UserError(
            f"{self.server} has not answered within {self.timeout:g} seconds: "
            "raise --timeout_secs, or check the server."
        )

    def no_connection(self, reason: Any) -> UserError:
        """Returns the error for an address at which nothing listens."""
        return UserError(
            f"no connection to {self.server} ({reason}): is TensorFlow Serving running there, "
            f"{self.port_hint}?"
        )

    def not_serving(self, details: str = "") -> UserError:
        """Returns the error for an answer that TensorFlow Serving would not give."""
        return UserError(
            f"{self.server} does not answer like TensorFlow Serving{details and ': '}{details}."
        )

    def refused(self, message: Any) -> UserError:
        """Returns the error for a request that the server rejects."""
        return UserError(f"{self.place}: {str(message)[:_SHOWN]}")


class RestModel(ServerModel):
    """A model behind TensorFlow Serving's REST API; needs only the standard library."""

    port_hint = "with --rest_api_port"

    def types(self) -> dict[str, tuple[dict[str, str], dict[str, str]]]:
        def dtypes(definition, side):
            return {key: info.get("dtype", "") for key, info in definition.get(side, {}).items()}

        definitions = self._ask("/metadata", None, _METADATA)["metadata"]["signature_def"]
        return {
            name: (dtypes(definition, "inputs"), dtypes(definition, "outputs"))
            for name, definition in definitions["signature_def"].items()
        }

    def predict(
        self, name: str, signature: Signature, inputs: Mapping[str, Sequence[bytes]]
    ) -> dict[str, Any]:
        strings = {
            key: [{"b64": base64.b64encode(value).decode()} for value in values]
            for key, values in inputs.items()
        }
        body = {"signature_name": name, "inputs": strings}
        # TensorFlow Serving omits the name of a single output.
        is_one = len(signature.outputs) == 1
        outputs = self._ask(":predict", body, {"outputs": object if is_one else dict})["outputs"]
        return {signature.outputs[0]: outputs} if is_one else outputs

    def _ask(self, path: str, body: Any, kind: Kind) -> Any:
        """Sends a request (POST if it has a body); returns the answer's JSON, checked against `kind`."""
        url = f"{self.server}/v1/models/{urllib.parse.quote(self.name, safe='')}{path}"
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(
                url, data, {"Content-Type": "application/json"} if data else {}
            )
            code, reason, content = self._answer(request)
        except http.client.HTTPException as error:
            raise self.not_serving() from error
        except (OSError, ValueError) as error:
            cause = getattr(error, "reason", error)
            timed_out = isinstance(cause, TimeoutError)
            raise self.timed_out() if timed_out else self.no_connection(cause) from error
        if code != http.HTTPStatus.OK:
            raise self._http_error(code, reason, content)
        try:
            return parse_json(content, kind, "its answer")
        except UserError as error:
            raise self.not_serving(str(error).rstrip(".")) from error

    def _answer(self, request: urllib.request.Request) -> tuple[int, str, bytes]:
        """Sends a request; returns code, reason and content of the answer, within `timeout` in total.

        It reads in a separate thread, because a socket's timeout applies only to each single read.
        """
        answer: concurrent.futures.Future = concurrent.futures.Future()

        def ask() -> None:
            try:
                answer.set_result(self._receive(request))
            except Exception as error:
                answer.set_exception(error)

        threading.Thread(target=ask, daemon=True).start()
        try:
            return answer.result(self.timeout)
        except concurrent.futures.TimeoutError as error:
            raise TimeoutError from error  # the same class only since Python 3.11

    def _receive(self, request: urllib.request.Request) -> tuple[int, str, bytes]:
        deadline = time.monotonic() + self.timeout
        try:
            response = urllib.request.urlopen(request, timeout=self.timeout)
        except urllib.error.HTTPError as error:
            response = error
        content = bytearray()
        with response:
            while block := response.read1(_BLOCK):
                content += block
                if len(content) > ANSWER_BYTES:
                    raise self.refused(f"the answer is longer than {ANSWER_BYTES:,} bytes")
                if time.monotonic() > deadline:
                    raise TimeoutError
        return response.status, response.reason, bytes(content)

    def _http_error(self, code: int, reason: str, content: bytes) -> UserError:
        try:
            return self.refused(parse_json(content, {"error": str}, "")["error"])
        except UserError:
            return UserError(
                f"{self.server} answers with {code} {reason[:_SHOWN]}, unlike TensorFlow "
                "Serving: is this the port of its --rest_api_port?"
            )


class GrpcModel(ServerModel):
    """A model behind TensorFlow Serving's gRPC API; needs the package tensorflow-serving-api.

    Raises:
        UserError: the package is missing.
    """

    port_hint = "and is this its gRPC port"

    def __init__(self, server: str, name: str, timeout: float):
        super().__init__(server, name, timeout)
        try:
            import grpc
            from tensorflow_serving.apis import prediction_service_pb2_grpc
        except ImportError as error:
            raise UserError(
                f"gRPC needs tensorflow-serving-api ({error}): pip install 't2t-keras[serving]', "
                "or give the REST address, --server=http://HOST:8501."
            ) from error
        limits = {
            "grpc.max_send_message_length": -1,
            "grpc.max_receive_message_length": ANSWER_BYTES,
        }
        self._channel = grpc.insecure_channel(server, [*limits.items()])
        self._service = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)

    def types(self) -> dict[str, tuple[dict[str, str], dict[str, str]]]:
        from google.protobuf.message import DecodeError
        from tensorflow.core.framework import types_pb2
        from tensorflow_serving.apis import get_model_metadata_pb2

        def dtypes(tensors):
            return {key: types_pb2.DataType.Name(info.dtype) for key, info in tensors.items()}

        request = get_model_metadata_pb2.GetModelMetadataRequest()
        request.model_spec.name = self.name
        request.metadata_field.append("signature_def")
        answer = self._call(self._service.GetModelMetadata, request)
        found = get_model_metadata_pb2.SignatureDefMap()
        try:
            if not answer.metadata["signature_def"].Unpack(found):
                raise self.not_serving("its answer has no metadata.signature_def")
            return {
                name: (dtypes(definition.inputs), dtypes(definition.outputs))
                for name, definition in found.signature_def.items()
            }
        except (ValueError, DecodeError) as error:  # a type that TensorFlow does not have
            raise self.not_serving(f"metadata.signature_def: {error}") from error

    def predict(
        self, name: str, signature: Signature, inputs: Mapping[str, Sequence[bytes]]
    ) -> dict[str, Any]:
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest()
        request.model_spec.name = self.name
        request.model_spec.signature_name = name
        for key, values in inputs.items():
            tensor = tf.make_tensor_proto(list(values), tf.string, [len(values)])
            request.inputs[key].CopyFrom(tensor)
        answer = self._call(self._service.Predict, request)
        return {key: self._array(key, tensor) for key, tensor in answer.outputs.items()}

    def _array(self, key: str, tensor) -> Any:
        import tensorflow as tf

        sizes = [dimension.size for dimension in tensor.tensor_shape.dim]
        # A tensor may give one value for all its elements, so a short answer can be huge.
        if min(sizes, default=0) < 0 or math.prod(sizes) > ANSWER_BYTES:
            raise self.not_serving(f"outputs.{key} has the shape {sizes}")
        try:
            return tf.make_ndarray(tensor)
        except (ValueError, TypeError) as error:
            raise self.not_serving(f"outputs.{key}: {error}") from error

    def close(self) -> None:
        self._channel.close()

    def _call(self, method, request):
        import grpc

        try:
            return method(request, self.timeout)
        except grpc.RpcError as error:
            code, details = error.code(), str(error.details())[:_SHOWN]
            known = {
                grpc.StatusCode.DEADLINE_EXCEEDED: self.timed_out(),
                grpc.StatusCode.UNAVAILABLE: self.no_connection(details),
                grpc.StatusCode.UNIMPLEMENTED: self.not_serving(details),
            }
            raise known.get(code) or self.refused(f"{details} ({code.name})") from error


class SavedModel(Model):
    """A SavedModel in this process, with the interface of a served model.

    Args:
        directory: the directory of the SavedModel or, as in TensorFlow Serving, of its numbered
            versions; the highest is used.

    Raises:
        UserError: there is no SavedModel, or it cannot be loaded.
    """

    def __init__(self, directory: str):
        self.directory = _version(directory)
        super().__init__(self.directory)
        import tensorflow as tf

        try:
            with open(os.path.join(self.directory, "saved_model.pb"), "rb") as file:
                if b"SentencepieceTokenizeOp" in file.read():
                    import tensorflow_text  # noqa: F401 - registers the op
            # The reference keeps its functions alive.
            self._loaded = tf.saved_model.load(self.directory)
        except (OSError, ValueError, tf.errors.OpError) as error:
            reason = str(error).split("\n", 1)[0]
            raise UserError(f"{self.directory} cannot be loaded: {reason}.") from error

    def types(self) -> dict[str, tuple[dict[str, str], dict[str, str]]]:
        def dtypes(tensors):
            return {key: f"DT_{tensor.dtype.name.upper()}" for key, tensor in tensors.items()}

        return {
            name: (
                dtypes(function.structured_input_signature[1]),
                dtypes(function.structured_outputs),
            )
            for name, function in self._loaded.signatures.items()
        }

    def predict(
        self, name: str, signature: Signature, inputs: Mapping[str, Sequence[bytes]]
    ) -> dict[str, Any]:
        import tensorflow as tf

        tensors = {
            key: tf.constant(list(values), tf.string, [len(values)])
            for key, values in inputs.items()
        }
        try:
            outputs = self._loaded.signatures[name](**tensors)
        except tf.errors.OpError as error:
            raise UserError(f"{self.directory}: {_reason(error.message)}") from error
        except UnicodeDecodeError as error:  # TensorFlow's message quotes the request's bytes
            raise UserError(f"{self.directory} rejects the request.") from error
        return {key: tensor.numpy() for key, tensor in outputs.items()}


def _reason(message: str) -> str:
    """Returns TensorFlow's message without its stack traces."""
    where = ("Graph execution error", "Detected at ", "<stack traces", " ", "\t")
    lines = [line for line in message.split("\n") if line and not line.startswith(where)]
    return (lines or [message])[0]


def _version(directory: str) -> str:
    """Returns the directory that contains `saved_model.pb`: this one, or its highest version."""
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
        f"{directory} contains neither a SavedModel nor numbered versions of one: give a directory "
        "that t2t-keras-export has written."
    )
