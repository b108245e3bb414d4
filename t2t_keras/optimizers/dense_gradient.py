"""Gradients of looked-up rows as whole tensors, which T2T makes of them too."""

from __future__ import annotations

from typing import Any

from keras import ops

_Tensor = Any
_Variable = Any


def dense_gradient(gradient: _Tensor, variable: _Variable) -> _Tensor:
    """A gradient as one tensor of the variable's shape.

    Args:
        gradient: a tensor, or what TensorFlow has where rows were looked up: rows and their
            numbers, some more than once. (Keras's Adam would add up the squares of such rows
            instead of squaring their sum.)
        variable: to which it belongs.
    """
    if not hasattr(gradient, "indices"):
        return gradient
    return ops.add(ops.zeros(variable.shape, gradient.dtype), gradient)
