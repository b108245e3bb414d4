"""Runs as one HTML page that needs nothing else: no network, no other file."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from t2t_keras.inspection.line_chart import classes, line_chart
from t2t_keras.inspection.run_curves import Chart, charts, in_words, thinned
from t2t_keras.inspection.run_tables import (
    OTHER,
    PHASES,
    TIME,
    Table,
    evaluations,
    names,
    seconds_by_phase,
    tables,
)
from t2t_keras.inspection.runs import Run
from t2t_keras.inspection.self_contained import self_contained

_STYLES = ("common.css", "run.css")
_PHASES = (*PHASES.values(), OTHER)
_AXES = {"step": "steps", "hours": "hours"}
_SAMPLE = (
    '<svg class="sample" viewBox="0 0 28 8" aria-hidden="true">'
    '<path class="curve {}" d="M0 4H28"/></svg>'
)
_SQUARE = (
    '<svg class="square" viewBox="0 0 1 1" aria-hidden="true">'
    '<rect class="phase-{}" width="1" height="1"/></svg>'
)


def run_page(runs: Sequence[Run], now: float) -> str:
    """Returns a page on one run, or on several side by side with their curves in the same grids.

    By its address, `#theme=dark&axis=hours` say, a browser without a window shows what is wanted,
    too. Without JavaScript all is there but what answers the pointer and the keyboard.

    Args:
        runs: one or more.
        now: seconds since 1970, from which ages are counted.
    """
    overview, *others = tables(runs, now)
    drawn = [_thinned(chart) for chart in charts(runs)]
    parts = [_section("Overview", _table(overview)), _curves(drawn, names(runs))]
    for table in others:
        content = _times(table, runs) if table.title == TIME else _table(table)
        parts.append(_section(table.title.capitalize(), content))
    for name, run in zip(names(runs), runs, strict=True):
        table = evaluations(run, f" of {name}" if len(runs) > 1 else "")
        if table.rows:
            title = _text(table.title.capitalize())
            parts.append(f"<details><summary>{title}</summary>{_table(table)}</details>")
    return self_contained(
        "run.html",
        title=f"{'Run' if len(runs) == 1 else 'Runs'} {', '.join(names(runs))}",
        styles=_STYLES,
        scripts=["run.js"],
        data={"names": names(runs), "charts": [_data(chart) for chart in drawn]},
        body="\n".join(filter(None, parts)),
    )


def _curves(drawn: Sequence[Chart], run_names: Sequence[str]) -> str:
    if not drawn:
        return ""
    legend = "".join(
        f"<li>{_SAMPLE.format(classes(number))}{_text(name)}</li>"
        for number, name in enumerate(run_names)
    )
    legend = f'<ul class="legend">{legend}</ul>' if len(run_names) > 1 else ""
    axes = ""
    if any(map(_has_hours, drawn)):
        choices = "".join(
            f'<label><input type="radio" name="axis" value="{axis}"{" checked" * (axis == "step")}>'
            f"<span>{words}</span></label>"
            for axis, words in _AXES.items()
        )
        axes = f'<div class="controls"><fieldset><legend>By</legend>{choices}</fieldset></div>'
    figures = "".join(_figure(number, chart, run_names) for number, chart in enumerate(drawn))
    hint = "Point at a curve to read it; with the keyboard: Tab to it, then the arrow keys."
    return _section(
        "Curves",
        f'{axes}{legend}<p class="hint">{hint}</p><div class="curves">{figures}</div>',
    )


def _figure(number: int, chart: Chart, run_names: Sequence[str]) -> str:
    words = [in_words(chart, line) for line in chart.lines]
    if len(run_names) > 1:
        words = [f"{name}: {told}" for name, told in zip(run_names, words, strict=True)]
    described = "; ".join(words)
    pictures = []
    for axis in _AXES:
        if axis == "step" or _has_hours(chart):
            lines = [[(getattr(p, axis), p.value) for p in line] for line in chart.lines]
            picture = line_chart(lines, chart.form, _AXES[axis], f"{chart.title}; {described}")
            hidden = " hidden" * (axis != "step")
            pictures.append(picture.replace("<svg ", f'<svg data-axis="{axis}"{hidden} ', 1))
    return (
        f'<figure data-chart="{number}"><figcaption>{_text(chart.title)}</figcaption>'
        f'{"".join(pictures)}<p class="told" role="status">{_text(described)}</p></figure>'
    )


def _thinned(chart: Chart) -> Chart:
    """With no more points than a picture has places for, and those alone that can be drawn."""
    lines = [[p for p in thinned(line) if math.isfinite(p.value)] for line in chart.lines]
    return chart._replace(lines=lines)


def _has_hours(chart: Chart) -> bool:
    hours = [point.hours for line in chart.lines for point in line]
    return all(map(math.isfinite, hours)) and max(hours, default=0.0) > 0


def _data(chart: Chart) -> list[dict[str, list]]:
    """What the page's program tells of each curve: x by either axis, and values as text."""
    return [
        {
            "step": [point.step for point in line],
            "hours": [round(point.hours, 5) for point in line if math.isfinite(point.hours)],
            "value": [f"{point.value:{chart.form}}" for point in line],
        }
        for line in chart.lines
    ]


def _times(table: Table, runs: Sequence[Run]) -> str:
    """The table, and above it a bar for each run."""
    bars = []
    for name, run in zip(names(runs), runs, strict=True):
        seconds = seconds_by_phase(run)
        total = sum(seconds.values())
        if not total:
            continue
        place, parts = 0.0, []
        for phase, spent in seconds.items():
            width = 100 * spent / total
            number = _PHASES.index(phase)
            parts.append(
                f'<rect class="phase-{number}" x="{place:.3f}" width="{width:.3f}" height="1"/>'
            )
            place += width
        said = ", ".join(f"{phase} {spent / total:.0%}" for phase, spent in seconds.items())
        title = f"<h3>{_text(name)}</h3>" if len(runs) > 1 else ""
        bars.append(
            f'{title}<svg class="bar" viewBox="0 0 100 1" preserveAspectRatio="none" role="img" '
            f'aria-label="{_text(said)}">{"".join(parts)}</svg>'
        )
    squares = {phase: _SQUARE.format(number) for number, phase in enumerate(_PHASES)}
    return "".join(bars) + _table(table, squares)


def _section(title: str, content: str) -> str:
    return f"<section><h2>{_text(title)}</h2>{content}</section>"


def _table(table: Table, before: dict[str, str] | None = None) -> str:
    """A table; `before` has HTML that goes before the first cells of some rows."""
    head = "".join(f'<th scope="col">{_text(cell)}</th>' for cell in table.head)
    rows = [
        f'<tr><th scope="row">{(before or {}).get(row[0], "")}{_text(row[0])}</th>'
        + "".join(f"<td>{_text(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in table.rows
    ]
    head = f"<thead><tr>{head}</tr></thead>" if head else ""
    return f'<div class="scroll"><table>{head}<tbody>{"".join(rows)}</tbody></table></div>'


def _text(text: str) -> str:
    return html.escape(text)
