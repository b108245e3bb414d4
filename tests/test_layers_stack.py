"""Settings of encoder and decoder layers as keywords of every class that has them."""

import dataclasses
import inspect

import pytest

from t2t_keras.layers import (
    LayerConfig,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)

SMALL = {"num_heads": 2, "filter_size": 12}
STACK = {"num_layers", "proximity_bias", "remat"}

every_class = pytest.mark.parametrize(
    ("layer_class", "own"),
    [
        (TransformerEncoderLayer, set()),
        (TransformerDecoderLayer, set()),
        (TransformerEncoder, STACK | {"remove_padding"}),
        (TransformerDecoder, STACK),
    ],
)


@every_class
def test_keywords_are_written_out(layer_class, own):
    parameters = inspect.signature(layer_class).parameters
    assert set(parameters) == {field.name for field in dataclasses.fields(LayerConfig)} | own
    assert all(p.kind == inspect.Parameter.KEYWORD_ONLY for p in parameters.values())
    assert parameters["num_heads"].annotation == "int"


@every_class
def test_errors_name_the_class_that_was_called(layer_class, own):
    settings = {**SMALL, **dict.fromkeys(own & {"num_layers"}, 1)}
    with pytest.raises(TypeError, match=rf"^{layer_class.__name__}\(\) missing 1 .* 'num_heads'"):
        layer_class(**{n: v for n, v in settings.items() if n != "num_heads"})
    with pytest.raises(TypeError, match=rf"^{layer_class.__name__}\(\) .* argument 'nun_heads'"):
        layer_class(**settings, nun_heads=3)


def test_settings_do_not_change():
    layer = TransformerEncoderLayer(**SMALL, attention_dropout_broadcast_dims=(0, 1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        layer.config.num_heads = 3
    assert layer.get_config()["attention_dropout_broadcast_dims"] == [0, 1]


def test_neighborhoods_of_0_1_0():
    """A layer in a file of 0.1.0 has a neighborhood, which must be 0."""
    layer = TransformerEncoderLayer(**SMALL)
    config = layer.get_config()
    again = TransformerEncoderLayer.from_config({**config, "neighborhood": 0})
    assert again.get_config() == config
    with pytest.raises(TypeError, match="argument 'neighborhood'"):
        TransformerEncoderLayer.from_config({**config, "neighborhood": 3})
