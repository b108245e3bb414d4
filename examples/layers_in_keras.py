"""The layers in a Keras model of one's own: a classifier of sentences of different lengths.

A sentence of random tokens belongs to class 1 if its token 2 comes before its token 3. What stands
behind its end is padding, which neither attention nor the mean may see.
"""

import keras
import numpy as np
from keras import ops

from t2t_keras import layers


@keras.saving.register_keras_serializable("examples")
class Classifier(keras.Model):
    """Token ids [B, T], 0 for padding, to logits [B, classes]."""

    def __init__(self, vocab_size: int, classes: int, **kwargs):
        super().__init__(**kwargs)
        self.vocab_size, self.classes = vocab_size, classes
        self.embedding = layers.SharedEmbedding(vocab_size=vocab_size, hidden_size=32)
        self.position = layers.PositionEncoding()
        self.encoder = layers.TransformerEncoder(num_layers=2, num_heads=4, filter_size=64)
        self.output_layer = keras.layers.Dense(classes)

    def call(self, ids, training=False):
        mask = ids != 0
        x = self.position(self.embedding(ids))
        x = self.encoder(x, mask=mask, training=training)  # [B, T, 32]
        weights = ops.expand_dims(ops.cast(mask, x.dtype), -1)
        mean = ops.sum(x * weights, axis=1) / ops.sum(weights, axis=1)
        return self.output_layer(mean)

    def get_config(self):
        return {"vocab_size": self.vocab_size, "classes": self.classes, "name": self.name}


def sentences(count: int, length: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Random sentences [count, length] and their classes [count]."""
    rng = np.random.default_rng(0)
    ids = rng.integers(4, 20, (count, length))
    places = rng.permuted(np.tile(np.arange(length // 2), (count, 1)), axis=1)[:, :2]
    np.put_along_axis(ids, places, np.array([2, 3]), axis=1)
    ends = rng.integers(length // 2, length, (count, 1))
    return np.where(np.arange(length) < ends, ids, 0), places[:, 0] < places[:, 1]


def main() -> keras.Model:
    """Trains for 200 steps."""
    keras.utils.set_random_seed(0)
    model = Classifier(vocab_size=20, classes=2)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.002), loss, metrics=["accuracy"])
    model.fit(*sentences(6400), epochs=1, verbose=2)
    return model


if __name__ == "__main__":
    main()
