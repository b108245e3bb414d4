"""Custom attention inside the Transformer's encoder layer, trained with plain Keras.

Every head learns a temperature, a factor on its keys that controls how sharply it attends. The task is
to predict the first token of a random sequence at every position.
"""

import keras
import numpy as np
from keras import ops

from t2t_keras import layers


@keras.saving.register_keras_serializable("examples")
class TemperatureAttention(layers.MultiHeadAttention):
    """Multi-head attention with a learned temperature for each head."""

    def build(self, query_shape, memory_shape=None):
        super().build(query_shape, memory_shape)
        self.temperature = self.add_weight(
            shape=(self.num_heads, 1, 1), initializer="ones", name="temperature"
        )

    def keys_and_values(self, memory):
        projected = super().keys_and_values(memory)
        temperature = ops.cast(self.temperature, projected["k"].dtype)
        return {"k": projected["k"] * temperature, "v": projected["v"]}


@keras.saving.register_keras_serializable("examples")
class TemperatureEncoderLayer(layers.TransformerEncoderLayer):
    """An encoder layer with `TemperatureAttention`."""

    def attention(self, name):
        return TemperatureAttention.from_config(super().attention(name).get_config())


def main() -> keras.Model:
    """Trains for 100 steps and prints what the heads learned."""
    keras.utils.set_random_seed(0)
    tokens = np.random.randint(1, 16, (3200, 10))
    ids = keras.Input((None,), dtype="int32")
    x = layers.SharedEmbedding(vocab_size=16, hidden_size=32)(ids)
    x = layers.PositionEncoding()(x)
    layer = TemperatureEncoderLayer(num_heads=4, filter_size=64)
    model = keras.Model(ids, keras.layers.Dense(16)(layer(x, mask=ids != 0)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.005), loss, metrics=["accuracy"])
    model.fit(tokens, np.broadcast_to(tokens[:, :1], tokens.shape), verbose=2)
    print("temperatures:", np.ravel(layer.self_attention.temperature))
    return model


if __name__ == "__main__":
    main()
