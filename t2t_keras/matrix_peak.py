"""How fast the machine multiplies matrices, and how many of its operations training needs."""

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
    """Floating-point operations a second of square matrix products on this machine's best device.

    Measured once, in less than a second: the fastest of several products, of a size that takes a while.

    Args:
        dtype: "float32", "bfloat16" or "float16".
    """
    product = tf.function(lambda a, b: tf.matmul(a, b))
    for size in _SIZES:
        a = tf.cast(tf.random.stateless_uniform([size, size], [1, 2]), dtype)
        _seconds(product, a)  # compiles
        fastest = _seconds(product, a)
        if fastest > _LONG_ENOUGH:
            break
    end = time.perf_counter() + _SECONDS
    while time.perf_counter() < end:
        fastest = min(fastest, _seconds(product, a))
    return 2 * size**3 / fastest


def slower_than_float32(dtype: str) -> str:
    """Says in a sentence that this machine computes faster in float32; "" where it does not.

    Args:
        dtype: "float32", "bfloat16" or "float16", of what is computed.
    """
    if dtype == "float32" or matrix_peak(dtype) >= matrix_peak("float32"):
        return ""
    rates = [f"{matrix_peak(each) / 1e9:,.0f}" for each in (dtype, "float32")]
    return (
        f"{dtype} is slower than float32 on this machine: its matrix products reach "
        f"{rates[0]} GFLOP/s, those of float32 {rates[1]}"
    )


def _seconds(product, a: tf.Tensor) -> float:
    start = time.perf_counter()
    float(product(a, a)[0, 0])  # waits for the device
    return time.perf_counter() - start


def operations_a_position(model) -> float:
    """Floating-point operations of a training step for each padded position, source and target alike.

    6 for each element of a matrix that the position is multiplied with (a product and a sum, forward
    and for both gradients): the encoder's at source positions, the decoder's and the softmax's at
    target positions, of which there are as many. Left out is the product of positions with one
    another in attention, L / (2 D + F) of the rest of a layer at length L: two hundredths in the base
    model where sentences have 50 tokens.

    Args:
        model: a `Transformer`.
    """
    weights = model.softmax.table.shape[0] * model.softmax.table.shape[1]
    for stack in (model.encoder, model.decoder):
        weights += sum(np.prod(v.shape) for v in stack.trainable_variables if len(v.shape) > 1)
    return float(6 * weights / 2)
