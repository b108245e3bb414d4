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
        jit_compile: whether XLA compiles it (for every shape that comes). Where it does not, a new
            shape costs nothing, and columns that are padding in every row are left out: a source
            may be much shorter than its target, whose length both are padded to.
    """
    traced = function if jit_compile else _of_used_columns(function)
    ids = tf.TensorSpec([None, None], tf.int32)
    graphs: dict[tuple[str, ...], Callable[..., Any]] = {}

    def call(batch: Mapping[str, Any], *tensors):
        names = tuple(sorted(batch))
        if names not in graphs:
            signature = [dict.fromkeys(names, ids), *specs]
            graphs[names] = tf.function(traced, jit_compile=jit_compile, input_signature=signature)
        return graphs[names](dict(batch), *tensors)

    return call


def _of_used_columns(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(batch: Mapping[str, Any], *tensors):
        used = {side: _used_columns(batch[side]) for side in ("inputs", "targets")}
        return function(
            {name: ids[:, : used[name.partition("_")[0]]] for name, ids in batch.items()}, *tensors
        )

    return call


def _used_columns(ids: tf.Tensor) -> tf.Tensor:
    """How many columns hold all ids of [B, L] but 0; at least one, which attention needs."""
    used = tf.reduce_any(ids != 0, axis=0)
    return tf.maximum(1, tf.reduce_max(tf.where(used, tf.range(1, tf.size(used) + 1), 0)))
