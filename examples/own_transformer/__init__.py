"""T2T's Transformer with custom attention, as a model for all commands.

    t2t-keras-train --t2t_usr_dir=examples/own_transformer --model=temperature_transformer ...

Checkpoints also contain the weights that T2T does not have, under their own names.
"""

import keras
from subclass_attention import TemperatureEncoderLayer

import t2t_keras as t2t
from t2t_keras import layers, registry


@keras.saving.register_keras_serializable("examples")
class TemperatureEncoder(layers.TransformerEncoder):
    """An encoder of `TemperatureEncoderLayer`s."""

    layer_class = TemperatureEncoderLayer


@registry.register_model
@keras.saving.register_keras_serializable("examples")
class TemperatureTransformer(t2t.Transformer):  # --model=temperature_transformer
    """T2T's Transformer with that encoder."""

    encoder_class = TemperatureEncoder
