"""Dropout whose masks a trainer can make reproducible."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
from keras import ops

from t2t_keras.shape import shape_of

KeepMask = Callable[[Any, float], Any]
"""`keep_mask(shape, rate)` -> boolean tensor of `shape`, False with probability `rate`.

An object that counts its calls must count in its attributes, so that `rematerialised` can copy it.
"""

_scope = threading.local()


@contextlib.contextmanager
def keep_mask_scope(keep_mask: KeepMask) -> Iterator[None]:
    """Makes every `Dropout` called in this context take its mask from `keep_mask`.

    Training steps use it for repeatable masks: the same after a restart and with or without XLA,
    different on every replica. Outside such a scope `Dropout` uses Keras's random state.
    """
    outer = getattr(_scope, "keep_mask", None)
    _scope.keep_mask = keep_mask
    try:
        yield
    finally:
        _scope.keep_mask = outer


def rematerialised(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gradient checkpointing: makes a function recompute its activations in the backward pass.

    Both passes use the same dropout masks, which requires a `keep_mask_scope`: outside of one the
    function is returned unchanged.
    """
    keep_mask = getattr(_scope, "keep_mask", None)
    if keep_mask is None:
        return function
    # The copy keeps the number of masks drawn so far, where the backward pass has to start.
    masks = [keep_mask, copy.copy(keep_mask)]

    def run(*tensors):
        first = len(masks) == 2
        with keep_mask_scope(masks.pop(0) if first else copy.copy(masks[0])):
            return function(*tensors)

    return keras.remat(run)


@keras.saving.register_keras_serializable("t2t_keras")
class Dropout(keras.layers.Layer):
    """Zeroes elements with probability `rate` in training and scales the rest by 1/(1-rate).

    Args:
        rate: probability of zeroing, in [0, 1).
        broadcast_dims: axes along which the mask is shared (T2T's `*_dropout_broadcast_dims`);
            saves random numbers and memory.

    Shapes: any in, the same out, in the same dtype.
    """

    def __init__(self, rate: float, *, broadcast_dims: Sequence[int] = (), **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"Dropout rate must be in [0, 1), got {rate}.")
        self.rate = rate
        self.broadcast_dims = tuple(broadcast_dims)
        self.supports_masking = True
        self._seed = keras.random.SeedGenerator() if rate else None
        self.built = True

    def call(self, x, training=False):
        if not training or not self.rate:
            return x
        shape = shape_of(x)
        for axis in self.broadcast_dims:
            shape[axis] = 1
        keep_mask = getattr(_scope, "keep_mask", None)
        if keep_mask is None:
            return keras.random.dropout(x, self.rate, noise_shape=shape, seed=self._seed)
        return _kept(keep_mask(shape, self.rate), 1.0 / (1.0 - self.rate))(x)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "rate": self.rate,
            "broadcast_dims": list(self.broadcast_dims),
        }


def _kept(keep, scale: float):
    """Returns a function that scales elements of x where `keep` is True and zeroes the others.

    The backward pass does the same to the gradient, so that only `keep` is stored for it.
    """

    @ops.custom_gradient
    def kept(x):
        def backward(*args, upstream=None):  # on PyTorch, Keras passes the gradient by name
            dy = args[-1] if upstream is None else upstream
            return ops.where(keep, dy * scale, 0)

        return ops.where(keep, x * scale, 0), backward

    return kept
