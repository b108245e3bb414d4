"""Restricted self-attention: each position sees those around it (section 4 of the paper)."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from t2t_keras.layers.attention import MultiHeadAttention
from t2t_keras.layers.bias import MASKED, mask_bias

OUTSIDE = -1e30
"""Added to the logits of what is no neighbour: also a row that is all padding attends in its
neighbourhood alone. (Minus infinity would make no number of the rows that fill a block up.)"""

SMALLEST_BLOCK = 32
"""Queries in a block at least: what smaller ones save, the overhead of small products costs."""


@keras.saving.register_keras_serializable("t2t_keras")
class RestrictedAttention(MultiHeadAttention):
    """Self-attention to a neighbourhood of r positions: the paper's "self-attention (restricted)".

    Has the weights of `MultiHeadAttention` under the same names, and equals it where a mask hides
    from each position all but its neighbourhood. But it works in blocks of queries, each beside
    the window of keys that they see, in O(r n D) time and O((r H + D) n) memory: no tensor has
    n x n elements.

    Args:
        neighborhood: r, how many positions each one sees (fewer at the ends of the sequence):
            itself, r // 2 before it and (r - 1) // 2 after it.
        causal: whether these are itself and the r - 1 before it, as in a decoder.
        dropout_broadcast_dims: 0 and 1 alone, the batch and the heads.
        num_heads, key_channels, value_channels, dropout, max_relative_position,
            kernel_initializer: see `MultiHeadAttention`.

    Call arguments:
        query: [B, T, D].
        mask: boolean [B, T], True where attention may look. A position whose neighbours are all
            hidden attends to them evenly.
        bias: float, added to the logits, broadcastable to [B, H, 1, T]: of keys, not of pairs.
            With a mask, both count. (A mask that the query carries does not reach a layer that is
            also given a bias.)
        segments: [B, T] int, of rows that hold several packed sequences: the number of the
            sequence at each position, 0 at padding. Replaces the mask; a position sees those of
            its own number.
        cache: keys and values of steps of decoding (see `MultiHeadAttention`). Then all of it is
            gone through, the neighbourhood is that of `distance`, and the bias may be of pairs.
        distance: [T, S] int, how far each key of the cache stands after each query; if absent,
            the last query stands at the last key.
        return_attention_weights: also return the weights, before dropout.

    Returns:
        [B, T, D], or a pair of it and the weights [B, H, T, r] in float32: those of position i
        stand in the order of what it sees, i - r // 2 first (i - r + 1 if causal), with 0 outside
        the sequence. With a cache they are [B, H, T, S].
    """

    def __init__(self, *, num_heads: int, neighborhood: int, causal: bool = False, **kwargs):
        super().__init__(num_heads=num_heads, **kwargs)
        if neighborhood < 1:
            raise ValueError(f"neighborhood must be 1 or more, got {neighborhood}.")
        if not set(self.dropout.broadcast_dims) <= {0, 1}:
            raise ValueError(
                "dropout_broadcast_dims of restricted attention may be 0 and 1 (batch, heads), "
                f"got {list(self.dropout.broadcast_dims)}."
            )
        self.neighborhood = neighborhood
        self.causal = causal

    # There is no memory.

    def build(self, query_shape):  # type: ignore[override]
        super().build(query_shape)

    def call(  # type: ignore[override]
        self,
        query,
        *,
        mask=None,
        bias=None,
        segments=None,
        cache=None,
        queries=None,
        distance=None,
        training=False,
        return_attention_weights=False,
    ):
        if cache is not None:
            if distance is None:
                distance = _distances(ops.shape(query)[1], ops.shape(cache["k"])[2])
            near = _outside_bias(_near(distance, *self._sides))
            return super().call(
                query,
                mask=mask,
                bias=near if bias is None else bias + near,
                cache=cache,
                queries=queries,
                distance=distance,
                training=training,
                return_attention_weights=return_attention_weights,
            )
        sizes = ops.shape(query)[:2]
        blocks = _Blocks(sizes[1], *self._sides)
        keys = self.keys_and_values(query)
        context, weights = self._attend(
            blocks.queries(self._heads(self.q, query, sizes, self.key_scale)),
            blocks.windows(keys["k"]),
            blocks.windows(keys["v"]),
            _bias(blocks, mask, bias, segments),
            blocks.distances(),
            training,
        )
        output = self._joined(blocks.joined(context), sizes)
        if not return_attention_weights:
            return output
        return output, blocks.neighbours(weights)

    @property
    def _sides(self):
        """How many positions before and after its own each one sees."""
        r = self.neighborhood
        return (r - 1, 0) if self.causal else (r // 2, (r - 1) // 2)

    def get_config(self):
        return {**super().get_config(), "neighborhood": self.neighborhood, "causal": self.causal}


class _Blocks:
    """How a sequence of n positions is cut into blocks of queries and windows of keys.

    Block m has the c positions from m c on, and its window the W positions from m c - before on:
    before + c + after, made a multiple of 16 (products of matrices are quicker so). Some of both
    may lie outside the sequence.

    Args:
        length: n, an int, or a tensor where it is not known yet.
        before, after: how far a position sees to each side.
    """

    def __init__(self, length: Any, before: int, after: int):
        self.length = length
        self.sides = before, after
        # Half a neighbourhood: measured, neither many keys out of reach nor many copies of keys.
        self.size = max(SMALLEST_BLOCK, (before + after + 2) // 2)  # c
        if isinstance(length, int):
            furthest = max(length - 1, 0)
            before, after = min(before, furthest), min(after, furthest)
            self.size = min(self.size, furthest + 1)
        self.before, self.after = before, after
        self.width = -(-(before + self.size + after) // 16) * 16  # W
        self.count = (length + self.size - 1) // self.size  # m

    def queries(self, x):
        """[B, H, n, C] -> [B, H, m, c, C], with 0 after the sequence."""
        batch, heads, length, channels = ops.shape(x)
        rest = self.count * self.size - length
        x = ops.pad(x, [[0, 0], [0, 0], [0, rest], [0, 0]])
        return ops.reshape(x, (batch, heads, self.count, self.size, channels))

    def windows(self, x):
        """[B, H, n, C] -> [B, H, m, W, C], with copies of its ends outside the sequence.

        The gradient sends nothing to the ends for their copies: whoever takes the windows gives
        these no weight.
        """

        @ops.custom_gradient
        def windows(x):
            return self._gathered(x, axis=2), lambda *upstream: self._overlaid(upstream[-1])

        return windows(x)

    def of_keys(self, x):
        """[B, H, 1, n] -> [B, H, m, 1, W], with copies of its ends outside the sequence."""
        return ops.swapaxes(self._gathered(x, axis=3), 2, 3)

    def _gathered(self, x, axis):
        return ops.take(x, ops.clip(self._positions(), 0, self.length - 1), axis=axis)

    def _positions(self):
        """Of each place of each window: [m, W] int, beyond 0 and n - 1 outside the sequence."""
        first = ops.arange(self.count) * self.size - self.before
        return first[:, None] + ops.arange(self.width)[None, :]

    def _overlaid(self, windows):
        """The sum of what all windows hold of each position: [B, H, m, W, C] -> [B, H, n, C].

        (What TensorFlow makes of the gradient of `take` adds row by row, on a GPU in any order.)
        """
        batch, heads, _, _, channels = ops.shape(windows)
        steps = range(-(-self.width // self.size))
        total = 0
        for step in steps:  # each a part of the windows that reaches one block further
            start = step * self.size
            size = min(self.size, self.width - start)
            part = ops.slice(
                windows, (0, 0, 0, start, 0), (batch, heads, self.count, size, channels)
            )
            blocks = [step, len(steps) - 1 - step]
            total += ops.pad(part, [[0, 0], [0, 0], blocks, [0, self.size - size], [0, 0]])
        places = (self.count + len(steps) - 1) * self.size
        total = ops.reshape(total, (batch, heads, places, channels))
        return ops.slice(total, (0, 0, self.before, 0), (batch, heads, self.length, channels))

    def joined(self, x):
        """[B, H, m, c, C] -> [B, H, n, C]."""
        batch, heads, _, _, channels = ops.shape(x)
        x = ops.reshape(x, (batch, heads, self.count * self.size, channels))
        return ops.slice(x, (0, 0, 0, 0), (batch, heads, self.length, channels))

    def distances(self):
        """How far each place of a window stands after each query of its block: [c, W] int."""
        places = ops.arange(self.width) - self.before
        return places[None, :] - ops.arange(self.size)[:, None]

    def near(self):
        """Whether a place of a window is in the sequence and near a query: boolean [m, c, W]."""
        positions = self._positions()[:, None, :]
        inside = ops.logical_and(positions >= 0, positions < self.length)
        return ops.logical_and(inside, _near(self.distances(), self.before, self.after))

    def neighbours(self, weights):
        """Takes the r that each query sees out of [B, H, m, c, W]: [B, H, n, r]."""
        # Each row's begin one place after those of the row above: with rows one place longer,
        # below them.
        batch, heads = ops.shape(weights)[:2]
        flat = ops.reshape(weights, (batch, heads, self.count, self.size * self.width))
        flat = ops.pad(flat, [[0, 0], [0, 0], [0, 0], [0, self.size]])
        rows = ops.reshape(flat, (batch, heads, self.count, self.size, self.width + 1))
        near = self.joined(rows[..., : self.before + 1 + self.after])
        before, after = self.sides
        missing = [before - self.before, after - self.after]
        return ops.pad(near, [[0, 0], [0, 0], [0, 0], missing])


def _bias(blocks, mask, bias, segments):
    """What is added to the logits, broadcastable to [B, H, m, c, W]."""
    of_pairs = _outside_bias(blocks.near())  # [m, c, W]
    if segments is not None:
        segments = segments[:, None, :, None]  # [B, 1, n, 1]
        own = blocks.queries(segments)  # [B, 1, m, c, 1]
        others = blocks.of_keys(ops.swapaxes(segments, 2, 3))  # [B, 1, m, 1, W]
        of_pairs = of_pairs + ops.cast(ops.not_equal(own, others), "float32") * MASKED
    elif mask is not None:
        if len(mask.shape) != 2:
            raise ValueError(
                f"the mask of restricted attention must be [B, T], got shape {mask.shape}."
            )
        bias = mask_bias(mask) if bias is None else bias + mask_bias(mask)
    if bias is None:
        return of_pairs
    if len(bias.shape) != 4 or bias.shape[2] != 1:
        raise ValueError(
            f"the bias of restricted attention must be [B, H, 1, T], got shape {bias.shape}: "
            "of keys, not of pairs of positions."
        )
    bias = bias + ops.zeros((1, 1, 1, blocks.length))  # as long as the sequence
    return blocks.of_keys(bias) + of_pairs


def _distances(queries, keys):
    """How far each key stands after each query, the last of both at one place: [T, S] int."""
    return ops.arange(keys)[None, :] - (ops.arange(queries) + (keys - queries))[:, None]


def _near(distances, before, after):
    """Whether they are those of neighbours."""
    return ops.logical_and(distances >= -before, distances <= after)


def _outside_bias(near):
    """Float32 of the shape of `near`, 0 where it is true."""
    return ops.where(near, 0.0, OUTSIDE)
