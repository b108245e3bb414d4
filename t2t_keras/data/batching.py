"""T2T's bucket boundaries and batch sizes, number for number; `buckets.py` says what is made of them.

Sentences of similar length are batched together, and a batch holds about `batch_size` tokens of the
longer side, padding included, so that short sentences come in large batches and long ones in small.
"""

from __future__ import annotations

import bisect

from t2t_keras.errors import UserError

_NO_LIMIT = 10**9

# https://oeis.org/A002182: each has more divisors than every smaller number.
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
        batch_size: tokens of a batch on one replica: examples times the longer side, with padding.
        max_length: the longest sentence for training, its end-of-sentence included; 0: `batch_size`.
        min_length_bucket: the first boundary.
        length_bucket_step: ratio of consecutive boundaries, above 1.
        drop_long_sequences: whether sentences above `max_length` are to be dropped.
        shard_multiplier: number of replicas; every batch size is multiplied by it.
        min_length: the shortest sentence to keep.

    Returns:
        `boundaries` [N]: bucket i holds lengths in [boundaries[i-1], boundaries[i]), the last one
        holds the rest; `batch_sizes` [N+1]; `min_length` and `max_length`: what to keep (10**9: no
        limit); `shuffle_queue_size`: batches to shuffle among, at least.

    Raises:
        UserError: a setting is out of range.
    """
    _require(batch_size >= 1, "batch_size", batch_size, "at least 1")
    _require(max_length >= 0, "max_length", max_length, "at least 1, or 0 for batch_size")
    _require(min_length_bucket >= 1, "min_length_bucket", min_length_bucket, "at least 1")
    _require(length_bucket_step > 1, "length_bucket_step", length_bucket_step, "above 1")
    _require(shard_multiplier >= 1, "shard_multiplier", shard_multiplier, "at least 1")
    max_length = max_length or batch_size
    boundaries = _boundaries(max_length, min_length_bucket, length_bucket_step)
    wanted = [max(1, batch_size // length) for length in [*boundaries, max_length]]
    window = _highly_composite(3 * max(wanted))
    sizes = [_largest_divisor(window, size) for size in wanted]
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


def _highly_composite(limit: int) -> int:
    return _HIGHLY_COMPOSITE[bisect.bisect_right(_HIGHLY_COMPOSITE, limit) - 1]


def _largest_divisor(number: int, limit: int) -> int:
    return next(size for size in range(min(limit, number), 0, -1) if number % size == 0)


def _require(holds: bool, name: str, value, allowed: str) -> None:
    if not holds:
        raise UserError(f"{name} is {value}; it must be {allowed}.")
