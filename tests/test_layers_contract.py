"""What a Keras user expects of every layer (`layer_checks.py`), and the errors for wrong settings."""

import numpy as np
import pytest
from layer_checks import MEMORY, RESIDUAL, WITH_WEIGHTS, X, check_layer, random_tensor

from t2t_keras import layers

IDS = np.array([[3, 1, 0], [0, 6, 2]], "int32")
EMBEDDING = {"vocab_size": 7, "hidden_size": 4}
SMALL = {"num_heads": 2, "filter_size": 12}
POSTNORM = {**SMALL, "preprocess_sequence": "none", "postprocess_sequence": "dan"}
EVERYTHING = {
    **SMALL,
    "key_channels": 4,
    "value_channels": 4,
    "prepostprocess_dropout": 0.1,
    "attention_dropout": 0.2,
    "relu_dropout": 0.3,
    "prepostprocess_dropout_broadcast_dims": (1,),
    "attention_dropout_broadcast_dims": (0, 1),
    "relu_dropout_broadcast_dims": (1,),
    "max_relative_position": 3,
    "norm_epsilon": 1e-5,
}


@pytest.mark.parametrize(
    ("layer", "settings", "inputs", "weights", "call"),
    [
        (layers.MultiHeadAttention, {"num_heads": 4, "key_channels": 4, "value_channels": 12}, (X, random_tensor(2, 3, 12)), 4, WITH_WEIGHTS),
        (layers.MultiHeadAttention, {"num_heads": 2, "max_relative_position": 2}, (X,), 6, WITH_WEIGHTS),
        (layers.MultiHeadAttention, {"num_heads": 2, "dropout": 0.1, "dropout_broadcast_dims": (0, 1)}, (X,), 4, WITH_WEIGHTS),
        (layers.MultiHeadAttention, {"num_heads": 2}, (X,), 4, {}),
        (layers.TransformerEncoderLayer, EVERYTHING, (X,), 14, WITH_WEIGHTS),
        (layers.TransformerEncoder, {**SMALL, "num_layers": 2}, (X,), 26, WITH_WEIGHTS),
        (layers.TransformerEncoder, {**POSTNORM, "num_layers": 1, "remove_padding": True}, (X,), 12, WITH_WEIGHTS),
        (layers.TransformerEncoder, {**SMALL, "num_layers": 0}, (X,), 2, WITH_WEIGHTS),
        (layers.TransformerDecoderLayer, {**POSTNORM, "key_channels": 4, "value_channels": 12}, (X, MEMORY), 18, WITH_WEIGHTS),
        (layers.TransformerDecoderLayer, {**SMALL, "max_relative_position": 2, "attention_dropout": 0.1}, (X, MEMORY), 20, WITH_WEIGHTS),
        (layers.TransformerDecoder, {**SMALL, "num_layers": 2}, (X, MEMORY), 38, WITH_WEIGHTS),
        (layers.TransformerDecoder, {**POSTNORM, "num_layers": 1}, (X, random_tensor(2, 3, 6)), 18, {}),
        (layers.FeedForward, {"filter_size": 3, "dropout": 0.2, "dropout_broadcast_dims": (1,)}, (X,), 4, {}),
        (layers.PrePostProcess, {"sequence": "n"}, (X,), 2, {}),
        (layers.PrePostProcess, {"sequence": "dan", "dropout": 0.1, "norm_epsilon": 1e-3}, (X, RESIDUAL), 2, {}),
        (layers.PrePostProcess, {"sequence": "da", "dropout": 0.1, "dropout_broadcast_dims": (1,)}, (X, RESIDUAL), 0, {}),
        (layers.SharedEmbedding, EMBEDDING, (IDS,), 1, {}),
        (layers.SharedEmbedding, {**EMBEDDING, "scale_by_sqrt_depth": False}, (IDS,), 1, {}),
        (layers.PositionEncoding, {}, (X,), 0, {}),
        (layers.PositionEncoding, {"kind": "timing_paper"}, (X,), 0, {}),
        (layers.PositionEncoding, {"kind": "emb", "max_length": 3}, (X,), 1, {}),
        *((layers.Dropout, {"rate": 0.3, "broadcast_dims": dims}, (X,), 0, {}) for dims in ((), (0, 1), (-1,))),
    ],
)  # fmt: skip
def test_contract(layer, settings, inputs, weights, call, tmp_path):
    check_layer(layer, settings, inputs, weights=weights, tmp_path=tmp_path, call=call)


def attention(*inputs, **settings):
    return lambda: layers.MultiHeadAttention(**settings)(*inputs)


def encoder(**settings):
    return lambda: layers.TransformerEncoder(**{**SMALL, "num_layers": 1, **settings})(X)


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (attention(X, num_heads=3), "key_channels must be a multiple of num_heads, got 8 and 3"),
        (attention(X, num_heads=2, value_channels=5), "value_channels must be a .*, got 5 and 2"),
        (attention(X, num_heads=2, value_channels=4, max_relative_position=2), "equal key_channels and value_channels, got 8 and 4"),
        (attention(X, MEMORY, num_heads=2, max_relative_position=2), "relative positions need self-attention"),
        (attention(X, num_heads=0), "num_heads must be 1 or more, got 0"),
        (encoder(filter_size=0), "filter_size must be 1 or more, got 0"),
        (encoder(num_layers=-1), "num_layers must be 0 or more, got -1"),
        (lambda: layers.PrePostProcess(sequence="nn"), "letters of n, d, a .* got 'nn'"),
        (lambda: layers.PrePostProcess(sequence="nad n"), "letters of n, d, a .* got 'nad n'"),
        (lambda: layers.PrePostProcess(sequence="None"), "letters of n, d, a .* got 'None'"),
        (lambda: layers.PrePostProcess(sequence="da")(X), "adds a residual, but none was given"),
        (lambda: layers.Dropout(-0.1), r"must be in \[0, 1\), got -0.1"),
        (lambda: layers.Dropout(1.0), r"must be in \[0, 1\), got 1.0"),
        (lambda: layers.PositionEncoding(kind="sine"), "of timing, timing_paper, emb, got 'sine'"),
        (lambda: layers.PositionEncoding(kind="emb"), "max_length of 1 or more, got 0"),
        (lambda: layers.timing_signal(3, 8, kind="emb"), "one of timing, timing_paper, got 'emb'"),
    ],
)  # fmt: skip
def test_wrong_settings(make, wanted):
    with pytest.raises(ValueError, match=wanted):
        make()


def test_neighborhoods_of_0_1_0():
    """A layer in a file of 0.1.0 has a neighborhood, which must be 0."""
    config = layers.TransformerEncoderLayer(**SMALL).get_config()
    again = layers.TransformerEncoderLayer.from_config({**config, "neighborhood": 0})
    assert again.get_config() == config
    with pytest.raises(TypeError, match="neighborhood"):
        layers.TransformerEncoderLayer.from_config({**config, "neighborhood": 3})
