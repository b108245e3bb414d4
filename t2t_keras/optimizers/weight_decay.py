"""The weight decay that T2T adds to the loss, as gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keras import ops

from t2t_keras.optimizers.dense_gradient import dense_gradient

_Tensor = Any
_Variable = Any


def is_decayed(name: str, variable: _Variable) -> bool:
    """Whether T2T decays a variable: every one but vectors whose name ends in "bias".

    Those are the biases of feed-forward layers and of layer normalisation, not its scales.

    Args:
        name: T2T's name of the variable, as `checkpoints.t2t_variables` has it.
        variable: the variable, or anything with its shape.
    """
    return not (len(variable.shape) == 1 and name.endswith("bias"))


def with_weight_decay(
    gradients: Sequence[_Tensor],
    variables: Sequence[_Variable],
    names: Sequence[str],
    rate: float,
) -> list[_Tensor]:
    """The gradients of a loss to which T2T's weight decay is added (utils/optimize.py).

    T2T adds `rate` / 2 times the sum of squares of the decayed variables to the mean loss per
    token, with every optimizer, before gradients are clipped. (With "adam_w" it does that too, on
    top of that optimizer's own decay.)

    Args:
        gradients: of the loss per token, one for each variable.
        variables: to which they belong.
        names: T2T's name of each variable.
        rate: T2T's `weight_decay`.
    """
    if not rate:
        return list(gradients)
    return [
        dense_gradient(gradient, variable) + rate * ops.cast(variable, gradient.dtype)
        if is_decayed(name, variable)
        else gradient
        for gradient, variable, name in zip(gradients, variables, names, strict=True)
    ]
