"""One graph for tensors of all sizes, where `tf.function` makes a graph for each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf


def open_graph(function: Callable[..., Any], jit_compile: bool | None = None) -> Callable[..., Any]:
    """Compiles a function; all sizes share a graph, other ranks, dtypes and dictionary keys do not.

    Args:
        function: of tensors, nested ones too, and of what Python has, None among it, by their
            places. Its own Python is not converted (no `autograph`). It runs as it is after
            `tf.config.run_functions_eagerly(True)`.
        jit_compile: whether XLA compiles it (for every shape that comes).
    """
    graph = tf.function(function, jit_compile=jit_compile, autograph=False)

    @functools.wraps(function)
    def call(*arguments):
        arguments = tf.nest.map_structure(_as_tensor, arguments)
        if tf.config.functions_run_eagerly():
            return function(*arguments)
        graph.get_concrete_function(*tf.nest.map_structure(_open_spec, arguments))
        return graph(*arguments)  # takes that one, since it is more general

    return call


def open_graph_of_model(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes of `function(model, *arguments)` an `open_graph` for each model, which goes with it."""

    @functools.wraps(function)
    def call(model, *arguments):
        graphs = vars(model).setdefault("_open_graphs", {})  # not for Keras to track
        if function not in graphs:
            graphs[function] = open_graph(functools.partial(function, model))
        return graphs[function](*arguments)

    return call


def _as_tensor(x):
    return tf.convert_to_tensor(x) if isinstance(x, np.ndarray) else x


def _open_spec(x):
    return tf.TensorSpec([None] * len(x.shape), x.dtype) if tf.is_tensor(x) else x
