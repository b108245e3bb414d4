"""The two reserved token ids: padding and end of sentence."""

from collections.abc import Container, Iterable

PAD_ID = 0  # padding: has no weight in the loss, embeds to zeros, and is masked in a source
EOS_ID = 1  # end of sentence: the last id of every source and every target
RESERVED_TOKENS = ("<pad>", "<EOS>")  # the first entries of every vocabulary, at these ids


def until_eos(ids: Iterable[int]) -> list[int]:
    """Returns the ids before the first end of sentence or, without one, before trailing padding.

    As in T2T, an id 0 that is followed by other ids is a token: a model may predict it.
    """
    ids = [int(i) for i in ids]
    return ids[: ids.index(EOS_ID)] if EOS_ID in ids else without_padding(ids)


def strip_ids(ids: Iterable[int], ids_to_strip: Container[int] = range(2)) -> list[int]:
    """Returns the ids without those at their end that are to be stripped (T2T's name)."""
    ids = [int(i) for i in ids]
    while ids and ids[-1] in ids_to_strip:
        ids.pop()
    return ids


def without_padding(ids: Iterable[int]) -> list[int]:
    """Returns the ids without trailing padding."""
    return strip_ids(ids, (PAD_ID,))
