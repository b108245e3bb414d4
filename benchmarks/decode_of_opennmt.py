"""Beam search of OpenNMT-tf 2; started by `decode.py`."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import opennmt
import tensorflow as tf
from decode_timing import ALPHA, answer, padded
from step_of_opennmt import make_model


def make_decode(spec):
    model = make_model(spec, beam_width=spec["beam"], length_penalty=ALPHA)
    functions = {}

    def infer(length):
        # OpenNMT-tf reads the length as a Python number when a graph is traced: one graph per length.
        model.params.update(minimum_decoding_length=length, maximum_decoding_length=length)
        return functions.setdefault(length, tf.function(model.infer))

    def decode(batch, length):
        ids = tf.constant(padded(batch), tf.int64)
        outputs = infer(length)({"ids": ids, "length": tf.constant([len(row) for row in batch])})
        return int(outputs["tokens"].numpy().shape[-1]) * len(batch)

    return decode, {"versions": f"OpenNMT-tf {opennmt.__version__}, TensorFlow {tf.__version__}"}


if __name__ == "__main__":
    answer(make_decode)
