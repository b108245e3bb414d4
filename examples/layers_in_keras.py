"""Custom Keras models from these layers: a classifier and a decoder-only model.

The classifier tells whether token 2 comes before token 3 in a sentence. Sentences are padded; neither
attention nor the mean may see padding. The decoder-only model learns to repeat the first half of a row,
and then, with LoRA, to reverse it.
"""

import keras
import numpy as np

from t2t_keras import layers

SIZES = {"num_layers": 2, "num_heads": 4, "filter_size": 64}


def classifier(vocab_size: int, classes: int) -> keras.Model:
    """Token ids [B, T], 0 for padding, to logits [B, classes]."""
    ids = keras.Input((None,), dtype="int32")
    x = layers.SharedEmbedding(vocab_size=vocab_size, hidden_size=32)(ids)  # masks padding
    x = layers.PositionEncoding()(x)
    x = layers.TransformerEncoder(**SIZES)(x)  # [B, T, 32]
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model(ids, keras.layers.Dense(classes)(x))


def decoder_only(vocab_size: int) -> keras.Model:
    """Token ids [B, T] to the logits of each next token [B, T, V]."""
    ids = keras.Input((None,), dtype="int32")
    embedding = layers.SharedEmbedding(vocab_size=vocab_size, hidden_size=32)
    x = layers.PositionEncoding()(embedding(ids))
    x = layers.TransformerEncoder(**SIZES, name="decoder")(x, causal=True)
    return keras.Model(ids, embedding(x, reverse=True))  # the softmax is the table


def freeze_all_but_lora(model: keras.Model, rank: int) -> None:
    """Freezes all weights and adds trainable LoRA weights to queries and values of self-attention."""
    for weight in model.trainable_weights:
        weight.trainable = False
    for layer in model.get_layer("decoder").layers:
        for projection in (layer.self_attention.q, layer.self_attention.v):
            projection.enable_lora(rank)


def fit(model: keras.Model, x, y, rate: float, **kwargs) -> None:
    """Compiles the model for its current trainable weights, and trains it."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(rate), loss, metrics=["accuracy"])
    model.fit(x, y, verbose=2, **kwargs)


def sentences(count: int, length: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Random sentences [count, length] and their classes [count]."""
    rng = np.random.default_rng(0)
    ids = rng.integers(4, 20, (count, length))
    places = rng.permuted(np.tile(np.arange(length // 2), (count, 1)), axis=1)[:, :2]
    np.put_along_axis(ids, places, np.array([2, 3]), axis=1)
    ends = rng.integers(length // 2, length, (count, 1))
    return np.where(np.arange(length) < ends, ids, 0), places[:, 0] < places[:, 1]


def rows(count: int, step: int, length: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Random tokens, then the same forwards (step 1) or backwards (-1): ids and next ids."""
    half = np.random.default_rng(1).integers(1, 12, (count, length))
    ids = np.concatenate([half, half[:, ::step]], axis=1)
    return ids[:, :-1], ids[:, 1:]


def continued(model: keras.Model, ids: np.ndarray, count: int) -> np.ndarray:
    """Appends the most likely token `count` times."""
    for _ in range(count):
        likeliest = keras.ops.argmax(model(ids)[:, -1:], axis=-1)
        ids = np.append(ids, keras.ops.convert_to_numpy(likeliest), axis=1)
    return ids


def main() -> tuple[keras.Model, keras.Model]:
    """Trains both for 200 steps, and the second for 400 more with LoRA."""
    keras.utils.set_random_seed(0)
    sorts = classifier(vocab_size=20, classes=2)
    fit(sorts, *sentences(6400), rate=0.002)
    repeats = decoder_only(vocab_size=12)
    fit(repeats, *rows(6400, step=1), rate=0.006)
    print(continued(repeats, np.array([[3, 9, 1, 7, 7]]), 5))
    freeze_all_but_lora(repeats, rank=4)
    fit(repeats, *rows(6400, step=-1), rate=0.01, epochs=2)
    return sorts, repeats


if __name__ == "__main__":
    main()
