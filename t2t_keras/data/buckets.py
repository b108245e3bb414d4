"""Bucketing: sentences of similar length share a batch, so that batches have few shapes.

T2T pads each side to the longest sentence of its batch, so shapes are not known in advance. Here both sides
are padded to the edge of their bucket, so there are as many shapes as T2T has buckets (42 for the base
model), all known in advance. This pads no more than T2T does, because the edges differ: T2T's grow by 10%
each; these grow more slowly up to about a hundred ids, where most sentences are, and faster beyond.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from t2t_keras.errors import UserError
from t2t_keras.settings import SETTINGS

_LONGEST = 2**30

# How fast the edges approach the longest length: 1 is T2T's geometric growth; smaller values put more edges
# among short sentences. On news and captions, 0.7 to 0.85 pads less than T2T; on byte-level text, anything
# below 1 pads more.
_GROWTH_EXPONENT = 0.8


class Buckets(NamedTuple):
    """K buckets: bucket k holds lengths above edges[k-1], up to edges[k]."""

    edges: list[int]  # the longest length of each bucket, [K]
    sizes: list[int]  # rows of a full batch, [K]
    shortest: int  # the shortest length that is kept
    longest: int  # the longest length that is kept

    def of(self, lengths: np.ndarray) -> np.ndarray:
        """Returns the bucket of each length, -1 if it is not kept: [N] int16."""
        found = np.searchsorted(self.edges, lengths).astype(np.int16)
        found[(lengths < self.shortest) | (lengths > self.longest)] = -1
        return found


def bucket_shapes(hp, replicas: int = 1, longest: int | None = None) -> list[tuple[int, int]]:
    """Returns every (batch, length) shape that a training run with `hp` can see, shortest first.

    There are as many shapes as T2T has buckets with these settings. The first length is
    `hp.min_length_bucket` (one less with `hp.t2t_batches`), the last is `hp.max_length`, or `longest` as
    in `buckets_for`. A batch has as many rows as fit into `hp.batch_size` ids per side (with
    `hp.t2t_batches`: T2T's number of rows), times `replicas`.
    """
    edges, sizes, shortest, _ = buckets_for(hp, True, replicas, longest)
    return [
        (size, edge) for size, edge in zip(sizes, edges, strict=True) if edge >= max(1, shortest)
    ]


def buckets_for(hp, drop_long: bool, replicas: int = 1, longest: int | None = None) -> Buckets:
    """Returns the buckets with the shapes that `bucket_shapes` lists.

    Args:
        hp: uses `batch_size`, `max_length`, `min_length`, `min_length_bucket`, `length_bucket_step` and
            `t2t_batches` (True: returns `tensor2tensor_buckets`).
        drop_long: True: drop sentences longer than `max_length`. False: keep them, in extra buckets of 2,
            4, 8... times `max_length`. Those shorter than `min_length` are always dropped.
        replicas: every batch size is multiplied by it.
        longest: the problem's `max_length`, which replaces that of `hp`; 0: `hp.batch_size`; None:
            the problem has no other.

    Raises:
        UserError: a setting is out of range.
    """
    if hp.t2t_batches:
        return tensor2tensor_buckets(hp, drop_long, replicas, longest)
    last = (hp.max_length if longest is None else longest) or hp.batch_size
    scheme = _scheme(hp, last, replicas)
    edges = _edges(hp.min_length_bucket, last, len(scheme["batch_sizes"]))
    sizes = [max(1, hp.batch_size // edge) * replicas for edge in edges]
    return _limited(Buckets(edges, sizes, hp.min_length, last), hp, drop_long, replicas)


def tensor2tensor_buckets(
    hp, drop_long: bool, replicas: int = 1, longest: int | None = None
) -> Buckets:
    """Returns T2T's own buckets: its boundaries and batch sizes; see `buckets_for`.

    As in T2T, these follow from `hp.max_length`, and `longest` only decides what is dropped: longer
    examples than `hp.max_length` are in the last bucket.
    """
    scheme = _scheme(hp, hp.max_length, replicas)
    last = (hp.max_length if longest is None else longest) or hp.batch_size
    edges = [boundary - 1 for boundary in scheme["boundaries"] if boundary <= last] + [last]
    buckets = Buckets(edges, scheme["batch_sizes"][: len(edges)], hp.min_length, last)
    return _limited(buckets, hp, drop_long, replicas)


def packed_buckets(hp, packed_length: int, drop_long: bool, replicas: int = 1) -> Buckets:
    """Returns the single bucket for packed rows; see `buckets_for`."""
    size = max(1, hp.batch_size // packed_length) * replicas
    buckets = Buckets([packed_length], [size], hp.min_length, packed_length)
    return _limited(buckets, hp, drop_long, replicas)


def _scheme(hp, max_length: int, replicas: int) -> dict:
    return batching_scheme(
        batch_size=hp.batch_size,
        max_length=max_length,
        min_length_bucket=hp.min_length_bucket,
        length_bucket_step=hp.length_bucket_step,
        shard_multiplier=replicas,
    )


def _edges(first: int, last: int, number: int) -> list[int]:
    """Returns `number` increasing lengths from `first` to `last` (only `last` if `number` is 1).

    log(last / edge) falls as a power of the number of edges left.
    """
    if number == 1:
        return [last]
    edges = [first]
    for left in range(number - 1, 0, -1):
        distance = math.log(last / edges[-1]) * ((left - 1) / left) ** _GROWTH_EXPONENT
        edge = math.floor(last / math.exp(distance) + 0.5)
        edges.append(min(max(edge, edges[-1] + 1), last - left + 1))
    return edges


def _limited(buckets: Buckets, hp, drop_long: bool, replicas: int) -> Buckets:
    """With `drop_long`, returns the buckets unchanged; else adds doubling ones for longer sentences."""
    if drop_long:
        return buckets
    edges, sizes = list(buckets.edges), list(buckets.sizes)
    while edges[-1] < _LONGEST:
        edges.append(2 * edges[-1])
        sizes.append(max(1, hp.batch_size // edges[-1]) * replicas)
    return Buckets(edges, sizes, buckets.shortest, edges[-1])


# T2T's bucket boundaries and batch sizes. A batch holds about `batch_size` tokens of the longer side,
# including padding, so batches of short sentences have many rows and batches of long ones few.


_NO_LIMIT = 10**9

# https://oeis.org/A002182: each has more divisors than any smaller number.
_HIGHLY_COMPOSITE = (
    1, 2, 4, 6, 12, 24, 36, 48, 60, 120, 180, 240, 360, 720, 840, 1260, 1680, 2520, 5040, 7560,
    10080, 15120, 20160, 25200, 27720, 45360, 50400, 55440, 83160, 110880, 166320, 221760, 277200,
    332640, 498960, 554400, 665280, 720720, 1081080, 1441440, 2162160, 2882880, 3603600, 4324320,
    6486480, 7207200, 8648640, 10810800, 14414400, 17297280, 21621600, 32432400, 36756720,
    43243200, 61261200, 73513440, 110270160,
)  # fmt: skip


def batching_scheme(
    batch_size: int = 4096,
    max_length: int = 256,
    min_length_bucket: int = 8,
    length_bucket_step: float = 1.1,
    drop_long_sequences: bool = False,
    shard_multiplier: int = 1,
    min_length: int = 0,
) -> dict:
    """Returns T2T's batching scheme (`data_reader.batching_scheme`), number for number.

    Args:
        batch_size: tokens per batch on one replica: examples times the length of the longer side, padded.
        max_length: the longest sentence in training, including the end of sentence; 0: `batch_size`.
        min_length_bucket: the first boundary.
        length_bucket_step: ratio of consecutive boundaries, above 1.
        drop_long_sequences: True: drop sentences longer than `max_length`.
        shard_multiplier: number of replicas; every batch size is multiplied by it.
        min_length: the shortest sentence to keep.

    Returns:
        `boundaries` [N]: bucket i holds lengths in [boundaries[i-1], boundaries[i]), the last one
        holds the rest; `batch_sizes` [N+1]; `min_length` and `max_length` of the sentences to keep (10**9:
        no limit); `shuffle_queue_size`: minimum size of the shuffle buffer, in batches.

    Raises:
        UserError: a setting is out of range.
    """
    settings = {
        "batch_size": batch_size,
        "max_length": max_length,
        "min_length_bucket": min_length_bucket,
        "length_bucket_step": length_bucket_step,
    }
    for name, value in settings.items():
        SETTINGS[name].checked(name, value, what="")
    if shard_multiplier < 1:
        raise UserError(
            f"shard_multiplier must be an integer of at least 1, got {shard_multiplier}"
        )
    max_length = max_length or batch_size
    boundaries = _boundaries(max_length, min_length_bucket, length_bucket_step)
    wanted = [max(1, batch_size // length) for length in [*boundaries, max_length]]
    window = max(number for number in _HIGHLY_COMPOSITE if number <= 3 * max(wanted))
    sizes = [
        next(number for number in range(min(size, window), 0, -1) if window % number == 0)
        for size in wanted
    ]
    return {
        "boundaries": boundaries,
        "batch_sizes": [size * shard_multiplier for size in sizes],
        "min_length": min_length,
        "max_length": max_length if drop_long_sequences else _NO_LIMIT,
        "shuffle_queue_size": 3 * (window // min(sizes)),
    }


def _boundaries(max_length: int, first: int, step: float) -> list[int]:
    boundaries = []
    length = first
    while length < max_length:
        boundaries.append(length)
        length = max(length + 1, int(length * step))
    return boundaries
