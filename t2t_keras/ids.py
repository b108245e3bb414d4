"""The two token ids that mean the same everywhere: in files, batches, masks and search."""

from __future__ import annotations

from collections.abc import Iterable

PAD_ID = 0
"""Padding. A position holding it is masked, weighs nothing in the loss and embeds to zeros."""

EOS_ID = 1
"""End of sentence. Ends every source and every target."""


def until_eos(ids: Iterable[int]) -> list[int]:
    """The ids before the first end of sentence or padding."""
    ids = [int(i) for i in ids]
    end = next((n for n, i in enumerate(ids) if i in (PAD_ID, EOS_ID)), len(ids))
    return ids[:end]
