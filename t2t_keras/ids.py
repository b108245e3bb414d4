"""The two reserved token ids: padding and end of sentence."""

from __future__ import annotations

from collections.abc import Iterable

PAD_ID = 0  # padding: has no weight in the loss, embeds to zeros, and is masked in a source
EOS_ID = 1  # end of sentence: the last id of every source and every target
RESERVED_TOKENS = ("<pad>", "<EOS>")  # the first entries of every vocabulary, at these ids


def until_eos(ids: Iterable[int]) -> list[int]:
    """Returns the ids before the first end of sentence or, without one, before trailing padding.

    As in T2T, an id 0 that is followed by other ids is a token: a model may predict it.
    """
    ids = [int(i) for i in ids]
    return ids[: ids.index(EOS_ID)] if EOS_ID in ids else without_padding(ids)


def without_padding(ids: Iterable[int]) -> list[int]:
    """Returns the ids without trailing padding."""
    ids = [int(i) for i in ids]
    while ids and ids[-1] == PAD_ID:
        ids.pop()
    return ids
