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

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_keras.decoding.logits import forced_candidates, keep_top_k_top_p
from t2t_keras.ids import EOS_ID, PAD_ID
from t2t_keras.layers.sublayers import BLOCK, FixedSeed
from t2t_keras.shape import grown, shape_of, take

NO_SCORE = -1e7
"""The score of a hypothesis that does not exist, as in T2T."""


class SearchResult(NamedTuple):
    """What a search found for B sentences: K' hypotheses each, best first, of up to L tokens.

    If a sentence has fewer hypotheses, the others have no tokens and score -1e7.
    """

    ids: Any  # [B, K', L] int32, 0 after the end of sentence
    lengths: Any  # [B, K'] int32, numbers of tokens, the end of sentence included
    scores: Any  # [B, K'] float32: log p, divided by the length penalty if beam search finished it
    token_scores: Any  # [B, K', L] float32, log p of each token, 0 after the end of sentence


class Tokens(NamedTuple):
    """The tokens of hypotheses after a 0, which stands for the beginning.

    If tensors do not grow, their last axis has a fixed size with room for more.
    """

    ids: Any  # [b, K, i + 1] int32
    log_p: Any  # [b, K, i + 1] float32


class Beams(NamedTuple):
    """The hypotheses of b sentences after i tokens.

    `alive` and `finished` say which exist: no score has to be minus infinity.
    """

    alive_tokens: Tokens  # best first
    alive_log_p: Any  # [b, K] float32, sums of log-probabilities
    alive: Any  # [b, K] bool
    visible: Any  # [b, K, S] bool, True for the cached keys that an alive hypothesis sees
    finished_tokens: Tokens  # best first, 0 after the end of sentence
    finished_scores: Any  # [b, K] float32, log p / length penalty
    finished: Any  # [b, K] bool


class Candidates(NamedTuple):
    """Continuations of a sentence's hypotheses by one token, n of them, best first."""

    parent: Any  # [b, n] int32, the number of the alive hypothesis that it continues
    token: Any  # [b, n] int32
    log_p: Any  # [b, n] float32, of the token
    score: Any  # [b, n] float32, of the hypothesis: summed log p / length penalty
    possible: Any  # [b, n] bool, False if the token may not come or its hypothesis does not exist


@dataclasses.dataclass(frozen=True)
class BeamSearch:
    """The strategy of beam search, for `loop.DecodeLoop` and `static_search`.

    Args:
        beam_size: K, the number of alive and of finished hypotheses.
        top_beams: K', the number of hypotheses to return.
        alpha: weight of the length penalty, a float or a scalar tensor.
        min_length: minimum number of tokens before the end of sentence.
        vocab_size: V; logits beyond it only fill up a block (see `SharedEmbedding.matrix`). None: there are none.
        append: adds block number i to tensors, along axis 2: `shape.grown` or `shape.written`.
    """

    beam_size: int
    top_beams: int = 1
    alpha: Any = 0.6
    min_length: int = 0
    vocab_size: int | None = None
    append: Callable[[Any, Any, Any], Any] = grown

    def first(self, batch) -> Beams:
        """Returns the state before the first token: one hypothesis, since K equal ones would stay equal."""
        shape = [batch, self.beam_size]
        nothing = ops.zeros(shape, "bool")
        tokens = Tokens(ops.zeros([*shape, 1], "int32"), ops.zeros([*shape, 1], "float32"))
        return Beams(
            alive_tokens=tokens,
            alive_log_p=ops.zeros(shape, "float32"),
            alive=nothing | (ops.arange(self.beam_size, dtype="int32") == 0),
            visible=ops.zeros([*shape, 0], "bool"),
            finished_tokens=tokens,
            finished_scores=ops.zeros(shape, "float32"),
            finished=nothing,
        )

    def with_room(self, beams: Beams, caches, tokens: int):
        """Returns hypotheses and caches with room for more tokens, whose keys are not visible yet."""
        keys = tokens * self.beam_size
        beams = beams._replace(
            alive_tokens=_padded(beams.alive_tokens, tokens),
            visible=_padded(beams.visible, keys),
            finished_tokens=_padded(beams.finished_tokens, tokens),
        )
        return beams, _padded(caches, keys)

    def add_own_keys(self, beams: Beams, i):
        """Adds the K keys that the next step will cache, of which each hypothesis sees its own.

        Returns the beams, the ids so far [b, K, i + 1] and the visible keys [b, K, S + K].
        """
        batch = shape_of(beams.alive)[0]
        own = ops.tile(ops.eye(self.beam_size, dtype="bool")[None], [batch, 1, 1])  # [b, K, K]
        visible = self.append(beams.visible, own, i)  # [b, K, S] -> [b, K, S + K]
        return beams._replace(visible=visible), beams.alive_tokens.ids, visible

    def advance(self, beams: Beams, logits, i, rows=None, forced=None, allowed=None) -> Beams:
        """Chooses token number i of every hypothesis by logits [b, K, V] float32.

        Args:
            rows: [b] int32, positions of the sentences in the batch; the choice does not depend on them.
            forced: [b] int32, tokens that must come next; see `forced_candidates`.
            allowed: [b, K, V] bool, the tokens that may come next; None: all.
        """
        tokens, log_p, possible = self.best_tokens(logits, i, forced, allowed)  # [b, K, n]
        number = log_p.shape[2]
        score = (log_p + beams.alive_log_p[:, :, None]) / length_penalty(i + 1, self.alpha)
        # All candidates of a sentence in one row: [b, K, n] -> [b, K * n]
        tokens, log_p, score, possible = (
            ops.reshape(each, [-1, self.beam_size * number])
            for each in (tokens, log_p, score, possible & beams.alive[:, :, None])
        )
        # K would not be enough: if all of them ended the sentence, no hypothesis would stay alive.
        chosen = best(score, possible, 2 * self.beam_size)  # [b, K * n] -> [b, 2K]
        values = (ops.cast(tokens, "int32"), log_p, score, possible)
        found = Candidates(chosen // number, *(take(each, chosen) for each in values))
        return self.with_candidates(beams, found, i)

    def with_candidates(self, beams: Beams, found: Candidates, i) -> Beams:
        """Returns the beams after a step whose best candidates are given."""
        # What is not possible may be a token without an embedding.
        new = Tokens(ops.where(found.possible, found.token, PAD_ID), found.log_p)
        tokens = _map(  # [b, n, i + 2]
            lambda old, new: self.append(take(old, found.parent), new[:, :, None], i + 1),
            beams.alive_tokens,
            new,
        )
        ends = found.token == EOS_ID  # [b, n]

        # Alive: the K best candidates that do not end. Their score times the penalty is log p.
        goes_on, ended = found.possible & ~ends, found.possible & ends
        kept = best(found.score, goes_on, self.beam_size)  # [b, n] -> [b, K]

        # Finished: the K best of the finished ones and the candidates that end. [b, K + n] -> [b, K]
        scores = ops.concatenate([beams.finished_scores, found.score], 1)
        finished = ops.concatenate([beams.finished, ended], 1)
        first = best(scores, finished, self.beam_size)
        finished_tokens = _map(
            lambda old, ended: ops.concatenate(
                [self.append(old, ops.zeros_like(old[:, :, :1]), i + 1), ended], 1
            ),
            beams.finished_tokens,
            tokens,
        )
        return Beams(
            alive_tokens=_map(lambda tokens: take(tokens, kept), tokens),
            alive_log_p=take(found.score * length_penalty(i + 1, self.alpha), kept),
            alive=take(goes_on, kept),
            visible=take(beams.visible, take(found.parent, kept)),  # [b, K, S] -> [b, K, S]
            finished_tokens=_map(lambda tokens: take(tokens, first), finished_tokens),
            finished_scores=take(scores, first),
            finished=take(finished, first),
        )

    def best_tokens(self, logits, i, forced, allowed):
        """Returns the n = 2K best tokens of each hypothesis (or one more), their log p, and which may come.

        No other token can be among the 2K best of the sentence, so only these are normalised and
        compared, not K * V. They are in vocabulary order, which breaks ties as in T2T.
        """
        # One more with `min_length`: the end of sentence may be among them, but not allowed.
        number = 2 * self.beam_size + bool(self.min_length)
        if allowed is None:
            values, tokens, normaliser = blockwise_top_k(logits, number)
        else:  # log p stays the model's: it is not normalised over the allowed tokens
            values, tokens, _ = blockwise_top_k(ops.where(allowed, logits, IMPOSSIBLE), number)
            normaliser = log_normaliser(logits, ops.max(logits, -1, keepdims=True))
        order = ops.argsort(tokens)
        tokens = take(tokens, order)
        log_p = take(values, order) - normaliser
        possible = (tokens != EOS_ID) | (i >= self.min_length)
        if self.vocab_size:
            possible &= tokens < self.vocab_size
        if allowed is not None:
            possible &= take(allowed, tokens)
        if forced is not None:
            return forced_candidates(tokens, log_p, possible, forced[:, None, None])
        return tokens, log_p, possible

    def is_done(self, beams: Beams, limits):
        """Returns [b] bool, True where no alive hypothesis can beat the finished ones.

        It has to beat the best finished one, or the worst if several are returned. Its best possible
        score is T2T's bound: log p never rises, and with alpha > 0 the penalty favours the longest output.
        """
        best_alive = beams.alive_log_p[:, 0] / length_penalty(limits, self.alpha)
        last = 0 if self.top_beams == 1 else -1
        beaten = beams.finished[:, last] & (beams.finished_scores[:, last] > best_alive)
        return beaten | ~beams.alive[:, 0]

    def prune(self, beams: Beams, caches):
        """Removes the cached keys that no alive hypothesis of a sentence sees.

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

    def results(self, beams: Beams, i) -> SearchResult:
        """Returns the best K' hypotheses: as in T2T, the alive ones with plain log p if none has finished."""
        use = ops.any(beams.finished, axis=1)[:, None]
        tokens = _map(
            lambda finished, alive: ops.where(use[:, :, None], finished, alive),
            beams.finished_tokens,
            beams.alive_tokens,
        )
        scores = ops.where(use, beams.finished_scores, beams.alive_log_p)
        exist = ops.where(use, beams.finished, beams.alive)
        tokens, scores, exist = _map(lambda x: x[:, : self.top_beams], (tokens, scores, exist))
        return _result(tokens, scores, exist, i)


def best(scores, possible, k: int):
    """Returns the numbers [b, k] of the best of n scores [b, n] that are possible [b, n], best first.

    If they are fewer, the first impossible ones follow.
    """
    return ops.top_k(ops.where(possible, scores, IMPOSSIBLE), k)[1]


IMPOSSIBLE = -math.inf
"""What is not possible, only while candidates are ordered: kept in sums it would give NaN."""


def _result(tokens: Tokens, scores, exist, i) -> SearchResult:
    ids = tokens.ids[:, :, 1:]
    places = ops.arange(1, shape_of(ids)[2] + 1, dtype="int32")
    ends = ops.min(ops.where(ids == EOS_ID, places, 2**30), axis=2, initial=2**30)  # [b, K']
    lengths = ops.where(exist, ops.minimum(ends, i), 0)
    inside = places <= lengths[:, :, None]
    return SearchResult(
        ids=ops.where(inside, ids, PAD_ID),
        lengths=lengths,
        scores=ops.where(exist, scores, NO_SCORE),
        token_scores=ops.where(inside, tokens.log_p[:, :, 1:], 0.0),
    )


def length_penalty(length, alpha):
    """Returns ((5 + length) / 6)^alpha, the length penalty of Wu et al. 2016."""
    return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, alpha)


_map = keras.tree.map_structure


def _padded(tensors, places):
    """Pads nested tensors with 0: [b, K, n, ...] -> [b, K, n + places, ...]."""
    return _map(
        lambda x: ops.pad(x, [[0, 0], [0, 0], [0, places]] + [[0, 0]] * (len(x.shape) - 3)), tensors
    )


def blockwise_top_k(logits, k: int):
    """Returns the k best tokens of logits [b, K, V], and the log normaliser of the logits.

    Maxima of blocks of 64 tokens replace both the top-k of a large vocabulary, which is slow, and the
    maximum of a stable softmax: the k best tokens are in the k blocks with the largest maxima.

    Returns values and tokens [b, K, min(k, V)], best first and then lowest id, and log sum exp [b, K, 1].
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
    return largest - ops.log(ops.max(ops.softmax(logits), -1, keepdims=True))


# One hypothesis per sentence


class Path(NamedTuple):
    """The hypotheses of b sentences, one each, after i tokens of greedy or sampled decoding."""

    tokens: Tokens  # [b, 1, i + 1], 0 after the end of sentence
    log_p: Any  # [b, 1] float32, sum of log-probabilities up to the end of sentence
    ended: Any  # [b, 1] bool


class OnePath(NamedTuple):
    """The strategy of greedy and sampled decoding: one hypothesis per sentence (K = 1)."""

    min_length: int
    choose: Callable[[Any, Any, Any], Any]  # (logits [b, 1, V], i, rows [b]) -> tokens [b, 1] int32
    append: Callable[[Any, Any, Any], Any] = grown  # as in `BeamSearch`
    top_beams: int = 1

    def first(self, batch) -> Path:
        """Returns paths without tokens."""
        shape = [batch, 1]
        tokens = Tokens(ops.zeros([*shape, 1], "int32"), ops.zeros([*shape, 1], "float32"))
        return Path(tokens, log_p=ops.zeros(shape, "float32"), ended=ops.zeros(shape, "bool"))

    def with_room(self, path: Path, caches, tokens: int):
        """Returns paths and caches with room for more tokens."""
        return path._replace(tokens=_padded(path.tokens, tokens)), _padded(caches, tokens)

    def add_own_keys(self, path: Path, i):
        """Returns the path, its ids [b, 1, i + 1], and None: it sees all keys so far."""
        return path, path.tokens.ids, None

    def advance(self, path: Path, logits, i, rows=None, forced=None, allowed=None) -> Path:
        """Adds the token that `choose` returns; its log p is that without `min_length` and `allowed`."""
        possible = logits
        if self.min_length:
            ends = ops.arange(logits.shape[2], dtype="int32") == EOS_ID
            possible = ops.where(ends & (i < self.min_length), IMPOSSIBLE, possible)
        if allowed is not None:
            possible = ops.where(allowed, possible, IMPOSSIBLE)
        token = self.choose(possible, i, rows)  # [b, 1]
        log_p = take(logits, token[:, :, None])  # [b, 1] -> [b, 1, 1]
        log_p = ops.squeeze(log_p - log_normaliser(logits, ops.max(logits, -1, keepdims=True)), 2)
        if allowed is not None:  # nothing may come: the path is none, as in beam search
            log_p = ops.where(ops.any(possible > IMPOSSIBLE, -1), log_p, NO_SCORE)
        if forced is not None:
            token, log_p, _ = forced_candidates(token, log_p, True, forced[:, None])
        new = Tokens(ops.where(path.ended, PAD_ID, token), ops.where(path.ended, 0.0, log_p))
        return Path(
            _map(lambda old, new: self.append(old, new[:, :, None], i + 1), path.tokens, new),
            log_p=path.log_p + new.log_p,
            ended=path.ended | (token == EOS_ID) | (new.log_p == NO_SCORE),
        )

    def is_done(self, path: Path, limits):
        """Returns [b] bool: True after the end of sentence."""
        return path.ended[:, 0]

    def prune(self, path: Path, caches):
        """Returns both unchanged: the path sees all its keys."""
        return path, caches

    def results(self, path: Path, i) -> SearchResult:
        """Returns the paths of i tokens at most, with their log p."""
        return _result(path.tokens, path.log_p, ~(path.log_p <= NO_SCORE), i)


def most_likely(logits, i, rows):
    """Chooses the most likely tokens: greedy decoding."""
    # Not Keras's argmax, which takes five passes over the vocabulary to order -0.0 before 0.0.
    return ops.cast(ops.top_k(logits, 1)[1][..., 0], "int32")


class Draw(NamedTuple):
    """Chooses by chance, from the softmax of logits; `loop.sampler` is that of TensorFlow's loop."""

    temperature: float
    top_k: int
    top_p: float | None

    def __call__(self, logits, i, rows, seed):
        logits = keep_top_k_top_p(logits / self.temperature, self.top_k, self.top_p)
        return keras.random.categorical(logits[:, 0], 1, seed=FixedSeed(seed, i))
