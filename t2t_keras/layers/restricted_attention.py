"""Restricted self-attention: each position sees its neighbourhood (section 4 of the paper)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from t2t_keras.layers.attention import SELF_ATTENTION, MultiHeadAttention
from t2t_keras.layers.masks import MASKED, OUTSIDE, AttentionMask, mask_bias, within
from t2t_keras.shape import shape_of

SMALLEST_BLOCK = 32
"""Smallest number of queries in a block: smaller matrix products cost more than they save."""


@keras.saving.register_keras_serializable("t2t_keras")
class RestrictedAttention(MultiHeadAttention):
    """Self-attention to a neighbourhood of r positions: the paper's "self-attention (restricted)".

    It has the weights of `MultiHeadAttention` under the same names, and gives the same result as
    that with a mask that hides everything outside the neighbourhood. But it multiplies blocks of
    queries with the window of keys that they see, in O(r n D) time and O((r H + D) n) memory: no
    tensor has n x n elements.

    Args:
        neighborhood: r, the number of positions that one sees (fewer at the ends of the sequence):
            itself, r // 2 before it and (r - 1) // 2 after it.
        causal: True if it sees itself and the r - 1 positions before it, as in a decoder.
        dropout_broadcast_dims: only 0 and 1, the batch and the heads.
        num_heads, key_channels, value_channels, dropout, max_relative_position,
            kernel_initializer: see `MultiHeadAttention`.

    Call arguments: see `MultiHeadAttention`, with these differences: there is no memory, and
        mask: boolean [B, T]. A position whose neighbours are all hidden attends to them evenly.
        bias: broadcastable to [B, H, 1, T]: per key, not per pair.
        cache: keys and values in a decoding step. Each query is then multiplied with all of them,
            `distance` says which keys are neighbours, and mask and bias may be per pair.

    Returns:
        [B, T, D], or a pair of that and the weights [B, H, T, r] in float32: the weights of position
        i are in the order of its neighbours, from i - r // 2 on (i - r + 1 if causal), and 0 outside
        the sequence. With a cache they are [B, H, T, S].
    """

    def __init__(
        self,
        *,
        num_heads: int,
        neighborhood: int,
        causal: bool = False,
        key_channels: int = 0,
        value_channels: int = 0,
        dropout: float = 0.0,
        dropout_broadcast_dims: Sequence[int] = (),
        max_relative_position: int = 0,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(
            num_heads=num_heads,
            key_channels=key_channels,
            value_channels=value_channels,
            dropout=dropout,
            dropout_broadcast_dims=dropout_broadcast_dims,
            max_relative_position=max_relative_position,
            kernel_initializer=kernel_initializer,
            **kwargs,
        )
        if neighborhood < 1:
            raise ValueError(f"neighborhood must be 1 or more, got {neighborhood}.")
        if not set(self.dropout.broadcast_dims) <= {0, 1}:
            raise ValueError(
                "dropout_broadcast_dims of restricted attention may be 0 and 1 (batch, heads), "
                f"got {list(self.dropout.broadcast_dims)}."
            )
        self.neighborhood = neighborhood
        self.causal = causal

    def build(self, query_shape, memory_shape=None):
        if memory_shape is not None:
            raise ValueError("restricted attention needs self-attention, and a memory was given.")
        super().build(query_shape)

    @property
    def needs_positions(self) -> bool:
        return True

    def logit_bias(self, mask: AttentionMask, query, keys):
        """Returns the bias of [B, H, m, c, W], the logits of m blocks of queries on their windows.

        In a decoding step it is the bias of all pairs of positions, as in `MultiHeadAttention`.
        """
        if mask.causal not in (None, self.causal):
            allowed = "must" if self.causal else "cannot"
            raise ValueError(
                f"attention with a neighborhood and causal={self.causal} {allowed} be causal."
            )
        if mask.neighborhood is not None:
            raise ValueError("restricted attention has its own neighborhood, but the mask has one.")
        if mask.distance is not None:
            return dataclasses.replace(mask, neighborhood=self._sides).dense_bias(query, keys)
        blocks = _Blocks(shape_of(query)[-2], *self._sides)
        of_pairs = ops.where(blocks.neighbours(), 0.0, OUTSIDE)  # [m, c, W]
        if mask.proximity:
            near = AttentionMask(proximity=True, distance=blocks.distances())
            of_pairs = of_pairs + near.dense_bias()
        of_keys = mask.bias
        if mask.segments is not None:
            segments = mask.segments[:, None, :, None]  # [B, 1, n, 1]
            own = blocks.queries(segments)  # [B, 1, m, c, 1]
            others = blocks.of_keys(ops.swapaxes(segments, 2, 3))  # [B, 1, m, 1, W]
            of_pairs = of_pairs + ops.cast(ops.not_equal(own, others), "float32") * MASKED
        elif mask.keys is not None:
            if len(mask.keys.shape) != 2:
                raise ValueError(
                    f"the mask of restricted attention must be [B, T], got shape {mask.keys.shape}."
                )
            hidden = mask_bias(mask.keys)  # [B, 1, 1, n]
            of_keys = hidden if of_keys is None else of_keys + hidden
        if of_keys is None:
            return of_pairs
        if len(of_keys.shape) != 4 or of_keys.shape[2] != 1:
            raise ValueError(
                f"the bias of restricted attention must be [B, H, 1, T], got shape {of_keys.shape}: "
                "per key, not per pair of positions."
            )
        of_keys = of_keys + ops.zeros((1, 1, 1, blocks.length))  # broadcasts to the whole sequence
        return blocks.of_keys(of_keys) + of_pairs

    def attend(
        self, q, k, v, mask: AttentionMask, *, training=False, return_attention_weights=False
    ):
        if mask.distance is not None:  # a decoding step: its few queries need no blocks
            return super().attend(q, k, v, mask, training=training)
        blocks = _Blocks(shape_of(q)[2], *self._sides)
        context, weights = super().attend(
            blocks.queries(q),
            blocks.windows(k),
            blocks.windows(v),
            dataclasses.replace(mask, distance=blocks.distances()),
            training=training,
        )
        if return_attention_weights:
            weights = blocks.weights_of_neighbours(weights)
        return blocks.joined(context), weights

    @property
    def _sides(self):
        """The number of positions that one sees before and after itself."""
        r = self.neighborhood
        return (r - 1, 0) if self.causal else (r // 2, (r - 1) // 2)

    def get_config(self):
        return {**super().get_config(), "neighborhood": self.neighborhood, "causal": self.causal}


SELF_ATTENTION["restricted"] = RestrictedAttention


class _Blocks:
    """A sequence of n positions, cut into m blocks of c queries, each with a window of W keys.

    Block i has the c positions from i c on. Its window begins `before` positions earlier; W is
    before + c + after, rounded up to a multiple of 16, which makes matrix products faster. Some
    positions of both may lie outside the sequence.

    Args:
        length: n, an int, or a scalar tensor in a graph of unknown sizes.
        before, after: how far a position sees to each side.
    """

    def __init__(self, length: Any, before: int, after: int):
        self.length = length
        self.sides = before, after
        # Half a neighbourhood: smaller blocks copy more keys, larger ones see more useless keys.
        self.size = max(SMALLEST_BLOCK, (before + after + 2) // 2)  # c
        if isinstance(length, int):
            furthest = max(length - 1, 0)
            before, after = min(before, furthest), min(after, furthest)
            self.size = min(self.size, furthest + 1)
        self.before, self.after = before, after
        self.width = -(-(before + self.size + after) // 16) * 16  # W
        self.count = (length + self.size - 1) // self.size  # m

    def queries(self, x):
        """Cuts x into blocks, padded with 0 at the end: [B, H, n, C] -> [B, H, m, c, C]."""
        batch, heads, length, channels = shape_of(x)
        rest = self.count * self.size - length
        x = ops.pad(x, [[0, 0], [0, 0], [0, rest], [0, 0]])
        return ops.reshape(x, (batch, heads, self.count, self.size, channels))

    def windows(self, x):
        """Gathers the windows: [B, H, n, C] -> [B, H, m, W, C].

        Outside the sequence they hold copies of its ends. These get no gradient: the bias must hide
        them.
        """

        @ops.custom_gradient
        def windows(x):
            def backward(*args, upstream=None):  # on PyTorch, Keras passes the gradient by name
                return self._summed(args[-1] if upstream is None else upstream)

            return self._gathered(x, axis=2), backward

        return windows(x)

    def of_keys(self, x):
        """Gathers the windows of one value per key: [B, H, 1, n] -> [B, H, m, 1, W]."""
        return ops.swapaxes(self._gathered(x, axis=3), 2, 3)

    def _gathered(self, x, axis):
        return ops.take(x, ops.clip(self._positions(), 0, self.length - 1), axis=axis)

    def _positions(self):
        """Returns the position of each key of each window, [m, W] int; some are < 0 or >= n."""
        first = ops.arange(self.count) * self.size - self.before
        return first[:, None] + ops.arange(self.width)[None, :]

    def _summed(self, windows):
        """Sums the values of each position over all windows: [B, H, m, W, C] -> [B, H, n, C].

        (TensorFlow's gradient of `take` adds row by row, on a GPU in an undefined order.)
        """
        batch, heads, _, _, channels = shape_of(windows)
        steps = range(-(-self.width // self.size))
        total = 0
        for step in steps:  # the slice of each window that lies in the block `step` blocks later
            start = step * self.size
            size = min(self.size, self.width - start)
            part = ops.slice(
                windows, (0, 0, 0, start, 0), (batch, heads, self.count, size, channels)
            )
            blocks = [step, len(steps) - 1 - step]
            total += ops.pad(part, [[0, 0], [0, 0], blocks, [0, self.size - size], [0, 0]])
        length = (self.count + len(steps) - 1) * self.size
        total = ops.reshape(total, (batch, heads, length, channels))
        return ops.slice(total, (0, 0, self.before, 0), (batch, heads, self.length, channels))

    def joined(self, x):
        """Joins blocks of queries and cuts off the padding: [B, H, m, c, C] -> [B, H, n, C]."""
        batch, heads, _, _, channels = shape_of(x)
        x = ops.reshape(x, (batch, heads, self.count * self.size, channels))
        return ops.slice(x, (0, 0, 0, 0), (batch, heads, self.length, channels))

    def distances(self):
        """Returns key position minus query position within a block and its window: [c, W] int."""
        keys = ops.arange(self.width) - self.before
        return keys[None, :] - ops.arange(self.size)[:, None]

    def neighbours(self):
        """Returns True where a window's key is in the sequence and near the query: [m, c, W]."""
        positions = self._positions()[:, None, :]  # [m, 1, W]
        inside = ops.logical_and(positions >= 0, positions < self.length)
        return ops.logical_and(inside, within(self.distances(), self.before, self.after))

    def weights_of_neighbours(self, weights):
        """Takes the weights of the r neighbours of each query: [B, H, m, c, W] -> [B, H, n, r]."""
        # The neighbours of each query begin one key later than those of the query before it. Reshaped
        # to rows of W + 1 keys, they line up in the first columns.
        batch, heads = shape_of(weights)[:2]
        flat = ops.reshape(weights, (batch, heads, self.count, self.size * self.width))
        flat = ops.pad(flat, [[0, 0], [0, 0], [0, 0], [0, self.size]])
        rows = ops.reshape(flat, (batch, heads, self.count, self.size, self.width + 1))
        near = self.joined(rows[..., : self.before + 1 + self.after])
        before, after = self.sides
        missing = [before - self.before, after - self.after]
        return ops.pad(near, [[0, 0], [0, 0], [0, 0], missing])
