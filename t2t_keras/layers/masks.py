"""Attention masks: who may attend to whom, as biases that are added to logits.

As in T2T, the logits of hidden keys get -1e9 added instead of being removed: a query without any
visible key attends evenly to those that got it the fewest times.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from typing import Any

import keras
from keras import ops

from t2t_keras.shape import shape_of

MASKED = -1e9


@keras.saving.register_keras_serializable("t2t_keras")
@dataclasses.dataclass(frozen=True)
class AttentionMask:
    """The keys that each query may attend to; attention turns it into a bias (`logit_bias`).

    The biases of `keys` (or `segments`), `causal`, `proximity` and `bias` add up. It is not a
    tensor: create it inside `call` from the tensors there.

    Attributes:
        keys: boolean, True at visible keys: [B, S] for all queries, [B, T, S] or [B, H, T, S].
        segments: [B, T] int, for packed rows: the number of each query's sequence, 0 at padding. A
            query sees the keys of its own number; `keys` is ignored.
        key_segments: [B, S] int, the same for the keys of a memory; `segments` if None.
        causal: True hides later positions.
        proximity: True adds -log(1 + distance) to the logits (T2T's `proximity_bias`).
        distance: [T, S] int, the position of each key minus that of each query, in a decoding step,
            whose keys come from a cache. None: the last query is at the last key.
        bias: float, added to the logits, broadcastable to [B, H, T, S].
        nonpadding: [B, S] of 0 and 1, for an encoder layer: the output of its feed-forward network is
            zeroed where it is 0 (T2T's pad remover).
        prepared: the bias that attention computed from all of this (`MultiHeadAttention.prepare`).
    """

    keys: Any = None
    segments: Any = None
    key_segments: Any = None
    causal: bool = False
    proximity: bool = False
    distance: Any = None
    bias: Any = None
    nonpadding: Any = None
    prepared: Any = None

    @classmethod
    def of(cls, given, query, keys, carried=None, **others) -> AttentionMask:
        """Returns the `attention_mask` of a call as an `AttentionMask`.

        Args:
            given: an `AttentionMask`, which is returned as it is; or None, or a boolean, True at visible
                keys, that broadcasts to [T, S], [B, T, S] or [B, H, T, S]; else a ValueError is raised.
            query, keys: [B, T, D] and [..., S, D]; only their shapes are used.
            carried: boolean [B, S], the mask that the keys carry, which hides more; or None.
            others: other attributes, such as `causal`, unless `given` is an `AttentionMask`.
        """
        if isinstance(given, AttentionMask):
            return given
        if given is None:
            return cls(keys=carried, **others)
        given = ops.convert_to_tensor(given)
        batch, queries, length = all_sizes = (*query.shape[:2], keys.shape[-2])
        by_rank = {2: (queries, length), 3: all_sizes, 4: (batch, None, queries, length)}
        sizes: tuple = by_rank.get(len(given.shape), ())
        if keras.backend.standardize_dtype(given.dtype) != "bool":
            raise ValueError(f"attention_mask must be boolean (True: visible), got {given.dtype}.")
        if not sizes or any(
            None not in (size, own) and own not in (1, size)
            for own, size in zip(given.shape, sizes, strict=True)
        ):
            raise ValueError(
                "attention_mask must broadcast to [T, S], [B, T, S] or [B, H, T, S] with B, T, S = "
                f"{all_sizes}, got shape {tuple(given.shape)}."
            )
        if len(given.shape) == 2:
            given = ops.expand_dims(given, 0)
        if carried is not None:
            axes = list(range(1, len(given.shape) - 1))  # [B, S] -> [B, 1, S] or [B, 1, 1, S]
            given = ops.logical_and(given, ops.expand_dims(ops.cast(carried, "bool"), axes))
        return cls(keys=given, **others)

    def get_config(self) -> dict[str, Any]:
        """Returns what a saved functional model holds of a mask without tensors."""
        config = {name: getattr(self, name) for name in ("causal", "proximity")}
        rest = {name: value for name, value in vars(self).items() if name not in config}
        if tensors := [name for name, value in rest.items() if value is not None]:
            raise ValueError(
                f"an AttentionMask with tensors ({', '.join(tensors)}) cannot be saved: create it "
                "inside the call of a layer."
            )
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> AttentionMask:
        """Returns the mask of a config."""
        return cls(**config)

    def dense_bias(self, query=None, keys=None):
        """Returns the bias of all pairs of positions; None if nothing is hidden or shifted.

        Float32, broadcastable to [B, H, T, S]; only the lengths of query [..., T, D] and keys
        [..., S, D] are used, and only without a `distance`.
        """
        biases, distance = [], self.distance
        if distance is None and (self.causal or self.proximity):
            length = shape_of(query)[-2]
            distance = distances(length, length if keys is query else shape_of(keys)[-2])
        if self.bias is not None:
            biases.append(ops.cast(self.bias, "float32"))
        if self.proximity:
            biases.append(-ops.log1p(ops.cast(ops.abs(distance), "float32"))[None, None])
        if self.causal:
            biases.append(ops.cast(distance > 0, "float32")[None, None] * MASKED)
        if self.segments is not None:
            biases.append(segment_bias(self.segments, self.key_segments))
        elif self.keys is not None:
            biases.append(mask_bias(self.keys))
        return functools.reduce(operator.add, biases) if biases else None


def mask_bias(mask):
    """Returns the bias of a boolean mask: 0 where it is True, -1e9 elsewhere.

    From [B, S] for all queries of an example, [B, T, S] for each query, or [B, H, T, S], to
    [B, 1 or H, 1 or T, S] float32.
    """
    hidden = ops.cast(ops.logical_not(ops.cast(mask, "bool")), "float32") * MASKED
    return ops.expand_dims(hidden, list(range(1, 5 - len(hidden.shape))))


def causal_bias(length):
    """Returns the [1, 1, T, T] float32 bias that hides later positions (T2T's lower triangle)."""
    return AttentionMask(causal=True, distance=distances(length, length)).dense_bias()


def segment_bias(segments, memory_segments=None):
    """Returns the bias that keeps packed sequences apart (T2T's `attention_bias_same_segment`).

    From the number of each query's sequence, [B, T] int, and of each key's, [B, S] or the same:
    [B, 1, T, S] float32, 0 where both are equal and -1e9 elsewhere. Padding (0) sees padding.
    """
    keys = segments if memory_segments is None else memory_segments
    return mask_bias(ops.equal(ops.expand_dims(segments, 2), ops.expand_dims(keys, 1)))


def prefix_bias(padding, prefix, length, full: bool):
    """Returns the [B, 1, T, T] float32 bias of rows of padding, a prefix and the rest (T2T's `prepend_mode`).

    T is `length`. The first `padding` [B] positions are hidden. No position sees a later one, but with `full`
    the first `prefix` positions, padding included, see each other.
    """
    key = ops.arange(length, dtype="int32")
    last_seen = ops.maximum(key, prefix - 1) if full else key
    seen = ops.expand_dims(key, 0) <= ops.expand_dims(last_seen, 1)  # [T, T]
    real = ops.expand_dims(key, 0) >= ops.expand_dims(padding, 1)  # [B, T]
    return mask_bias(ops.logical_and(seen[None], ops.expand_dims(real, 1)))


def proximity_bias(length):
    """Returns the [1, 1, T, T] float32 bias -log(1 + |i - j|) (T2T's `attention_bias_proximal`)."""
    return AttentionMask(proximity=True, distance=distances(length, length)).dense_bias()


def distances(queries, keys):
    """Returns key minus query position, [T, S] int; `queries` is T, `keys` is S, and the last ones coincide."""
    key = ops.arange(keys, dtype="int32")
    query = key if queries is keys else ops.arange(queries, dtype="int32") + (keys - queries)
    return ops.expand_dims(key, 0) - ops.expand_dims(query, 1)
