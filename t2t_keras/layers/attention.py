"""Multi-head attention (section 3.2 of the paper), with T2T's relative positions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import keras
from keras import ops

from t2t_keras.layers.masks import AttentionMask, distances
from t2t_keras.layers.sublayers import Dropout
from t2t_keras.precision import dense, dtype_config, fixed, multiply, policy_of_part
from t2t_keras.shape import grown, matmul, shape_of, softmax, transpose


class KeyValueCache:
    """Keys and values that attention keeps from one call to the next.

    A call adds those of its query, unless they are a memory's. It is not a tensor: each step of a
    decoding loop creates it from the loop's tensors, and reads `kept` after the calls.

    Args:
        kept: {"k": [B, H, S, K/H], "v": [B, H, S, V/H]}, what calls so far have left.
        of_memory: True for the keys and values of a memory, to which no call adds; if `kept` is None, the
            first call computes them.
        append: puts new keys [B, H, T, C] after those kept: `shape.grown`, or a function that writes them
            into tensors of a fixed size.
        prefix: {"k", "v"} of [B, H, P, C], seen before those that are kept; None without.
        joint_kernel: from `MultiHeadAttention.joint_kernel`; None multiplies with each kernel.
    """

    def __init__(self, kept, of_memory=False, append=grown, prefix=None, joint_kernel=None):
        self.kept = kept
        self.of_memory = of_memory
        self.append = append
        self.prefix = prefix
        self.joint_kernel = joint_kernel

    def add(self, new):
        """Adds {"k", "v"} of [B, H, T, C]; returns all keys and values that a query may see."""
        # [B, H, S, C] -> [B, H, S + T, C]
        self.kept = {name: self.append(self.kept[name], new[name]) for name in self.kept}
        if self.prefix is None:
            return self.kept
        return {name: grown(self.prefix[name], self.kept[name]) for name in self.kept}


@keras.saving.register_keras_serializable("t2t_keras")
class MultiHeadAttention(keras.layers.Layer):
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
        max_relative_position: if positive, self-attention adds learned embeddings of the
            distance to keys and values, clipped at this many positions (Shaw et al. 2018;
            T2T's `dot_product_relative`).
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
        super().__init__(autocast=False, **kwargs)
        if num_heads < 1:
            raise ValueError(f"num_heads must be 1 or more, got {num_heads}.")
        self.num_heads = num_heads
        self.key_channels = key_channels
        self.value_channels = value_channels
        self.dropout = Dropout(
            dropout,
            broadcast_dims=dropout_broadcast_dims,
            dtype=self.dtype_policy,
            name="dropout",
        )
        self.max_relative_position = max_relative_position
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.supports_masking = True

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
        self.q = self._projection("q", key_channels, hidden)
        self.k = self._projection("k", key_channels, memory_hidden)
        self.v = self._projection("v", value_channels, memory_hidden)
        self.output_transform = self._projection("output_transform", hidden, value_channels)
        if self.max_relative_position:
            if memory_shape is not None:
                raise ValueError("relative positions need self-attention, and a memory was given.")
            if key_channels != value_channels:
                raise ValueError(
                    "relative positions need equal key_channels and value_channels, got "
                    f"{key_channels} and {value_channels}."
                )
            shape = (2 * self.max_relative_position + 1, key_channels // self.num_heads)
            self.relative_keys = self.add_weight(
                shape=shape, initializer=self.kernel_initializer.clone(), name="relative_keys"
            )
            self.relative_values = self.add_weight(
                shape=shape, initializer=self.kernel_initializer.clone(), name="relative_values"
            )
        self.key_scale = (key_channels // self.num_heads) ** -0.5
        self.built = True

    def _projection(self, name, units, input_size):
        dense = keras.layers.Dense(
            units,
            use_bias=False,
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=policy_of_part(self, name),
            name=name,
        )
        dense.build((None, None, input_size))
        return dense

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
        for name, x in (("query", query), ("memory", memory)):
            if x is not None and len(x.shape) != 3:
                axes = "[B, T, D]" if name == "query" else "[B, S, D]"
                raise ValueError(f"{name} must be {axes}, got shape {tuple(x.shape)}.")
        if memory is not None and mask is not None:
            raise ValueError("mask is that of a query alone: with a memory, give memory_mask.")
        has_memory = memory is not None or (cache is not None and cache.of_memory)
        carried = memory_mask if has_memory else mask if query_mask is None else query_mask
        sizes = _sizes(query)
        if cache is None:
            keys = query if memory is None else memory
            queries = self._heads(self.q, query, sizes, self.key_scale)
            seen = self.keys_and_values(keys)
        else:
            if cache.of_memory:
                queries = self._heads(self.q, query, sizes, self.key_scale)
                cache.kept = seen = cache.kept or self.keys_and_values(memory)
            else:
                new = self.projections(query, cache.joint_kernel)
                queries, seen = new.pop("q"), cache.add(new)
                carried = None  # it is of the query, not of the keys before it
            keys = seen["k"]
        attention_mask = AttentionMask.of(attention_mask, query, keys, carried)
        attention_mask = self.prepare(attention_mask, query, keys)
        context, weights = self.attend(
            queries, seen["k"], seen["v"], attention_mask, training=training
        )
        output = self._joined(context, sizes)
        return (output, weights) if return_attention_weights else output

    @property
    def needs_positions(self) -> bool:
        """True if logits depend on the distance between query and key, besides the mask."""
        return self.max_relative_position > 0

    def prepare(self, mask: AttentionMask, query, keys=None) -> AttentionMask:
        """Returns the mask with its bias computed, once for all layers of a stack.

        Args:
            mask: an `AttentionMask`; one that is already prepared is returned unchanged.
            query: [..., T, D]; only the length is used.
            keys: [..., S, D]; only the length is used. None: the query.
        """
        if mask.prepared is not None:
            return mask
        bias = self.logit_bias(mask, query, query if keys is None else keys)
        return dataclasses.replace(mask, prepared=bias)

    def logit_bias(self, mask: AttentionMask, query, keys):
        """Returns the bias that is added to the logits [B, H, T, S], or None; see `prepare`."""
        return mask.dense_bias(query, keys)

    def keys_and_values(self, memory):
        """Projects [B, S, D] to {"k": [B, H, S, K/H], "v": [B, H, S, V/H]}, once for many queries."""
        sizes = _sizes(memory)
        return {
            "k": self._heads(self.k, memory, sizes),
            "v": self._heads(self.v, memory, sizes),
        }

    def joint_kernel(self):
        """Returns the kernels of q, k and v side by side, [D, 3 K], for many calls of `projections`.

        None if keys and values differ in depth, a subclass overrides `keys_and_values`, or a
        projection does more than multiply with a kernel or is quantized.
        """
        overridden = type(self).keys_and_values is not MultiHeadAttention.keys_and_values
        plain = all(map(_only_multiplies, (self.q, self.k, self.v)))
        if overridden or not plain or self.k.units != self.v.units:
            return None

        def joined():
            kernels = [self.q.kernel * self.key_scale, self.k.kernel, self.v.kernel]
            return ops.cast(ops.concatenate(kernels, 1), self.compute_dtype)

        return fixed(self, joined)

    def projections(self, x, joint_kernel=None):
        """Projects [B, T, D] for self-attention: {"q", "k", "v"} of [B, H, T, C].

        Args:
            joint_kernel: from the method `joint_kernel`; one matrix product instead of three.
        """
        if joint_kernel is None:
            queries = self._heads(self.q, x, _sizes(x), self.key_scale)
            return {"q": queries, **self.keys_and_values(x)}
        # In a decoding step one product of [B*T, D] is faster than three small ones.
        joint = multiply(ops.reshape(x, (-1, x.shape[-1])), joint_kernel)  # [B*T, 3 K]
        sizes = _sizes(x)
        heads = (*sizes, 3, self.num_heads, self.k.units // self.num_heads)
        joint = ops.reshape(joint, heads)  # [B, T, 3, H, C]
        joint = transpose(joint, (2, 0, 3, 1, 4), sizes[1])  # [3, B, H, T, C]
        return dict(zip(("q", "k", "v"), ops.unstack(joint, 3), strict=True))

    def empty_cache(self, batch):
        """Returns an empty cache: {"k": [B, H, 0, K/H], "v": [B, H, 0, V/H]}."""
        return {
            name: ops.zeros(
                (batch, self.num_heads, 0, projection.units // self.num_heads), self.compute_dtype
            )
            for name, projection in (("k", self.k), ("v", self.v))
        }

    def attend(self, q, k, v, mask: AttentionMask, *, training=False):
        """Returns softmax(q k + bias) v, and the weights before dropout.

        Args:
            q: [B, H, T, K/H], already scaled.
            k: [B, H, S, K/H].
            v: [B, H, S, V/H].
            mask: from `prepare`.

        Returns:
            [B, H, T, V/H], and [B, H, T, S] float32.
        """
        distance = mask.distance
        weights = self._weights(q, k, mask.prepared, distance)  # [B, H, T, S] float32
        dropped = self.dropout(ops.cast(weights, self.compute_dtype), training=training)
        context = matmul(dropped, v)  # [B, H, T, V/H]
        if self.max_relative_position:
            context = context + _distance_matmul(
                dropped, self._distance_embeddings(self.relative_values, dropped, distance), False
            )
        return context, weights

    def _weights(self, q, k, bias, distance):
        logits = matmul(q, k, transpose=True)  # [B, H, T, S]
        if self.max_relative_position:
            logits = logits + _distance_matmul(
                q, self._distance_embeddings(self.relative_keys, logits, distance), True
            )
        logits = ops.cast(logits, "float32")  # the softmax is float32 in any precision
        if bias is not None:
            logits = logits + bias
        return softmax(logits)

    def _heads(self, projection, x, sizes, scale=None):
        """Projects [B, T, D] and splits it into heads, [B, H, T, C]; `sizes` are B and T."""
        # On [B*T, D] a dense layer adds far fewer operations to a graph of unknown sizes.
        y = dense(projection, ops.reshape(x, (-1, x.shape[-1])))  # [B*T, H*C]
        if scale is not None:
            # Before the heads are split: on CPU, TensorFlow 2.21 wrongly fuses a multiplication right
            # before the matrix product of a decoding loop, and returns an empty tensor.
            y = y * scale
        y = ops.reshape(y, (*sizes, self.num_heads, projection.units // self.num_heads))
        return transpose(y, (0, 2, 1, 3), sizes[1])  # [B, T, H, C] -> [B, H, T, C]

    def _joined(self, context, sizes):
        """Joins the heads of [B, H, T, C] and projects them: [B, T, D]; `sizes` are B and T."""
        rows = transpose(context, (0, 2, 1, 3), sizes[1])  # [B, T, H, C]
        rows = ops.reshape(rows, (-1, context.shape[1] * context.shape[3]))  # [B*T, H*C]
        output = dense(self.output_transform, rows)
        return ops.reshape(output, (*sizes, output.shape[-1]))

    def _distance_embeddings(self, table, attention, distance):
        """Looks up rows of `table` [2m+1, C] by the distances in `attention` [B, H, T, S]: [T, S, C]."""
        if distance is None:
            distance = distances(*shape_of(attention)[2:])
        m = self.max_relative_position
        rows = ops.clip(distance, -m, m) + m
        return ops.cast(ops.take(table, rows, axis=0), self.compute_dtype)

    def compute_output_shape(self, query_shape, memory_shape=None):
        return query_shape

    def compute_output_spec(self, *args, **kwargs):
        # By tracing: the number of outputs depends on `return_attention_weights`.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self):
        return {
            **super().get_config(),
            "dtype": dtype_config(self),
            "num_heads": self.num_heads,
            "key_channels": self.key_channels,
            "value_channels": self.value_channels,
            "dropout": self.dropout.rate,
            "dropout_broadcast_dims": list(self.dropout.broadcast_dims),
            "max_relative_position": self.max_relative_position,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


def _only_multiplies(projection):
    """Returns True for a plain `Dense` without bias, activation and quantization."""
    return (
        type(projection) is keras.layers.Dense
        and projection.bias is None
        and projection.activation is keras.activations.linear
        and not projection.quantization_mode
    )


def _sizes(x):
    """Returns B and T of [B, T, D] for a reshape; if T is known, B is -1, which needs no operation."""
    length = x.shape[1]
    return (-1, length) if length else shape_of(x)[:2]


def _distance_matmul(x, embeddings, transpose):
    """Multiplies each query's row with the embeddings of its distances to all keys.

    Args:
        x: [B, H, T, C] (transpose) or [B, H, T, S].
        embeddings: [T, S, C].
        transpose: contract over C, giving [B, H, T, S]; otherwise over S, giving [B, H, T, C].
    """
    # With "..." in the einsum, its gradient would make a tensor of [B, H, T, S, C].
    return ops.einsum("bhtc,tsc->bhts" if transpose else "bhts,tsc->bhtc", x, embeddings)
