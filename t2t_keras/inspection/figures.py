"""Figures by matplotlib, which is an extra: `pip install t2t-keras[plot]`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from t2t_keras.errors import UserError
from t2t_keras.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def empty_figure(width: float, height: float) -> Figure:
    """A figure without axes, of so many inches.

    Raises:
        UserError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(
            "figures need matplotlib, which is not installed: pip install t2t-keras[plot]."
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


def require_figure(path: str) -> None:
    """Refuses a figure that could not be saved, before anything heavy is loaded.

    Raises:
        UserError: matplotlib is not installed, or the name's end is none of its formats.
    """
    formats = empty_figure(1, 1).canvas.get_supported_filetypes()
    ending = os.path.splitext(path)[1].removeprefix(".").lower()
    if ending not in formats:
        raise UserError(
            f"a figure cannot be written as {path!r}: its name must end in .png, .svg or another "
            f"of {', '.join(sorted(formats))}."
        )


def save_figure(figure: Figure, path: str) -> None:
    """Writes a figure, in the format that the name's end says: `.png`, `.svg`, `.pdf`.

    Raises:
        UserError: there is no such format, or the file cannot be written.
    """
    try:
        with atomic_write(path, suffix=os.path.splitext(path)[1]) as partial:
            figure.savefig(partial)
    except (OSError, ValueError) as error:
        raise UserError(f"the figure {path} cannot be written: {error}.") from error
