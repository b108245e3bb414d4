"""Gradients of several batches in one update: T2T's MultistepAdam, on every replica by itself."""

from __future__ import annotations

import keras
import tensorflow as tf


class Accumulator:
    """Sums of gradients, each divided by the number of tokens of its batch.

    A replica sums its own; the replicas' sums are added up where the update is made. Made under
    the strategy's scope.
    """

    def __init__(self, variables):
        self.batches = keras.Variable(0, dtype="int32", trainable=False, name="batches")
        self.sums = [
            keras.Variable(
                tf.zeros(variable.shape), dtype="float32", trainable=False, name="gradients"
            )
            for variable in variables
        ]

    def add(self, gradients, divisor) -> None:
        """Adds the gradients of a batch."""
        for total, gradient in zip(self.sums, gradients, strict=True):
            total.assign(total + gradient / divisor)
        self.batches.assign(self.batches + 1)

    def taken(self, gradients, divisor) -> list[tf.Tensor]:
        """Returns the sums with the gradients of a last batch, and starts anew."""
        taken = []
        for total, gradient in zip(self.sums, gradients, strict=True):
            taken.append(total + gradient / divisor)
            total.assign(tf.zeros_like(gradient))
        self.batches.assign(tf.zeros_like(self.batches.value))
        return taken
