"""Matplotlib figures (optional): attention as lines between words, as in the paper's figures 3 to 5."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from t2t_keras.errors import UserError, explained, importing, nearest, require_one_of
from t2t_keras.files import atomic_write
from t2t_keras.inspection.attention import KINDS, AttentionData

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NAMES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "encdec": "encoder-decoder attention",
}
_COLUMNS = 4  # of heads
_FAINTEST = 0.02  # lines of smaller weights are not drawn
_APART = 0.12  # distance, in rows, between the lines of different heads in one picture


def attention_figure(
    data: AttentionData,
    kind: str = "encdec",
    layer: int | None = None,
    heads: Sequence[int] | None = None,
    words: Sequence[str] | None = None,
) -> Figure:
    """Draws one layer: lines from queries on the left to keys on the right, their opacity by weight.

    Without `words`, each head has its own picture (figures 4 and 5 of the paper). With `words`, one
    picture shows what these queries attend to, each head in its own colour (figure 3).

    Args:
        data: weights between tokens or, from `AttentionData.by_words`, between words.
        kind: one of `KINDS`.
        layer, heads: their numbers, from 0; None: the last layer, all heads.
        words: the queries to draw, wherever they occur; None: all.

    Raises:
        UserError: unknown kind, layer, head or word, or matplotlib is not installed.
    """
    require_one_of("the kind of attention", kind, KINDS)
    weights = data.weights(kind)  # [L, H, query, key]
    layers, heads_of_layer = weights.shape[:2]
    layer = layers - 1 if layer is None else layer
    if not 0 <= layer < layers:
        raise UserError(f"no layer {layer}: the {kind} attention has layers 0 to {layers - 1}.")
    heads = range(heads_of_layer) if heads is None else heads
    for head in heads:
        if not 0 <= head < heads_of_layer:
            raise UserError(f"no head {head}: a layer has heads 0 to {heads_of_layer - 1}.")
    queries, keys = (side.tokens for side in data.sides(kind))
    for word in words or ():
        if word not in queries:
            known = f"{', '.join(dict.fromkeys(queries))}.{nearest(word, queries)}"
            raise UserError(f"{word!r} is not a query; queries are {known}")
    chosen = np.array([words is None or query in words for query in queries])  # [T]
    drawn = weights[layer] * chosen[:, None]
    pictures = [list(heads)] if words is not None else [[head] for head in heads]

    columns = min(_COLUMNS, len(pictures))
    rows = -(-len(pictures) // columns)
    longest = max(len(queries), len(keys))
    width = 1 + 0.1 * (max(map(len, queries)) + max(map(len, keys)))
    figure = empty_figure(max(4.0, columns * (width + 0.3)), rows * (0.22 * longest + 0.5) + 0.4)
    title = f"{_NAMES[kind]}, layer {layer}"
    figure.suptitle(f"{data.title}\n{title}" if data.title else title, fontsize=9)
    for number, picture in enumerate(pictures):
        axes = figure.add_subplot(rows, columns, number + 1)
        _write_words(axes, queries, keys, longest)
        for place, head in enumerate(picture):
            beside = (place - (len(picture) - 1) / 2) * min(_APART, 0.8 / len(picture))
            _draw_lines(axes, drawn[head], head, beside)
        if len(picture) == 1:
            axes.set_title(f"head {picture[0]}", fontsize=9)
        else:
            figure.legend(loc="outside lower center", ncols=_COLUMNS, fontsize=8)
    return figure


def _write_words(axes: Axes, queries: Sequence[str], keys: Sequence[str], longest: int) -> None:
    for x, align, texts in ((-0.02, "right", queries), (1.02, "left", keys)):
        for y, text in enumerate(texts):
            # Escaped, because a dollar sign would start a formula.
            axes.text(x, y, text.replace("$", r"\$"), ha=align, va="center", fontsize=8)
    axes.set(xlim=(0, 1), ylim=(longest - 0.5, -0.5))
    axes.axis("off")


def _draw_lines(axes: Axes, weights: np.ndarray, head: int, beside: float) -> None:
    """Draws weights [query, key], shifted down by `beside` rows to keep heads apart."""
    from matplotlib.collections import LineCollection

    queries, keys = np.nonzero(weights >= _FAINTEST)
    ends = zip(queries + beside, keys + beside, strict=True)
    lines = [((0, query), (1, key)) for query, key in ends]
    opaque = np.minimum(1, weights[queries, keys])
    colour = f"C{head % 10}"
    axes.add_collection(LineCollection(lines, colors=colour, alpha=opaque, linewidths=1.5))
    axes.plot([], [], colour, label=f"head {head}")  # opaque, for the legend


def empty_figure(width: float, height: float) -> Figure:
    """Returns a figure without axes; sizes in inches."""
    with importing("figures need matplotlib", "pip install 't2t-keras[plot]'"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout="constrained")


def require_figure(path: str) -> None:
    """Checks that a figure can be saved, before anything slow is imported."""
    formats = empty_figure(1, 1).canvas.get_supported_filetypes()
    if os.path.splitext(path)[1].removeprefix(".").lower() not in formats:
        raise UserError(
            f"unknown figure format {path!r}: the name must end in .png, .svg or another of "
            f"{', '.join(sorted(formats))}."
        )


def save_figure(figure: Figure, path: str) -> None:
    """Writes a figure in the format of the name's suffix: `.png`, `.svg`, `.pdf`."""
    with (
        explained(f"the figure {path} cannot be written", OSError, ValueError),
        atomic_write(path, suffix=os.path.splitext(path)[1]) as partial,
    ):
        figure.savefig(partial)
