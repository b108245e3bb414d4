"""Dynamic scaling of the loss: keeps the gradients of float16 from becoming zero."""

from __future__ import annotations

import keras
import tensorflow as tf

FIRST = 32768.0
"""The scale of the first update (T2T's `mixed_precision_optimizer_init_loss_scale`)."""

DOUBLED_AFTER = 2000
"""Updates without an overflow before the scale is doubled, as in T2T."""


class LossScale:
    """The factor of the loss, halved by an overflow and doubled after many updates without one.

    Made under the strategy's scope; replicas keep it alike, since all see the same gradients.
    """

    def __init__(self):
        self.scale = keras.Variable(FIRST, dtype="float32", trainable=False, name="loss_scale")
        self.good = _counter("loss_scale_good_updates")
        self.skipped = _counter("loss_scale_skipped_updates")

    def update(self, finite) -> None:
        """Takes into account whether the gradients of an update were all finite."""
        good = tf.where(finite, self.good + 1, 0)
        doubled = good == DOUBLED_AFTER
        factor = tf.where(finite, tf.where(doubled, 2.0, 1.0), 0.5)
        self.scale.assign(tf.maximum(self.scale * factor, 1.0))
        self.good.assign(tf.where(doubled, tf.zeros_like(good), good))
        self.skipped.assign(self.skipped + tf.where(finite, 0, 1))

    def state(self) -> dict[str, keras.Variable]:
        """The variables, by name."""
        return {variable.name: variable for variable in (self.scale, self.good, self.skipped)}


def _counter(name: str) -> keras.Variable:
    return keras.Variable(0, dtype="int32", trainable=False, name=name)
