"""Times one layer forward, and forward and backward; started by `layer_types.py`."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import json
import sys
import time

import keras
import numpy as np
import tensorflow as tf
from step_timing import peak_megabytes

from t2t_keras.layers import MultiHeadAttention, RestrictedAttention, mask_bias

HEAD = 64  # depth of an attention head, as in the paper
ALONE = "_alone"  # attention without its projections


def main() -> None:
    spec = json.loads(sys.argv[1])
    layer = make_layer(spec)
    passes = {"forward": forward(layer), "training": training(layer)}
    warm = batch_of({**spec, "length": 2 * spec["kernel"]})
    for run in passes.values():
        run(warm)  # what libraries allocate once
    loaded = peak_megabytes()
    x = batch_of(spec)
    result = {"versions": f"TensorFlow {tf.__version__}, Keras {keras.__version__}"}
    memory = tf.config.experimental
    for name, run in passes.items():  # training needs more memory than forward: the peak grows
        before = memory.get_memory_info("CPU:0")["current"]
        memory.reset_memory_stats("CPU:0")
        result[name] = timed(run, x, spec["steps"])
        tensors = memory.get_memory_info("CPU:0")["peak"] - before
        result[name] |= {"megabytes": peak_megabytes() - loaded, "tensor_megabytes": tensors / 1e6}
    if spec["compare"] and spec["layer"] == "restricted":
        result["difference"] = difference(layer, x, spec)
    print(json.dumps(result))


def make_layer(spec):
    """Builds the layer of a spec, from [B, n, d] to [B, n, d]."""
    depth, kernel = spec["depth"], spec["kernel"]
    heads = max(1, depth // HEAD)
    kind = spec["layer"].removesuffix(ALONE)
    layers = {
        "self_attention": lambda: MultiHeadAttention(num_heads=heads),
        "restricted": lambda: RestrictedAttention(
            num_heads=heads, neighborhood=spec["neighborhood"]
        ),
        "recurrent": lambda: keras.layers.SimpleRNN(depth, return_sequences=True),
        "lstm": lambda: keras.layers.LSTM(depth, return_sequences=True),
        "convolution": lambda: keras.layers.Conv1D(depth, kernel, padding="same"),
        "dilated": lambda: keras.layers.Conv1D(depth, kernel, padding="same", dilation_rate=kernel),
        "separable": lambda: keras.layers.SeparableConv1D(depth, kernel, padding="same"),
    }
    layer = layers[kind]()
    layer.build((spec["batch"], None, depth))
    if kind != spec["layer"]:
        layer.q = layer.k = layer.v = layer.output_transform = Same(depth)
    return layer


class Same:
    """Replaces a projection by the identity."""

    def __init__(self, units):
        self.units = units

    def __call__(self, x):
        return x


def batch_of(spec):
    shape = [spec["batch"], spec["length"], spec["depth"]]
    return tf.random.stateless_normal(shape, [0, 1])


def forward(layer):
    return tf.function(lambda x: layer(x))


def training(layer):
    @tf.function
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            output = layer(x)
        sources = [x, *(variable.value for variable in layer.trainable_variables)]
        return tape.gradient(output, sources, output_gradients=x)

    return run


def timed(run, x, steps):
    """Clock and CPU seconds of each of `steps` runs, after one that traces the graph."""
    seconds, cpu_seconds = [], []
    for step in range(steps + 1):
        start, cpu_start = time.perf_counter(), time.process_time()
        keras.tree.flatten(run(x))[0].numpy()
        if step:
            seconds.append(time.perf_counter() - start)
            cpu_seconds.append(time.process_time() - cpu_start)
    return {"seconds": seconds, "cpu_seconds": cpu_seconds}


def difference(layer, x, spec):
    """The largest difference from masked full attention, relative to the largest value."""
    r, position = spec["neighborhood"], np.arange(spec["length"])
    distance = position[None, :] - position[:, None]
    near = (distance >= -(r // 2)) & (distance <= (r - 1) // 2)
    full = MultiHeadAttention(num_heads=layer.num_heads)
    full.build(x.shape)
    full.set_weights(layer.get_weights())
    wanted = full(x, bias=mask_bias(near[None])).numpy()
    return float(np.abs(layer(x).numpy() - wanted).max() / np.abs(wanted).max())


if __name__ == "__main__":
    main()
