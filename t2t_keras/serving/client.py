"""Translating with TensorFlow Serving: text in and text out, over REST or gRPC."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from t2t_keras.errors import UserError, nearest
from t2t_keras.ids import EOS_ID, until_eos

# ----------------------------------------------------------------------------
# Text in and text out, whatever a served model takes.


DEFAULT_SIGNATURE = "serving_default"
EXAMPLE_INPUT = "input"
"""What T2T's exports call their serialised `tf.train.Example`s."""


class Answer(NamedTuple):
    """What a model makes of one text."""

    texts: list[str]
    """Hypotheses, best first."""
    scores: list[float]
    """Of each."""
    truncated: bool
    """Whether only a first part of the text was translated."""


class Model(Protocol):
    """What answers: a `RestModel`, `GrpcModel` or `SavedModel`."""

    def signature(self, name: str) -> Signature: ...

    def predict(
        self, name: str, signature: Signature, inputs: Mapping[str, Sequence[bytes]]
    ) -> dict[str, Any]: ...

    def close(self) -> None: ...


def connect(server: str, name: str, timeout: float = 10.0) -> Model:
    """The model that TensorFlow Serving serves under a name.

    Args:
        server: "HOST:PORT" for gRPC, "http://HOST:PORT" or https for REST.
        name: of the model.
        timeout: seconds that a request may take.

    Raises:
        UserError: the address is neither. Whether a server is there, the first request tells.
    """
    if re.fullmatch(r"https?://[^/\s]+/?", server):
        return RestModel(server, name, timeout)
    if re.fullmatch(r"[^/\s]+:\d{1,5}", server):
        return GrpcModel(server, name, timeout)
    raise UserError(
        f"--server must be HOST:PORT for gRPC or http://HOST:PORT for REST, got {server!r}."
    )


class TextClient:
    """Translates text with a model that takes text, or the ids of T2T's exports.

    Args:
        model: what answers.
        signature: the name of the function that is called.
        encoders: "inputs" and "targets" text encoders; needed where the signature takes serialised
            Examples, as those of T2T's exports do.

    Raises:
        UserError: the model has no such signature or none for text, or encoders are missing.
    """

    def __init__(
        self,
        model: Model,
        signature: str = DEFAULT_SIGNATURE,
        encoders: Mapping[str, Any] | None = None,
    ):
        self.model = model
        self.name = signature
        self.signature = model.signature(signature)
        self.encoders = encoders
        self.takes_examples = self.signature.inputs == {EXAMPLE_INPUT: True}
        self._outputs = ("outputs" if self.takes_examples else "translations", "scores")
        takes_text = list(self.signature.inputs.values()) == [True]
        if not takes_text or not set(self._outputs) <= set(self.signature.outputs):
            raise UserError(
                f"signature {signature!r} takes {_listed(self.signature.inputs)} and returns "
                f"{_listed(self.signature.outputs)}: name one that takes text alone, such as "
                "--signature_name=translate, or T2T's Examples."
            )
        if self.takes_examples and encoders is None:
            raise UserError(
                f"signature {signature!r} takes T2T's Examples, which need a vocabulary: give "
                "--problem and --data_dir, or --signature_name=translate if the model has it."
            )

    def translate(self, texts: Sequence[str | bytes]) -> list[Answer]:
        """Translates texts with one request.

        Args:
            texts: strings, or their bytes, which need not be UTF-8.

        Raises:
            UserError: no answer in time, or one that cannot be read.
        """
        (key,) = self.signature.inputs
        encoded = self._examples(texts) if self.takes_examples else [_bytes(t) for t in texts]
        outputs = self.model.predict(self.name, self.signature, {key: encoded})
        try:
            return self._answers(outputs, len(texts))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"the answer cannot be read: {error!r}.") from error

    def _answers(self, outputs: Mapping[str, Any], count: int) -> list[Answer]:
        found, scores = (outputs[name] for name in self._outputs)
        truncated = outputs.get("truncated", [False] * count)
        if not len(found) == len(scores) == len(truncated) == count:
            raise ValueError(f"{len(found)} translations and {len(scores)} scores of {count} texts")
        answers = []
        for hypotheses, values, cut in zip(found, scores, truncated, strict=True):
            if self.takes_examples and np.ndim(values) == 0:
                hypotheses = [hypotheses]
            texts = [self._text(hypothesis) for hypothesis in hypotheses]
            answers.append(Answer(texts, [float(v) for v in np.atleast_1d(values)], bool(cut)))
        return answers

    def _examples(self, texts: Sequence[str | bytes]) -> list[bytes]:
        from t2t_keras.data.generation import records

        encode = self.encoders["inputs"].encode  # type: ignore[index]
        ids = [[*encode(_string(text).strip()), EOS_ID] for text in texts]
        rows = records.serialize(records.columns({"inputs": ids}))
        return [rows.values[a:b].tobytes() for a, b in itertools.pairwise(rows.starts)]

    def _text(self, hypothesis) -> str:
        if not self.takes_examples:
            return _string(hypothesis)
        return self.encoders["targets"].decode(until_eos(hypothesis))  # type: ignore[index]


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def _string(text: str | bytes) -> str:
    return _bytes(text).decode("utf-8", "ignore")


def _listed(names) -> str:
    return ", ".join(sorted(names)) or "nothing"


# ----------------------------------------------------------------------------
# What a served function takes and returns, as far as a client of text asks.


class Signature(NamedTuple):
    """A signature of a SavedModel."""

    inputs: dict[str, bool]
    """Names of the inputs, and whether each takes strings."""
    outputs: tuple[str, ...]
    """Names of the outputs."""


def choose(signatures: Mapping[str, Signature], name: str, where: str) -> Signature:
    """The signature of this name, or UserError with those that there are."""
    if name not in signatures:
        there = ", ".join(sorted(n for n in signatures if not n.startswith("__")))
        raise UserError(
            f"{where} has no signature {name!r}; it has: {there or 'none'}."
            f"{nearest(name, signatures)}"
        )
    return signatures[name]


def from_types(inputs: Mapping[str, str], outputs: Mapping[str, str]) -> Signature:
    """Makes a signature of names and types of its tensors, in TensorFlow's names of types."""
    return Signature({name: kind == "DT_STRING" for name, kind in inputs.items()}, tuple(outputs))


# ----------------------------------------------------------------------------
# A model behind TensorFlow Serving's REST interface, with the standard library alone.


_SHOWN = 300  # characters of a server's message


class RestModel:
    """A model of TensorFlow Serving at `http://HOST:PORT`.

    Args:
        server: "http://localhost:8501", or with https.
        name: of the served model.
        timeout: seconds that a request may take.
    """

    def __init__(self, server: str, name: str, timeout: float):
        self.server = server.rstrip("/")
        self.name = name
        self.timeout = timeout
        self._url = f"{self.server}/v1/models/{urllib.parse.quote(name, safe='')}"

    def signature(self, name: str) -> Signature:
        """Asks the server for the signature of this name.

        Raises:
            UserError: no answer, no such model or signature, or no TensorFlow Serving.
        """
        answer = self._ask(f"{self._url}/metadata", None)
        try:
            definitions = answer["metadata"]["signature_def"]["signature_def"]
            signatures = {
                key: from_types(_types(value, "inputs"), _types(value, "outputs"))
                for key, value in definitions.items()
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise self._stranger() from error
        return choose(signatures, name, f"{self.name!r} at {self.server}")

    def predict(
        self, name: str, signature: Signature, inputs: Mapping[str, Sequence[bytes]]
    ) -> dict[str, Any]:
        """Calls a signature with strings; returns its outputs as nested lists.

        Raises:
            UserError: no answer in time, or what the server refuses.
        """
        strings = {
            key: [{"b64": base64.b64encode(value).decode()} for value in values]
            for key, values in inputs.items()
        }
        answer = self._ask(f"{self._url}:predict", {"signature_name": name, "inputs": strings})
        try:
            outputs = answer["outputs"]
        except (KeyError, TypeError) as error:
            raise self._stranger() from error
        if len(signature.outputs) == 1:  # then TensorFlow Serving leaves its name away
            return {signature.outputs[0]: outputs}
        if not isinstance(outputs, dict):
            raise self._stranger()
        return outputs

    def close(self) -> None:
        """Does nothing: every request is a connection of its own."""

    def _ask(self, url: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(
                url, data, {"Content-Type": "application/json"} if data else {}
            )
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                content = response.read()
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from error
        except (urllib.error.URLError, TimeoutError) as error:
            raise self._silence(getattr(error, "reason", error)) from error
        except http.client.HTTPException as error:
            raise self._stranger() from error
        except (OSError, ValueError) as error:
            raise self._silence(error) from error
        try:
            return json.loads(content)
        except ValueError as error:
            raise self._stranger() from error

    def _refusal(self, error: urllib.error.HTTPError) -> UserError:
        try:
            message = json.loads(error.read())["error"]
        except (ValueError, KeyError, TypeError, OSError):
            return UserError(
                f"{self.server} answers with {error.code} {error.reason}, not as TensorFlow "
                "Serving does: is it the port of its --rest_api_port?"
            )
        return UserError(f"{self.name!r} at {self.server}: {str(message)[:_SHOWN]}")

    def _silence(self, reason: Any) -> UserError:
        if isinstance(reason, TimeoutError):
            return UserError(
                f"{self.server} has not answered within {self.timeout:g} seconds: "
                "raise --timeout_secs, or see what the server does."
            )
        return UserError(
            f"no connection to {self.server} ({reason}): does TensorFlow Serving run there, "
            "with --rest_api_port?"
        )

    def _stranger(self) -> UserError:
        return UserError(f"{self.server} does not answer as TensorFlow Serving does.")


def _types(definition: Mapping[str, Any], side: str) -> dict[str, str]:
    return {name: tensor.get("dtype", "") for name, tensor in definition.get(side, {}).items()}


# ----------------------------------------------------------------------------
# A model behind TensorFlow Serving's gRPC interface.


_ANY_SIZE = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class GrpcModel:
    """A model of TensorFlow Serving at `HOST:PORT`; needs the package tensorflow-serving-api.

    Args:
        server: "localhost:8500".
        name: of the served model.
        timeout: seconds that a request may take.

    Raises:
        UserError: the package is absent.
    """

    def __init__(self, server: str, name: str, timeout: float):
        try:
            import grpc
            from tensorflow_serving.apis import prediction_service_pb2_grpc
        except ImportError as error:
            raise UserError(
                f"gRPC needs tensorflow-serving-api ({error}): pip install 't2t-keras[serving]', "
                "or give the REST address, --server=http://HOST:8501."
            ) from error
        self.server = server
        self.name = name
        self.timeout = timeout
        self._channel = grpc.insecure_channel(server, _ANY_SIZE)
        self._service = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)

    def signature(self, name: str) -> Signature:
        """Asks the server for the signature of this name.

        Raises:
            UserError: no answer, no such model or signature, or no TensorFlow Serving.
        """
        from tensorflow.core.framework import types_pb2
        from tensorflow_serving.apis import get_model_metadata_pb2

        request = get_model_metadata_pb2.GetModelMetadataRequest()
        request.model_spec.name = self.name
        request.metadata_field.append("signature_def")
        answer = self._call(self._service.GetModelMetadata, request)
        found = get_model_metadata_pb2.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(found)

        def types(tensors):
            return {key: types_pb2.DataType.Name(info.dtype) for key, info in tensors.items()}

        signatures = {
            key: from_types(types(value.inputs), types(value.outputs))
            for key, value in found.signature_def.items()
        }
        return choose(signatures, name, f"{self.name!r} at {self.server}")

    def predict(
        self, name: str, signature: Signature, inputs: Mapping[str, Sequence[bytes]]
    ) -> dict[str, Any]:
        """Calls a signature with strings; returns its outputs as arrays.

        Raises:
            UserError: no answer in time, or what the server refuses.
        """
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest()
        request.model_spec.name = self.name
        request.model_spec.signature_name = name
        for key, values in inputs.items():
            request.inputs[key].CopyFrom(
                tf.make_tensor_proto(list(values), tf.string, [len(values)])
            )
        answer = self._call(self._service.Predict, request)
        return {key: tf.make_ndarray(tensor) for key, tensor in answer.outputs.items()}

    def close(self) -> None:
        """Ends the connection."""
        self._channel.close()

    def _call(self, method, request):
        import grpc

        try:
            return method(request, self.timeout)
        except grpc.RpcError as error:
            code, details = error.code(), str(error.details())[:_SHOWN]
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                message = (
                    f"{self.server} has not answered within {self.timeout:g} seconds: "
                    "raise --timeout_secs, or see what the server does."
                )
            elif code is grpc.StatusCode.UNAVAILABLE:
                message = (
                    f"no connection to {self.server} ({details}): does TensorFlow Serving run "
                    "there, and is this its gRPC port?"
                )
            elif code is grpc.StatusCode.UNIMPLEMENTED:
                message = f"{self.server} does not answer as TensorFlow Serving does: {details}"
            else:
                message = f"{self.name!r} at {self.server}: {details} ({code.name})"
            raise UserError(message) from error
