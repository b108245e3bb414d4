"""Text in, text out, by an exported model: in TensorFlow Serving (REST, gRPC) or in this process."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import math
import operator
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t2t_keras.errors import UserError, importing, nearest, reason_of, several_texts
from t2t_keras.ids import EOS_ID, until_eos
from t2t_keras.text.encoders import spelled

ANSWER_BYTES = 2**24
"""Maximal size of an answer; parsed JSON takes twenty times as much memory."""

# The possible outputs of a signature: its hypotheses for each text, and a number for each of them.
_TEXTS = {"translations": "scores", "completions": "scores", "labels": "probabilities"}
_IDS = {"outputs": "scores"}  # of T2T's exports, which take `tf.train.Example`s as "input"

# What comes of an answer of another form.
_UNREADABLE = (LookupError, TypeError, ValueError, AttributeError)


class Answer(NamedTuple):
    """The translation of one text: hypotheses, best first, with their scores."""

    texts: list[str]
    scores: list[float]
    truncated: bool  # True if only the first part of the text was translated


class TextClient:
    """Translates text with a model whose signature takes text or, like T2T's exports, Examples.

    Args:
        model: a `SavedModel`, or a result of `connect`.
        signature: the name of the signature to call.
        encoders: "inputs" and "targets" text encoders, needed for a signature that takes Examples.

    Raises:
        UserError: there is no answer, or the model has no such signature, or not one for text.
    """

    def __init__(
        self,
        model: Any,
        signature: str = "serving_default",
        encoders: Mapping[str, Any] | None = None,
    ):
        self.model, self.name, self.encoders = model, signature, encoders or {}
        found = model.signatures()
        if signature not in found:
            existing = ", ".join(sorted(name for name in found if not name.startswith("__")))
            raise UserError(
                f"{model.place} has no signature {signature!r}; it has: {existing or 'none'}."
                f"{nearest(signature, found)}"
            )
        inputs, outputs = found[signature]
        self.takes_examples = inputs == ["input"]
        pairs = (_IDS if self.takes_examples else _TEXTS).items()
        self._outputs = next(([*pair] for pair in pairs if {*pair} <= {*outputs}), [])
        if len(inputs) != 1 or not self._outputs or (self.takes_examples and not encoders):
            raise UserError(
                f"signature {signature!r} takes {', '.join(sorted(inputs))} and returns "
                f"{', '.join(sorted(outputs))}: name one from text to text, --signature_name=translate, "
                "complete or classify, or give --problem and --data_dir for T2T's Examples."
            )
        [self._input] = inputs

    def translate(self, texts: Sequence[str | bytes]) -> list[Answer]:
        """Translates texts, strings or bytes, which need not be UTF-8, with one request.

        Raises:
            UserError: there is no answer in time, or it cannot be read.
        """
        texts = several_texts("texts", texts, str | bytes)
        if not texts:
            return []
        encode = self._examples if self.takes_examples else lambda texts: [*map(_bytes, texts)]
        outputs = self.model.predict(self.name, self._input, encode(texts))
        try:
            hypotheses, values = (outputs[name] for name in self._outputs)
            if len(values) != len(texts):
                raise ValueError(f"it has {len(values)} rows")
            # "same_kind" refuses text, complex numbers and fractions of ids.
            scores = np.asarray(values).astype(float, casting="same_kind").reshape(len(texts), -1)
            if not scores.size:
                raise ValueError("it is empty")
            if self.takes_examples:
                found = np.asarray(hypotheses).astype(np.int64, casting="same_kind")
                found = found.reshape(*scores.shape, -1)
            else:
                found = np.array(hypotheses, object).reshape(scores.shape)
            cut = np.asarray(outputs.get("truncated", [False] * len(texts)))
            return [
                Answer([*map(self._text, row)], numbers.tolist(), bool(was_cut))
                for row, numbers, was_cut in zip(found, scores, cut, strict=True)
            ]
        except _UNREADABLE as error:
            names = " and ".join(self._outputs)
            raise UserError(f"the answer lacks {names} for {len(texts)} texts: {error}.") from error

    def _examples(self, texts: Sequence[str | bytes]) -> list[bytes]:
        from t2t_keras.data import records

        side, end = ("inputs", [EOS_ID]) if "inputs" in self.encoders else ("targets", [])
        encode = self.encoders[side].encode
        ids = [[*encode(_bytes(text).decode("utf-8", "ignore").strip()), *end] for text in texts]
        rows = records.serialize(records.columns({side: ids}))
        return [rows.values[a:b].tobytes() for a, b in itertools.pairwise(rows.starts)]

    def _text(self, hypothesis) -> str:
        if not self.takes_examples:
            return _bytes(hypothesis, "surrogateescape").decode("utf-8", "ignore")
        if (ids := until_eos(hypothesis.tolist())) and min(ids) < 0:
            raise ValueError(f"an id of {min(ids)}")
        encoder = self.encoders["targets"]
        return encoder.decode(spelled(encoder, ids))


def _bytes(text: str | bytes, errors: str = "surrogatepass") -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", errors)


def connect(server: str, name: str, timeout: float = 10.0) -> _RestModel | _GrpcModel:
    """Returns a model that TensorFlow Serving serves; sends no request yet.

    Args:
        server: "HOST:PORT" for gRPC; "http://HOST:PORT" or https for REST.
        name: the name of the model.
        timeout: seconds to wait for an answer.

    Raises:
        UserError: the address has neither form, or the package for gRPC is missing.
    """
    if re.fullmatch(r"https?://([^][/\s]+|\[[\w:.%]+\](:\d+)?)/?", server):
        return _RestModel(server.rstrip("/"), name, timeout)
    if re.fullmatch(r"[^/\s]+:\d{1,5}", server):
        return _GrpcModel(server, name, timeout)
    raise UserError(f"--server is HOST:PORT for gRPC, http://HOST:PORT for REST, got {server!r}.")


class _ServedModel:
    """A model on a server, with what both protocols share."""

    port = "gRPC port"

    def __init__(self, server: str, name: str, timeout: float):
        self.server, self.name, self.timeout = server, name, timeout
        self.place = f"{name!r} at {server}"

    def refused(self, message: Any) -> UserError:
        return UserError(f"{self.place}: {' '.join(str(message).split())[:300]}")

    def no_answer(self, reason: Any) -> UserError:
        return UserError(
            f"{self.server} sent no TensorFlow Serving answer within {self.timeout:g} seconds "
            f"(--timeout_secs); is this its {self.port}? {' '.join(str(reason).split())[:300]}"
        )


def _names(answer: Any) -> dict[str, tuple]:
    """Returns the signatures in TensorFlow Serving's answer, an object of JSON."""
    return {
        name: tuple([*signature.get(side, {}).keys()] for side in ("inputs", "outputs"))
        for name, signature in answer["metadata"]["signature_def"]["signature_def"].items()
    }


class _RestModel(_ServedModel):
    """A model behind TensorFlow Serving's REST API; needs only the standard library."""

    port = "--rest_api_port"

    def signatures(self) -> dict[str, tuple]:
        return self._ask("/metadata", _names)

    def predict(self, name: str, key: str, texts: list[bytes]) -> dict[str, Any]:
        strings = [{"b64": base64.b64encode(text).decode()} for text in texts]
        body = {"signature_name": name, "inputs": {key: strings}}
        return self._ask(":predict", operator.itemgetter("outputs"), body)

    def _ask(self, path: str, read: Callable[[Any], Any], body: Any = None) -> Any:
        """Sends a request, POST if it has a body; returns what is read from its JSON answer."""
        url = f"{self.server}/v1/models/{urllib.parse.quote(self.name, safe='')}{path}"
        data = json.dumps(body).encode() if body else None
        content, end = bytearray(), time.monotonic() + self.timeout
        try:
            request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
            try:
                response = urllib.request.urlopen(request, timeout=self.timeout)
            except urllib.error.HTTPError as error:
                response = error  # an answer, too
            with response:
                while len(content) <= ANSWER_BYTES and (part := response.read1(2**16)):
                    content += part
                    if time.monotonic() > end:  # each read has a timeout of its own
                        raise TimeoutError("timed out")
            if len(content) > ANSWER_BYTES:
                raise ValueError(f"The answer is longer than {ANSWER_BYTES:,} bytes.")
            if not content.startswith(b"{"):
                raise ValueError(f"Its answer is {response.status} {response.reason}, no JSON.")
            answer = json.loads(content)
            if "error" in answer:
                raise self.refused(answer["error"])
            if response.status != 200:
                raise ValueError(f"Its answer is {response.status} {response.reason}.")
            return read(answer)
        except (OSError, http.client.HTTPException, RecursionError, *_UNREADABLE) as error:
            raise self.no_answer(getattr(error, "reason", error)) from error


class _GrpcModel(_ServedModel):
    """A model behind TensorFlow Serving's gRPC API; needs the package tensorflow-serving-api."""

    def __init__(self, server: str, name: str, timeout: float):
        super().__init__(server, name, timeout)
        remedy = "or give the REST address, --server=http://HOST:8501"
        remedy = f"pip install 't2t-keras[serving]', {remedy}"
        with importing("gRPC needs tensorflow-serving-api", remedy):
            import grpc
            from tensorflow_serving.apis import prediction_service_pb2_grpc
        channel = grpc.insecure_channel(server, [("grpc.max_receive_message_length", ANSWER_BYTES)])
        self._service = prediction_service_pb2_grpc.PredictionServiceStub(channel)

    def signatures(self) -> dict[str, tuple]:
        from google.protobuf.json_format import MessageToDict
        from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataRequest

        request = GetModelMetadataRequest(metadata_field=["signature_def"])
        request.model_spec.name = self.name
        return self._call(
            self._service.GetModelMetadata,
            request,
            lambda answer: _names(MessageToDict(answer, preserving_proto_field_name=True)),
        )

    def predict(self, name: str, key: str, texts: list[bytes]) -> dict[str, Any]:
        import tensorflow as tf
        from tensorflow_serving.apis.predict_pb2 import PredictRequest

        request = PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = self.name, name
        request.inputs[key].CopyFrom(tf.make_tensor_proto(texts, tf.string, [len(texts)]))
        return self._call(self._service.Predict, request, _arrays)

    def _call(self, method, request, read):
        import grpc
        from google.protobuf.message import DecodeError

        try:
            return read(method(request, self.timeout))
        except grpc.RpcError as error:
            is_other = error.code().name in ("DEADLINE_EXCEEDED", "UNAVAILABLE", "UNIMPLEMENTED")
            raise (self.no_answer if is_other else self.refused)(error.details()) from error
        except (DecodeError, *_UNREADABLE) as error:
            raise self.no_answer(error) from error


def _arrays(answer) -> dict[str, np.ndarray]:
    import tensorflow as tf

    for key, tensor in answer.outputs.items():
        sizes = [dimension.size for dimension in tensor.tensor_shape.dim]
        # A tensor may give one value for all its elements, so a short answer can be huge.
        if min(sizes, default=0) < 0 or math.prod(sizes) > ANSWER_BYTES:
            raise ValueError(f"{key} has the shape {sizes}")
    return {key: tf.make_ndarray(tensor) for key, tensor in answer.outputs.items()}


class SavedModel:
    """A SavedModel in this process, with the interface of a served model.

    Args:
        directory: the directory of the SavedModel or, as in TensorFlow Serving, of its numbered
            versions; the highest is used.

    Raises:
        UserError: there is no SavedModel, or it cannot be loaded.
    """

    def __init__(self, directory: str):
        import tensorflow as tf

        from t2t_keras.text.graph import import_tensorflow_text

        self.place = directory
        try:
            files = Path(directory).glob("*/saved_model.pb")
            versions = {int(f.parent.name): f for f in files if f.parent.name.isdecimal()}
            file = versions[max(versions)] if versions else Path(directory, "saved_model.pb")
            self.place = str(file.parent)
            if b"SentencepieceTokenizeOp" in file.read_bytes():
                import_tensorflow_text()  # registers the op
            # The reference keeps its functions alive.
            self._loaded = tf.saved_model.load(self.place)
        except (OSError, ValueError, tf.errors.OpError) as error:
            what = f"{self.place} cannot be loaded as an export of t2t-keras-export"
            raise UserError(f"{what}: {reason_of(error)}.") from error

    def signatures(self) -> dict[str, tuple]:
        """Returns the names of the inputs and of the outputs of each signature."""
        return {
            name: ([*call.structured_input_signature[1]], [*call.structured_outputs])
            for name, call in self._loaded.signatures.items()
        }

    def predict(self, name: str, key: str, texts: list[bytes]) -> dict[str, Any]:
        """Calls a signature with strings; returns its outputs as arrays."""
        import tensorflow as tf

        try:
            outputs = self._loaded.signatures[name](**{key: tf.constant(texts, tf.string)})
        except tf.errors.OpError as error:
            where = ("Graph execution error", "Detected at ", "<stack traces", " ", "\t")
            lines = [line for line in error.message.split("\n") if not line.startswith(where)]
            raise UserError(f"{self.place}: {next(filter(None, lines), '')}") from error
        except UnicodeDecodeError as error:  # TensorFlow's message quotes the request's bytes
            raise UserError(f"{self.place} rejects the request.") from error
        return {key: tensor.numpy() for key, tensor in outputs.items()}
