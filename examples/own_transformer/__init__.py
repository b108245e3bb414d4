"""T2T's Transformer with attention of one's own, a model for every command.

    t2t-keras-train --t2t_usr_dir=examples/own_transformer --model=temperature_transformer ...

The weights that T2T does not have are in the checkpoints, too, under names of their own.
"""

import keras
from subclass_attention import TemperatureEncoderLayer

import t2t_keras as t2t
from t2t_keras import layers, registry


@keras.saving.register_keras_serializable("examples")
class TemperatureEncoder(layers.TransformerEncoder):
    """An encoder of layers that learn how sharply each head looks."""

    layer_class = TemperatureEncoderLayer


@registry.register_model
@keras.saving.register_keras_serializable("examples")
class TemperatureTransformer(t2t.Transformer):  # --model=temperature_transformer
    """T2T's Transformer with that encoder."""

    encoder_class = TemperatureEncoder
