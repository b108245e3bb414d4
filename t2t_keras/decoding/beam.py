"""Beam search with T2T's scores, order and stopping rule (section 6.1 of the paper).

The strategy with one hypothesis per sentence is at the end of the file. Both run on all Keras backends.

One step for a sentence, with K alive hypotheses and a vocabulary of V tokens:

1. The model computes logits of the next token of each alive hypothesis: [b, K, V].
2. The 2K best tokens of each hypothesis become candidates: [b, K, V] -> [b, K, 2K].
3. The 2K best candidates of the sentence are kept: [b, K * 2K] -> [b, 2K].
4. The K best candidates that do not end the sentence are alive in the next step; those that end it
   compete with the K finished hypotheses.

Keys and values are not copied when a hypothesis continues another: all K share the cache of their
sentence, and `Beams.visible` says which cached keys belong to the past of each hypothesis.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_keras.decoding.logits import INFINITY, forbid_early_end, force_prefix
from t2t_keras.errors import UserError
from t2t_keras.ids import EOS_ID, PAD_ID
from t2t_keras.layers.embedding import BLOCK
from t2t_keras.shape import appended, shape_of, take

PRUNED_EVERY = 8
"""Number of steps after which keys that no hypothesis sees are removed from the caches."""


class Beams(NamedTuple):
    """The hypotheses of b sentences after i tokens. The tokens of each follow a 0.

    If tensors do not grow, the axes i + 1 and S have a fixed size with room for more.
    """

    alive_ids: Any  # [b, K, i + 1] int32, best first
    alive_log_p: Any  # [b, K] float32, sums of log-probabilities
    visible: Any  # [b, K, S] bool, True for the cached keys that an alive hypothesis sees
    finished_ids: Any  # [b, K, i + 1] int32, best first, 0 after the end of sentence
    finished_scores: Any  # [b, K] float32, log p / length penalty; -INFINITY: not finished
    finished: Any  # [b, K] bool, False if no hypothesis has finished yet


@dataclasses.dataclass(frozen=True)
class BeamSearch:
    """The strategy of beam search, for `loop.DecodeLoop` and `static_search`.

    Args:
        beam_size: K, the number of alive and of finished hypotheses.
        top_beams: K', the number of hypotheses to return.
        alpha: weight of the length penalty, a float or a scalar tensor.
        min_length: minimum number of tokens before the end of sentence.
        grows: True if tensors grow with each token; False for tensors of a fixed size (`with_room`).

    Raises:
        UserError: `top_beams` or `alpha` is out of range. (The value of a tensor is not checked.)
    """

    beam_size: int
    top_beams: int = 1
    alpha: Any = 0.6
    min_length: int = 0
    grows: bool = True

    def __post_init__(self):
        if not 1 <= self.top_beams <= self.beam_size:
            raise UserError(
                f"top_beams must be from 1 to beam_size={self.beam_size}, got {self.top_beams}."
            )
        if not ops.is_tensor(self.alpha) and not math.isfinite(self.alpha):
            raise UserError(f"alpha must be a number, got {self.alpha}.")

    def first(self, batch) -> Beams:
        """Returns the state before the first token: one alive hypothesis, the others impossible.

        K equal hypotheses would stay equal.
        """
        no_ids = ops.zeros([batch, self.beam_size, 1], "int32")
        log_p = ops.convert_to_tensor([[0.0] + [-INFINITY] * (self.beam_size - 1)])  # [1, K]
        return Beams(
            alive_ids=no_ids,
            alive_log_p=ops.tile(log_p, [batch, 1]),
            visible=ops.zeros([batch, self.beam_size, 0], "bool"),
            finished_ids=no_ids,
            finished_scores=ops.full([batch, self.beam_size], -INFINITY, "float32"),
            finished=ops.zeros([batch, self.beam_size], "bool"),
        )

    def with_room(self, beams: Beams, caches, tokens: int):
        """Returns hypotheses and caches with room for more tokens, whose keys are not visible yet."""
        keys = tokens * self.beam_size
        beams = beams._replace(
            alive_ids=_padded(beams.alive_ids, tokens),
            visible=_padded(beams.visible, keys),
            finished_ids=_padded(beams.finished_ids, tokens),
        )
        return beams, keras.tree.map_structure(lambda cache: _padded(cache, keys), caches)

    def see_own_keys(self, beams: Beams, i=None):
        """Adds the K keys that the next step will cache; each hypothesis sees its own.

        Returns:
            the beams, the ids so far [b, K, i + 1] and the visible keys [b, K, S + K].
        """
        batch = shape_of(beams.alive_log_p)[0]
        own = ops.tile(ops.eye(self.beam_size, dtype="bool")[None], [batch, 1, 1])  # [b, K, K]
        place = None if self.grows else i * self.beam_size
        visible = appended(beams.visible, own, place)  # [b, K, S] -> [b, K, S + K]
        return beams._replace(visible=visible), beams.alive_ids, visible

    def add_log_p(self, beams: Beams, log_p) -> Beams:
        """Adds log p [b, K] to the alive hypotheses."""
        return beams._replace(alive_log_p=beams.alive_log_p + log_p)

    def advance(self, beams: Beams, logits, i, rows=None, forced=None) -> Beams:
        """Chooses token number i of every hypothesis.

        Args:
            logits: [b, K, V] float32.
            rows: not used: the choice does not depend on the position in the batch.
            forced: [b] int32, tokens that must come next; see `force_prefix`.
        """
        parent, token, scores = self.best_candidates(beams, logits, i, forced)
        place = None if self.grows else i + 1
        ids = appended(take(beams.alive_ids, parent), token[:, :, None], place)  # [b, 2K, i + 2]
        finished_ids = _padded(beams.finished_ids, 1) if self.grows else beams.finished_ids
        ends = token == EOS_ID  # [b, 2K]

        # Alive: the K best candidates that do not end. Their score times the penalty is log p.
        alive_scores = scores + ops.where(ends, -INFINITY, 0.0)
        _, kept = ops.top_k(alive_scores, self.beam_size)  # [b, 2K] -> [b, K]

        # Finished: the K best of the finished ones and the candidates that end. [b, K + 2K] -> [b, K]
        ended_scores = scores + ops.where(ends, 0.0, -INFINITY)
        all_scores = ops.concatenate([beams.finished_scores, ended_scores], 1)
        all_ids = ops.concatenate([finished_ids, ids], 1)
        finished_scores, best = ops.top_k(all_scores, self.beam_size)
        return Beams(
            alive_ids=take(ids, kept),  # [b, 2K, i + 2] -> [b, K, i + 2]
            alive_log_p=take(scores * length_penalty(i + 1, self.alpha), kept),
            visible=take(beams.visible, take(parent, kept)),  # [b, K, S] -> [b, K, S]
            finished_ids=take(all_ids, best),  # [b, 3K, i + 2] -> [b, K, i + 2]
            finished_scores=finished_scores,
            finished=take(ops.concatenate([beams.finished, ends], 1), best),
        )

    def best_candidates(self, beams: Beams, logits, i, forced=None):
        """Returns the 2K best continuations of each sentence by token number i, best first.

        K would not be enough: if all of them ended the sentence, no hypothesis would stay alive.

        Returns:
            [b, 2K] each: number of the alive hypothesis that it continues, token, score.
        """
        tokens, log_p = self._best_tokens(logits, i, forced)  # [b, K, n]
        number = log_p.shape[2]
        summed = log_p + beams.alive_log_p[:, :, None]
        # All candidates of a sentence in one row: [b, K, n] -> [b, K * n]
        flat = ops.reshape(
            summed / length_penalty(i + 1, self.alpha), [-1, self.beam_size * number]
        )
        flat_tokens = ops.reshape(tokens, [-1, self.beam_size * number])
        scores, chosen = ops.top_k(flat, 2 * self.beam_size)  # [b, K * n] -> [b, 2K]
        return chosen // number, ops.cast(take(flat_tokens, chosen), "int32"), scores

    def _best_tokens(self, logits, i, forced):
        """Returns the n = 2K best tokens of each hypothesis (or one more) and their log p, [b, K, n].

        No other token can be among the 2K best of the sentence, so only these are normalised and
        compared, not K * V. They are in vocabulary order, which breaks ties as in T2T.
        """
        # One more with `min_length`: the end of sentence may be among them, but not allowed.
        values, tokens, normaliser = blockwise_top_k(
            logits, 2 * self.beam_size + bool(self.min_length)
        )
        values = forbid_early_end(values, tokens, i, self.min_length)
        order = ops.argsort(tokens)
        tokens = take(tokens, order)
        log_p = take(values, order) - normaliser
        if forced is not None:
            tokens, log_p = force_prefix(tokens, log_p, forced[:, None, None])
        return tokens, log_p

    def is_done(self, beams: Beams, limits):
        """Returns [b] bool, True where no alive hypothesis can beat the finished ones.

        It has to beat the best finished one, or the worst if several are returned. Its best possible
        score is T2T's bound: log p never rises, and with alpha > 0 the penalty favours the longest output.
        """
        best_alive = beams.alive_log_p[:, 0] / length_penalty(limits, self.alpha)
        to_beat = beams.finished_scores[:, 0 if self.top_beams == 1 else -1]
        return to_beat > best_alive

    def prune(self, beams: Beams, caches, i):
        """Removes keys that no alive hypothesis sees from the caches, every `PRUNED_EVERY` steps."""
        return ops.cond(
            i % PRUNED_EVERY == 0,
            lambda: without_unseen_keys(beams, caches),
            lambda: (beams, caches),
        )

    def results(self, beams: Beams):
        """Returns ids [b, K', i] and scores [b, K'].

        They are the finished hypotheses or, as in T2T, the alive ones with their plain log p if none
        has finished.
        """
        any_finished = ops.any(beams.finished, axis=1)
        ids = ops.where(any_finished[:, None, None], beams.finished_ids, beams.alive_ids)
        scores = ops.where(any_finished[:, None], beams.finished_scores, beams.alive_log_p)
        return ids[:, : self.top_beams, 1:], scores[:, : self.top_beams]


def length_penalty(length, alpha):
    """Returns ((5 + length) / 6)^alpha, the length penalty of Wu et al. 2016."""
    return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, alpha)


def without_unseen_keys(beams: Beams, caches):
    """Removes the cached keys and values that no alive hypothesis of a sentence sees.

    Hypotheses soon share most of their past, so few keys remain. All sentences keep as many as the
    one that needs most: [b, H, S, C] -> [b, H, S', C].
    """
    import tensorflow as tf  # only its loop has caches that grow

    seen = ops.any(beams.visible, axis=1)  # [b, K, S] -> [b, S]
    number = ops.max(ops.sum(ops.cast(seen, "int32"), axis=1))
    # Seen keys first, in the order of their positions: [b, S']
    kept = ops.argsort(ops.cast(~seen, "int32"))[:, :number]
    visible, caches = tf.nest.map_structure(
        lambda tensor: tf.gather(tensor, kept, axis=2, batch_dims=1), (beams.visible, caches)
    )
    return beams._replace(visible=visible), caches


def _padded(values, places):
    """Pads with 0: [b, K, n, ...] -> [b, K, n + places, ...]."""
    return ops.pad(values, [[0, 0], [0, 0], [0, places]] + [[0, 0]] * (len(values.shape) - 3))


def blockwise_top_k(logits, k: int):
    """Returns the k best tokens of logits [b, K, V], and the log normaliser of the logits.

    A top-k of a large vocabulary costs more than a few passes over it. Maxima of blocks of 64 tokens
    replace both the top-k and the maximum of a stable softmax: the k best tokens are in the k blocks
    with the largest maxima.

    Returns:
        values and tokens [b, K, min(k, V)], best first, equal ones in vocabulary order, and
        log sum exp [b, K, 1].
    """
    hypotheses, vocab_size = logits.shape[1:]
    if vocab_size % BLOCK or vocab_size // BLOCK <= k:
        values, tokens = ops.top_k(logits, min(k, vocab_size))
        return values, tokens, log_normaliser(logits, values[:, :, :1])
    # [b, K, V] -> [b, K, V / 64, 64]
    blocks = ops.reshape(logits, [-1, hypotheses, vocab_size // BLOCK, BLOCK])
    maxima = ops.max(blocks, -1)  # [b, K, V / 64]
    largest = ops.max(maxima, -1, keepdims=True)  # [b, K, 1]
    # In vocabulary order, so that `top_k` finds the first of equal values.
    chosen = ops.sort(ops.top_k(maxima, k)[1])  # [b, K, k]
    # [b, K, k, 64] -> [b, K, k * 64]
    few = ops.reshape(take(blocks, chosen), [-1, hypotheses, k * BLOCK])
    values, places = ops.top_k(few, k)  # [b, K, k]
    tokens = take(chosen, places // BLOCK) * BLOCK + places % BLOCK
    return values, tokens, log_normaliser(logits, largest)


def log_normaliser(logits, largest):
    """Returns log sum exp [b, K, 1] of logits [b, K, V]; `largest` [b, K, 1] are their maxima."""
    return largest + ops.log(ops.sum(ops.exp(logits - largest), -1, keepdims=True))


# One hypothesis per sentence


class Path(NamedTuple):
    """The hypotheses of b sentences, one each, after i tokens of greedy or sampled decoding."""

    ids: Any  # [b, 1, i + 1] int32, 0 before the tokens and after the end of sentence
    log_p: Any  # [b, 1] float32, sum of log-probabilities up to the end of sentence
    ended: Any  # [b, 1] bool


class OnePath(NamedTuple):
    """The strategy of greedy and sampled decoding: one hypothesis per sentence (K = 1)."""

    min_length: int
    choose: Callable[[Any, Any, Any], Any]  # (logits [b, 1, V], i, rows [b]) -> tokens [b, 1] int32
    top_beams: int = 1
    grows: bool = True

    def first(self, batch) -> Path:
        """Returns paths without tokens."""
        return Path(
            ids=ops.full([batch, 1, 1], PAD_ID, "int32"),
            log_p=ops.zeros([batch, 1]),
            ended=ops.zeros([batch, 1], "bool"),
        )

    def with_room(self, path: Path, caches, tokens: int):
        """Returns paths and caches with room for more tokens."""
        path = path._replace(ids=_padded(path.ids, tokens))
        return path, keras.tree.map_structure(lambda cache: _padded(cache, tokens), caches)

    def see_own_keys(self, path: Path, i=None):
        """Returns the path, its ids [b, 1, i + 1] and the visible keys: None (all) or [1, 1, S] bool."""
        if self.grows:
            return path, path.ids, None
        return path, path.ids, (ops.arange(shape_of(path.ids)[2] - 1) <= i)[None, None]

    def add_log_p(self, path: Path, log_p) -> Path:
        """Adds log p [b, 1] to the paths that have not ended."""
        return path._replace(log_p=path.log_p + ops.where(path.ended, 0.0, log_p))

    def advance(self, path: Path, logits, i, rows=None, forced=None) -> Path:
        """Adds the token that `choose` returns; its log p is that without `min_length`."""
        allowed = forbid_early_end(logits, ops.arange(logits.shape[2]), i, self.min_length)
        token = self.choose(allowed, i, rows)  # [b, 1]
        log_p = take(logits, token[:, :, None])  # [b, 1] -> [b, 1, 1]
        log_p = ops.squeeze(log_p - log_normaliser(logits, ops.max(logits, -1, keepdims=True)), 2)
        if forced is not None:
            token, log_p = force_prefix(token, log_p, forced[:, None])
        shown = ops.where(path.ended, PAD_ID, token)[:, :, None]  # [b, 1] -> [b, 1, 1]
        return Path(
            ids=appended(path.ids, shown, None if self.grows else i + 1),
            log_p=path.log_p + ops.where(path.ended, 0.0, log_p),
            ended=path.ended | (token == EOS_ID),
        )

    def is_done(self, path: Path, limits):
        """Returns [b] bool: True after the end of sentence."""
        return path.ended[:, 0]

    def prune(self, path: Path, caches, i):
        """Returns both unchanged: the path sees all its keys."""
        return path, caches

    def results(self, path: Path):
        """Returns ids [b, 1, i] and log p [b, 1]."""
        return path.ids[:, :, 1:], path.log_p


def most_likely(logits, i, rows):
    """Chooses the most likely tokens: greedy decoding."""
    # Not Keras's argmax, which takes five passes over the vocabulary to order -0.0 before 0.0.
    return ops.cast(ops.top_k(logits, 1)[1][..., 0], "int32")
