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
