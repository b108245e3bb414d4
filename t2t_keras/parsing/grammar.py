"""A grammar that restricts decoding to linearised trees, in any language.

Every prefix that it allows can be completed to a tree with one tag for each word. That alone would not stop
a model from skipping a word and writing a tree with shifted tags. So a word that is frequent in the training
trees may only have its tags there: a skipped word then costs probability at once, and a beam can leave it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from t2t_keras.ids import EOS_ID, PAD_ID
from t2t_keras.parsing.repair import words_of
from t2t_keras.text import TokenTextEncoder

_NEVER, _TAG, _OPENS, _CLOSES, _ENDS = range(5)
_NONE = -1  # no id
# Occurrences in the training trees: of a word that is restricted to its tags there; and of a tag with rare
# words of a form, which allow it for other words of the form.
_FREQUENT, _FEWEST = 10, 3


class TagEncoder(TokenTextEncoder):
    """Tags and brackets as tokens, with the result of `learn_grammar` on the training trees, if any."""

    grammar: Mapping[str, Any] | None = None


def learn_grammar(samples: Iterable[Mapping[str, str]]) -> dict[str, Any]:
    """Learns the possible tags of words from linearised trees, `{"inputs": words, "targets": tags}`.

    Returns:
        "tags": the tags, separated by spaces, of each frequent word and of each form (see `form`) of rare
        words; "openings": the number of phrases opened in a row that at most one run in a thousand exceeds.
    """
    tags_of: defaultdict[str, Counter] = defaultdict(Counter)
    runs: Counter[int] = Counter()
    for sample in samples:
        symbols = sample["targets"].split()
        phrases = {symbol[1:] for symbol in symbols if symbol.startswith("/")}
        tags_in_order = [s for s in symbols if s not in phrases and not s.startswith("/")]
        for word, tag in zip(words_of(sample["inputs"]), tags_in_order, strict=False):
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
    """Returns the form of a word: " mark", " digits", " capital" or " word" (the space avoids clashes)."""
    if not any(map(str.isalnum, word)):
        return " mark"
    if any(map(str.isdigit, word)):
        return " digits"
    return " capital" if word[0].isupper() else " word"


def tree_grammar(encoder):
    """Returns a function that makes a `TreeGrammar` from the input texts [B] of a batch.

    None if the encoder, that of the targets, has no learned grammar. A symbol X is a phrase if the
    vocabulary has /X, and else a tag; so a label that is both in a treebank can only be a phrase.
    """
    learned = encoder.grammar if isinstance(encoder, TagEncoder) else None
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

    def grammar_of_texts(texts) -> TreeGrammar:
        words = list(map(words_of, texts))
        allowed = np.zeros((len(words), max(map(len, words)) + 1, len(kinds)), bool)
        for row, sentence in zip(allowed, words, strict=True):
            for place, word in zip(row, sentence, strict=False):
                place[tags_of.get(word) or tags_of.get(form(word)) or kinds == _TAG] = True
        lengths = np.array(list(map(len, words)), np.int32)
        return TreeGrammar(tuple(kinds.tolist()), closing, learned["openings"], lengths, allowed)

    return grammar_of_texts


class TreeGrammar(NamedTuple):
    """A constraint that allows only prefixes of trees with one tag for each word.

    No phrase is empty, the output ends when all phrases are closed and every word has its tag, and a phrase
    is only opened if it can still be closed within the length limit.
    """

    kinds: tuple[int, ...]  # [V], the kind of each token: `_TAG`, `_OPENS`...
    closing: tuple[int, ...]  # [V], for each token that opens a phrase its closing token; else -1
    openings: int  # the maximal number of phrases opened in a row
    words: Any  # [B] int32, the number of words of each sentence
    tags: Any  # [B, W, V] bool, the tags that each word may have; none after the last word

    def __call__(self, logits, step):
        """Returns [b, K, V] bool, True for the tokens that are allowed next."""
        import tensorflow as tf  # imported here so that problems can be listed without it

        def last(mask):  # the last position [b, K] where a mask [b, K, 1 + i] is True, or 0
            return tf.reduce_max(tf.where(mask, tf.range(step.i + 1), 0), -1)

        more = [0, logits.shape[-1] - len(self.kinds)]
        kinds = tf.pad(tf.constant(self.kinds), [more])  # [V]
        # [b, K, 1 + i]: begins with a 0 for the root
        ids = tf.pad(step.ids, [[0, 0], [0, 0], [1, 0]])
        opens, closes, is_tag = (tf.gather(kinds, ids) == kind for kind in (_OPENS, _CLOSES, _TAG))
        depths = tf.cumsum(tf.cast(opens, tf.int32) - tf.cast(closes, tf.int32), -1)
        depth = depths[:, :, -1]  # [b, K]
        # The innermost open phrase is the last one that was opened at the current depth.
        opened = last(opens & (depths == depth[:, :, None]))  # 0: the root
        closer = tf.gather(self.closing, tf.gather(ids, opened, batch_dims=2))
        closer = tf.where(opened < step.i, closer, _NONE)  # not empty
        tagged = tf.math.count_nonzero(is_tag, -1, dtype=tf.int32)
        left = tf.gather(self.words, step.rows)[:, None] - tagged
        least = left + depth + 1  # tokens still required: tags, closing symbols, the end
        fits = step.i + least + 2 <= step.limits[:, None]  # with one more phrase
        fits &= step.i - last(~opens) < self.openings
        # A forced prefix may have more tags than there are words.
        place = tf.minimum(tagged, tf.shape(self.tags)[1] - 1)
        tags = tf.gather(tf.gather(self.tags, step.rows), place, batch_dims=1)  # [b, K, V]

        def where(kind, allowed):
            return (kinds == kind) & allowed[:, :, None]

        return (
            tf.pad(tags, [[0, 0], [0, 0], more])
            | where(_OPENS, (left > 0) & fits)
            | where(_ENDS, (left <= 0) & (depth == 0))
            | (tf.range(logits.shape[-1]) == closer[:, :, None])
        )
