"""HTML pages that hold their style, program and data, and forbid themselves any connection."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib import resources
from string import Template
from typing import Any


def self_contained(
    template: str,
    *,
    title: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    data: Any,
    **parts: str,
) -> str:
    """Makes a page of files in `t2t_keras/inspection/page`.

    Args:
        template: a file with `$title`, `$style`, `$style_hash`, `$script`, `$script_hash`, `$data`,
            and the names of `parts`.
        title: any text.
        styles: files of CSS, in their order.
        scripts: files of JavaScript, in their order.
        data: what JSON can hold, any text in it.
        **parts: further HTML, put in as it is.
    """
    folder = resources.files("t2t_keras.inspection") / "page"
    style = "\n".join((folder / name).read_text("utf-8") for name in styles)
    script = "\n".join((folder / name).read_text("utf-8") for name in scripts)
    return Template((folder / template).read_text("utf-8")).substitute(
        title=html.escape(title),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        data=_json_in_html(data),
        **parts,
    )


def _hash(text: str) -> str:
    """By which the page's policy knows its own style and program."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json_in_html(data: Any) -> str:
    """JSON that cannot end the element that it stands in."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
