"""Models in half precision or with 8-bit weights, their products, and what is kept between searches."""

import contextlib
import contextvars
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops
from keras.dtype_policies import DTypePolicy, DTypePolicyMap

from t2t_keras.errors import UserError, require_one_of
from t2t_keras.shape import ON_TENSORFLOW, add_bias, matmul_of_few, shape_of

if ON_TENSORFLOW:  # JAX needs no TensorFlow
    import tensorflow as tf

PRECISIONS = ("float32", "bfloat16", "float16", "int8")


def in_precision(model, precision: str):
    """Returns a copy of a `Transformer` or `Ensemble` in another precision, for decoding and export.

    In half precision, softmax, normalisation and positions stay in float32; logits are computed in half
    precision and compared in float32. "int8" is 8 bits for the kernels that layers of this package
    multiply with; embeddings, biases, normalisation and the logits of whole targets are not quantized.
    A `tf.function` of one's own keeps the 8-bit weights with which it was traced; all else sees changes.

    Raises:
        UserError: the precision is not one of `PRECISIONS`, or TensorFlow lacks it on this machine; or
            the model is quantized or has LoRA weights.
    """
    if model.members[0] is not model:
        return type(model)([in_precision(each, precision) for each in model.members])
    require_float_kernels(model, f"a {precision} copy holds")
    policy = policy_in(precision, model.dtype_policy.name)
    config = {**model.get_config(), "dtype": keras.dtype_policies.serialize(policy)}
    copy = type(model).from_config(config)
    for ours, theirs in zip(copy.weights, model.weights, strict=True):
        ours.assign(ops.cast(theirs, ours.dtype))
    given = dict(_parts(model))  # activations may have been set once a layer was built
    for path, part in _parts(copy):
        if isinstance(part, keras.layers.Dense):
            part.activation = given.get(path, part).activation
    return copy


def policy_of(activation_dtype: str) -> str:
    """Returns the name of a model's policy by that hparam; with "float32", Keras's default."""
    if activation_dtype == "float32":
        return keras.config.dtype_policy().name
    return f"mixed_{activation_dtype}"


def policy_in(precision: str, own: str) -> DTypePolicy:
    """Returns the policy of a model in one of `PRECISIONS`; errors as of `in_precision`.

    `own` names its policy without one: with "int8", that of all but the kernels.
    """
    require_one_of("precision", precision, PRECISIONS)
    return EightBits(own) if precision == "int8" else DTypePolicy(precision)


def require_float_kernels(model, holder: str) -> None:
    """Raises UserError if a model is quantized or has LoRA weights, which `holder` (with a verb) lacks."""
    for variable in model.variables:
        if variable.dtype == "int8" or variable.name.startswith("lora_"):
            raise UserError(
                f"{holder} float kernels only, but the model has {variable.path}: save it before "
                "quantize(); LoRA weights are merged into the kernels in a .keras file."
            )


def cache_of(model, name: str) -> dict:
    """Returns a dict for the graphs of a model, a new one once the model has other variables.

    `enable_lora` and `quantize` give it others, and a graph keeps those that it was traced with. A graph
    with 8-bit weights keeps their values, so it is also a new one if these have changed.

    The attribute `name` of the model or `Ensemble` holds it. Within a `keras.StatelessScope`, whose values
    a graph would keep, nothing holds it.
    """
    read = [
        _values(each.variables) if isinstance(each.dtype_policy, EightBits) else [*each.variables]
        for each in model.members
    ]
    variables = (variable for each in model.members for variable in each.variables)
    if ON_TENSORFLOW and not all(isinstance(each.value, tf.Variable) for each in variables):
        return {}
    attributes = vars(model)  # not `setattr`: Keras would track them
    # What was read is kept, so that nothing new has the id or the address of what was freed.
    former, cache = attributes.get(name, ([], {}))
    if any(former) and not all(map(_same, former, read)):  # not if only built since
        cache = {}
    attributes[name] = read, cache
    return cache


def _same(former: list, now: list) -> bool:
    def identity(value) -> int:
        """Returns the address of an eager tensor's values; if that is not to be had, its own."""
        if isinstance(value, keras.Variable) or value.dtype == "bfloat16":
            return id(value)
        return np.asarray(memoryview(value)).ctypes.data

    return list(map(identity, former)) == list(map(identity, now))


def _values(variables) -> list:
    """Returns the tensors with the values of variables now: while kept, nothing is written over them."""
    with tf.init_scope():
        return [tf.convert_to_tensor(variable.value) for variable in variables]


def kept_kernels(model, few_rows: bool) -> tuple[bool, Any]:
    """Returns `few_rows` and `model.step_kernels(few_rows)`, made again only if the weights have changed.

    Those for few rows are made on a CPU alone, and until a search has more rows: its kernels then serve all.
    None if a search makes them in its graph: with weights in 8 bits, or in a graph of a caller's.
    """
    if in_8_bits(model) or not tf.executing_eagerly():
        return False, None
    read = _values(variable for each in model.members for variable in each.kernel_variables)
    former, were_few, kernels = vars(model).get("_kept_kernels", ([], True, None))
    few_rows = few_rows and were_few and not tf.config.list_logical_devices("GPU")
    if kernels is None or few_rows != were_few or not _same(former, read):
        kernels = model.step_kernels(few_rows)
        kernels = _in_large_pages(kernels) if few_rows else kernels
    vars(model)["_kept_kernels"] = read, few_rows, kernels
    return few_rows, kernels


def _in_large_pages(tensors):
    """Copies nested tensors into one array, for which NumPy asks Linux for pages of 2 MB: faster to read.

    Returned as they are if not all are float32, of sizes that keep the copies aligned for TensorFlow.
    """
    flat = tf.nest.flatten(tensors)
    if any(each is None or each.dtype != "float32" or tf.size(each) % 16 for each in flat):
        return tensors
    ends = np.cumsum([tf.size(each) for each in flat])
    room = np.empty(ends[-1] + 16, np.float32)
    start = -room.ctypes.data % 64 // 4
    for i, part in enumerate(np.split(room[start : start + ends[-1]], ends[:-1])):
        part[:] = np.ravel(flat[i])
        flat[i] = tf.experimental.dlpack.from_dlpack(part.reshape(flat[i].shape).__dlpack__())
    return tf.nest.pack_sequence_as(tensors, flat)


_in_blocks = contextvars.ContextVar[dict | None]("kernels in blocks", default=None)


@contextlib.contextmanager
def kernels_in_blocks(layers: Sequence[keras.layers.Dense], blocks: Sequence) -> Iterator[None]:
    """Lets `dense` multiply few rows with kernels from `shape.in_blocks`; without, or for a None, as ever."""
    pairs = zip(layers, blocks or [None] * len(layers), strict=True)
    token = _in_blocks.set({layer: kernel for layer, kernel in pairs if kernel is not None})
    try:
        yield
    finally:
        _in_blocks.reset(token)


# TensorFlow's only 8-bit matrix product with float results is oneDNN's, on a CPU. It is fast if the weights
# are constants in the graph of the same loop body that multiplies with them. Activations are quantized on
# the fly, each row scaled by its largest value.


@keras.saving.register_keras_serializable("t2t_keras")
class EightBits(DTypePolicy):
    """The policy of a model whose layers multiply in 8 bits, with the matrices of all of them.

    `name` is the policy of everything else. It is a `UserError` if TensorFlow has no 8-bit matrix
    product on this machine.
    """

    def __init__(self, name: str = "float32", **kwargs: Any):
        if not has_int8():
            raise UserError(
                "precision int8 needs oneDNN, which TensorFlow has on x86 processors, on older ones with "
                "TF_ENABLE_ONEDNN_OPTS=1 in the environment: set that, or choose another precision."
            )
        super().__init__(name, **kwargs)
        self.matrices: dict[keras.layers.Layer, tuple[list, Int8Matrix]] = {}

    def matrix(self, layer, make: Callable[[], Any]) -> "Int8Matrix":
        """Returns the matrix [D, N] that `make` computes from a layer's weights, as they are now."""
        values = _values(layer.variables)
        former, matrix = self.matrices.get(layer, ([], None))
        if matrix is None or not _same(former, values):
            with tf.init_scope():
                matrix = Int8Matrix(ops.convert_to_numpy(make()).astype(np.float32, copy=False))
            self.matrices[layer] = values, matrix
        return matrix


def in_8_bits(model) -> bool:
    """Returns True if a model, or one of an ensemble's, multiplies in 8 bits."""
    return any(isinstance(each.dtype_policy, EightBits) for each in model.members)


_in_own_graph = contextvars.ContextVar("in own graph", default=False)  # not in one of the caller's
_lock = threading.Lock()
_grappler_off = {"calls": 0, "before": False}


@contextlib.contextmanager
def constants_not_copied(model) -> Iterator[None]:
    """Lets a graph of a model with 8-bit weights have few copies of these; no effect within a graph.

    Grappler copies constants again and again, and so do functions within functions: for a base model,
    10 seconds and 0.6 GB, and 2 seconds and 0.2 GB.
    """
    if not in_8_bits(model) or not tf.executing_eagerly():
        yield
        return
    name, options = "disable_meta_optimizer", tf.config.optimizer
    with _lock:  # the option is one for all threads: what it was before is known to the first one
        if not _grappler_off["calls"]:
            _grappler_off["before"] = options.get_experimental_options().get(name, False)
        _grappler_off["calls"] += 1
    options.set_experimental_options({name: True})
    token = _in_own_graph.set(True)
    try:
        yield
    finally:
        _in_own_graph.reset(token)
        options.set_experimental_options({name: _grappler_off["before"]})
        with _lock:
            _grappler_off["calls"] -= 1


def weights_read(model) -> list:
    """Returns the weights that a model's graphs traced so far read: all but the kernels in 8 bits."""
    policy = model.dtype_policy
    layers = policy.matrices if isinstance(policy, EightBits) else ()
    replaced = {id(each.kernel) for each in layers if isinstance(each, keras.layers.Dense)}
    return [weight for weight in model.weights if id(weight) not in replaced]


def fixed(layer, make: Callable[[], Any]):
    """Returns `make()`, a matrix [D, N] of a layer's weights, for `multiply`; in 8 bits an `Int8Matrix`."""
    policy = layer.dtype_policy
    return policy.matrix(layer, make) if isinstance(policy, EightBits) else make()


def multiply(x, matrix):
    """Multiplies [..., D] with a matrix from `fixed`, or that in blocks: [..., N]."""
    if isinstance(matrix, Int8Matrix):
        return matrix.multiply(x)
    x = ops.cast(x, matrix.dtype)
    if len(matrix.shape) == 2:
        return ops.matmul(x, matrix)
    y = matmul_of_few(ops.reshape(x, (-1, x.shape[-1])), matrix)
    return ops.reshape(y, (*shape_of(x)[:-1], y.shape[-1]))


def dense(layer, x, scale=None):
    """Applies a `Dense` layer to x [..., D], in 8 bits if that is its policy; with `scale`, to scale x.

    `flattened` gives x the form that is multiplied fastest. TensorFlow does not join the product of [N, D] with
    the bias: for a single row the joint operation is slower.
    """
    if isinstance(layer.dtype_policy, EightBits) and type(layer).call is keras.layers.Dense.call:
        x = x if scale is None else x * scale
        y = multiply(x, layer.dtype_policy.matrix(layer, lambda: layer.kernel))
        return layer.activation(y if layer.bias is None else y + ops.cast(layer.bias, y.dtype))
    blocks = _in_blocks.get()  # not in the condition: AutoGraph knows no `:=`
    if blocks and layer in blocks:
        y = multiply(x, blocks[layer])
        return layer.activation(y if layer.bias is None else y + layer.bias)
    # What a subclass of `Dense`, a quantized or an unbuilt one does more is its own.
    plain = type(layer) is keras.layers.Dense and layer.built and not layer.quantization_mode
    flat = len(x.shape) == 2
    if not plain or layer.activity_regularizer or not (flat or x.shape[0] == 1):
        return layer(x if scale is None else x * scale)
    x, kernel = (ops.cast(t, layer.compute_dtype) for t in (x, layer.kernel))
    y = ops.matmul(x, kernel if flat else ops.expand_dims(kernel, 0))
    if scale is not None:
        y = y * scale  # not x, which is wider in a feed-forward part
    if layer.bias is not None:
        bias = ops.cast(layer.bias, y.dtype)
        y = ops.squeeze(ops.expand_dims(y, 0) + bias, 0) if flat else add_bias(y, bias)
    return layer.activation(y)


LARGEST_WEIGHT = 64
"""Largest rounded weight. Without AVX-512 VNNI, oneDNN adds pairs of products in 16 bits, which hold
2 * 255 * 64 but not 2 * 255 * 127."""


class Int8Matrix:
    """A matrix [D, N] of float32 weights rounded to 8 bits, with a scale for each column."""

    def __init__(self, values: np.ndarray):
        self.scales = np.maximum(np.abs(values).max(0), 1e-30) / LARGEST_WEIGHT  # [N]
        self.weights = np.round(values / self.scales).astype(np.int8)

    def multiply(self, x):
        """Multiplies [..., D] with the matrix: [..., N] in the dtype of x."""
        if len(x.shape) != 2:
            y = self.multiply(tf.reshape(x, [-1, x.shape[-1]]))
            return tf.reshape(y, [*shape_of(x)[:-1], y.shape[-1]])
        product = self._product if _in_own_graph.get() else self._shared_product
        return tf.cast(product(tf.cast(x, tf.float32)), x.dtype)

    def _product(self, x):
        largest = tf.reduce_max(tf.abs(x), -1, keepdims=True)  # [n, 1]
        # oneDNN needs rows in 0..255: 128 is added here and subtracted in the bias; 0.5 rounds.
        steps = tf.math.divide_no_nan(127.0, largest)
        rows = tf.bitcast(tf.cast(x * steps + 128.5, tf.uint8), tf.quint8)
        y = tf.raw_ops.QuantizedMatMulWithBiasAndDequantize(
            a=rows,
            b=tf.constant(self.weights.view(tf.qint8.as_numpy_dtype)),
            bias=tf.constant(-128 * self.weights.sum(0, dtype=np.float32)),
            min_a=0.0,  # ranges of 255 and 127 steps give the plain integer product
            max_a=255.0,
            min_b=-127.0,
            max_b=127.0,
            min_freezed_output=0.0,  # not used for float outputs
            max_freezed_output=0.0,
            Toutput=tf.float32,
            input_quant_mode="SCALED",
        )
        # One after the other: their product would be another tensor [n, N].
        return y * largest * (self.scales / 127)

    @functools.cached_property
    def _shared_product(self):
        """`_product` as a function of its own, so that an export holds the weights once for all uses."""
        row = tf.TensorSpec([None, self.weights.shape[0]], tf.float32)
        return tf.function(self._product, input_signature=[row], autograph=False)


@functools.cache
def has_int8() -> bool:
    """Returns True if TensorFlow is the backend and has an 8-bit matrix product on this machine."""
    if not ON_TENSORFLOW:
        return False
    try:
        Int8Matrix(np.ones([8, 8], np.float32)).multiply(tf.ones([1, 8]))
    except tf.errors.OpError:
        return False
    return True


# Configs of layers store the policies of their parts, which `model.quantize` sets one by one


def dtype_config(layer: keras.layers.Layer) -> dict[str, Any]:
    """Returns "dtype" for a layer's config: its policy, or a map that includes its quantized parts."""
    policy = layer.dtype_policy
    if quantized := {k: part.dtype_policy for k, part in _parts(layer) if part.quantization_mode}:
        default = policy.default_policy if isinstance(policy, DTypePolicyMap) else policy
        policy = DTypePolicyMap(default.name, quantized)
    return keras.dtype_policies.serialize(policy)


def policy_of_part(layer: keras.layers.Layer, name: str) -> DTypePolicy:
    """Returns the policy of the part `name` of a layer that is being built.

    If a `Dense` got the whole map, it would lose its scales when Keras 3.15 saves it.
    """
    policy = layer.dtype_policy
    if not isinstance(policy, DTypePolicyMap):
        return policy
    path = f"{layer.path}/{name}"
    # A key begins below the layer whose config has the map: Keras may load that at another path.
    # (Files of earlier versions have whole paths.)
    keys = [key for key in policy if f"/{path}".endswith(f"/{key}")]
    return policy[max(keys, key=len, default=path)]


def _parts(layer) -> Iterator[tuple[str, Any]]:
    """Yields the path of each part below a layer, such as "layer_0/ffn/conv1", and the part."""
    # On PyTorch a layer is a module, and `vars` does not hold its parts.
    is_module = keras.backend.backend() == "torch"
    for part in layer.children() if is_module else vars(layer).values():
        if isinstance(part, keras.layers.Layer):
            yield part.name, part
            for path, below in _parts(part):
                yield f"{part.name}/{path}", below
