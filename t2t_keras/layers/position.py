"""Position encodings: sinusoids (section 3.5 of the paper) or learned vectors."""

from __future__ import annotations

import math

import keras
from keras import ops


def timing_signal(length, channels: int, start=0, kind: str = "timing"):
    """Returns the sinusoids of positions start .. start+length-1: [length, channels] float32.

    Args:
        length: the number of positions.
        channels: D.
        start: the first position.
        kind: "timing" is T2T's: the sines of all wavelengths, then the cosines; wavelengths form a
            geometric progression from 2 pi to exactly 20000 pi; an odd last channel is zero.
            "timing_paper" is section 3.5: sine and cosine alternate, and the wavelengths are
            2 pi 10000^(2i/D), the last of which is below 20000 pi.
    """
    if kind not in SINUSOIDS:
        raise ValueError(f"kind must be one of {', '.join(SINUSOIDS)}, got {kind!r}.")
    return SINUSOIDS[kind](ops.arange(length) + start, channels)


def t2t_sinusoids(position, channels: int):
    """Returns T2T's `timing_signal` of positions of any shape [...]: [..., channels] float32."""
    half = channels // 2
    increment = math.log(1e4) / max(half - 1, 1)
    inverse_timescale = ops.exp(ops.cast(ops.arange(half), "float32") * -increment)
    angle = ops.expand_dims(ops.cast(position, "float32"), -1) * inverse_timescale
    signal = ops.concatenate([ops.sin(angle), ops.cos(angle)], axis=-1)
    if channels % 2:
        signal = ops.pad(signal, [[0, 0]] * len(position.shape) + [[0, 1]])
    return signal


def paper_sinusoids(position, channels: int):
    """Returns the paper's sinusoids of positions of any shape [...]: [..., channels] float32."""
    channel = ops.arange(channels)
    is_cosine = channel % 2
    exponent = ops.cast(channel - is_cosine, "float32") / channels
    inverse_timescale = ops.exp(exponent * -math.log(1e4))
    angle = ops.expand_dims(ops.cast(position, "float32"), -1) * inverse_timescale
    return ops.where(ops.cast(is_cosine, "bool"), ops.cos(angle), ops.sin(angle))


SINUSOIDS = {"timing": t2t_sinusoids, "timing_paper": paper_sinusoids}
"""The kinds of sinusoids, by the values of the setting `pos`."""


@keras.saving.register_keras_serializable("t2t_keras")
class PositionEncoding(keras.layers.Layer):
    """Adds position encodings to [B, T, D]: T2T's "timing" or "emb", or the paper's "timing_paper".

    Args:
        kind: "timing" or "timing_paper" for sinusoids (see `timing_signal`), "emb" for a learned table.
        max_length: rows of the learned table; later positions get nothing added, as in T2T.
        initializer: initializer of the learned table.

    Call arguments:
        x: [B, T, D].
        start: position of the first column.
        position: [B, T] int, the position of every token, instead of `start` (T2T's
            `add_timing_signal_1d_given_position`): in packed rows each sequence begins at 0.

    Returns:
        [B, T, D], added in float32 in any compute dtype.
    """

    def __init__(
        self,
        *,
        kind: str = "timing",
        max_length: int = 0,
        initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)
        if kind not in (*SINUSOIDS, "emb"):
            kinds = ", ".join([*SINUSOIDS, "emb"])
            raise ValueError(f"kind must be one of {kinds}, got {kind!r}.")
        if kind == "emb" and max_length < 1:
            raise ValueError(f"kind 'emb' needs a max_length of 1 or more, got {max_length}.")
        self.kind = kind
        self.max_length = max_length
        self.initializer = keras.initializers.get(initializer)
        self.supports_masking = True

    def build(self, input_shape):
        if self.kind == "emb":
            self.table = self.add_weight(
                shape=(self.max_length, input_shape[-1]),
                initializer=self.initializer,
                name="table",
            )
        self.built = True

    def call(self, x, start=0, position=None):
        if position is None:
            position = ops.arange(ops.shape(x)[1]) + start
        if self.kind in SINUSOIDS:
            signal = SINUSOIDS[self.kind](position, x.shape[-1])
        else:
            row = ops.cast(position, "int32")
            inside = ops.cast(row < self.max_length, "float32")
            signal = ops.take(self.table, ops.minimum(row, self.max_length - 1), axis=0)
            signal = ops.cast(signal, "float32")
            signal = signal * ops.expand_dims(inside, -1)
        x = ops.cast(x, "float32") + ops.cast(signal, "float32")
        return ops.cast(x, self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "kind": self.kind,
            "max_length": self.max_length,
            "initializer": keras.initializers.serialize(self.initializer),
        }
