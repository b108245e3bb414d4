"""Curves as SVG, without any style of its own: a page's style sheet says what classes look like."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

WIDTH, HEIGHT = 560, 250
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 10, 38
"""What lies around the grid."""

COLOURS = 8
"""The classes of curves are `run-0` to `run-7`; of more curves, some are `dashed`, too."""

_FEW = 40


def line_chart(
    lines: Sequence[Sequence[tuple[float, float]]],
    form: str,
    axis: str,
    described: str,
) -> str:
    """Draws curves on one grid; what is no number is left out.

    The element has the class `chart`, and as `data-left`, `data-right`, `data-low` and `data-high`
    where the grid begins and ends, and what x is there.

    Args:
        lines: (x, y) points of each curve, x rising; a curve may be empty, not all may.
        form: of a value, as `format` takes it; of it, the axis needs the percent sign alone.
        axis: what x is.
        described: what the picture shows, for those who do not see it.

    Returns:
        An `svg` element; empty if there is no point.
    """
    finite = [[(x, y) for x, y in line if math.isfinite(x) and math.isfinite(y)] for line in lines]
    xs = [x for line in finite for x, _ in line]
    ys = [y for line in finite for _, y in line]
    if not xs:
        return ""
    low_x, high_x = _wide(min(0, *xs), max(xs))
    low_y, high_y = _wide(min(ys), max(ys))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - low_x) / (high_x - low_x)
        up = (y - low_y) / (high_y - low_y)
        return (
            round(LEFT + across * (WIDTH - LEFT - RIGHT), 1),
            round(HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM), 1),
        )

    parts = [
        f'<svg class="chart" role="img" tabindex="0" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'data-left="{LEFT}" data-right="{WIDTH - RIGHT}" '
        f'data-low="{low_x:.10g}" data-high="{high_x:.10g}" '
        f'aria-label="{html.escape(described)}">'
    ]
    percent = "%" if form.endswith("%") else ""
    for tick in ticks(low_y, high_y):
        y = place(low_x, tick)[1]
        parts.append(f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>')
        text = f"{100 * tick:.4g}%" if percent else f"{tick:,.6g}"
        parts.append(f'<text class="value" x="{LEFT - 6}" y="{y + 4}">{text}</text>')
    for tick in ticks(low_x, high_x, 6):
        x = place(tick, low_y)[0]
        parts.append(f'<path class="grid" d="M{x} {TOP}V{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text class="x" x="{x}" y="{HEIGHT - BOTTOM + 16}">{tick:,.6g}</text>')
    parts.append(f'<text class="axis" x="{WIDTH - RIGHT}" y="{HEIGHT - 6}">{axis}</text>')
    for number, line in enumerate(finite):
        parts += _curve([place(x, y) for x, y in line], number)
    parts.append(f'<path class="cursor" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}"/></svg>')
    return "".join(parts)


def classes(number: int) -> str:
    """The classes of the curve of a number."""
    return f"run-{number % COLOURS}" + (" dashed" if number // COLOURS % 2 else "")


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between two, about so many: steps of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1, 2, 5, 10) if f * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{number * step:.10g}") for number in range(first, last + 1)]


def _wide(low: float, high: float) -> tuple[float, float]:
    """A range that has a width."""
    if high > low:
        return low, high
    margin = abs(low) / 10 or 1.0
    return low - margin, high + margin


def _curve(places: Sequence[tuple[float, float]], number: int) -> list[str]:
    drawn = []
    if len(places) > 1:
        path = "L".join(f"{x:g} {y:g}" for x, y in places)
        drawn.append(f'<path class="curve {classes(number)}" d="M{path}"/>')
    if len(places) <= _FEW:
        drawn += [
            f'<circle class="{classes(number)}" cx="{x:g}" cy="{y:g}" r="2.5"/>' for x, y in places
        ]
    return drawn
