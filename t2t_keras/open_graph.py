"""One graph for tensors of all sizes, where `tf.function` would make a graph for each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf


def open_graph(function: Callable[..., Any], jit_compile: bool | None = None) -> Callable[..., Any]:
    """Compiles a function into graphs, one for each structure, rank and dtype of its arguments.

    Args:
        function: takes tensors, nested ones too, and Python values, by position. Python control flow
            in it is not converted (no `autograph`). After `tf.config.run_functions_eagerly(True)` it
            runs without a graph.
        jit_compile: True compiles with XLA, once for every shape.
    """
    graph = tf.function(function, jit_compile=jit_compile, autograph=False)

    @functools.wraps(function)
    def call(*arguments):
        arguments = tf.nest.map_structure(_as_tensor, arguments)
        if tf.config.functions_run_eagerly():
            return function(*arguments)
        graph.get_concrete_function(*tf.nest.map_structure(_open_spec, arguments))
        return graph(*arguments)  # uses that graph, the more general one

    return call


def open_graph_of_model(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes an `open_graph` of `function(model, *arguments)` for each model, freed with the model."""

    @functools.wraps(function)
    def call(model, *arguments):
        # Past `__setattr__`: Keras must not track it.
        graphs = vars(model).setdefault("_open_graphs", {})
        if function not in graphs:
            graphs[function] = open_graph(functools.partial(function, model))
        return graphs[function](*arguments)

    return call


def _as_tensor(x):
    return tf.convert_to_tensor(x) if isinstance(x, np.ndarray) else x


def _open_spec(x):
    return tf.TensorSpec([None] * len(x.shape), x.dtype) if tf.is_tensor(x) else x
