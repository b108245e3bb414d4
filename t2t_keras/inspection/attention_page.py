"""An interactive HTML page of attention and parse tree, in one file that works offline."""

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

import numpy as np

from t2t_keras.ids import without_padding
from t2t_keras.inspection.attention import KINDS, MOST_TOKENS, AttentionData, attention_weights
from t2t_keras.inspection.tokens import shown_tokens

_SCRIPTS = ("elements.js", "state.js", "pictures.js", "numbers.js", "tree.js", "page.js")
"""Scripts of the page, each before those that depend on it."""

_SCALE = 10_000
"""Weights are stored as integers, multiplied by this, in half the space of decimals."""


def attention_page(data: dict[str, Any]) -> str:
    """Returns an HTML page that shows attention like Figures 3 to 5 of the paper.

    The page contains its style, scripts and data, and its content security policy forbids any
    connection. The fragment of its address selects what is shown, with numbers from 0, so a headless
    browser can draw any figure: `chromium --headless --window-size=1200,800 --screenshot=figure.png
    "file:///tmp/page.html#attention=encoder&layer=4&heads=0,5&word=12&theme=light"`. Its parameters are
    `attention` (encoder, encdec or decoder), `layer`, `heads`, `text` (words or subwords), `view`
    (lines or heat-map), `theme` (light or dark), and `word` (a query) or `looked-at` (a key).

    Args:
        data: see `AttentionData.to_json`; any text in it is escaped:

            - "title".
            - "source" and "target": {"text", "tokens": the text of each token, "word_texts": the text of
              each word, "words": for each token the number of its word, from 0}.
            - "attention": [layers][heads][queries][keys] weights by kind: "encoder", "decoder",
              "encdec", or some of these.
            - "tree": a parse tree in brackets, or None.

    Raises:
        ValueError: the shape of the weights does not match the tokens.
    """
    folder = resources.files("t2t_keras.inspection") / "page"
    style = (folder / "attention.css").read_text("utf-8")
    script = "\n".join((folder / name).read_text("utf-8") for name in _SCRIPTS)
    attention = {kind: _integers(kind, layers, data) for kind, layers in data["attention"].items()}
    return Template((folder / "attention.html").read_text("utf-8")).substitute(
        title=html.escape(": ".join(filter(None, ("Attention", data["title"])))),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        data=_json_in_html({**data, "attention": attention}),
    )


def batch_page(model, encoders, batch: Mapping[str, Any], title: str) -> str:
    """Returns the attention page, with a title, of a batch's first pair, up to `MOST_TOKENS` a side.

    Args:
        model, encoders: a `Transformer`, and its "inputs" and "targets" text encoders.
        batch: {"inputs": [B, S], "targets": [B, T]}, or packed rows.
    """
    pair = {}
    for side in ("inputs", "targets"):
        ids = np.asarray(batch[side])[0]
        if f"{side}_segmentation" in batch:  # the first pair of a packed row
            ids = ids[np.asarray(batch[f"{side}_segmentation"])[0] == 1]
        pair[side] = without_padding(ids)[:MOST_TOKENS]
    source, target = (shown_tokens(encoders[side], ids) for side, ids in pair.items())
    weights: dict[str, Any] = attention_weights(model, *pair.values())
    return attention_page(AttentionData(title, source, target, **weights).to_json())


def _integers(kind: str, layers, data) -> list:
    """Returns the weights of one kind as integers in units of 1 / `_SCALE`."""
    queries, keys = (len(data[side]["tokens"]) for side in KINDS[kind])
    for heads in layers:
        for rows in heads:
            if len(rows) != queries or any(len(row) != keys for row in rows):
                raise ValueError(f"The attention {kind!r} is not of {queries} x {keys} tokens.")
    return np.rint(_SCALE * np.nan_to_num(layers)).astype(int).tolist()


def _hash(text: str) -> str:
    """Returns the hash by which the content security policy allows a style or script."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json_in_html(data: Any) -> str:
    """Returns JSON that cannot close the HTML element around it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
