"""TensorFlow Serving's messages, as far as tests read them, from their published definitions."""

import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

STRING, MESSAGE = 9, 11
OPTIONAL, REPEATED = 1, 3


def _messages():
    """`PredictionLog` with the numbers that tensorflow_serving/apis/*.proto give its fields."""
    file = descriptor_pb2.FileDescriptorProto(
        name="test_prediction_log.proto", package="test_serving", syntax="proto3"
    )
    file.dependency.append("tensorflow/core/framework/tensor.proto")

    def message(name, *fields):
        added = file.message_type.add(name=name)
        for field, number, kind, type_name, label in fields:
            added.field.add(name=field, number=number, type=kind, type_name=type_name, label=label)
        return added

    message(
        "ModelSpec",
        ("name", 1, STRING, None, OPTIONAL),
        ("signature_name", 3, STRING, None, OPTIONAL),
    )
    request = message(
        "PredictRequest",
        ("model_spec", 1, MESSAGE, ".test_serving.ModelSpec", OPTIONAL),
        ("inputs", 2, MESSAGE, ".test_serving.PredictRequest.InputsEntry", REPEATED),
    )
    entry = request.nested_type.add(name="InputsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=STRING, label=OPTIONAL)
    entry.field.add(
        name="value", number=2, type=MESSAGE, type_name=".tensorflow.TensorProto", label=OPTIONAL
    )
    message("PredictLog", ("request", 1, MESSAGE, ".test_serving.PredictRequest", OPTIONAL))
    message("PredictionLog", ("predict_log", 6, MESSAGE, ".test_serving.PredictLog", OPTIONAL))
    return message_factory.GetMessages([file], pool=descriptor_pool.Default())


PredictionLog = _messages()["test_serving.PredictionLog"]


def read_warm_up(path):
    """Signature and inputs, tensors by name, of each warm-up request of a version."""
    records = tf.data.TFRecordDataset(f"{path}/assets.extra/tf_serving_warmup_requests")
    for record in records.as_numpy_iterator():
        request = PredictionLog.FromString(record).predict_log.request
        inputs = {n: tf.constant(tf.make_ndarray(t)) for n, t in request.inputs.items()}
        yield request.model_spec.signature_name, inputs
