"""A training step of a Transformer made of KerasHub's layers; started by `train_step.py`."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import keras_hub
import numpy as np
import tensorflow as tf
from keras import ops
from step_timing import DROPOUT, LABEL_SMOOTHING, LEARNING_RATE, answer


def make_step(spec):
    if spec["precision"] != "float32":
        keras.config.set_dtype_policy(f"mixed_{spec['precision']}")
    embedding = keras_hub.layers.ReversibleEmbedding(spec["vocab"], spec["hidden"])
    position = keras_hub.layers.SinePositionEncoding()

    def embedded(ids):
        x = embedding(ids) * spec["hidden"] ** 0.5
        return keras.layers.Dropout(DROPOUT)(x + position(x))

    layer = {
        "intermediate_dim": spec["filter"],
        "num_heads": spec["heads"],
        "dropout": DROPOUT,
        "normalize_first": True,
    }
    source, targets = (keras.Input([None], dtype="int32") for _ in range(2))
    memory = embedded(source)
    source_mask = source != 0
    for _ in range(spec["layers"]):
        memory = keras_hub.layers.TransformerEncoder(**layer)(memory, padding_mask=source_mask)
    x = embedded(targets)
    for _ in range(spec["layers"]):
        x = keras_hub.layers.TransformerDecoder(**layer)(
            x, memory, encoder_padding_mask=source_mask
        )
    logits = embedding(keras.layers.LayerNormalization()(x), reverse=True)
    model = keras.Model([source, targets], logits)
    model.compile(keras.optimizers.Adam(LEARNING_RATE), smoothed_loss, jit_compile=spec["compiled"])
    shape = (spec["rows"], spec["length"])
    random = np.random.default_rng(0)
    ids = [random.integers(2, spec["vocab"], shape).astype("int32") for _ in range(2)]
    x, y = [tf.constant(ids[0]), tf.constant(np.roll(ids[1], 1, axis=1))], tf.constant(ids[1])

    versions = (
        f"keras-hub {keras_hub.__version__}, Keras {keras.__version__}, TensorFlow {tf.__version__}"
    )
    facts = {"versions": versions, "parameters": model.count_params()}
    return lambda: float(model.train_on_batch(x, y)), facts


def smoothed_loss(y, logits):
    """Cross-entropy [B, T] with label smoothing, without a matrix of smoothed labels."""
    log_p = ops.log_softmax(ops.cast(logits, "float32"))
    right = ops.take_along_axis(log_p, ops.cast(y, "int32")[..., None], axis=-1)[..., 0]
    return -(1 - LABEL_SMOOTHING) * right - LABEL_SMOOTHING * ops.mean(log_p, axis=-1)


if __name__ == "__main__":
    answer(make_step)
