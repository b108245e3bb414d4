"""TensorFlow Serving's gRPC and REST APIs for a SavedModel in this process.

For tests and measurements where TensorFlow Serving itself cannot run. It uses the messages of its
package, and its error codes and texts. Batching, versions and warm-up are not implemented.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import os
import threading
import urllib.parse
from concurrent import futures

import grpc
import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2, prediction_service_pb2_grpc

ANY_SIZE = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class Refused(Exception):
    """A request that cannot be served: a gRPC code and a message."""

    def __init__(self, code: grpc.StatusCode, words: str):
        super().__init__(words)
        self.code = code


class ServedModel:
    """A SavedModel whose signatures are called by name.

    Args:
        directory: the directory of `saved_model.pb`.
    """

    def __init__(self, directory: str):
        self.loaded = tf.saved_model.load(directory)
        with open(os.path.join(directory, "saved_model.pb"), "rb") as file:
            (graph,) = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs
        self.definitions = dict(graph.signature_def)

    def predict(self, name: str, inputs: dict) -> dict:
        """Calls a signature; `inputs` and results are tensors by name."""
        name = name or "serving_default"
        if name not in self.definitions:
            raise Refused(
                grpc.StatusCode.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.'
            )
        wanted = set(self.definitions[name].inputs)
        if set(inputs) != wanted:
            raise Refused(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"input size does not match signature: {len(inputs)}!={len(wanted)} "
                f"len({{{','.join(sorted(inputs))}}}) != len({{{','.join(sorted(wanted))}}}). "
                f"Sent extra: {{{','.join(sorted(set(inputs) - wanted))}}}. "
                f"Missing but required: {{{','.join(sorted(wanted - set(inputs)))}}}.",
            )
        try:
            return self.loaded.signatures[name](**inputs)
        except tf.errors.OpError as error:
            codes = {code.value[0]: code for code in grpc.StatusCode}
            # Before this mark is Python's stack trace of where the graph was made.
            message = error.message.split("<stack traces unavailable>\n")[-1]
            raise Refused(codes[error.error_code], message) from error
        except (TypeError, ValueError) as error:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from error


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """The gRPC service.

    Args:
        models: the models by the names that they are served under.
    """

    def __init__(self, models: dict[str, ServedModel]):
        self.models = models

    def Predict(self, request, context):
        try:
            model = find(self.models, request.model_spec.name)
            inputs = {
                name: tf.constant(tf.make_ndarray(tensor))
                for name, tensor in request.inputs.items()
            }
            outputs = model.predict(request.model_spec.signature_name, inputs)
        except Refused as refused:
            context.abort(refused.code, str(refused))
        answer = predict_pb2.PredictResponse()
        answer.model_spec.CopyFrom(request.model_spec)
        for name, tensor in outputs.items():
            answer.outputs[name].CopyFrom(tf.make_tensor_proto(tensor))
        return answer

    def GetModelMetadata(self, request, context):
        try:
            return metadata(find(self.models, request.model_spec.name), request.model_spec.name)
        except Refused as refused:
            context.abort(refused.code, str(refused))


def find(models: dict[str, ServedModel], name: str) -> ServedModel:
    if name not in models:
        raise Refused(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: Latest({name})")
    return models[name]


def metadata(model: ServedModel, name: str):
    """The `GetModelMetadataResponse` of a model."""
    answer = get_model_metadata_pb2.GetModelMetadataResponse()
    answer.model_spec.name = name
    found = get_model_metadata_pb2.SignatureDefMap()
    for key, definition in model.definitions.items():
        found.signature_def[key].CopyFrom(definition)
    answer.metadata["signature_def"].Pack(found)
    return answer


@contextlib.contextmanager
def grpc_server(models: dict[str, ServedModel], threads: int = 8):
    """Serves gRPC on a free port of this machine; yields "127.0.0.1:PORT"."""
    server = grpc.server(futures.ThreadPoolExecutor(threads), options=ANY_SIZE)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        PredictionService(models), server
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def rest_server(models: dict[str, ServedModel]):
    """Serves REST on a free port of this machine; see `http_server`."""

    class Handler(_RestHandler):
        served = models

    return http_server(Handler)


@contextlib.contextmanager
def http_server(handler: type[http.server.BaseHTTPRequestHandler]):
    """Answers by a handler on a free port of this machine; yields "http://127.0.0.1:PORT"."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _RestHandler(http.server.BaseHTTPRequestHandler):
    """Handles GET .../metadata and POST ...:predict, with rows ("instances") or columns ("inputs")."""

    served: dict[str, ServedModel]

    def do_GET(self):
        self._reply(self._metadata)

    def do_POST(self):
        self._reply(self._predict)

    def _reply(self, make):
        try:
            code, answer = 200, make()
        except Refused as refused:
            code = 404 if refused.code is grpc.StatusCode.NOT_FOUND else 400
            answer = {"error": str(refused)}
        content = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _model(self, ending: str) -> tuple[str, ServedModel]:
        path = urllib.parse.unquote(self.path)
        start = "/v1/models/"
        if not path.startswith(start) or not path.endswith(ending):
            raise Refused(
                grpc.StatusCode.INVALID_ARGUMENT, f"Malformed request: {self.command} {path}"
            )
        name = path[len(start) : -len(ending)]
        return name, find(self.served, name)

    def _metadata(self):
        name, model = self._model("/metadata")
        answer = metadata(model, name)
        found = get_model_metadata_pb2.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(found)
        as_json = json_format.MessageToDict(
            found, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        return {"model_spec": {"name": name}, "metadata": {"signature_def": as_json}}

    def _predict(self):
        _, model = self._model(":predict")
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = body.get("signature_name") or "serving_default"
        definition = model.definitions.get(name)
        rows = body.get("instances")
        values = body.get("inputs") if rows is None else _columns(rows)
        if definition is not None and not (isinstance(values, dict) and "b64" not in values):
            values = {next(iter(definition.inputs)): values}
        inputs = {
            key: _tensor(value, definition.inputs[key].dtype if definition else None)
            for key, value in values.items()
            if definition is None or key in definition.inputs
        }
        outputs = {k: _plain(v.numpy()) for k, v in model.predict(name, inputs).items()}
        if rows is not None:
            names = list(outputs)
            split = [dict(zip(names, row, strict=True)) for row in zip(*outputs.values())]  # noqa: B905
            return {"predictions": split if len(names) > 1 else outputs[names[0]]}
        return {"outputs": outputs if len(outputs) > 1 else next(iter(outputs.values()))}

    def log_message(self, format, *args):
        pass


def _columns(rows):
    """Rows {"a": 1}, {"a": 2} -> {"a": [1, 2]}; other rows are the column of the only input."""
    if rows and isinstance(rows[0], dict) and "b64" not in rows[0]:
        return {key: [row[key] for row in rows] for key in rows[0]}
    return rows


def _tensor(value, kind):
    value = _bytes(value)
    return tf.constant(value, tf.dtypes.as_dtype(kind) if kind else None)


def _bytes(value):
    """Decodes {"b64": ...} to bytes, in lists of any depth."""
    if isinstance(value, dict):
        return base64.b64decode(value["b64"])
    return [_bytes(item) for item in value] if isinstance(value, list) else value


def _plain(array):
    """Converts an array to nested lists for JSON."""
    if array.dtype == object:
        return json.loads(json.dumps(array.tolist(), default=lambda b: b.decode("utf-8")))
    return array.tolist()
