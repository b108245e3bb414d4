"""Our beam search; started by `decode.py`."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from decode_timing import ALPHA, answer, padded

import t2t_keras as t2t
from t2t_keras.precision import in_precision


def make_decode(spec):
    model = make_model(spec)
    if spec["way"] == "ours_int8":
        model = in_precision(model, "int8")
    returned = spec["beam"] if spec["way"] == "ours_nbest" else 1

    def decode(batch, length):
        ids = np.array(padded(batch), np.int32)
        settings = {
            "max_lengths": [length] * len(batch),
            "min_length": 1000,  # all go on to `max_lengths`; one number, as a graph is made for each
            "xla": spec["way"] == "ours_xla",
        }
        if spec["beam"] == 1:
            outputs, _ = t2t.decoding.greedy(model, ids, **settings)
        else:
            outputs, _ = t2t.decoding.beam_search(
                model, ids, beam_size=spec["beam"], alpha=ALPHA, top_beams=returned, **settings
            )
        return outputs.numpy().shape[-1] * len(batch)

    return decode, {"versions": f"TensorFlow {tf.__version__}"}


def make_model(spec):
    keras.utils.set_random_seed(0)
    hp = t2t.registry.hparams("transformer_base").replace(
        num_hidden_layers=spec["layers"],
        hidden_size=spec["hidden"],
        filter_size=spec["filter"],
        num_heads=spec["heads"],
    )
    dtype = "float32" if spec["precision"] == "float32" else f"mixed_{spec['precision']}"
    model = t2t.Transformer(
        hp, source_vocab_size=spec["vocab"], target_vocab_size=spec["vocab"], dtype=dtype
    )
    return model


if __name__ == "__main__":
    answer(make_decode)
