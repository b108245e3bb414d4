"""Our beam search; started by `decode.py`."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from decode_timing import ALPHA, answer, padded

import t2t_keras as t2t
from t2t_keras.precision import policy_in


def make_decode(spec):
    if spec["way"] == "products":
        return make_products(spec), {"versions": f"TensorFlow {tf.__version__}"}
    model = make_model(spec)
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


def make_products(spec):
    """Returns a function that makes only the matrix products of as many steps, one after another."""
    d, f = spec["hidden"], spec["filter"]
    of_layer = [(d, 3 * d), (d, d), (d, d), (d, d), (d, f), (f, d)]
    sizes = [*spec["layers"] * of_layer, (d, -(-spec["vocab"] // 64) * 64)]
    matrices = [tf.Variable(tf.random.normal(size, stddev=0.02)) for size in sizes]

    @tf.function(input_signature=[tf.TensorSpec([None, d]), tf.TensorSpec([], tf.int32)])
    def steps(x, length):
        weights = [tf.convert_to_tensor(each) for each in matrices]

        def step(i, x):
            y = x
            for weight in weights:
                y = (y if y.shape[1] == weight.shape[0] else y[:, :d]) @ weight
            return i + 1, x + y[:, :d] * 1e-9

        return tf.while_loop(lambda i, _: i < length, step, (0, x))[1]

    def decode(batch, length):
        steps(tf.ones([len(batch) * spec["beam"], d]), length).numpy()
        return length * len(batch)

    return decode


def make_model(spec):
    keras.utils.set_random_seed(0)
    hp = t2t.registry.hparams("transformer_base").replace(
        num_hidden_layers=spec["layers"],
        hidden_size=spec["hidden"],
        filter_size=spec["filter"],
        num_heads=spec["heads"],
    )
    dtype = "float32" if spec["precision"] == "float32" else f"mixed_{spec['precision']}"
    if spec["way"] == "ours_int8":
        dtype = policy_in("int8", dtype)
    model = t2t.Transformer(
        hp, source_vocab_size=spec["vocab"], target_vocab_size=spec["vocab"], dtype=dtype
    )
    return model


if __name__ == "__main__":
    answer(make_decode)
