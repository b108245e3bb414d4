"""Runs as lines of text."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence

from t2t_keras.inspection.run_curves import Chart, charts, in_words
from t2t_keras.inspection.run_tables import Table, names, tables
from t2t_keras.inspection.runs import Run
from t2t_keras.inspection.text_chart import marks, text_chart

_WIDEST = 92
"""Letters of a row; cells that are longer go on in the next line."""

_NARROWEST = 16


def run_text(runs: Sequence[Run], now: float) -> list[str]:
    """Lines that tell of one run, or of several side by side, curves drawn with letters.

    Args:
        runs: one or more.
        now: seconds since 1970, from which ages are counted.
    """
    overview, *others = tables(runs, now)
    lines = _table(overview)
    for chart in charts(runs):
        if not chart.minor:
            lines += ["", *_chart(chart, names(runs))]
    for table in others:
        lines += ["", *_table(table)]
    return lines


def _chart(chart: Chart, run_names: Sequence[str]) -> list[str]:
    lines = [chart.title]
    lines += text_chart([[(p.step, p.value) for p in line] for line in chart.lines], chart.form)
    if len(run_names) == 1:
        return [*lines, f"  {in_words(chart, chart.lines[0])}"]
    legend = zip(marks(len(run_names)), run_names, chart.lines, strict=True)
    return lines + [f"  {mark} {name}: {in_words(chart, line)}" for mark, name, line in legend]


def _table(table: Table) -> list[str]:
    """The rows of a table in columns that stand one below the other."""
    rows = [table.head, *table.rows] if table.head else table.rows
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if not table.whole:
        widths = _narrowed(widths)
    lines = [f"{table.title}:"] if table.title else []
    for row in rows:
        cells = [
            textwrap.wrap(cell, max(1, width), break_on_hyphens=False)
            for cell, width in zip(row, widths, strict=True)
        ]
        for parts in itertools.zip_longest(*cells, fillvalue=""):
            padded = [f"{part:{width}}" for part, width in zip(parts, widths, strict=True)]
            lines.append(f"  {'  '.join(padded)}".rstrip())
    return lines


def _narrowed(wanted: Sequence[int]) -> list[int]:
    """As wide as is wanted, the widest columns narrower if all of them are too wide together."""
    widths, left = dict.fromkeys(range(len(wanted)), 0), _WIDEST
    for done, column in enumerate(sorted(widths, key=lambda i: wanted[i])):
        share = max(_NARROWEST, left // (len(wanted) - done))
        widths[column] = min(wanted[column], share)
        left -= widths[column]
    return list(widths.values())
