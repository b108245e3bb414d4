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


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"self_attention_type": "local"}, "one of dot_product, .*restricted, got 'local'"),
        ({"self_attention_type": "restricted"}, "'restricted' needs a neighborhood of 1 or more"),
        ({"self_attention_type": "dot_product_relative"}, "needs a max_relative_position of 1"),
    ],
)
def test_wrong_kinds_of_attention(settings, wanted):
    with pytest.raises(ValueError, match=wanted):
        TransformerEncoderLayer(**SMALL, **settings)
