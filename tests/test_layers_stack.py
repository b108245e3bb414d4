"""Settings of encoder and decoder layers as keywords of every class that has them."""

import pytest

from t2t_keras.layers import (
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)

SMALL = {"num_heads": 2, "filter_size": 12}


@pytest.mark.parametrize(
    "layer_class",
    [TransformerEncoderLayer, TransformerDecoderLayer, TransformerEncoder, TransformerDecoder],
)
def test_an_unknown_keyword_is_an_error_that_names_the_layer(layer_class):
    settings = {**SMALL, "num_layers": 1} if "Layer" not in layer_class.__name__ else SMALL
    with pytest.raises(ValueError, match=rf"{layer_class.__name__}: .*nun_heads"):
        layer_class(**settings, nun_heads=3)


def test_settings_are_saved_as_json_has_them():
    layer = TransformerEncoderLayer(**SMALL, attention_dropout_broadcast_dims=(0, 1))
    assert layer.get_config()["attention_dropout_broadcast_dims"] == [0, 1]


def test_neighborhoods_of_0_1_0():
    """A layer in a file of 0.1.0 has a neighborhood, which must be 0."""
    layer = TransformerEncoderLayer(**SMALL)
    config = layer.get_config()
    again = TransformerEncoderLayer.from_config({**config, "neighborhood": 0})
    assert again.get_config() == config
    with pytest.raises(TypeError, match="neighborhood"):
        TransformerEncoderLayer.from_config({**config, "neighborhood": 3})
