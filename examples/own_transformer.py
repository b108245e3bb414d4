"""T2T's Transformer with attention of one's own, trained by `fit` as in `fit.py`.

The weights that T2T does not have are in the checkpoints, too, under names of their own.
"""

import tempfile

import fit
import keras
import subclass_attention

import t2t_keras as t2t
from t2t_keras import layers


@keras.saving.register_keras_serializable("examples")
class TemperatureEncoder(layers.TransformerEncoder):
    """An encoder of layers that learn how sharply each head looks."""

    layer_class = subclass_attention.TemperatureEncoderLayer


@keras.saving.register_keras_serializable("examples")
class TemperatureTransformer(t2t.Transformer):
    """T2T's Transformer with that encoder."""

    encoder_class = TemperatureEncoder


def main(directory: str, epochs: int = 4) -> keras.Model:
    """Trains in a directory, and prints loss and BLEU, then what the heads learned."""
    model = fit.main(directory, epochs, TemperatureTransformer)
    for layer in model.encoder.layers:
        print("temperatures:", layer.self_attention.temperature.numpy().ravel())
    return model


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(place)
