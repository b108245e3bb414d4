"""One HTML page that shows attention, parse tree and beam search, and needs nothing but itself."""

from __future__ import annotations

from typing import Any

from t2t_keras.inspection.self_contained import self_contained

_SCRIPTS = (
    "elements.js",
    "weights.js",
    "state.js",
    "pictures.js",
    "numbers.js",
    "tree.js",
    "search.js",
    "page.js",
)
"""In the order in which they need each other."""

_PARTS = 10_000
"""A weight is stored as so many of its parts: whole numbers are half as long as decimals."""

_SIDES = {
    "encoder": ("source", "source"),
    "decoder": ("target", "target"),
    "encdec": ("target", "source"),
}
"""Kind of attention -> the sides of its queries and keys."""


def attention_page(data: dict[str, Any]) -> str:
    """Returns an HTML page that shows what a model attends to, as Figures 3 to 5 of the paper do.

    The page holds its style, program and data, and forbids itself any connection. What it shows can
    be chosen by its address, with numbers from 0, so that a browser without a window draws any
    figure: `chromium --headless --window-size=1200,800 --screenshot=figure.png
    "file:///tmp/page.html#attention=encoder&layer=4&heads=0,5&word=12&theme=light"`. There are
    `attention` (encoder, encdec or decoder), `layer`, `heads`, `text` (words or subwords), `view`
    (lines or heat-map), `theme` (light or dark), and `word` (that looks) or `looked-at`.

    Args:
        data: all text is shown as text, whatever is in it:

            - "title".
            - "source" and "target": {"text", "tokens": their texts, "word_texts": those of the words,
              "words": for each token the number of its word, from 0}.
            - "attention": of "encoder", "decoder" and "encdec" those that there are, each
              [layers][heads][queries][keys] weights.
            - "tree": a parse tree in brackets, or None.
            - "search": None, or of a beam search {"alpha", "beam_size", "steps": [{"candidates":
              best first, [{"parent": which of the candidates that the step before kept
              and that had not ended, "token", "text": all of the hypothesis, "log_p", "score",
              "kept": whether it goes on or is among the best that have ended, "ended"}]}],
              "finished": best first, [{"text",
              "score", "step": from 1}], "stopped": why}.

    Raises:
        ValueError: weights that are not of the tokens given.
    """
    attention = {kind: _in_parts(kind, layers, data) for kind, layers in data["attention"].items()}
    return self_contained(
        "attention.html",
        title=data["title"],
        styles=["common.css", "attention.css"],
        scripts=_SCRIPTS,
        data={**data, "attention": attention},
    )


def _in_parts(kind: str, layers, data) -> list:
    """The weights of a kind as whole numbers of parts."""
    queries, keys = (len(data[side]["tokens"]) for side in _SIDES[kind])
    for heads in layers:
        for rows in heads:
            if len(rows) != queries or any(len(row) != keys for row in rows):
                raise ValueError(f"The attention {kind!r} is not of {queries} x {keys} tokens.")
    return [
        [[[round(_PARTS * weight) for weight in row] for row in rows] for rows in heads]
        for heads in layers
    ]
