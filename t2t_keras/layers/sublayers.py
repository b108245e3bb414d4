"""The parts around and after attention: feed-forward, layer normalisation, dropout and residual."""

import contextlib
import contextvars
import copy
import functools
import inspect
import math
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
from keras import ops

from t2t_keras.ids import PAD_ID
from t2t_keras.layers.masks import MASKED
from t2t_keras.precision import dense, dtype_config, fixed, multiply, policy_of_part
from t2t_keras.shape import custom_gradient, flattened, matmul, relu_of_dropped, row_sum, shape_of

KeepMask = Callable[[Any, float], Any]
"""`keep_mask(shape, rate)` -> boolean tensor of `shape`, False with probability `rate`.

An object that counts its calls must count in its attributes, so that `rematerialised` can copy it.
"""

_keep_mask = contextvars.ContextVar[KeepMask | None]("keep mask", default=None)


@contextlib.contextmanager
def keep_mask_scope(keep_mask: KeepMask) -> Iterator[None]:
    """Makes every `Dropout` called in this context take its mask from `keep_mask`.

    Training steps use it for repeatable masks: the same after a restart and with or without XLA,
    different on every replica. Outside such a scope `Dropout` uses Keras's random state.
    """
    token = _keep_mask.set(keep_mask)
    try:
        yield
    finally:
        _keep_mask.reset(token)


class FixedSeed(keras.random.SeedGenerator):
    """Two numbers, which may be tensors, as Keras's seed; it has no variable."""

    def __init__(self, *numbers):
        self.numbers = ops.cast(ops.stack(numbers), "uint32")

    def next(self, ordered=True):
        return self.numbers


class SeededMasks:
    """A `KeepMask` from one draw of Keras's random state."""

    def __init__(self, generator: keras.random.SeedGenerator):
        self.seed = keras.random.randint((), 0, 2**31 - 1, seed=generator)
        self.calls = 0

    def __call__(self, shape, rate):
        self.calls += 1
        return keras.random.uniform(shape, seed=FixedSeed(self.seed, self.calls)) >= rate


def seed_states(layer) -> list[keras.Variable]:
    """Returns the states of random generators that are not our masks', such as `keras.layers.Dropout`'s."""
    return [v for v in layer.variables if "seed_gen" in v.name and "keep_mask" not in v.path]


def rematerialised(function: Callable[..., Any], generator, layer) -> Callable[..., Any]:
    """Gradient checkpointing: makes a function recompute its activations in the backward pass.

    Both passes use the same dropout masks: those of the `keep_mask_scope`, if there is one, else from
    a draw of Keras's `generator`; and the same other random numbers of the layer, `seed_states`.
    """
    keep_mask = _keep_mask.get() or SeededMasks(generator)
    # The copy keeps the number of masks drawn so far, where the backward pass has to start.
    masks = [keep_mask, copy.copy(keep_mask)]
    before = [(state, state.value * 1) for state in seed_states(layer)]

    def run(*tensors):
        for state, value in before:
            state.assign(value)
        first = len(masks) == 2
        with keep_mask_scope(masks.pop(0) if first else copy.copy(masks[0])):
            return function(*tensors)

    return keras.remat(run)


class NamedArguments(keras.layers.Layer):
    """Lets a subclass's `call(*args, **kwargs)` have the arguments' names of the `call` that it overrides.

    Keras gives `training`, and the masks that tensors carry, only to a `call` that names them.
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        calls = [vars(each)["call"] for each in cls.__mro__ if "call" in vars(each)]  # mixins', too
        named, first = list[inspect.Parameter](), 0
        for call in calls:
            own = [*inspect.signature(call).parameters.values()]
            given = [p for p in own if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
            names = {p.name for p in named}
            named += [p for p in given[first:] if p.name not in names]
            first = max(first, sum(p.default is p.empty for p in given))  # `self`, x under any name
            if all(p.kind is not p.VAR_KEYWORD for p in own):
                if call is not calls[0]:
                    named.sort(key=lambda p: (p.kind, p.default is not p.empty))
                    # A function of its own: a mixin's may be that of other classes, too.
                    cls.call = functools.wraps(calls[0])(lambda *args, **kw: calls[0](*args, **kw))
                    cls.call.__signature__ = inspect.Signature(named)
                break


class SettingsLayer(NamedArguments):
    """A layer whose settings are attributes and its config; outputs have the first input's shape.

    Args:
        given: the `locals()` of the `__init__` that takes the settings; an initializer of Keras's
            becomes its config, a tuple a list.
        kwargs: those of `keras.layers.Layer`.
    """

    def __init__(self, given: dict[str, Any], **kwargs):
        super().__init__(**kwargs)
        self.settings = types.SimpleNamespace()
        for name, value in given.items():
            if name.endswith("initializer"):
                value = keras.initializers.get(value)
                if type(value).__module__.startswith("keras."):  # others need not be registered
                    value = keras.initializers.serialize(value)
            if name not in ("self", "kwargs", "__class__"):
                vars(self.settings)[name] = list(value) if isinstance(value, tuple) else value
        self.__dict__.update(vars(self.settings))  # not `setattr`: Keras would track lists
        self.supports_masking = True

    def new_initializer(self):
        """Returns an initializer for a weight; one that is used twice would give the same numbers."""
        given = self.kernel_initializer
        is_own = isinstance(given, keras.Initializer)
        return given.clone() if is_own else keras.initializers.get(given)

    def dense_part(self, name: str, input_size: int, units: int, **settings):
        """Makes and builds a `Dense` layer with this layer's `kernel_initializer`."""
        part = keras.layers.Dense(
            units,
            kernel_initializer=self.new_initializer(),
            dtype=policy_of_part(self, name),
            name=name,
            **settings,
        )
        part.build((None, None, input_size))
        return part

    def compute_output_shape(self, *shapes, **named):  # `summary` names them as `build` does
        return [*shapes, *named.values()][0]

    def compute_output_spec(self, *args, **kwargs):
        # By tracing: the number of outputs, or their shape, may depend on an argument of the call.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self):
        return {**super().get_config(), **vars(self.settings), "dtype": dtype_config(self)}


@keras.saving.register_keras_serializable("t2t_keras")
class Dropout(SettingsLayer):
    """Zeroes elements with probability `rate` in training and scales the rest by 1/(1-rate).

    Args:
        rate: probability of zeroing, in [0, 1).
        broadcast_dims: axes along which the mask is shared (T2T's `*_dropout_broadcast_dims`);
            saves random numbers and memory.

    Shapes: any in, the same out, in the same dtype.
    """

    def __init__(self, rate: float, *, broadcast_dims: Sequence[int] = (), **kwargs):
        super().__init__(locals(), **kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"Dropout rate must be in [0, 1), got {rate}.")
        self._seed = keras.random.SeedGenerator(name="keep_mask") if rate else None
        self.built = True

    def call(self, x, training=False):
        if not training or not self.rate:
            return x
        return ops.where(self.mask(x), x * (1.0 / (1.0 - self.rate)), 0)

    @property
    def is_plain(self) -> bool:
        """True if dropping is multiplying with `mask` and 1/(1-rate): no subclass does otherwise."""
        return bool(self.rate) and type(self).call is Dropout.call

    def mask(self, x):
        """Returns a mask for x, True where an element stays; `broadcast_dims` are of size 1."""
        shape = shape_of(x)
        for axis in self.broadcast_dims:
            shape[axis] = 1
        return (_keep_mask.get() or SeededMasks(self._seed))(shape, self.rate)

    def weighted(self, weights, *values, training=False):
        """Returns dropped attention weights [B, H, T, S] times values; see `_weighted` and its gradient."""
        if training and self.is_plain and values[0].shape[1] == weights.shape[1]:
            return _weighted_by_dropped(self.rate)(weights, self.mask(weights), *values)
        return _weighted(self(weights, training=training), *values)


def _weighted(weights, v, of_distance=None):
    """Returns weights [B, H, T, S] times v [B, H, S, C]; `of_distance` [T, S, C] is added to v."""
    y = matmul(weights, v)
    return y if of_distance is None else y + ops.einsum("bhts,tsc->bhtc", weights, of_distance)


@functools.cache
def _weighted_by_dropped(rate):
    """Returns a function of weights, a mask and values: `_weighted` of dropped weights.

    Its gradient drops the weights again, so that only they and the mask are kept. Dropout's 1/(1-rate)
    multiplies the product, which is smaller than the weights.
    """
    scale = 1.0 / (1.0 - rate)

    @custom_gradient
    def given(weights, mask, v, *of_distance):
        def backward(dy):
            dy = dy * scale
            # What did not depend on dy would be computed early, and so be kept.
            first = ops.sum(ops.reshape(dy, (-1,))[:1])
            zero = ops.cast(ops.where(first == first, 0.0, float("nan")), dy.dtype)
            dropped = ops.where(mask, weights, zero)
            dx, dv = matmul(dy, v, transpose=True), matmul(ops.swapaxes(dropped, -1, -2), dy)
            others = []
            if of_distance:
                dx = dx + ops.einsum("bhtc,tsc->bhts", dy, of_distance[0])
                others = [ops.einsum("bhts,bhtc->tsc", dropped, dy)]
            return ops.where(mask, dx, 0), None, dv, *others

        return _weighted(ops.where(mask, weights, 0), v, *of_distance) * scale, backward

    return given


@keras.saving.register_keras_serializable("t2t_keras")
class FeedForward(SettingsLayer):
    """The position-wise feed-forward network (section 3.3), relu(x W1 + b1) W2 + b2: T2T's `dense_relu_dense`.

    An activation that a user gives its part `conv1` takes relu's place.

    Args:
        filter_size: F, the inner depth.
        dropout: rate on the inner activations (T2T's `relu_dropout`).
        dropout_broadcast_dims: axes of [B, T, F] along which dropout is shared.
        kernel_initializer: initializer of both matrices.

    Shapes: [B, T, D] in, [B, T, D] out.
    """

    def __init__(
        self,
        *,
        filter_size: int,
        dropout: float = 0.0,
        dropout_broadcast_dims: Sequence[int] = (),
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        # Not within the dense layers' own: 8-bit matrices are made of variables as they are.
        super().__init__(locals(), autocast=False, **kwargs)
        if filter_size < 1:
            raise ValueError(f"filter_size must be 1 or more, got {filter_size}.")
        part: dict[str, Any] = {"dtype": self.dtype_policy, "name": "dropout"}
        self.dropout = Dropout(dropout, broadcast_dims=dropout_broadcast_dims, **part)

    def build(self, x_shape):
        hidden = x_shape[-1]
        self.conv1 = self.dense_part("conv1", hidden, self.filter_size)
        self.conv2 = self.dense_part("conv2", self.filter_size, hidden)

    def call(self, x, training=False):
        rows = x if self.dropout.broadcast_dims else flattened(x, x.shape[-1], training)
        x1 = dense(self.conv1, rows)
        is_relu, scale = self.conv1.activation is keras.activations.linear, None
        if training and is_relu and self.dropout.is_plain:
            y = relu_of_dropped(x1, self.dropout.mask(x1))
            scale = 1.0 / (1.0 - self.dropout.rate)
        else:
            y = self.dropout(ops.relu(x1) if is_relu else x1, training=training)
        y = dense(self.conv2, y, scale)
        known = all(x.shape[1:])  # in a decoding step: -1 then needs no operation
        return ops.reshape(y, (-1, *x.shape[1:]) if known else shape_of(x))


@keras.saving.register_keras_serializable("t2t_keras")
class LayerNorm(keras.layers.LayerNormalization):
    """Layer normalisation over the last axis with a faster gradient than Keras's: T2T's `layer_norm`.

    Shapes: [..., D] in, the same out; computed in float32 in any compute dtype.

    In training, with h = (x - mean) / deviation and g = gamma dy, the gradient is
    dx = (g - mean(g) - h mean(g h)) / deviation: few passes over x, and only h is kept for it.
    """

    def call(self, inputs, training=False):
        x, gamma, beta = (ops.cast(t, "float32") for t in (inputs, self.gamma, self.beta))
        if training:
            y = _normalise_in_training(self.epsilon)(x, gamma, beta)
        else:
            y, _, _ = _normalise(x, gamma, beta, self.epsilon)
        return ops.cast(y, self.compute_dtype)


def _normalise(x, gamma, beta, epsilon: float):
    """Returns the normalised x, h, and 1 / deviation."""
    centred = x - _mean(x)
    inverse = ops.rsqrt(_mean(ops.square(centred)) + epsilon)
    h = centred * inverse
    return h * gamma + beta, h, inverse


def _mean(x):
    return ops.mean(x, axis=-1, keepdims=True)


@functools.cache
def _normalise_in_training(epsilon: float):
    @custom_gradient
    def normalised(x, gamma, beta):
        y, h, inverse = _normalise(x, gamma, beta, epsilon)

        def backward(dy):
            g = dy * gamma
            dx = (g - _mean(g) - h * _mean(g * h)) * inverse
            return dx, row_sum(dy * h), row_sum(dy)

        return y, backward

    return normalised


@keras.saving.register_keras_serializable("t2t_keras")
class PrePostProcess(SettingsLayer):
    """Pre- or post-processing of a sub-layer, given by letters: T2T's `layer_prepostprocess`.

    "n" is layer normalisation, "d" is dropout, "a" adds the residual; "none" does nothing. The
    paper has "none" before and "dan" after each sub-layer, LayerNorm(x + Dropout(Sublayer(x)));
    T2T's base set has "n" before and "da" after.

    Args:
        sequence: the letters, in order.
        dropout: rate of "d".
        dropout_broadcast_dims: axes of [B, T, D] along which dropout is shared.
        norm_epsilon: added to the variance.

    Call arguments:
        x: [B, T, D].
        residual: [B, T, D], needed by "a".

    Returns:
        [B, T, D].
    """

    def __init__(
        self,
        *,
        sequence: str,
        dropout: float = 0.0,
        dropout_broadcast_dims: Sequence[int] = (),
        norm_epsilon: float = 1e-6,
        **kwargs,
    ):
        super().__init__(locals(), **kwargs)
        self.letters = "" if sequence == "none" else sequence
        if set(self.letters) - set("nda") or self.letters.count("n") > 1:
            raise ValueError(
                f"sequence must be 'none' or letters of n, d, a with at most one n, got {sequence!r}."
            )
        part: dict[str, Any] = {"dtype": self.dtype_policy}
        self.dropout = Dropout(
            dropout, broadcast_dims=dropout_broadcast_dims, name="dropout", **part
        )
        self.layer_norm: Any = None
        if "n" in self.letters:
            self.layer_norm = LayerNorm(epsilon=norm_epsilon, name="layer_norm", **part)

    def build(self, x_shape, residual_shape=None):
        if self.layer_norm is not None:
            self.layer_norm.build(x_shape)

    def call(self, x, residual=None, training=False):
        for letter in self.letters:
            if letter == "n":
                x = self.layer_norm(x)
            elif letter == "d":
                x = self.dropout(x, training=training)
            elif residual is None:
                raise ValueError(f"sequence {self.sequence!r} adds a residual, but none was given.")
            else:
                x = x + residual
        return x


# Token embedding and softmax with a shared table (section 3.4 of the paper)

BLOCK = 64
"""Decoding pads the vocabulary to a multiple of this, and finds the top k block by block."""


@keras.saving.register_keras_serializable("t2t_keras")
class SharedEmbedding(SettingsLayer):
    """Token embedding whose table is also the softmax matrix: T2T's symbol modality.

    Rows are drawn with standard deviation D^-0.5 and multiplied by sqrt(D) when looked up; padding embeds
    to zeros, and an id out of range gives NaN or the backend's error. `logits` multiplies with the
    transposed table, without bias.

    Args:
        vocab_size: V.
        hidden_size: D.
        scale_by_sqrt_depth: True multiplies lookups by sqrt(D) (T2T's "sqrt_depth").

    Call arguments:
        ids: [B, T] int.
        reverse: True returns the logits [B, T, V] of `ids` [B, T, D] instead, as Keras's
            `ReversibleEmbedding` does, so that a functional model can predict with the table.

    Returns:
        [B, T, D], scaled in float32 in any compute dtype.
    """

    def __init__(
        self, *, vocab_size: int, hidden_size: int, scale_by_sqrt_depth: bool = True, **kwargs
    ):
        super().__init__(locals(), autocast=False, **kwargs)  # rows are cast, not the table

    def build(self, ids_shape=None):
        shape = (self.vocab_size, self.hidden_size)
        initializer = keras.initializers.RandomNormal(stddev=self.hidden_size**-0.5)
        # Keras 3.15 heeds the layer's `autocast` only if a layer of mixed precision calls it.
        self.table = self.add_weight(shape, initializer, autocast=False, name="table")

    def call(self, ids, reverse=False):
        if reverse:
            return self.logits(ops.cast(ids, self.compute_dtype))
        ids = ops.cast(ids, "int32")  # Keras builds a loaded model with float inputs
        x = ops.take(self.table, ids, axis=0)  # [B, T, D]
        if self.scale_by_sqrt_depth:
            x = x * self.hidden_size**0.5
        # Of others, backends count from the end of the table, or give 0.
        known = (ids >= 0) & (ids < self.vocab_size)
        scale = ops.where(known, ops.cast(ids != PAD_ID, x.dtype), float("nan"))
        x = x * ops.expand_dims(scale, -1)
        return ops.cast(x, self.compute_dtype)

    def matrix(self, block: int = BLOCK):
        """Returns {"kernel": [D, V'], "bias": [V']}, computed once for many calls of `logits`.

        V' is V rounded up to a multiple of `block`; logits of added ids are -1e9 (-inf in float16).
        """
        missing = -self.vocab_size % block
        is_token = ops.arange(self.vocab_size + missing, dtype="int32") < self.vocab_size
        dtype, padding = self.compute_dtype, [[0, 0], [0, missing]]
        return {
            "kernel": fixed(
                self, lambda: ops.pad(ops.transpose(ops.cast(self.table, dtype)), padding)
            ),
            "bias": ops.where(is_token, ops.cast(0.0, dtype), ops.cast(MASKED, dtype)),
        }

    def logits(self, x, matrix=None):
        """Returns the logits of the next token: [B, T, D] -> [B, T, V], in the compute dtype.

        With `matrix`, from the method of that name, faster for many calls: [B, T, V'].
        """
        if matrix is None:
            return ops.matmul(x, ops.transpose(ops.cast(self.table, self.compute_dtype)))
        return multiply(x, matrix["kernel"]) + matrix["bias"]

    def compute_mask(self, ids, previous_mask=None):
        # Not by the dtype: ids are floats in a `Sequential` without an `Input`.
        return previous_mask if len(ids.shape) > 2 else ids != PAD_ID

    def compute_output_shape(self, ids_shape):
        return (*ids_shape[:2], self.vocab_size if len(ids_shape) > 2 else self.hidden_size)


# Position encodings: sinusoids (section 3.5 of the paper) or learned vectors


def timing_signal(length, channels: int, start=0, kind: str = "timing"):
    """Returns the sinusoids of positions start .. start+length-1: [length, channels] float32.

    The kind "timing" is T2T's: the sines of all wavelengths, then the cosines; wavelengths form a geometric
    progression from 2 pi to exactly 20000 pi; an odd last channel is zero. "timing_paper" is section 3.5:
    sine and cosine alternate, and the wavelengths are 2 pi 10000^(2i/D), the last of which is below 20000 pi.
    """
    if kind not in SINUSOIDS:
        raise ValueError(f"kind must be one of {', '.join(SINUSOIDS)}, got {kind!r}.")
    return SINUSOIDS[kind](ops.arange(length, dtype="int32") + start, channels)


def t2t_sinusoids(position, channels: int):
    """Returns T2T's `timing_signal` of positions of any shape [...]: [..., channels] float32."""
    half = channels // 2
    increment = math.log(1e4) / max(half - 1, 1)
    inverse_timescale = ops.exp(ops.cast(ops.arange(half, dtype="int32"), "float32") * -increment)
    angle = ops.expand_dims(ops.cast(position, "float32"), -1) * inverse_timescale
    signal = ops.concatenate([ops.sin(angle), ops.cos(angle)], axis=-1)
    if channels % 2:
        signal = ops.pad(signal, [[0, 0]] * len(position.shape) + [[0, 1]])
    return signal


def paper_sinusoids(position, channels: int):
    """Returns the paper's sinusoids of positions of any shape [...]: [..., channels] float32."""
    channel = ops.arange(channels, dtype="int32")
    is_cosine = channel % 2
    exponent = ops.cast(channel - is_cosine, "float32") / channels
    inverse_timescale = ops.exp(exponent * -math.log(1e4))
    angle = ops.expand_dims(ops.cast(position, "float32"), -1) * inverse_timescale
    return ops.where(ops.cast(is_cosine, "bool"), ops.cos(angle), ops.sin(angle))


SINUSOIDS = {"timing": t2t_sinusoids, "timing_paper": paper_sinusoids}
"""The kinds of sinusoids, by the values of the setting `pos`."""


@keras.saving.register_keras_serializable("t2t_keras")
class PositionEncoding(SettingsLayer):
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
        self, *, kind: str = "timing", max_length: int = 0, initializer="glorot_uniform", **kwargs
    ):
        initializer = keras.initializers.get(initializer)
        super().__init__(locals(), autocast=False, **kwargs)
        if kind not in (kinds := (*SINUSOIDS, "emb")):
            raise ValueError(f"kind must be one of {', '.join(kinds)}, got {kind!r}.")
        if kind == "emb" and max_length < 1:
            raise ValueError(f"kind 'emb' needs a max_length of 1 or more, got {max_length}.")
        self.initializer = initializer

    def build(self, input_shape):
        if self.kind == "emb":
            shape = (self.max_length, input_shape[-1])
            self.table = self.add_weight(shape, self.initializer, autocast=False, name="table")

    def call(self, x, start=0, position=None):
        if position is None:
            position = ops.arange(ops.shape(x)[1], dtype="int32") + start
        signal = ops.cast(self.signal(position, x.shape[-1]), "float32")
        return ops.cast(ops.cast(x, "float32") + signal, self.compute_dtype)

    def signal(self, position, channels: int):
        """Returns what is added at positions of any shape: [..., channels]. A subclass may override it."""
        if self.kind in SINUSOIDS:
            return SINUSOIDS[self.kind](position, channels)
        row = ops.cast(position, "int32")
        inside = ops.cast(row < self.max_length, "float32")
        signal = ops.take(self.table, ops.minimum(row, self.max_length - 1), axis=0)
        return ops.cast(signal, "float32") * ops.expand_dims(inside, -1)
