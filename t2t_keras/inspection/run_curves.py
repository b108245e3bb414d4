"""Which curves of runs are drawn, and how their values are written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from t2t_keras.inspection.runs import Point, Run


class Chart(NamedTuple):
    """Curves of one kind."""

    title: str
    lines: Sequence[Sequence[Point]]
    """One for each run, empty where it has none."""
    form: str
    """Of a value, as `format` takes it."""
    less_is_better: bool | None
    """None: neither is."""
    minor: bool
    """Whether a short report can do without it."""


_Kind = tuple[str, str, str, bool | None, bool]  # name, and what `Chart` has besides the lines

_OF_TRAINING: tuple[_Kind, ...] = (
    ("loss", "loss of training, nats a target token", ".3f", True, False),
    ("learning_rate", "learning rate", ".2e", None, False),
    ("tokens_per_second", "tokens a second, mean since a start", ",.0f", None, False),
    ("steps_per_second", "steps a second, mean since a start", ".2f", None, True),
    ("share_of_matrix_peak", "share of the devices' matrix peak", ".1%", None, True),
    ("gradient_norm", "norm of the gradient", ".3g", None, True),
)
_OF_DEV: tuple[_Kind, ...] = (
    ("loss", "loss on dev, nats a target token", ".3f", True, False),
    ("bleu", "BLEU on dev", ".2f", False, False),
    ("f1", "F1 on dev", ".2f", False, False),
    ("approx_bleu", "tensor2tensor's approximate BLEU on dev", ".2f", False, False),
    ("accuracy", "accuracy on dev", ".3f", False, True),
)


def charts(runs: Sequence[Run]) -> list[Chart]:
    """The curves that at least one of the runs has: loss first, then the others of dev."""
    loss, *others = [_chart(kind, [run.training for run in runs]) for kind in _OF_TRAINING]
    of_dev = [_chart(kind, [run.dev for run in runs]) for kind in _OF_DEV]
    return [chart for chart in (loss, *of_dev, *others) if any(chart.lines)]


def _chart(kind: _Kind, curves: Sequence[Mapping[str, Sequence[Point]]]) -> Chart:
    name, title, form, less_is_better, minor = kind
    lines = [of_run.get(name, ()) for of_run in curves]
    return Chart(title, lines, form, less_is_better, minor)


def best(points: Sequence[Point], less_is_better: bool) -> Point | None:
    """The best point of a curve, the first of equals; None: it has none that is a number."""
    sign = 1 if less_is_better else -1
    numbers = [point for point in points if not math.isnan(point.value)]
    return min(numbers, key=lambda point: sign * point.value, default=None)


def in_words(chart: Chart, points: Sequence[Point]) -> str:
    """Says where a curve begins and ends, and its best point: "8.123 at step 100, ..."."""
    if not points:
        return "none"
    named = [("first ", points[0]), ("last ", points[-1])]
    if chart.less_is_better is not None:
        named += [("best ", best(points, chart.less_is_better) or points[0])]
    if len(points) == 1:
        named = [("", points[0])]
    return ", ".join(
        f"{word}{point.value:{chart.form}} at step {point.step:,}" for word, point in named
    )


def thinned(points: Sequence[Point], most: int = 600) -> list[Point]:
    """A curve of at most about so many points that looks the same: the extremes of each stretch."""
    if len(points) <= most:
        return list(points)
    stretch = -(-2 * len(points) // most)
    kept = {0, len(points) - 1}
    for start in range(0, len(points), stretch):
        places = range(start, min(start + stretch, len(points)))
        kept.add(min(places, key=lambda i: points[i].value))
        kept.add(max(places, key=lambda i: points[i].value))
    return [points[i] for i in sorted(kept)]
