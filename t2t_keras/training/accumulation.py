"""Gradients of several batches in one update: T2T's MultistepAdam, on every replica by itself."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf


class Accumulator:
    """Sums of the gradients of batches.

    A replica sums its own; the replicas' sums are added up where the update is made. Made under
    the strategy's scope.

    Args:
        variables: of the model.
    """

    def __init__(self, variables):
        self.tokens = keras.Variable(0.0, dtype="float32", trainable=False, name="tokens")
        self.batches = keras.Variable(0, dtype="int32", trainable=False, name="batches")
        self.sums = [
            keras.Variable(
                tf.zeros(variable.shape), dtype="float32", trainable=False, name="gradients"
            )
            for variable in variables
        ]

    def add(self, gradients, tokens) -> None:
        """Adds what this replica has of a batch, whose tokens are those of all replicas."""
        for total, gradient in zip(self.sums, gradients, strict=True):
            total.assign(total + gradient)
        self.tokens.assign(self.tokens + tokens)
        self.batches.assign(self.batches + 1)

    def taken(self, gradients, tokens) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Returns the sums and the tokens with those of a last batch, and starts anew."""
        tokens = self.tokens + tokens
        taken = []
        for total, gradient in zip(self.sums, gradients, strict=True):
            taken.append(total + gradient)
            total.assign(tf.zeros_like(gradient))
        self.tokens.assign(tf.zeros_like(self.tokens.value))
        self.batches.assign(tf.zeros_like(self.batches.value))
        return taken, tokens

    def state(self, names, strategy: tf.distribute.Strategy) -> dict[str, SumOfReplicas]:
        """The sums of all replicas of this host, by name.

        Args:
            names: of the model's variables.
            strategy: under whose scope this was made.
        """
        return {
            f"{name}/gradients": SumOfReplicas(total, strategy)
            for name, total in zip(names, self.sums, strict=True)
        }


class SumOfReplicas:
    """A variable that stands for the sum of its values on the replicas of this host.

    What is assigned goes to the first replica of all hosts, and zero to the others. With several
    replicas it is therefore another order in which the sum goes on.
    """

    def __init__(self, variable: keras.Variable, strategy: tf.distribute.Strategy):
        self._variable = variable
        self._strategy = strategy

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the sum."""
        return tuple(self._variable.shape)

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        parts = self._strategy.experimental_local_results(self._variable.value)
        total = np.asarray(parts[0]).copy()
        for part in parts[1:]:
            total += np.asarray(part)
        return total if dtype is None else total.astype(dtype)

    def assign(self, value) -> None:
        """Sets the sum; to be called on every host."""
        value = tf.convert_to_tensor(value, tf.float32)

        def put():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            is_first = tf.equal(tf.convert_to_tensor(replica), 0)
            self._variable.assign(tf.where(is_first, value, tf.zeros_like(value)))

        self._strategy.run(put)
