"""The two token ids that mean the same everywhere: in files, batches, masks and search."""

from __future__ import annotations

from collections.abc import Iterable

PAD_ID = 0
"""Padding. It weighs nothing in the loss, embeds to zeros, and is masked in a source."""

EOS_ID = 1
"""End of sentence. Ends every source and every target."""

RESERVED_TOKENS = ("<pad>", "<EOS>")
"""The first entries of every vocabulary, at `PAD_ID` and `EOS_ID`."""


def until_eos(ids: Iterable[int]) -> list[int]:
    """The ids before the first end of sentence; without one, those before the padding at the end.

    An id 0 that other ids follow is a token, as in T2T, which a model may choose.
    """
    ids = [int(i) for i in ids]
    return ids[: ids.index(EOS_ID)] if EOS_ID in ids else without_padding(ids)


def without_padding(ids: Iterable[int]) -> list[int]:
    """The ids up to the last that is no padding."""
    ids = [int(i) for i in ids]
    while ids and ids[-1] == PAD_ID:
        ids.pop()
    return ids
