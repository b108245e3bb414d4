"""The grammar of linearised trees, for a search that can find nothing else, in any language."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.ids import EOS_ID, PAD_ID
from t2t_keras.text import TokenTextEncoder

_NEVER, _TAG, _OPENS, _CLOSES, _ENDS = range(5)
_NONE = -1  # no id
_FORBIDDEN = -1e9  # -inf would give NaN after what cannot go on


def tree_grammar(encoder):
    """Returns a function that makes a `TreeGrammar` of the texts [B] of a batch.

    Args:
        encoder: of the targets. Its symbol X is a phrase if it has /X, too, and else a tag, so a label
            that is both in a treebank can only be a phrase.

    Returns:
        None if phrases are not tokens of the vocabulary.
    """
    if not isinstance(encoder, TokenTextEncoder):
        return None
    ids = {encoder.decode([i]): i for i in range(encoder.vocab_size)}
    closing = tuple(ids.get(f"/{symbol}", _NONE) for symbol in ids)
    if set(closing) == {_NONE}:
        return None
    kinds = np.where(np.array(closing) == _NONE, _TAG, _OPENS)
    kinds[[i for i in closing if i != _NONE]] = _CLOSES
    kinds[[PAD_ID, EOS_ID, ids.get(encoder.replace_oov, PAD_ID)]] = _NEVER, _ENDS, _NEVER

    def of_texts(texts) -> TreeGrammar:
        words = tf.strings.split(texts).row_lengths()  # at ASCII's white space, as `repair_tree`
        return TreeGrammar(tuple(kinds.tolist()), closing, tf.cast(words, tf.int32))

    return of_texts


class TreeGrammar(NamedTuple):
    """A logits processor that leaves prefixes of trees alone, with one tag for each word.

    Brackets balance, a closing symbol closes the phrase opened last, no phrase is empty, the end comes
    when all is closed and every word has its tag, and nothing is opened that could not be closed within
    the limit.
    """

    kinds: tuple[int, ...]
    """Of each token of the vocabulary."""
    closing: tuple[int, ...]
    """Of each token that opens a phrase, the token that closes it."""
    words: Any
    """[B] int32, the number of words of each sentence."""

    def __call__(self, logits, step):
        """Returns logits [b, K, V], with -1e9 for what cannot come next."""
        more = [0, logits.shape[-1] - len(self.kinds)]
        kinds = tf.pad(tf.constant(self.kinds), [more])  # [V]
        ids = tf.pad(step.ids, [[0, 0], [0, 0], [1, 0]])  # [b, K, 1 + i]: first a 0, for the root
        opens, closes, is_tag = (tf.gather(kinds, ids) == kind for kind in (_OPENS, _CLOSES, _TAG))
        depths = tf.cumsum(tf.cast(opens, tf.int32) - tf.cast(closes, tf.int32), -1)
        depth = depths[:, :, -1]  # [b, K]
        # The innermost open phrase is the last that was opened to the depth of now.
        innermost = opens & (depths == depth[:, :, None])
        place = tf.reduce_max(tf.where(innermost, tf.range(step.i + 1), 0), -1)  # 0: the root
        closer = tf.gather(self.closing, tf.gather(ids, place, batch_dims=2))
        closer = tf.where(place < step.i, closer, _NONE)  # not empty
        words = tf.gather(self.words, step.rows)[:, None]
        left = words - tf.math.count_nonzero(is_tag, -1, dtype=tf.int32)
        least = left + depth + 1  # tokens that must still come: tags, closing symbols, the end
        fits = step.i + least + 2 <= step.limits[:, None]  # a phrase more

        def where(kind, may):
            return (kinds == kind) & may[:, :, None]

        allowed = (
            where(_TAG, left > 0)
            | where(_OPENS, (left > 0) & fits)
            | where(_ENDS, (left == 0) & (depth == 0))
            | (tf.range(logits.shape[-1]) == closer[:, :, None])
        )
        return tf.where(allowed, logits, _FORBIDDEN)
