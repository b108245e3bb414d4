"""Reports on the shards of a split: pairs kept and dropped, ids, lengths, padding."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from t2t_keras.data.buckets import Buckets
from t2t_keras.data.shards import SplitIndex
from t2t_keras.errors import UserError
from t2t_keras.files import atomic_write, read_json

_WIDEST_BAR = 40
_MOST_BARS = 16


@dataclasses.dataclass
class Counts:
    """The number of source pairs that were kept, and of those dropped, by reason."""

    kept: int = 0
    dropped: Counter[str] = dataclasses.field(default_factory=Counter)


def write_counts(data_dir: str | os.PathLike, name: str, split: str, counts: Counts) -> None:
    """Stores the counts of a split beside its shards."""
    values = {"kept": counts.kept, "dropped": dict(counts.dropped)}
    with atomic_write(_path(data_dir, name, split)) as path:
        path.write_text(json.dumps(values, indent=1) + "\n")


def read_counts(data_dir: str | os.PathLike, name: str, split: str) -> Counts | None:
    """Returns the stored counts; None if the file is absent (as with T2T's shards) or damaged."""
    try:
        values = read_json(_path(data_dir, name, split), {"kept": int, "dropped": {str: int}})
    except UserError:
        return None
    return Counts(values["kept"], Counter(values["dropped"]))


def describe_split(split: str, index: SplitIndex, counts: Counts | None) -> list[str]:
    """Returns lines that describe a split: its files, the pairs kept and left out, its ids."""
    first, last = index.paths[0].name, index.paths[-1].name
    more = f" to {last[-14:]}" if len(index.paths) > 1 else ""
    lines = [f"  {split}: {len(index.sizes):,} examples in {first}{more}"]
    if counts is not None and counts.dropped.total():
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in counts.dropped.most_common())
        lines.append(f"    left out: {counts.dropped.total():,} ({reasons}), kept: {counts.kept:,}")
    sides = [
        f"{int(lengths.sum(dtype=np.int64)):,} {side} ({lengths.mean():.1f} per pair)"
        for side, lengths in index.lengths.items()
        if len(lengths)
    ]
    return lines + ([f"    ids: {', '.join(sides)}"] if sides else [])


def length_histogram(lengths: Mapping[str, np.ndarray]) -> list[str]:
    """Returns a histogram of lengths, one line per range: ids of the longer side, pairs, a bar."""
    longer = np.maximum.reduce([*lengths.values()]).astype(np.int64)
    if not len(longer):
        return []
    width = max(1, -(-int(np.quantile(longer, 0.99)) // (_MOST_BARS - 1)))
    pairs = np.bincount(np.minimum(longer // width, _MOST_BARS - 1), minlength=_MOST_BARS)
    lines = ["length of the longer side, pairs:"]
    for number in range(np.flatnonzero(pairs)[0], np.flatnonzero(pairs)[-1] + 1):
        low, count = number * width, int(pairs[number])
        high = int(longer.max()) if number == _MOST_BARS - 1 else low + width - 1
        bar = "#" * round(_WIDEST_BAR * count / int(pairs.max()))
        lines.append(f"{low:5d} -{high:5d} {count:11,d} {bar}".rstrip())
    return lines


def padding_table(lengths: Mapping[str, np.ndarray], buckets: Buckets) -> list[str]:
    """Returns one line per bucket that has pairs: its shape, pairs and share of padding.

    The last lines are totals: the share of padding over both sides, the mean number of ids and of target
    ids in a full batch, and the number of pairs that are in no bucket.
    """
    sides = {side: column.astype(np.int64) for side, column in lengths.items()}
    bucket = buckets.of(np.maximum.reduce([*sides.values()]))
    kept = bucket >= 0
    number = len(buckets.edges)
    pairs = np.bincount(bucket[kept], minlength=number)
    real = np.bincount(bucket[kept], np.sum([*sides.values()], axis=0)[kept], minlength=number)
    edges = np.array(buckets.edges, np.int64)
    widths = [edges if column.max(initial=0) > 1 else edges**0 for column in sides.values()]
    positions = pairs * sum(widths)  # a class label is a side of width 1
    lines = ["rows x ids, pairs, padding:"]
    lines += [
        f"{buckets.sizes[k]:5d} x {buckets.edges[k]:<5d} {pairs[k]:11,d} "
        f"{1 - real[k] / positions[k]:6.1%}"
        for k in np.flatnonzero(pairs)
    ]
    batches = float(np.sum(pairs / np.array(buckets.sizes)))
    if batches:
        lines.append(
            f"all: {1 - real.sum() / positions.sum():.1%} padding; a batch has "
            f"{real.sum() / batches:,.0f} ids, {sides['targets'][kept].sum() / batches:,.0f} of them targets"
        )
    if not kept.all():
        lines.append(f"too long or too short for training: {int(np.sum(~kept)):,} pairs")
    return lines


def _path(data_dir: str | os.PathLike, name: str, split: str) -> Path:
    return Path(data_dir) / f"counts.{name}-{split}.json"
