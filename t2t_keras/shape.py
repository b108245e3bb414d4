"""Sizes, gathers and small products of tensors, in TensorFlow with fewer operations than Keras's."""

import contextlib
import functools
from typing import Any

import keras
from keras import ops

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"

if ON_TENSORFLOW:  # JAX needs no TensorFlow
    import tensorflow as tf


def shape_of(x) -> list[Any]:
    """Returns the sizes of a tensor as `ops.shape` does: ints, or scalar tensors where unknown.

    It adds two operations for all unknown sizes together; Keras adds four for each of them, an eighth
    of the operations in the training step of a small model.
    """
    is_known = None not in x.shape or isinstance(x, keras.KerasTensor)
    if is_known or not ON_TENSORFLOW:
        return list(ops.shape(x))
    return [known or size for known, size in zip(x.shape, tf.unstack(tf.shape(x)), strict=True)]


def flattened(x, depth, training=False):
    """Reshapes [B, T, ...] for a dense layer: to one matrix, [1, B*T, D], or a single query to [B, D].

    A dense layer adds far fewer operations to a graph of unknown sizes then. Except in training, few queries
    become [B*T, D], too: oneDNN multiplies a batch of one matrix slower, and computes its gradients faster.
    """
    few = [1] if training else [*range(1, FEW_QUERIES + 1)]  # torch.compile has no `in` of a range
    return ops.reshape(x, (-1, depth) if x.shape[1] in few else (1, -1, depth))


def take(values, index):
    """Gathers along an axis, with a separate index for each row: TensorFlow's `gather`.

    Args:
        values: [B, ..., N, ...].
        index: [B, ..., M] int32; its last axis replaces the axis N of `values`.

    Returns:
        [B, ..., M, ...].
    """
    axis = len(index.shape) - 1
    if ON_TENSORFLOW:  # one operation; Keras's takes a dozen
        return tf.gather(values, index, batch_dims=axis)
    index = ops.reshape(index, (*index.shape, *[1] * (len(values.shape) - axis - 1)))
    return ops.take_along_axis(values, index, axis)


# Small operations of a decoding step. TensorFlow replaces its own by oneDNN's, which take fifty
# microseconds each to start, and a step has a hundred of them.

FEW_QUERIES = 16
VECTORS = {"float32": 4, "bfloat16": 1}
"""How many queries are faster one by one, as vectors, than together by oneDNN."""


def _is_intel() -> bool:
    """Returns True on an Intel processor under Linux."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as facts:
        return "GenuineIntel" in facts.read(200)
    return False


FEW_ROWS = 6
COLUMNS = None if _is_intel() else 32
"""Up to how many rows are multiplied faster with a matrix in blocks of columns; and C, their width.

None: the whole matrix is one block. Blocks of 32 are up to twice as fast on an EPYC, and slower on a Xeon.
"""


def matmul(x, y, transpose=False):
    """Multiplies [..., T, C] with [..., C, S]; with `transpose`, with [..., S, C].

    TensorFlow multiplies each of a few queries by itself, as [..., T, 1, C], and so without oneDNN. (Its
    product of several rows is much slower than oneDNN's, and in float16 it has none.)
    """
    most = VECTORS.get(keras.backend.standardize_dtype(x.dtype), 0)
    if ON_TENSORFLOW and x.shape[-2] in range(1, most + 1):
        product = functools.partial(tf.raw_ops.BatchMatMulV3, Tout=x.dtype, adj_y=transpose)
        if x.shape[-2] == 1:
            return product(x=x, y=y)
        return tf.squeeze(product(x=tf.expand_dims(x, -2), y=tf.expand_dims(y, -3)), -2)
    return ops.matmul(x, ops.swapaxes(y, -1, -2) if transpose else y)


def matmul_over_rows(x, y):
    """Multiplies the transpose of [N, D] with [N, F]; on a Xeon as a batch of one matrix, slower on an EPYC."""
    if COLUMNS is None:
        return ops.matmul(ops.swapaxes(x[None], 1, 2), y[None])[0]
    return ops.matmul(ops.transpose(x), y)


def in_blocks(matrix):
    """Returns the columns of a matrix [D, N] in blocks, [N/C, D, C], for `matmul_of_few`.

    A matrix in half precision, or of a number of columns that C does not divide, is returned as it is.
    """
    d, n = matrix.shape
    columns = COLUMNS or n
    if n % columns or keras.backend.standardize_dtype(matrix.dtype) != "float32":
        return matrix
    return ops.transpose(ops.reshape(matrix, (d, n // columns, columns)), (1, 0, 2))


def matmul_of_few(x, blocks):
    """Multiplies [T, D] with blocks of columns [N/C, D, C]: [T, N]. The rows are taken one by one.

    Such a product reads memory once, from its beginning to its end, and keeps its C sums in registers:
    one row takes half to nine tenths of TensorFlow's time for [D, N] on an EPYC, four six to nine tenths.
    With the whole matrix in one block only one row gains; several are for TensorFlow's own product.
    """
    number, d, columns = blocks.shape
    if number == 1 and x.shape[0] != 1:
        return ops.matmul(x, ops.reshape(blocks, (d, columns)))
    x = ops.reshape(x, (1, -1, 1, d))
    z = tf.raw_ops.BatchMatMulV3(x=x, y=ops.expand_dims(blocks, 1), Tout=x.dtype)
    return ops.reshape(moved(z, 1, 0), (-1, number * columns))  # [N/C, T, 1, C] -> [T, N]


def softmax(logits):
    """Returns the softmax over the last axis of [..., T, S]; few queries bypass oneDNN."""
    queries = logits.shape[-2]
    if ON_TENSORFLOW and queries is not None and queries <= FEW_QUERIES:
        return tf.exp(tf.nn.log_softmax(logits))
    return ops.softmax(logits, axis=-1)


def moved(x, axis, to):
    """Moves the axis T of a tensor to another place; few queries are taken apart, which bypasses oneDNN."""
    queries, order = x.shape[axis], [*range(len(x.shape))]
    order.insert(to, order.pop(axis))
    if queries == 1 and [*x.shape].count(None) < 2:
        return ops.reshape(x, [-1 if x.shape[i] is None else x.shape[i] for i in order])
    if ON_TENSORFLOW and queries and queries <= FEW_QUERIES:
        return ops.stack(ops.unstack(x, queries, axis), to)
    return ops.transpose(x, order)  # PyTorch's `vmap` has no `moveaxis`


def custom_gradient(function):
    """Keras's `ops.custom_gradient` of a function of tensors, made once for all calls.

    TensorFlow never frees a graph in which it made one: here that is a graph of its own for each shape.
    """
    if keras.backend.backend() == "torch":
        function = _again_with_a_graph(function)
    if not ON_TENSORFLOW:
        return ops.custom_gradient(function)
    made = tf.custom_gradient(function)
    in_graphs = tf.function(made, autograph=False)

    def call(*tensors):
        given = map(tf.convert_to_tensor, tensors)  # of a variable there would be no gradient
        return (made if tf.executing_eagerly() else in_graphs)(*given)

    return call


def _again_with_a_graph(function):
    """Lets a gradient on PyTorch have one itself: what `backward` reads was computed without a graph."""
    import torch

    def given(*tensors):
        y, kept = function(*tensors)

        def backward(*args, upstream):  # Keras passes the gradient by name
            return (function(*args)[1] if torch.is_grad_enabled() else kept)(upstream)

        return y, backward

    return given


@custom_gradient
def relu_of_dropped(x, mask):
    """Returns y = relu(x) where the mask is True, else 0; its gradient keeps y alone, no mask."""
    y = ops.relu(ops.where(mask, x, 0))

    def backward(dy, dtype=x.dtype):
        if ON_TENSORFLOW:  # a comparison of y would not wait for dy, and so be kept
            dx = tf.raw_ops.ReluGrad(gradients=dy, features=y)
        else:
            dx = ops.where(y > 0, dy, 0)
        return ops.cast(dx, dtype), None

    return y, backward


def row_sum(x):
    """Sums [..., D] over all axes but the last: on a CPU in a third to half of the time of TensorFlow's sum."""
    if ON_TENSORFLOW:
        return tf.raw_ops.BiasAddGrad(out_backprop=x)
    return ops.sum(x, list(range(len(x.shape) - 1)))


def add_bias(x, bias):
    """Adds [D] to [..., D]; the gradient of the bias is a `row_sum`."""
    return tf.nn.bias_add(x, bias) if ON_TENSORFLOW else x + bias


def while_loop(condition, body, first):
    """Keras's `ops.while_loop`, whose iterations do not overlap: what the next would keep is not in memory."""
    if ON_TENSORFLOW:
        return tf.while_loop(condition, body, first, parallel_iterations=1)
    return ops.while_loop(condition, body, first)


def cross_entropy(logits, labels, added=0.0):
    """Returns -log p of the labels [n], and its gradient by the logits [n, V] float32, p - onehot(label).

    `added` is added to the label's gradient. A label out of range: NaN. TensorFlow's operation takes thrice the time.
    """
    p = ops.softmax(logits, axis=-1)
    of_label, p_of_label = (take(x, labels[:, None])[:, 0] for x in (logits, p))
    log_of_sum = ops.max(logits, axis=-1) - ops.log(ops.max(p, axis=-1))
    places = ops.stack([ops.arange(shape_of(labels)[0], dtype=labels.dtype), labels], axis=-1)
    gradient = ops.scatter_update(p, places, p_of_label - 1.0 + added)
    known = (labels >= 0) & (labels < logits.shape[-1])  # with XLA, another one was taken
    return ops.where(known, log_of_sum - of_label, float("nan")), gradient


def grown(values, new, i=None):
    """Appends [B, K, n, ...] to [B, K, S, ...] along S, whatever its number i."""
    return ops.concatenate([values, new], 2)


def written(values, new, i):
    """Writes [B, K, n, ...] into [B, K, S, ...] as its block number i of n."""
    place = i * shape_of(new)[2]
    return ops.slice_update(values, [0, 0, place, *[0] * (len(values.shape) - 3)], new)
