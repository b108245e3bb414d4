"""The loop of beam search, greedy and sampled decoding in TensorFlow.

It computes the model's logits, lets a strategy choose tokens (`BeamSearch` or `OnePath`), and removes
sentences from the batch when they are done. Shapes: B sentences, b of them unfinished; K hypotheses per
sentence, of which K' are returned; i tokens chosen so far, L at the end; V tokens in the vocabulary; S
positions of the source or of a cache; H heads of C channels.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import tensorflow as tf

from t2t_keras.decoding.beam import SearchResult, most_likely
from t2t_keras.decoding.logits import SearchStep, keep_top_k_top_p
from t2t_keras.decoding.static_search import StaticSearch
from t2t_keras.open_graph import open_graph_of_model, open_shapes
from t2t_keras.precision import in_8_bits
from t2t_keras.shape import written

if TYPE_CHECKING:
    from t2t_keras.decoding.searches import SearchRequest

PRUNED_EVERY = 8
"""Number of steps after which keys that no hypothesis sees are removed from the caches."""

SHARE_TO_REMOVE = 8
"""Finished sentences leave the batch when they are at least 1 in this many of its sentences."""


class Active(NamedTuple):
    """The part of the loop's state that belongs to the b unfinished sentences."""

    rows: Any  # [b] int32, their positions in the batch
    hypotheses: Any  # the strategy's `Beams` or `Path`, tensors [b, K, ...]
    caches: Any  # list of {"k", "v"} per decoder layer: [b, H, S, C], which gains K keys per step
    source: Any  # from `model.encode_source`: keys and values of the source [b, H, S, C], its mask
    limits: Any  # [b] int32, maximum length of the output
    forced: Any  # [b, longest] int32, the prefix, see `forced_candidates`; () without a prefix


class SearchState(NamedTuple):
    """The state of the loop."""

    i: Any  # [] int32, number of tokens chosen
    active: Active
    found: SearchResult  # of the finished sentences, with L = longest; 0 for the others


@open_graph_of_model
def in_a_graph(model, inputs, request: SearchRequest) -> SearchResult:
    """Searches in TensorFlow, in one graph for all numbers that may change between calls."""
    if request.xla:
        loop: Any = StaticSearch(model, request.made_strategy(append=written))
    else:
        choose = most_likely if request.seed is None else sampler(tf.shape(inputs)[0], request)
        loop = DecodeLoop(model, request, request.made_strategy(choose))
    return loop.run(inputs, request.limits, request.prefix)


def sampler(batch, request: SearchRequest):
    """Returns a function that samples tokens from the softmax of logits [b, 1, V].

    The argmax of logits plus Gumbel noise is a sample from their softmax. Each step draws noise for
    the whole batch, so that finished sentences change nothing for the others.
    """

    def draw(logits, i, rows):
        logits = keep_top_k_top_p(logits / request.temperature, request.top_k, request.top_p)
        seed = tf.stack([request.seed, tf.cast(i, tf.int64)])
        uniform = tf.random.stateless_uniform([batch, 1, logits.shape[2]], seed, minval=1e-20)
        noise = -tf.math.log(-tf.math.log(tf.gather(uniform, rows)))  # [B, 1, V] -> [b, 1, V]
        return tf.argmax(logits + noise, -1, tf.int32)

    return draw


@dataclasses.dataclass(frozen=True)
class DecodeLoop:
    """The loop of all searches: asks the model, applies the strategy, removes finished sentences.

    Args:
        model: a `Transformer` or an `Ensemble`.
        request: its logits processors change the logits, in the given order, before the strategy sees
            them, and its constraint says which tokens may come next; see `logits.Constraint`. Scores
            remain the model's: they are not normalised over the allowed tokens.
        strategy: chooses the tokens: `BeamSearch`, `OnePath` or another class with their methods. Its
            hypotheses are a NamedTuple of tensors [b, K, ...], of which axis 2 may grow.
    """

    model: Any
    request: SearchRequest
    strategy: Any

    def run(self, inputs, limits, prefix=None) -> SearchResult:
        """Decodes a batch of sentences.

        Args:
            inputs: [B, S] int32, source ids.
            limits: [B] int32, maximum length of each output.
            prefix: [B, P] int32, padded with 0: the first tokens of the outputs.
        """
        batch = tf.shape(inputs)[0]
        longest = tf.maximum(tf.reduce_max(limits), 1)  # a scatter needs a width of 1 or more
        forced: Any = ()
        if prefix is not None:
            prefix = prefix[:, :longest]
            forced = tf.pad(prefix, [[0, 0], [0, longest - tf.shape(prefix)[1]]])
        active = Active(
            rows=tf.range(batch),
            hypotheses=self.strategy.first(batch),
            caches=self.model.empty_caches(batch),
            source=self.model.encode_source(inputs),
            limits=limits,
            forced=forced,
        )
        rows = [batch, self.strategy.top_beams]
        nothing = SearchResult(
            ids=tf.zeros([*rows, longest], tf.int32),
            lengths=tf.zeros(rows, tf.int32),
            scores=tf.zeros(rows),
            token_scores=tf.zeros([*rows, longest]),
        )
        start = SearchState(tf.constant(0), active, nothing)
        # Once, not at every step. (Layers in 8 bits compare the values of their variables.)
        kernels = self.model.step_kernels(self.request.one_sentence)
        if self.request.kernels is not None:  # made before: what is made here only has their shapes
            kernels = tf.nest.map_structure(_of_shape, self.request.kernels, kernels)
        models = [each for each in self.model.members if not in_8_bits(each)]
        weights = [(v, tf.convert_to_tensor(v)) for m in models for v in m.trainable_variables]
        shapes = SearchState(tf.TensorShape([]), _open(start.active, 0), open_shapes(start.found))
        (state,) = tf.while_loop(
            lambda state: tf.size(state.active.rows) > 0,
            lambda state: (self.remove_finished(self.prune(self.steps(state, kernels, weights))),),
            (start,),
            shape_invariants=(shapes,),
        )
        ids, token_scores = (x[..., : state.i] for x in (state.found.ids, state.found.token_scores))
        return state.found._replace(ids=ids, token_scores=token_scores)

    def steps(self, state: SearchState, kernels, weights) -> SearchState:
        """Chooses tokens until keys are to be pruned or a sentence has to leave.

        A loop in the loop: its steps pass on only what they change, a third of the tensors, and read no
        variable, as an operation of TensorFlow takes microseconds to start.
        """
        active = state.active
        if self.request.one_sentence:  # products of few rows are faster if their number is known
            of_one_sentence(active)
        end = (state.i // PRUNED_EVERY + 1) * PRUNED_EVERY
        others = [v for model in self.model.members for v in model.non_trainable_variables]

        def goes_on(i, hypotheses, caches):
            done = self._done(i, active._replace(hypotheses=hypotheses))
            return (i < end) & ~self._must_remove(i, done, active.limits)

        def step(i, hypotheses, caches):
            with keras.StatelessScope(weights) as scope:
                active = state.active._replace(hypotheses=hypotheses, caches=caches)
                hypotheses, caches = self.step(i, active, kernels)
            if self.request.one_sentence:  # a user's layer or constraint may not say so
                of_one_sentence(hypotheses, caches)
            for variable in others:  # the scope keeps what a step of a user's layer assigns
                if (value := scope.get_current_value(variable)) is not None:
                    variable.assign(value)
            return i + 1, hypotheses, caches

        shapes = _open(active)
        i, hypotheses, caches = tf.while_loop(
            goes_on,
            step,
            (state.i, active.hypotheses, active.caches),
            (tf.TensorShape([]), shapes.hypotheses, shapes.caches),
        )
        return state._replace(i=i, active=active._replace(hypotheses=hypotheses, caches=caches))

    def step(self, i, active: Active, kernels):
        """Chooses token number i of every hypothesis; returns hypotheses and caches."""
        hypotheses, ids, visible = self.strategy.add_own_keys(active.hypotheses, i)
        logits, caches = self.model.decode_step(
            ids[:, :, -1], i, active.caches, active.source, visible, kernels
        )
        step, request = SearchStep(i, ids[:, :, 1:], active.rows, active.limits), self.request
        for process in request.logits_processors:
            logits = tf.ensure_shape(process(logits, step), logits.shape)
        allowed = request.constraint(logits, step) if request.constraint else None
        forced = active.forced[:, i] if tf.is_tensor(active.forced) else None
        return self.strategy.advance(hypotheses, logits, i, active.rows, forced, allowed), caches

    def prune(self, state: SearchState) -> SearchState:
        """Removes keys that no hypothesis sees, at every `PRUNED_EVERY`-th step."""
        if self.model.keys_need_positions:
            return state
        hypotheses, caches = tf.cond(
            state.i % PRUNED_EVERY == 0,
            lambda: self.strategy.prune(state.active.hypotheses, state.active.caches),
            lambda: (state.active.hypotheses, state.active.caches),
        )
        return state._replace(active=state.active._replace(hypotheses=hypotheses, caches=caches))

    def _done(self, i, active: Active):
        return (i >= active.limits) | self.strategy.is_done(active.hypotheses, active.limits)

    def _must_remove(self, i, done, limits):
        """Returns True if finished sentences leave now: there are enough to be worth the copy.

        A sentence at its limit must stop now; one that is only done can stay: its result is final,
        unless alpha is below 0, where later outputs may still beat it.
        """
        number = tf.math.count_nonzero(done, dtype=tf.int32)
        enough = number * SHARE_TO_REMOVE >= tf.size(done)
        if self.request.alpha is not None:
            enough |= self.request.alpha < 0
        return (number > 0) & (enough | tf.reduce_any(i >= limits))

    def remove_finished(self, state: SearchState) -> SearchState:
        """Removes finished sentences from the batch if they must leave."""
        done = self._done(state.i, state.active)
        return tf.cond(
            self._must_remove(state.i, done, state.active.limits),
            lambda: self.remove(state, done),
            lambda: state,
        )

    def remove(self, state: SearchState, done) -> SearchState:
        """Stores the results of the sentences that are done [b] bool, and removes these."""
        leaving, staying = (tf.cast(tf.where(mask)[:, 0], tf.int32) for mask in (done, ~done))
        found = self.strategy.results(state.active.hypotheses, state.i)
        rows, found = tf.nest.map_structure(
            lambda x: tf.gather(x, leaving), (state.active.rows, found)
        )
        spare = [[0, 0], [0, 0], [0, tf.shape(state.found.ids)[2] - state.i]]
        stored = [  # [b', K', i] -> [b', K', longest]
            tf.tensor_scatter_nd_update(
                all_rows, rows[:, None], tf.pad(new, spare) if len(new.shape) == 3 else new
            )
            for all_rows, new in zip(state.found, found, strict=True)
        ]
        active = tf.nest.map_structure(lambda x: tf.gather(x, staying), state.active)
        return state._replace(active=active, found=SearchResult(*stored))


def of_one_sentence(*state) -> None:
    """Tells TensorFlow that tensors [b, ...] are of one sentence."""
    for tensor in tf.nest.flatten(state):
        tensor.set_shape([1, *tensor.shape[1:]])


def without_gradient(found: SearchResult) -> SearchResult:
    """Makes the gradient of a search's scores an error: it would leave out kernels made before."""
    message = "a search has no gradient: give its ids to the model, or to score()"
    prevent = functools.partial(tf.raw_ops.PreventGradient, message=message)
    return found._replace(
        scores=prevent(input=found.scores), token_scores=prevent(input=found.token_scores)
    )


def _of_shape(x, like):
    return tf.ensure_shape(x, like.shape) if tf.is_tensor(x) else x


def _open(active: Active, *axes: int) -> Active:
    """Returns the shapes of a loop's state: `axes` are open, and axis 2 of ids, visible keys and caches."""
    return open_shapes(active, *axes)._replace(
        hypotheses=open_shapes(active.hypotheses, *axes, 2),
        caches=open_shapes(active.caches, *axes, 2),
    )
