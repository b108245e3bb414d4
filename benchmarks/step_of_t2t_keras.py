"""Our training step, or the machine's rate of matrix products; started by `train_step.py`."""

import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from step_timing import DROPOUT, LABEL_SMOOTHING, answer

import t2t_keras as t2t
from t2t_keras.training import Engine, EngineSettings

SIZES = (1024, 2048, 4096, 8192)
LONG_ENOUGH = 0.02
SECONDS = 0.3


def make_step(spec):
    if spec["way"] == "peak":
        rates = []

        def measure():
            rates.append(matrix_peak(spec["precision"]))

        return measure, {"rates": rates, "versions": f"TensorFlow {tf.__version__}"}
    engine = make_engine(spec)
    facts = {
        "versions": f"TensorFlow {tf.__version__}",
        "parameters": sum(v.shape.num_elements() for v in engine.model.trainable_variables),
        "flops_per_position": flops_per_position(engine.model),
    }
    if spec.get("data_dir"):
        return epoch(engine, spec, facts)
    shape = [spec["rows"], spec["length"]]
    seeds = {"inputs": [0, 0], "targets": [0, 1]}
    batch = {
        side: tf.random.stateless_uniform(shape, seed, 2, spec["vocab"], tf.int32)
        for side, seed in seeds.items()
    }
    iterator = iter(tf.data.Dataset.from_tensors(batch).repeat())
    return lambda: engine.train(iterator, 1), facts


def matrix_peak(dtype: str) -> float:
    """Measures the peak FLOP/s of square matrix products on TensorFlow's default device.

    It takes less than a second: the fastest of several products that are large enough to time.
    """
    for size in SIZES:
        a = tf.cast(tf.random.stateless_uniform([size, size], [1, 2]), dtype)
        seconds(a)  # the first one is slower
        fastest = seconds(a)
        if fastest > LONG_ENOUGH:
            break
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        fastest = min(fastest, seconds(a))
    return 2 * size**3 / fastest


def seconds(a: tf.Tensor) -> float:
    start = time.perf_counter()
    float(tf.matmul(a, a)[0, 0])  # waits for the device
    return time.perf_counter() - start


def flops_per_position(model) -> float:
    """Returns the FLOPs of a training step per padded position of source or target.

    A position costs 6 per weight that it is multiplied with (multiply and add, in the forward pass
    and for both gradients). Source positions meet the encoder's weights, target positions those of
    decoder and softmax; there are assumed to be as many of either. A language model or a classifier
    has one side only. Products between positions in attention are not counted: at length L they cost
    L / (2 D + F) of the rest of a layer, 2 % in the base model at 50 tokens.
    """
    stacks = [stack for stack in (model.encoder, model.decoder) if stack is not None]
    matrices = [v for stack in stacks for v in stack.trainable_variables if len(v.shape) > 1]
    if model.softmax is not None:
        matrices.append(model.softmax.table)
    return float(6 * sum(np.prod(matrix.shape) for matrix in matrices) / len(stacks))


def make_engine(spec):
    dropout = ("layer_prepostprocess_dropout", "attention_dropout", "relu_dropout")
    hp = t2t.registry.hparams("transformer_base").replace(
        num_hidden_layers=spec["layers"],
        hidden_size=spec["hidden"],
        filter_size=spec["filter"],
        num_heads=spec["heads"],
        label_smoothing=LABEL_SMOOTHING,
        batch_size=spec["rows"] * spec["length"],
        **dict.fromkeys(dropout, DROPOUT),
    )
    settings = EngineSettings(
        xla=spec["compiled"], precision=spec["precision"], remat=spec["way"] == "ours_remat"
    )
    return Engine(
        hp, source_vocab_size=spec["vocab"], target_vocab_size=spec["vocab"], settings=settings
    )


def epoch(engine, spec, facts):
    """A step on the next few batches of shards.

    It uses the same batches every time, so all shapes have been compiled after the first call.
    """
    batches = t2t.data.Batches(
        t2t.registry.problem(spec["problem"]), "train", spec["data_dir"], engine.model.hp
    )
    dataset = batches.dataset().take(spec["batches"]).cache()
    facts["totals"] = totals = []
    facts["shapes"] = len({tuple(batch["inputs"].shape) for batch in dataset})

    def step():
        totals[:] = engine.train(iter(dataset), spec["batches"])

    return step, facts


if __name__ == "__main__":
    answer(make_step)
