"""Models of users whose subclasses override `call` of each part, or `attend`, on any backend."""

import keras
import numpy as np

import t2t_keras as t2t


def changed(output):
    """The output of a call with something else in it; attention weights may stand beside it."""
    first, *weights = output if isinstance(output, tuple) else (output,)
    first = first * 1.5 + keras.ops.sin(keras.ops.arange(first.shape[-1], dtype=first.dtype)) / 2
    return (first, *weights) if weights else first


def changed_class(base):
    class Changed(base):
        def call(self, *args, **kwargs):
            return changed(super().call(*args, **kwargs))

    return Changed


class SharpAttention(t2t.layers.MultiHeadAttention):
    def attend(self, q, k, v, mask, **kwargs):
        return super().attend(3 * q, k, v, mask, **kwargs)

    def call(self, query, memory=None, **kwargs):
        return super().call(query, changed(query if memory is None else memory), **kwargs)


class NearAttention(t2t.layers.MultiHeadAttention):
    needs_positions = True

    def logit_bias(self, mask, query, keys):
        queries, length = (keras.ops.arange(keras.ops.shape(x)[-2]) for x in (query, keys))
        near = mask.distance if mask.distance is not None else length - queries[:, None]
        near = -3.0 * keras.ops.abs(keras.ops.cast(near, "float32"))[None, None]
        bias = super().logit_bias(mask, query, keys)
        return near if bias is None else near + bias


class ChangedMemoryLayer(t2t.layers.TransformerDecoderLayer):
    def call(self, x, memory=None, **kwargs):
        return super().call(x, changed(memory), **kwargs)

    def feed_forward(self, name):
        return keras.layers.Dropout(0.0, name=name)


class LearnedFrequencies(t2t.layers.PositionEncoding):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.frequency = self.add_weight(shape=(), initializer="uniform")

    def signal(self, position, channels):
        angle = self.frequency * keras.ops.cast(position, "float32")[..., None] + 1.0
        return 3 * keras.ops.sin(angle * keras.ops.arange(channels, dtype="float32"))


def layer_with(attention_class):
    class Layer(t2t.layers.TransformerDecoderLayer):
        def attention(self, name):
            return attention_class.from_config(super().attention(name).get_config())

    return Layer


def transformer_with(decoder):
    return type("Transformer", (t2t.Transformer,), {"decoder_class": decoder})


def with_layer(layer):
    """A Transformer class whose decoder has layers of another class."""
    return transformer_with(type("Own", (t2t.layers.TransformerDecoder,), {"layer_class": layer}))


CHANGED = {
    "attention": with_layer(layer_with(changed_class(t2t.layers.MultiHeadAttention))),
    "attend": with_layer(layer_with(SharpAttention)),
    "near": with_layer(layer_with(NearAttention)),
    "layer": with_layer(changed_class(t2t.layers.TransformerDecoderLayer)),
    "memory": with_layer(ChangedMemoryLayer),
    "decoder": transformer_with(changed_class(t2t.layers.TransformerDecoder)),
    "model": changed_class(t2t.Transformer),
    "positions": type("Transformer", (t2t.Transformer,), {"position_class": LearnedFrequencies}),
}


def whole_scores(model, inputs, ids):
    """The sum of log p of each output up to its end, by one call of the network."""
    logits = keras.ops.convert_to_numpy(model({"inputs": inputs, "targets": ids}))
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    log_p = np.take_along_axis(log_p, ids[:, :, None], 2)[:, :, 0]
    before_the_end = np.cumsum(ids == 1, 1) - (ids == 1) == 0
    return (log_p * before_the_end).sum(1)
