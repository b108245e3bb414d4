"""A model behind TensorFlow Serving's gRPC interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from t2t_keras.errors import UserError
from t2t_keras.serving.signature import Signature, choose, from_types

_SHOWN = 300  # characters of a server's message
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
