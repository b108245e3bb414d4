"""Shapes of tensors in graphs that do not know all of them."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops


def shape_of(x) -> list[Any]:
    """The sizes of a tensor: `ops.shape`, but one operation for all that a graph does not know.

    Those of Keras are four for each, and most of the operations of a small model.
    """
    if keras.backend.backend() != "tensorflow" or None not in x.shape:
        return list(ops.shape(x))
    import tensorflow as tf

    if not tf.is_tensor(x):  # Keras's own, while it finds out what comes of a functional model
        return list(ops.shape(x))
    unknown = tf.unstack(tf.shape(x))
    return [known or size for known, size in zip(x.shape, unknown, strict=True)]
