"""Profiles a step of our decoding by part, in float32; started by `decode.py --profile`.

Each part is a separate graph over all layers. Bytes are the weights and the cached keys and values that
it reads once per step; divided by the machine's memory bandwidth, they give a lower bound for the part's
time.
"""

import json
import math
import statistics
import sys
import time

import tensorflow as tf
from decode_of_t2t_keras import make_model

from t2t_keras.decoding.beam import BeamSearch, OnePath, most_likely
from t2t_keras.layers import AttentionMask, KeyValueCache
from t2t_keras.precision import kernels_in_blocks
from t2t_keras.shape import FEW_ROWS

POSITIONS = 24  # of the source, and decoded before this step
REPEATS = 20


def profiled(spec):
    """Returns the memory rate in GB/s, and a row for each part of each shape."""
    model = make_model(spec)
    much = tf.Variable(tf.ones([1 << 26]))
    rate = 4 * (1 << 26) / seconds(tf.function(lambda: tf.reduce_sum(much)))
    rows = [
        {
            "batch": batch,
            "beam": beam,
            "part": name,
            "operations": len(tf.function(part).get_concrete_function(x).graph.get_operations()),
            "megabytes": 4 * number(read) / 1e6,
            "milliseconds": seconds(repeated(part), x) / REPEATS * 1e3,
        }
        for batch, beam in spec["shapes"]
        for name, (part, x, read) in parts(model, batch, beam).items()
    ]
    return {"rate": rate / 1e9, "rows": rows}


def parts(model, batch, beam):
    """Returns for each part of a step a function x -> x, its x, and the tensors that it reads."""
    hidden, decoder = model.hp.hidden_size, model.decoder
    source = model.encode_source(tf.ones([batch, POSITIONS], "int32"))
    kernels = model.step_kernels(few_rows=batch == 1 and beam <= FEW_ROWS)
    heads = [batch, model.hp.num_heads, POSITIONS * beam, hidden // model.hp.num_heads]
    cache = {"k": tf.random.normal(heads), "v": tf.random.normal(heads)}
    own_mask = AttentionMask(bias=tf.zeros([1, 1, beam, heads[2] + beam]))
    memory_mask = AttentionMask(bias=source["memory_bias"])
    strategy = BeamSearch(beam) if beam > 1 else OnePath(0, most_likely)
    hypotheses = strategy.first(batch)

    def self_attention(x):
        for layer, kernel in zip(decoder.layers, kernels["self_attention"], strict=True):
            x = layer.self_attention(
                x, cache=KeyValueCache(cache, joint_kernel=kernel), attention_mask=own_mask
            )
        return x

    def source_attention(x):
        for layer, memory in zip(decoder.layers, source["memory_caches"], strict=True):
            cached = KeyValueCache(memory, of_memory=True)
            x = layer.encdec_attention(x, cache=cached, attention_mask=memory_mask)
        return x

    def feed_forward(x):
        for layer in decoder.layers:
            x = layer.ffn(x)
        return x

    def normalisation(x):
        for layer in decoder.layers:
            for name in ("self_attention", "encdec_attention", "ffn"):
                y = getattr(layer, f"{name}_preprocess")(x)
                x = getattr(layer, f"{name}_postprocess")(y, x)
        return decoder.last_preprocess(x)

    def logits(x):
        made = model.softmax.logits(tf.reshape(x, [-1, hidden]), kernels["softmax"])
        return x + tf.reduce_max(made) * 1e-9

    def choice(logits):
        chosen = strategy.advance(hypotheses, logits, tf.constant(0))
        return (
            logits
            + sum(tf.reduce_max(tf.cast(t, tf.float32)) for t in tf.nest.flatten(chosen)) * 1e-9
        )

    def in_a_step(part):
        """Returns the part with the kernels that a step gives to its `Dense` layers."""
        return kernels_in_blocks(model._step_dense(), kernels["dense"])(part)

    x = tf.random.normal([batch, beam, hidden])
    some_logits = tf.random.normal([batch, beam, len(kernels["softmax"]["bias"])])
    layers = decoder.layers
    other = [
        (layer.encdec_attention.q, layer.encdec_attention.output_transform) for layer in layers
    ]
    return {
        "self-attention": (
            in_a_step(self_attention),
            x,
            [(layer.self_attention.weights, cache) for layer in layers],
        ),
        "attention to the source": (
            in_a_step(source_attention),
            x,
            [[dense.weights for pair in other for dense in pair], source["memory_caches"]],
        ),
        "feed-forward": (in_a_step(feed_forward), x, [layer.ffn.weights for layer in layers]),
        "normalisation, residuals": (normalisation, x, []),
        "logits": (logits, x, model.softmax.weights),
        "choice of tokens": (choice, some_logits, some_logits),
    }


def number(tensors) -> int:
    """Returns the number of elements of a nested structure of tensors and variables."""
    return sum(math.prod(tensor.shape) for tensor in tf.nest.flatten(tensors))


def repeated(part):
    """Returns a graph that runs a part repeatedly on its own result."""
    return tf.function(
        lambda x: tf.while_loop(
            lambda i, x: i < REPEATS,
            lambda i, x: (i + 1, tf.ensure_shape(part(x), x.shape)),
            (0, x),
        )[1]
    )


def seconds(function, *arguments) -> float:
    """Returns the median time of a graph after a warm-up call."""
    times = []
    for _ in range(4):
        start = time.perf_counter()
        tf.reshape(function(*arguments), [-1])[0].numpy()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


if __name__ == "__main__":
    print(json.dumps(profiled(json.loads(sys.argv[1]))))
