"""Curves drawn with letters, for terminals and logs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

WIDTH, HEIGHT = 60, 8

_MARKS = "123456789abcdefghijklmnopqrstuvwxyz"


def text_chart(
    lines: Sequence[Sequence[tuple[float, float]]],
    form: str,
    width: int = WIDTH,
    height: int = HEIGHT,
) -> list[str]:
    """Draws curves on one grid of letters; where two meet, the later one is seen.

    Between points a curve is a straight line. What is no number is left out.

    Args:
        lines: (x, y) points of each curve, x rising; a curve may be empty.
        form: of a value on the axis, as `format` takes it.
        width, height: of the grid, in letters.

    Returns:
        Lines of text, the axes among them; empty if no curve has two points.
    """
    finite = [[(x, y) for x, y in line if math.isfinite(y)] for line in lines]
    if max(map(len, finite), default=0) < 2:
        return []
    xs = [x for line in finite for x, _ in line]
    ys = [y for line in finite for _, y in line]
    left, right, low, high = min(xs), max(xs), min(ys), max(ys)
    columns = np.linspace(left, right, width)
    half = (columns[1] - columns[0]) / 2
    grid = [[" "] * width for _ in range(height)]
    for mark, line in zip(marks(len(lines)), finite, strict=True):
        if not line:
            continue
        x, y = np.array(line, float).T
        inside = (columns >= x[0] - half) & (columns <= x[-1] + half)
        share = (np.interp(columns, x, y) - low) / ((high - low) or 1.0)
        rows = np.rint((1 - share) * (height - 1)).astype(int)
        for column in np.flatnonzero(inside):
            grid[rows[column]][column] = mark
    labels = [f"{high:{form}}", *[""] * (height - 2), f"{low:{form}}"]
    margin = max(map(len, labels))
    drawn = [
        f"{label:>{margin}} |{''.join(row)}".rstrip()
        for label, row in zip(labels, grid, strict=True)
    ]
    first, last = f"{left:,.0f}", f"{right:,.0f}"
    axis = f"{'':{margin}} +{'-' * width}"
    return [*drawn, axis, f"{'':{margin}}  {first}{last:>{width - len(first)}}"]


def marks(number: int) -> list[str]:
    """The letter that each of so many curves is drawn with: an asterisk, or 1, 2, ..."""
    return ["*"] if number == 1 else [_MARKS[i % len(_MARKS)] for i in range(number)]
