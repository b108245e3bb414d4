"""The grammar of linearised trees, for a search that finds nothing else, in any language.

Every prefix that it allows can become a tree with one tag for each word. A model that skips a word and
goes on would still write a tree, of shifted tags; so a word that the training trees know well has no
other tags than theirs, and the skip costs probability at once, where a beam can choose another path.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from t2t_keras.ids import EOS_ID, PAD_ID
from t2t_keras.parsing.repair import words_of
from t2t_keras.text import TokenTextEncoder

_NEVER, _TAG, _OPENS, _CLOSES, _ENDS = range(5)
_NONE = -1  # no id
_FORBIDDEN = -1e9  # -inf would give NaN after what cannot go on
_FREQUENT = 10  # times that a word stands in the training trees, to have the tags of these alone
_FEWEST = 3  # times that rare words of a form have a tag, for others to have it


class TagEncoder(TokenTextEncoder):
    """Tags and brackets as tokens, with what `learn_grammar` found in the training trees, if it has."""

    grammar: Mapping[str, Any] | None = None


def learn_grammar(samples: Iterable[Mapping[str, str]]) -> dict[str, Any]:
    """Learns from words and tags of trees, `{"inputs": ..., "targets": ...}`, what words may be.

    Returns:
        "tags": of each frequent word its tags, with spaces between, and of each form of the others (see
        `form`); "openings": the most phrases opened in a row, save one time in a thousand.
    """
    tags_of: defaultdict[str, Counter] = defaultdict(Counter)
    runs: Counter[int] = Counter()
    for sample in samples:
        symbols = sample["targets"].split()
        phrases = {symbol[1:] for symbol in symbols if symbol.startswith("/")}
        in_turn = [s for s in symbols if s not in phrases and not s.startswith("/")]
        for word, tag in zip(words_of(sample["inputs"]), in_turn, strict=False):
            tags_of[word][tag] += 1
        run = 0
        for symbol in symbols:
            if symbol not in phrases and run:
                runs[run] += 1
            run = run + 1 if symbol in phrases else 0
    found = {word: tags for word, tags in tags_of.items() if tags.total() >= _FREQUENT}
    rare: defaultdict[str, Counter] = defaultdict(Counter)
    for word in tags_of.keys() - found:
        rare[form(word)].update(tags_of[word])
    for each, tags in rare.items():
        found[each] = Counter({tag: n for tag, n in tags.items() if n >= _FEWEST})
    openings = 1
    while sum(runs[run] for run in range(1, openings + 1)) < 0.999 * runs.total():
        openings += 1
    return {
        "tags": {word: " ".join(sorted(tags)) for word, tags in found.items() if tags},
        "openings": openings,
    }


def form(word: str) -> str:
    """Returns the form of a word: a mark, or with digits, a capital or none of these; " " first."""
    if not any(map(str.isalnum, word)):
        return " mark"
    if any(map(str.isdigit, word)):
        return " digits"
    return " capital" if word[0].isupper() else " word"


def tree_grammar(encoder):
    """Returns a function that makes a `TreeGrammar` of the texts [B] of a batch.

    Args:
        encoder: of the targets. Its symbol X is a phrase if it has /X, too, and else a tag, so a label
            that is both in a treebank can only be a phrase.

    Returns:
        None if phrases are not tokens of the vocabulary, or nothing was learned about them.
    """
    learned = getattr(encoder, "grammar", None)
    if not learned:
        return None
    ids = {encoder.decode([i]): i for i in range(encoder.vocab_size)}
    closing = tuple(ids.get(f"/{symbol}", _NONE) for symbol in ids)
    kinds = np.where(np.array(closing) == _NONE, _TAG, _OPENS)
    kinds[[i for i in closing if i != _NONE]] = _CLOSES
    kinds[[PAD_ID, EOS_ID, ids.get(encoder.replace_oov, PAD_ID)]] = _NEVER, _ENDS, _NEVER
    tags_of = {
        word: [ids[tag] for tag in tags.split() if kinds[ids.get(tag, PAD_ID)] == _TAG]
        for word, tags in learned["tags"].items()
    }

    def of_texts(texts) -> TreeGrammar:
        words = list(map(words_of, texts))
        allowed = np.zeros((len(words), max(map(len, words)) + 1, len(kinds)), bool)
        for row, sentence in zip(allowed, words, strict=True):
            for place, word in zip(row, sentence, strict=False):
                place[tags_of.get(word) or tags_of.get(form(word)) or kinds == _TAG] = True
        return TreeGrammar(
            tuple(kinds.tolist()),
            closing,
            learned["openings"],
            np.array(list(map(len, words)), np.int32),
            allowed,
        )

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
    openings: int
    """The most phrases opened in a row."""
    words: Any
    """[B] int32, the number of words of each sentence."""
    tags: Any
    """[B, W, V] bool, the tags that each word may have; none after the last word."""

    def __call__(self, logits, step):
        """Returns logits [b, K, V], with -1e9 for what cannot come next."""
        import tensorflow as tf  # here: problems are listed without it

        def last(mask):
            """Returns the last place [b, K] where a mask [b, K, 1 + i] is True, or 0."""
            return tf.reduce_max(tf.where(mask, tf.range(step.i + 1), 0), -1)

        more = [0, logits.shape[-1] - len(self.kinds)]
        kinds = tf.pad(tf.constant(self.kinds), [more])  # [V]
        ids = tf.pad(step.ids, [[0, 0], [0, 0], [1, 0]])  # [b, K, 1 + i]: first a 0, for the root
        opens, closes, is_tag = (tf.gather(kinds, ids) == kind for kind in (_OPENS, _CLOSES, _TAG))
        depths = tf.cumsum(tf.cast(opens, tf.int32) - tf.cast(closes, tf.int32), -1)
        depth = depths[:, :, -1]  # [b, K]
        # The innermost open phrase is the last that was opened to the depth of now.
        opened = last(opens & (depths == depth[:, :, None]))  # 0: the root
        closer = tf.gather(self.closing, tf.gather(ids, opened, batch_dims=2))
        closer = tf.where(opened < step.i, closer, _NONE)  # not empty
        tagged = tf.math.count_nonzero(is_tag, -1, dtype=tf.int32)
        left = tf.gather(self.words, step.rows)[:, None] - tagged
        least = left + depth + 1  # tokens that must still come: tags, closing symbols, the end
        fits = step.i + least + 2 <= step.limits[:, None]  # a phrase more
        fits &= step.i - last(~opens) < self.openings
        # A prefix that was forced may have more tags than there are words.
        place = tf.minimum(tagged, tf.shape(self.tags)[1] - 1)
        tags = tf.gather(tf.gather(self.tags, step.rows), place, batch_dims=1)  # [b, K, V]

        def where(kind, may):
            return (kinds == kind) & may[:, :, None]

        allowed = (
            tf.pad(tags, [[0, 0], [0, 0], more])
            | where(_OPENS, (left > 0) & fits)
            | where(_ENDS, (left <= 0) & (depth == 0))
            | (tf.range(logits.shape[-1]) == closer[:, :, None])
        )
        return tf.where(allowed, logits, _FORBIDDEN)
