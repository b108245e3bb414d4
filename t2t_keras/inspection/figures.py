"""Figures by matplotlib, which is an extra: `pip install t2t-keras[plot]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from t2t_keras.errors import UserError

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


def save_figure(figure: Figure, path: str) -> None:
    """Writes a figure, in the format that the name's end says: `.png`, `.svg`, `.pdf`.

    Raises:
        UserError: there is no such format, or the file cannot be written.
    """
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise UserError(f"the figure {path} cannot be written: {error}.") from error
