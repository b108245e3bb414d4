"""One graph for tensors of all sizes, where `tf.function` would trace one per size."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_keras.precision import cache_of


def open_graph(function: Callable[..., Any], jit_compile: bool | None = None) -> Callable[..., Any]:
    """Compiles a function into one graph per structure, rank and dtype of its arguments.

    Args:
        function: takes (nested) tensors and Python values as positional arguments. Its Python
            control flow is not converted (no `autograph`). After
            `tf.config.run_functions_eagerly(True)` it runs without a graph.
        jit_compile: True compiles with XLA, once per shape.
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
    """Makes one `open_graph` of `function(model, *arguments)` per model and its variables."""

    @functools.wraps(function)
    def call(model, *arguments):
        graphs = cache_of(model, "_open_graphs")
        if function not in graphs:
            graphs[function] = open_graph(functools.partial(function, model))
        return graphs[function](*arguments)

    return call


def _as_tensor(x):
    return tf.convert_to_tensor(x) if isinstance(x, np.ndarray) else x


def _open_spec(x):
    return tf.TensorSpec([None] * len(x.shape), x.dtype) if tf.is_tensor(x) else x


def open_shapes(state, *axes: int):
    """Returns the shapes of a nested structure of tensors, with the sizes of some axes left open.

    `tf.while_loop` needs them for a state that grows or loses sentences.
    """

    def shape(tensor):
        sizes = list(tensor.shape)
        return tf.TensorShape([None if n in axes else size for n, size in enumerate(sizes)])

    return tf.nest.map_structure(shape, state)
