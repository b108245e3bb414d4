"""Graphs of functions of a batch, one for plain and one for packed batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf


def batch_function(
    function: Callable[..., Any], *specs: tf.TensorSpec, jit_compile: bool | None = None
) -> Callable[..., Any]:
    """Compiles `function(batch, *tensors)`, once for each set of features a batch may have.

    Args:
        function: of {feature: [B, L] int32} and tensors of `specs`. Rows and lengths are left
            open, so that batches of all shapes share a graph.
        jit_compile: whether XLA compiles it (for every shape that comes).
    """
    ids = tf.TensorSpec([None, None], tf.int32)
    graphs: dict[tuple[str, ...], Callable[..., Any]] = {}

    def call(batch: Mapping[str, Any], *tensors):
        names = tuple(sorted(batch))
        if names not in graphs:
            signature = [dict.fromkeys(names, ids), *specs]
            graphs[names] = tf.function(
                function, jit_compile=jit_compile, input_signature=signature, autograph=False
            )
        return graphs[names](dict(batch), *tensors)

    return call
