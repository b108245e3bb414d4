"""The peak rate of matrix products on this machine, and the operations that training needs."""

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
    """Returns floating-point operations per second of square matrix products on the best device.

    Measured once, in less than a second: the fastest of several products, large enough to time.
    """
    for size in _SIZES:
        a = tf.cast(tf.random.stateless_uniform([size, size], [1, 2]), dtype)
        _seconds(a)  # the first is slower
        fastest = _seconds(a)
        if fastest > _LONG_ENOUGH:
            break
    end = time.perf_counter() + _SECONDS
    while time.perf_counter() < end:
        fastest = min(fastest, _seconds(a))
    return 2 * size**3 / fastest


def slower_than_float32(dtype: str) -> str:
    """Returns a sentence if this machine computes faster in float32 than in a dtype, else ""."""
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
    """Returns floating-point operations of a training step per padded position of source or target.

    They are 6 for each weight that a position is multiplied with (a product and a sum, forward and for
    both gradients): those of the encoder at source positions, those of decoder and softmax at as many
    target positions. A language model or a classifier has one side alone. Not counted are the products of positions with one another in attention,
    L / (2 D + F) of the rest of a layer at length L: 2 % in the base model at 50 tokens.
    """
    stacks = [stack for stack in (model.encoder, model.decoder) if stack is not None]
    matrices = [v for stack in stacks for v in stack.trainable_variables if len(v.shape) > 1]
    if model.softmax is not None:
        matrices.append(model.softmax.table)
    return float(6 * sum(np.prod(matrix.shape) for matrix in matrices) / len(stacks))
