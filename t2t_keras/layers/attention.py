"""Multi-head attention (section 3.2 of the paper), with T2T's relative positions."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from t2t_keras.errors import UserError
from t2t_keras.layers.masks import AttentionMask, distances
from t2t_keras.layers.sublayers import Dropout, SettingsLayer
from t2t_keras.precision import dense, fixed, multiply
from t2t_keras.shape import flattened, grown, matmul, moved, shape_of, softmax


@dataclasses.dataclass(eq=False)
class KeyValueCache:
    """Keys and values that attention keeps from one call to the next.

    A call adds those of its query, unless they are a memory's. It is not a tensor: each step of a
    decoding loop creates it from the loop's tensors, and reads `kept` after the calls.

    Attributes:
        kept: {"k": [B, H, S, K/H], "v": [B, H, S, V/H]}, what calls so far have left.
        of_memory: True for the keys and values of a memory, to which no call adds; if `kept` is None, the
            first call computes them.
        append: puts new keys [B, H, T, C] after those kept: `shape.grown`, or a function that writes them
            into tensors of a fixed size.
        prefix: {"k", "v"} of [B, H, P, C], seen before those that are kept; None without.
        joint_kernel: from `MultiHeadAttention.joint_kernel`; None multiplies with each kernel.
    """

    kept: dict[str, Any] | None
    of_memory: bool = False
    append: Callable = grown
    prefix: dict[str, Any] | None = None
    joint_kernel: Any = None


@keras.saving.register_keras_serializable("t2t_keras")
class MultiHeadAttention(SettingsLayer):
    """Multi-head dot-product attention: T2T's `multihead_attention`.

    Self-attention when called with only a query, attention over a memory (the encoder's output)
    when called with two tensors. Four projections without bias: q, k, v and output_transform. To
    write a variant, subclass it and override `keys_and_values`, `logit_bias` or `attend`.

    Args:
        num_heads: H.
        key_channels: depth of queries and keys over all heads; 0 means D.
        value_channels: depth of values over all heads; 0 means D.
        dropout: rate on the attention weights.
        dropout_broadcast_dims: axes of [B, H, T, S] along which dropout is shared.
        max_relative_position: if positive, self-attention adds learned embeddings of the distance to keys and
            values, clipped at this many positions (Shaw et al. 2018; T2T's `dot_product_relative`).
        kernel_initializer: initializer of the projections and distance embeddings.

    Call arguments:
        query: [B, T, D].
        memory: [B, S, D]; the query itself if absent.
        attention_mask: boolean, True where a query may attend to a key, that broadcasts to [T, S],
            [B, T, S] or [B, H, T, S]; or an `AttentionMask`, which then says all: the masks that the
            tensors carry hide no more.
        cache: a `KeyValueCache` with the keys and values of earlier positions, to which those of the
            query are added, or of the memory. By default the last query is at the last key. Only
            `attention_mask` hides earlier positions.
        query_mask: boolean [B, T], True at tokens; the mask of the keys if there is no memory.
        memory_mask: boolean [B, S]. Keras fills in the masks that query and memory carry.
        mask: the name by which Keras fills in the mask of a query that comes without a memory.
        return_attention_weights: also return the weights before dropout.

    Returns:
        [B, T, D], or a pair of that and the weights [B, H, T, S] in float32.
    """

    def __init__(
        self,
        *,
        num_heads: int,
        key_channels: int = 0,
        value_channels: int = 0,
        dropout: float = 0.0,
        dropout_broadcast_dims: Sequence[int] = (),
        max_relative_position: int = 0,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        # Autocast would cast the bias to float16, too: -1e9 becomes -inf, and a row of -inf gives NaN.
        super().__init__(locals(), autocast=False, **kwargs)
        if num_heads < 1:
            raise ValueError(f"num_heads must be 1 or more, got {num_heads}.")
        part: dict[str, Any] = {"dtype": self.dtype_policy, "name": "dropout"}
        self.dropout = Dropout(dropout, broadcast_dims=dropout_broadcast_dims, **part)

    def build(self, query_shape, memory_shape=None):
        hidden = query_shape[-1]
        memory_hidden = hidden if memory_shape is None else memory_shape[-1]
        key_channels = self.key_channels or hidden
        value_channels = self.value_channels or hidden
        for name, channels in (("key_channels", key_channels), ("value_channels", value_channels)):
            if channels % self.num_heads:
                raise ValueError(
                    f"{name} must be a multiple of num_heads, got {channels} and {self.num_heads}."
                )
        self.q = self.dense_part("q", hidden, key_channels, use_bias=False)
        self.k = self.dense_part("k", memory_hidden, key_channels, use_bias=False)
        self.v = self.dense_part("v", memory_hidden, value_channels, use_bias=False)
        self.output_transform = self.dense_part(
            "output_transform", value_channels, hidden, use_bias=False
        )
        if self.max_relative_position:
            if memory_shape is not None:
                raise ValueError("relative positions need self-attention, and a memory was given.")
            if key_channels != value_channels:
                raise ValueError(
                    "relative positions need equal key_channels and value_channels, got "
                    f"{key_channels} and {value_channels}."
                )
            for name in ("relative_keys", "relative_values"):
                shape = (2 * self.max_relative_position + 1, key_channels // self.num_heads)
                weight = self.add_weight(shape, self.new_initializer(), autocast=False, name=name)
                setattr(self, name, weight)
        self.key_scale = (key_channels // self.num_heads) ** -0.5

    def call(
        self,
        query,
        memory=None,
        attention_mask=None,
        cache=None,
        query_mask=None,
        memory_mask=None,
        mask=None,
        training=False,
        return_attention_weights=False,
    ):
        for name, x, axes in (("query", query, "[B, T, D]"), ("memory", memory, "[B, S, D]")):
            if x is not None and len(x.shape) != 3:
                raise ValueError(f"{name} must be {axes}, got shape {tuple(x.shape)}.")
        if memory is not None and mask is not None:
            raise ValueError("mask is for self-attention: with a memory, give memory_mask.")
        of_memory = cache is not None and cache.of_memory
        has_memory = memory is not None or of_memory
        carried = memory_mask if has_memory else mask if query_mask is None else query_mask
        keys, sizes = memory if has_memory else query, _sizes(query)
        if cache is None or cache.joint_kernel is None or memory is not None:
            q = self._heads(self.q, query, sizes, self.key_scale)
            seen = (of_memory and cache.kept) or self.keys_and_values(keys)
        else:
            # In a decoding step one product of [B*T, D] is faster than three small ones.
            joint = multiply(ops.reshape(query, (-1, query.shape[-1])), cache.joint_kernel)
            heads = (*sizes, 3, self.num_heads, self.k.units // self.num_heads)
            joint = moved(ops.reshape(joint, heads), 1, 3)  # [B*T, 3 K] -> [B, 3, H, T, C]
            q, *new = ops.unstack(joint, 3, 1)
            seen = dict(zip(("k", "v"), new, strict=True))
        if of_memory:
            cache.kept = seen
        elif cache is not None:
            # [B, H, S, C] -> [B, H, S + T, C]
            cache.kept = seen = {name: cache.append(cache.kept[name], seen[name]) for name in seen}
            if cache.prefix is not None:
                seen = {name: grown(cache.prefix[name], seen[name]) for name in seen}
            carried = None  # it is of the query, not of the keys before it
        keys = keys if cache is None else seen["k"]
        prepared = self.prepare(AttentionMask.of(attention_mask, query, keys, carried), query, keys)
        context, weights = self.attend(q, seen["k"], seen["v"], prepared, training=training)
        rows = moved(context, 2, 1)  # [B, H, T, C] -> [B, T, H, C]
        rows = flattened(rows, rows.shape[2] * rows.shape[3], training)
        output = dense(self.output_transform, rows)
        output = ops.reshape(output, (*sizes, output.shape[-1]))  # [B, T, D]
        return (output, weights) if return_attention_weights else output

    needs_positions = False
    """True if logits depend on the distance between query and key, besides mask and settings."""

    def prepare(self, mask: AttentionMask, query, keys=None) -> AttentionMask:
        """Returns the mask with its bias computed, once for all layers of a stack.

        One that is already prepared is returned unchanged. Only the lengths of query [..., T, D] and
        keys [..., S, D] are used; without keys, they are the query.
        """
        if mask.prepared is not None:
            return mask
        if self.needs_positions and mask.key_segments is not None:
            raise UserError(f"{self.name} has no distances in packed rows: unset packed_length.")
        bias = self.logit_bias(mask, query, query if keys is None else keys)
        return dataclasses.replace(mask, prepared=bias)

    def logit_bias(self, mask: AttentionMask, query, keys):
        """Returns the bias that is added to the logits [B, H, T, S], or None; see `prepare`."""
        return mask.dense_bias(query, keys)

    def keys_and_values(self, memory):
        """Projects [B, S, D] to {"k": [B, H, S, K/H], "v": [B, H, S, V/H]}, once for many queries."""
        sizes = _sizes(memory)
        return {name: self._heads(getattr(self, name), memory, sizes) for name in ("k", "v")}

    def joint_kernel(self):
        """Returns the kernels of q, k and v side by side, [D, 3 K], for the caches of many steps.

        None if keys and values differ in depth, a subclass overrides `keys_and_values`, or a
        projection does more than multiply with a kernel or is quantized.
        """
        q, k, v = self.q, self.k, self.v
        only_multiply = all(
            type(part) is keras.layers.Dense
            and part.bias is None
            and part.activation is keras.activations.linear
            and not part.quantization_mode
            for part in (q, k, v)
        )
        overridden = type(self).keys_and_values is not MultiHeadAttention.keys_and_values
        if overridden or not only_multiply or k.units != v.units:
            return None
        dtype, scale = self.compute_dtype, self.key_scale
        return fixed(
            self,
            lambda: ops.cast(ops.concatenate([q.kernel * scale, k.kernel, v.kernel], 1), dtype),
        )

    def empty_cache(self, batch):
        """Returns an empty cache: {"k": [B, H, 0, K/H], "v": [B, H, 0, V/H]}."""
        if type(self).keys_and_values is not MultiHeadAttention.keys_and_values:  # of other shapes
            nothing = ops.zeros((batch, 0, self.q.kernel.shape[0]), self.compute_dtype)
            return self.keys_and_values(nothing)
        heads, parts = self.num_heads, {"k": self.k, "v": self.v}
        shapes = {name: (batch, heads, 0, part.units // heads) for name, part in parts.items()}
        return {name: ops.zeros(shape, self.compute_dtype) for name, shape in shapes.items()}

    def attend(self, q, k, v, mask: AttentionMask, *, training=False):
        """Returns softmax(q k + bias) v, [B, H, T, V/H], and the weights before dropout, [B, H, T, S].

        Args:
            q: [B, H, T, K/H], already scaled.
            k, v: [B, H, S, K/H] and [B, H, S, V/H].
            mask: from `prepare`.
        """
        logits = matmul(q, k, transpose=True)  # [B, H, T, S]
        if self.max_relative_position:
            # With "..." in an einsum, its gradient would make a tensor of [B, H, T, S, C].
            keys = self._distance_embeddings(self.relative_keys, mask.distance, logits)
            logits = logits + ops.einsum("bhtc,tsc->bhts", q, keys)
        logits = ops.cast(logits, "float32")  # the softmax is float32 in any precision
        weights = softmax(logits if mask.prepared is None else logits + mask.prepared)

        values = [v]
        if self.max_relative_position:
            values += [self._distance_embeddings(self.relative_values, mask.distance, weights)]
        given = ops.cast(weights, self.compute_dtype)
        return self.dropout.weighted(given, *values, training=training), weights

    def _heads(self, projection, x, sizes, scale=None):
        """Projects [B, T, D] and splits it into heads, [B, H, T, C]; `sizes` are B and T."""
        y = dense(projection, flattened(x, x.shape[-1]))  # [1, B*T, H*C]
        if scale is not None:
            # Before the heads are split: on CPU, TensorFlow 2.21 wrongly fuses a multiplication right
            # before the matrix product of a decoding loop, and returns an empty tensor.
            y = y * scale
        y = ops.reshape(y, (*sizes, self.num_heads, projection.units // self.num_heads))
        return moved(y, 1, 2)  # [B, T, H, C] -> [B, H, T, C]

    def _distance_embeddings(self, table, distance, attention):
        """Looks up rows of `table` [2m+1, C] by the distances in `attention` [B, H, T, S]: [T, S, C]."""
        if distance is None:
            distance = distances(*shape_of(attention)[2:])
        m = self.max_relative_position
        rows = ops.clip(distance, -m, m) + m
        return ops.cast(ops.take(table, rows, axis=0), self.compute_dtype)


def _sizes(x):
    """Returns B and T of [B, T, D] for a reshape; if T is known, B is -1, which needs no operation."""
    length = x.shape[1]
    return (-1, length) if length else shape_of(x)[:2]
