"""Searches with tensors of fixed sizes, for JAX, PyTorch, and XLA in TensorFlow.

In `loop.py` tensors grow with every token and batches shrink: that saves work on a CPU, but XLA cannot
compile it. Here tensors grow by `ROOM` tokens at a time, and a finished sentence stays unchanged in the
batch until all are done. So there is one compilation per number of sentences, rounded up to a power of
two, and per `ROOM` positions of source and output. The strategies are the same.
"""

import functools
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from t2t_keras.decoding.beam import SearchResult
from t2t_keras.shape import ON_TENSORFLOW, shape_of, written

if ON_TENSORFLOW:
    import tensorflow as tf

    from t2t_keras.open_graph import open_shapes

ROOM = 32
"""Number of tokens to make room for at a time; the source is padded to a multiple of it."""


class StaticState(NamedTuple):
    """The state of a search of B sentences."""

    i: Any  # [] int32, number of tokens chosen
    hypotheses: Any  # the strategy's `Beams` or `Path`, tensors [B, K, ...]
    caches: Any  # list of {"k", "v"} per decoder layer: [B, H, S, C]
    done: Any  # [B] bool


class StaticSearch:
    """A search with tensors of fixed sizes, to which its strategy appends by `shape.written`."""

    def __init__(self, model, strategy):
        self.model, self.strategy = model, strategy
        self._begin = _compiled(model, self.begin)
        self._extend = _compiled(model, self.extend)

    def run(self, inputs, limits, prefix=None, seed=None) -> SearchResult:
        """Decodes a batch of sentences; the arguments are those of `loop.DecodeLoop.run`, and of `Draw`."""
        batch, length = shape_of(inputs)
        if isinstance(batch, int):  # rounded up to a power of two
            power: Any = 1 << max(batch - 1, 0).bit_length()
        else:
            powers = 2 ** np.arange(31, dtype=np.int32)
            power = ops.min(ops.where(powers < batch, powers[-1], powers))
        spare = power - batch  # empty sentences, done from the start
        inputs = ops.pad(inputs, [[0, spare], [0, -length % ROOM]])
        limits = ops.pad(limits, [[0, spare]])
        if prefix is not None:
            prefix = ops.pad(prefix, [[0, spare], [0, ROOM - shape_of(prefix)[1] % ROOM]])
        source, state = self._begin(inputs, limits)
        state = _while(
            lambda state: ~ops.all(state.done),
            lambda state: self._extend(source, limits, prefix, seed, state),
            state,
        )
        chosen = ops.minimum(ops.convert_to_tensor(limits, "int32")[:, None], state.i)  # [B, 1]
        found = self.strategy.results(state.hypotheses, chosen)
        ids, token_scores = (x[:, :, : state.i] for x in (found.ids, found.token_scores))
        found = found._replace(ids=ids, token_scores=token_scores)
        return keras.tree.map_structure(lambda x: x[:batch], found)

    def begin(self, inputs, limits):
        """Returns the encoded source and the state before the first token."""
        batch = shape_of(inputs)[0]
        first = StaticState(
            i=ops.convert_to_tensor(0, "int32"),
            hypotheses=self.strategy.first(batch),
            caches=self.model.empty_caches(batch),
            done=limits <= 0,
        )
        return self.model.encode_source(inputs), first

    def extend(self, source, limits, prefix, seed, state: StaticState) -> StaticState:
        """Makes room for `ROOM` more tokens, and chooses up to that many."""
        end, kernels, strategy = state.i + ROOM, self.model.step_kernels(), self.strategy
        if seed is not None:
            strategy = strategy._replace(choose=functools.partial(strategy.choose, seed=seed))

        def step(i, hypotheses, caches, done):
            hypotheses, ids, visible = self.strategy.add_own_keys(hypotheses, i)
            if visible is None:  # all keys so far, but not the room for later ones
                visible = (ops.arange(shape_of(ids)[2] - 1, dtype="int32") <= i)[None, None]
            logits, caches = self.model.decode_step(
                ops.take(ids, i, axis=2), i, caches, source, visible, kernels, written
            )
            forced = None
            if prefix is not None:
                last = shape_of(prefix)[1] - 1  # always padding
                forced = ops.take(prefix, ops.minimum(i, last), axis=1)
            new = strategy.advance(hypotheses, logits, i, forced=forced)

            def kept(old, new):
                return ops.where(ops.reshape(done, [-1] + [1] * (len(old.shape) - 1)), old, new)

            hypotheses = keras.tree.map_structure(kept, hypotheses, new)
            i = i + 1
            done = done | (i >= limits) | self.strategy.is_done(hypotheses, limits)
            return StaticState(i, hypotheses, caches, done)

        def goes_on(i, hypotheses, caches, done):
            return (i < end) & ~ops.all(done)

        room = self.strategy.with_room(state.hypotheses, state.caches, ROOM)
        return StaticState(*ops.while_loop(goes_on, step, (state.i, *room, state.done)))


def _compiled(model, function):
    """Compiles a function of tensors that uses the model's weights. (On PyTorch it stays eager.)"""
    if ON_TENSORFLOW:
        return tf.function(function, jit_compile=True, autograph=False)
    if keras.backend.backend() == "torch":
        import torch

        return torch.no_grad()(function)
    import jax

    @jax.jit
    def run(weights, *arguments):
        with keras.StatelessScope(list(zip(model.variables, weights, strict=True))):
            return function(*arguments)

    return lambda *arguments: run([variable.value for variable in model.variables], *arguments)


def _while(going_on, body, state):
    """Runs a loop over compiled functions, whose tensors get larger in each iteration."""
    if ON_TENSORFLOW:
        shapes = (open_shapes(state, 0, 2),)
        return tf.while_loop(going_on, lambda s: (body(s),), (state,), shape_invariants=shapes)[0]
    while going_on(state):
        state = body(state)
    return state
