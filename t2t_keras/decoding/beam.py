"""Beam search with T2T's scores, its order and its way to stop (section 6.1 of the paper).

One step of a sentence, with K alive hypotheses and a vocabulary of V tokens:

1. The model gives each alive hypothesis logits of its next token: [b, K, V].
2. Each hypothesis keeps its 2K best tokens as candidates: [b, K, V] -> [b, K, 2K].
3. The candidates of a sentence compete; the 2K best are left: [b, K * 2K] -> [b, 2K].
4. Those that do not end the sentence compete for the K alive places, and those that do compete with the
   K finished hypotheses for their places.

No key or value is copied when a hypothesis goes on from another: all K share the cache of their
sentence, and `Beams.visible` says which of the cached keys belong to the past of which hypothesis.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.decoding.logits import INFINITY, forbid_early_end, force_prefix
from t2t_keras.ids import EOS_ID
from t2t_keras.layers.embedding import BLOCK

PRUNED_EVERY = 8
"""Number of steps after which keys that no hypothesis sees any more leave the caches."""


class Beams(NamedTuple):
    """The hypotheses of b sentences after i tokens. A first 0 stands before the tokens of each."""

    alive_ids: Any  # [b, K, i + 1] int32, best first
    alive_log_p: Any  # [b, K] float32, sums of log-probabilities
    visible: Any  # [b, K, S] bool, True for the cached keys that an alive hypothesis sees
    finished_ids: Any  # [b, K, i + 1] int32, best first, 0 after the end of sentence
    finished_scores: Any  # [b, K] float32, log p over length penalty; -INFINITY: not finished
    finished: Any  # [b, K] bool, False where no hypothesis has finished yet


@dataclasses.dataclass(frozen=True)
class BeamSearch:
    """The strategy of beam search, for `loop.DecodeLoop`.

    Args:
        beam_size: K, both of alive and of finished hypotheses.
        top_beams: K', how many of them are returned.
        alpha: weight of the length penalty, a float or a scalar tensor.
        min_length: tokens that must stand before the end of sentence.
    """

    beam_size: int
    top_beams: int = 1
    alpha: Any = 0.6
    min_length: int = 0

    def first(self, batch) -> Beams:
        """Returns the state before the first token: one alive hypothesis, the others impossible.

        Otherwise K equal hypotheses would grow into K equal ones.
        """
        no_ids = tf.zeros([batch, self.beam_size, 1], tf.int32)
        log_p = tf.constant([[0.0] + [-INFINITY] * (self.beam_size - 1)])  # [1, K]
        return Beams(
            alive_ids=no_ids,
            alive_log_p=tf.tile(log_p, [batch, 1]),
            visible=tf.zeros([batch, self.beam_size, 0], tf.bool),
            finished_ids=no_ids,
            finished_scores=tf.fill([batch, self.beam_size], -INFINITY),
            finished=tf.zeros([batch, self.beam_size], tf.bool),
        )

    def see_own_keys(self, beams: Beams):
        """Adds the K keys that the coming step caches, of which each hypothesis sees its own.

        Returns:
            the beams, the ids so far [b, K, i + 1] and the keys that each sees [b, K, S + K].
        """
        batch = tf.shape(beams.alive_log_p)[0]
        own = tf.tile(tf.eye(self.beam_size, dtype=tf.bool)[None], [batch, 1, 1])  # [b, K, K]
        visible = tf.concat([beams.visible, own], 2)  # [b, K, S] -> [b, K, S + K]
        return beams._replace(visible=visible), beams.alive_ids, visible

    def advance(self, beams: Beams, logits, i, rows=None, forced=None) -> Beams:
        """Chooses token number i of every hypothesis.

        Args:
            logits: [b, K, V] float32.
            rows: not used: the choice does not depend on the place in the batch.
            forced: [b] int32, tokens that must come next; see `force_prefix`.
        """
        parent, token, scores = self.best_candidates(beams, logits, i, forced)
        ids = tf.concat([_take(beams.alive_ids, parent), token[:, :, None]], 2)  # [b, 2K, i + 2]
        ends = token == EOS_ID  # [b, 2K]

        # Alive: the K best of the 2K candidates that do not end. Their score times the penalty is log p.
        alive_scores = scores + tf.where(ends, -INFINITY, 0.0)
        _, kept = tf.math.top_k(alive_scores, self.beam_size)  # [b, 2K] -> [b, K]

        # Finished: the K best of those of before and the candidates that end. [b, K + 2K] -> [b, K]
        ended_scores = scores + tf.where(ends, 0.0, -INFINITY)
        all_scores = tf.concat([beams.finished_scores, ended_scores], 1)
        all_ids = tf.concat([tf.pad(beams.finished_ids, [[0, 0], [0, 0], [0, 1]]), ids], 1)
        finished_scores, best = tf.math.top_k(all_scores, self.beam_size)
        return Beams(
            alive_ids=_take(ids, kept),  # [b, 2K, i + 2] -> [b, K, i + 2]
            alive_log_p=_take(scores * length_penalty(i + 1, self.alpha), kept),
            visible=_take(beams.visible, _take(parent, kept)),  # [b, K, S] -> [b, K, S]
            finished_ids=_take(all_ids, best),  # [b, 3K, i + 2] -> [b, K, i + 2]
            finished_scores=finished_scores,
            finished=_take(tf.concat([beams.finished, ends], 1), best),
        )

    def best_candidates(self, beams: Beams, logits, i, forced=None):
        """Returns the 2K best continuations of a sentence by token number i, best first.

        K would not do: if all of them ended the sentence, no hypothesis would be left alive.

        Returns:
            [b, 2K] each: the number of the alive hypothesis that it goes on from, token, score.
        """
        tokens, log_p = self._best_tokens(logits, i, forced)  # [b, K, n]
        number = log_p.shape[2]
        summed = log_p + beams.alive_log_p[:, :, None]
        # All candidates of a sentence side by side: [b, K, n] -> [b, K * n]
        flat = tf.reshape(summed / length_penalty(i + 1, self.alpha), [-1, self.beam_size * number])
        flat_tokens = tf.reshape(tokens, [-1, self.beam_size * number])
        scores, chosen = tf.math.top_k(flat, 2 * self.beam_size)  # [b, K * n] -> [b, 2K]
        return chosen // number, _take(flat_tokens, chosen), scores

    def _best_tokens(self, logits, i, forced):
        """Returns the n = 2K best tokens of each hypothesis (or one more) and their log p, [b, K, n].

        No other can be among the 2K best of the sentence, so only these are normalised and compared,
        not K * V. They stand in the order of the vocabulary, which decides among equals as in T2T.
        """
        # One more where the end of sentence, which may be among them, is not allowed.
        values, tokens, normaliser = blockwise_top_k(
            logits, 2 * self.beam_size + bool(self.min_length)
        )
        values = forbid_early_end(values, tokens, i, self.min_length)
        order = tf.argsort(tokens)
        tokens = tf.gather(tokens, order, batch_dims=2)
        log_p = tf.gather(values, order, batch_dims=2) - normaliser
        if forced is not None:
            tokens, log_p = force_prefix(tokens, log_p, forced[:, None, None])
        return tokens, log_p

    def is_done(self, beams: Beams, limits):
        """Returns [b] bool, True where no alive hypothesis can beat the finished one that counts.

        That is the best finished one, or the worst if several are returned.
        """
        best_alive = self.best_possible(beams, limits)
        to_beat = beams.finished_scores[:, 0 if self.top_beams == 1 else -1]
        return to_beat > best_alive

    def best_possible(self, beams: Beams, limits):
        """Returns the best score [b] that an alive hypothesis can still reach.

        T2T's bound: log p never rises, and with alpha > 0 the penalty favours the longest output.
        """
        return beams.alive_log_p[:, 0] / length_penalty(limits, self.alpha)

    def prune(self, beams: Beams, caches, i):
        """Removes keys that no alive hypothesis sees from the caches, every `PRUNED_EVERY` steps."""
        return tf.cond(
            i % PRUNED_EVERY == 0,
            lambda: without_unseen_keys(beams, caches),
            lambda: (beams, caches),
        )

    def results(self, beams: Beams):
        """Returns ids [b, K', i] and scores [b, K'].

        They are those of the finished hypotheses; of a sentence without any, the alive ones with their
        plain log p, as in T2T.
        """
        any_finished = tf.reduce_any(beams.finished, axis=1)
        ids = tf.where(any_finished[:, None, None], beams.finished_ids, beams.alive_ids)
        scores = tf.where(any_finished[:, None], beams.finished_scores, beams.alive_log_p)
        return ids[:, : self.top_beams, 1:], scores[:, : self.top_beams]


def length_penalty(length, alpha):
    """Returns ((5 + length) / 6)^alpha, the length penalty of Wu et al. 2016."""
    return tf.pow((5.0 + tf.cast(length, tf.float32)) / 6.0, alpha)


def without_unseen_keys(beams: Beams, caches):
    """Removes the cached keys and values that no alive hypothesis of a sentence sees.

    Hypotheses soon share most of their past, so few keys stay. All sentences keep the same number, the
    most that one of them needs: [b, H, S, C] -> [b, H, S', C].
    """
    seen = tf.reduce_any(beams.visible, axis=1)  # [b, K, S] -> [b, S]
    number = tf.reduce_max(tf.math.count_nonzero(seen, axis=1, dtype=tf.int32))
    # Seen keys first, in the order of their positions: [b, S']
    kept = tf.argsort(tf.cast(~seen, tf.int32), stable=True)[:, :number]
    visible, caches = tf.nest.map_structure(
        lambda tensor: tf.gather(tensor, kept, axis=2, batch_dims=1), (beams.visible, caches)
    )
    return beams._replace(visible=visible), caches


def _take(values, index):
    """values [b, N, ...] at index [b, M] -> [b, M, ...]."""
    return tf.gather(values, index, axis=1, batch_dims=1)


def blockwise_top_k(logits, k: int):
    """Returns the k best tokens of logits [b, K, V], and the logarithm of their normaliser.

    A top-k of a large vocabulary costs more than a few passes over it. The maxima of blocks of 64 tokens
    save both the top-k and the maximum of a stable softmax: the k best tokens stand in the k blocks with
    the largest maxima.

    Returns:
        values and tokens [b, K, k] (V, if that is less), best first, of equal ones the first
        of the vocabulary, and log sum exp [b, K, 1].
    """
    hypotheses, vocab_size = logits.shape[1:]
    if vocab_size % BLOCK or vocab_size // BLOCK <= k:
        normaliser = tf.reduce_logsumexp(logits, -1, keepdims=True)
        return *tf.math.top_k(logits, min(k, vocab_size)), normaliser
    # [b, K, V] -> [b, K, V / 64, 64]
    blocks = tf.reshape(logits, [-1, hypotheses, vocab_size // BLOCK, BLOCK])
    maxima = tf.reduce_max(blocks, -1)  # [b, K, V / 64]
    largest = tf.reduce_max(maxima, -1, keepdims=True)  # [b, K, 1]
    sums = tf.reduce_sum(tf.exp(logits - largest), -1, keepdims=True)  # [b, K, 1]
    # In the order of the vocabulary, so that `top_k` finds the first of equal ones.
    chosen = tf.sort(tf.math.top_k(maxima, k).indices)  # [b, K, k]
    # [b, K, k, 64] -> [b, K, k * 64]
    few = tf.reshape(tf.gather(blocks, chosen, batch_dims=2), [-1, hypotheses, k * BLOCK])
    values, places = tf.math.top_k(few, k)  # [b, K, k]
    tokens = tf.gather(chosen, places // BLOCK, batch_dims=2) * BLOCK + places % BLOCK
    return values, tokens, largest + tf.math.log(sums)
