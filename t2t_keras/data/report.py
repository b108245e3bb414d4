"""What lies in the shards of a split: pairs kept and left out, tokens, lengths."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from pathlib import Path

import numpy as np

from t2t_keras.data.index import SplitIndex, read_index
from t2t_keras.whole_file import whole_file

_WIDEST_BAR = 40
_MOST_BARS = 16


@dataclasses.dataclass
class Counts:
    """How many pairs of the source were kept, and how many not, by reason."""

    kept: int = 0
    dropped: Counter[str] = dataclasses.field(default_factory=Counter)


def write_counts(data_dir: str | os.PathLike, name: str, split: str, counts: Counts) -> None:
    """Stores the counts of a split beside its shards."""
    values = {"kept": counts.kept, "dropped": dict(counts.dropped)}
    with whole_file(_path(data_dir, name, split)) as path:
        path.write_text(json.dumps(values, indent=1) + "\n")


def read_counts(data_dir: str | os.PathLike, name: str, split: str) -> Counts | None:
    """Returns the stored counts; None where there are none, as with shards of tensor2tensor."""
    path = _path(data_dir, name, split)
    if not path.exists():
        return None
    values = json.loads(path.read_text())
    return Counts(values["kept"], Counter(values["dropped"]))


def describe_split(
    data_dir: str | os.PathLike, name: str, split: str, details: bool = False
) -> list[str]:
    """Returns lines of text on a split: files, counts and tokens; `details`: and lengths.

    Raises:
        UserError: its shards are absent or damaged.
    """
    index = read_index(data_dir, name, split)
    first, last = index.paths[0].name, index.paths[-1].name
    more = f" to {last[-14:]}" if len(index.paths) > 1 else ""
    lines = [f"  {split}: {len(index.sizes):,} examples in {first}{more}"]
    counts = read_counts(data_dir, name, split)
    if counts is not None and counts.dropped.total():
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in counts.dropped.most_common())
        lines.append(f"    left out: {counts.dropped.total():,} ({reasons}), kept: {counts.kept:,}")
    more_lines = _tokens(index) + (length_histogram(index) if details else [])
    return lines + [f"    {line}" for line in more_lines]


def _tokens(index: SplitIndex) -> list[str]:
    sides = [
        f"{int(lengths.sum(dtype=np.int64)):,} {side} ({lengths.mean():.1f} a pair)"
        for side, lengths in index.lengths.items()
        if len(lengths)
    ]
    return [f"ids: {', '.join(sides)}"] if sides else []


def length_histogram(index: SplitIndex) -> list[str]:
    """Returns one line for each range of lengths: the longer side's ids, the pairs, a bar."""
    if not len(index.sizes):
        return []
    longer = np.maximum(*index.lengths.values()).astype(np.int64)
    width = max(1, -(-int(np.quantile(longer, 0.99)) // (_MOST_BARS - 1)))
    pairs = np.bincount(np.minimum(longer // width, _MOST_BARS - 1), minlength=_MOST_BARS)
    lines = ["length of the longer side, pairs:"]
    for number in range(np.flatnonzero(pairs)[0], np.flatnonzero(pairs)[-1] + 1):
        low, count = number * width, int(pairs[number])
        high = int(longer.max()) if number == _MOST_BARS - 1 else low + width - 1
        bar = "#" * round(_WIDEST_BAR * count / int(pairs.max()))
        lines.append(f"{low:5d} -{high:5d} {count:11,d} {bar}".rstrip())
    return lines


def _path(data_dir: str | os.PathLike, name: str, split: str) -> Path:
    return Path(data_dir) / f"counts.{name}-{split}.json"
