"""One graph for tensors of all sizes, where `tf.function` would trace one per size."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_keras.precision import cache_of, constants_not_copied


def open_graph(function: Callable[..., Any], jit_compile: bool | None = None) -> Callable[..., Any]:
    """Compiles a function into one graph per structure, rank and dtype of its arguments.

    Args:
        function: takes (nested) tensors and Python values as positional arguments. Its Python
            control flow is not converted (no `autograph`). After
            `tf.config.run_functions_eagerly(True)` it runs without a graph.
        jit_compile: True compiles with XLA, once per shape.
    """
    graph = tf.function(function, jit_compile=jit_compile, autograph=False)

    @tf.autograph.experimental.do_not_convert  # in a caller's graph it would warn
    @functools.wraps(function)
    def call(*arguments):
        flat = tf.nest.flatten(arguments)
        flat = [tf.convert_to_tensor(x) if isinstance(x, np.ndarray) else x for x in flat]
        tensors = tf.nest.pack_sequence_as(arguments, flat)
        if tf.config.functions_run_eagerly():
            return function(*tensors)
        specs = [
            tf.TensorSpec([None] * len(x.shape), x.dtype) if tf.is_tensor(x) else x for x in flat
        ]
        graph.get_concrete_function(*tf.nest.pack_sequence_as(arguments, specs))
        return graph(*tensors)  # uses that graph, the more general one

    return call


def open_graph_of_model(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes one `open_graph` of `function(model, *arguments)` per model and its variables."""

    @functools.wraps(function)
    def call(model, *arguments):
        graphs = cache_of(model, "_open_graphs")
        if function not in graphs:
            graphs[function] = open_graph(functools.partial(function, model))
        with constants_not_copied(model):
            return graphs[function](*arguments)

    return call


def open_shapes(state, *axes: int):
    """Returns the shapes of a nested structure of tensors, with the sizes of some axes left open.

    `tf.while_loop` needs them for a state that grows or loses sentences.
    """
    return tf.nest.map_structure(
        lambda x: tf.TensorShape([None if n in axes else size for n, size in enumerate(x.shape)]),
        state,
    )
