"""The peak matmul rate of this machine, and the FLOPs of a training step."""

from __future__ import annotations

import functools
import time

import numpy as np
import tensorflow as tf

_SIZES = (1024, 2048, 4096, 8192)
_LONG_ENOUGH = 0.02
_SECONDS = 0.3


@functools.cache
def matrix_peak(dtype: str) -> float:
    """Measures the peak FLOP/s of square matrix products on TensorFlow's default device.

    It measures once per dtype, in less than a second: the fastest of several products that are
    large enough to time.
    """
    for size in _SIZES:
        a = tf.cast(tf.random.stateless_uniform([size, size], [1, 2]), dtype)
        _seconds(a)  # the first one is slower
        fastest = _seconds(a)
        if fastest > _LONG_ENOUGH:
            break
    end = time.perf_counter() + _SECONDS
    while time.perf_counter() < end:
        fastest = min(fastest, _seconds(a))
    return 2 * size**3 / fastest


def slower_than_float32(dtype: str) -> str:
    """Returns a sentence that says so if a dtype is slower than float32 on this machine, else ""."""
    if dtype == "float32" or matrix_peak(dtype) >= matrix_peak("float32"):
        return ""
    rates = [f"{matrix_peak(each) / 1e9:,.0f}" for each in (dtype, "float32")]
    return (
        f"{dtype} is slower than float32 on this machine: measured matmul peak {rates[0]} GFLOP/s, "
        f"float32 {rates[1]} GFLOP/s"
    )


def _seconds(a: tf.Tensor) -> float:
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
