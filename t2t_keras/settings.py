"""Settings: `HParams`, T2T's grammar for overriding them, and the table that declares each of them.

Names, types and defaults are those of tensor2tensor's `transformer_base_v1`, nearly the base model of
"Attention Is All You Need"; `OURS` names the few that T2T's sets do not have. Settings without effect
here, listed in `t2t_names.tsv`, keep T2T's name and value, so that a set reads as in T2T. All checks of
single values come from the table, and `python docs/generate_settings.py` writes `docs/settings.md` from
it. To allow a new value, add it here and where it is used.
"""

from __future__ import annotations

import json
import math
import numbers
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

from t2t_keras import t2t_names
from t2t_keras.errors import UserError, nearest

__all__ = ["HParams"]

Scalar = bool | int | float | str

INT32, INT64 = 2**31 - 1, 2**63 - 1
_LEAST_FLOAT32, _MOST_FLOAT32 = 2.0**-126, (2 - 2.0**-23) * 2.0**127  # normal numbers

_BOOLEANS = {"true": True, "True": True, "false": False, "False": False}
_TYPE_WORDS = {
    bool: ("true or false", "a list of true and false"),
    int: ("an integer", "a list of integers"),
    float: ("a number", "a list of numbers"),
    str: ("a string", "a list of strings"),
}


class SettingError(UserError, AttributeError):
    """A wrong name, value or use of a setting. (An AttributeError, so that `hasattr` works.)"""


# Types, ranges and choices


class Allowed(NamedTuple):
    """The values of its type that a setting may have."""

    takes: Callable[[Any], bool] = lambda value: True
    words: str = "{}"  # what follows "must be"; {} stands for the type, such as "an integer"
    hint: Callable[[str], str] = lambda value: ""  # what an error adds about a wrong string
    most: int = INT64  # the largest integer that the code can hold


ANY = Allowed()


class Setting(NamedTuple):
    """One declared setting."""

    default: Any  # its value unless an hparams set gives another; a tuple for a list
    kind: type[Scalar]  # type of the value, or of a list's elements
    allowed: Allowed = ANY
    text: str = ""  # one-line description
    readers: tuple[str, ...] = ()  # what reads it: network, data, training; in T2T, if it is inert
    optional: bool = False  # may be None
    inert: str = ""  # why it has no effect here; empty if it has one

    @property
    def is_list(self) -> bool:
        return isinstance(self.default, tuple)

    @property
    def description(self) -> str:
        """The allowed values in words, such as "an integer of at least 1"."""
        return self.allowed.words.format(_TYPE_WORDS[self.kind][self.is_list])

    def parse(self, text: str) -> Any:
        """Parses a value, or an element of a list; a ValueError if it is not of the type."""
        if self.optional and text in ("none", "None"):
            return None
        if self.kind is bool:
            return _BOOLEANS[text] if text in _BOOLEANS else bool(int(text))
        return self.kind(text)

    def checked(self, name: str, value: Any, what: str = "hparam ") -> Any:
        """Converts a value to the declared type and checks it.

        The message of the `SettingError` for one that is not allowed begins with `what` and `name`.
        """
        if value is None and self.optional:
            return self.default if self.kind is int else None  # what T2T 1.6 to 1.12 recorded
        if self.is_list and not isinstance(value, list | tuple):
            raise self.refusal(name, value, what)
        elements = []
        for element in value if self.is_list else [value]:
            typed = self._typed(element)
            if typed is None or not self.allowed.takes(typed):
                raise self.refusal(name, element, what)
            elements.append(typed)
        return tuple(elements) if self.is_list else elements[0]

    def _typed(self, value: Any) -> Any:
        """Returns a value as the declared type; None if it is of another or too large."""
        accepted = {int: numbers.Integral, float: numbers.Real}.get(self.kind, self.kind)
        if not isinstance(value, accepted) or (isinstance(value, bool) and self.kind is not bool):
            return None
        if self.kind in (bool, str):
            return value
        try:
            typed: Any = self.kind(value)  # type: ignore[call-overload, arg-type]
        except OverflowError:  # an int of 400 digits
            return None
        most = self.allowed.most if self.kind is int else _MOST_FLOAT32
        return typed if abs(typed) <= most else None

    def refusal(self, name: str, value: Any, what: str = "hparam ") -> SettingError:
        """Returns the error for a value that is not allowed."""
        note = ""
        if isinstance(value, str) and self.kind is str:
            note = self.allowed.hint(value)
        elif self.kind is int and isinstance(value, int) and value > self.allowed.most:
            note = f": the maximum is {self.allowed.most}"
        elif self.kind is float and isinstance(value, float) and 0 < abs(value) < math.inf:
            normal = _LEAST_FLOAT32 <= abs(value) <= _MOST_FLOAT32
            note = "" if normal else ": float32 cannot hold it"
        reason = f" ({self.inert})" if self.inert else ""
        shown = repr(value) if len(repr(value)) <= 100 else repr(value)[:100] + "..."
        return SettingError(f"{what}{name} must be {self.description}, got {shown}{reason}{note}")


def at_least(least: int, most: int = INT32) -> Allowed:
    """Numbers from `least` up. The default maximum is that of int32, as for shapes and ids."""
    return Allowed(lambda value: value >= least, f"{{}} of at least {least}", most=most)


def above(least: int) -> Allowed:
    """Numbers above `least`, but for those of up to 1e-38, which are 0 in float32."""
    return Allowed(lambda value: value > least and value >= _LEAST_FLOAT32, f"{{}} above {least}")


def from_to(least: float, most: float, above_least: bool = False) -> Allowed:
    """Numbers from `least` to `most`; `above_least` excludes `least`."""
    words = f"above {least} and at most {most}" if above_least else f"from {least} to {most}"
    lowest = _LEAST_FLOAT32 if above_least else least
    return Allowed(lambda value: lowest <= value <= most, f"{{}} {words}")


def _nearest_of(value: str, names: Iterable[str]) -> str:
    hint = nearest(value, names)
    return f".{hint}" if hint else ""


def one_of(*choices: Any) -> Allowed:
    """One of a few values; the error for a wrong string suggests the nearest."""
    names = [str(choice) or "''" for choice in choices]
    words = ("one of " if len(names) > 1 else "") + ", ".join(names)
    return Allowed(lambda value: value in choices, words, lambda value: _nearest_of(value, names))


def declare(
    default: Any,
    allowed: Allowed = ANY,
    text: str = "",
    also: str = "",
    kind: type[Scalar] | None = None,
    optional: bool = False,
) -> Setting:
    """Returns a setting of its default's type: bool, int, float, str or a list of one of them.

    `also` is a second reader, besides that of its group; `kind` the type of None or an empty list.
    """
    if isinstance(default, list | tuple):
        kind, default = kind or (type(default[0]) if default else str), tuple(default)
    return Setting(default, kind or type(default), allowed, text, (also,) * bool(also), optional)


# The table

_FRACTION = Allowed(lambda value: 0 <= value < 1, "{} from 0 to below 1")
_COUNT = at_least(0)
_STEPS = at_least(0, INT64)


def _letters(letters: str) -> Allowed:
    """T2T's sequences of operations around a sublayer."""
    pattern = re.compile(f"none|(?!.*n.*n)[{letters}]*")
    words = f"none, or letters of {', '.join(letters)} with at most one n"
    return Allowed(lambda value: bool(pattern.fullmatch(value)), words)


def _axes(rank: int) -> Allowed:
    """T2T's `broadcast_dims`: axes of the tensor that is dropped out."""
    axes = {"", *(str(axis) for axis in range(-rank, rank))}
    words = f"axes from 0 to {rank - 1}, separated by commas"
    return Allowed(lambda value: axes.issuperset(map(str.strip, value.split(","))), words)


def _optimizer(listed: str) -> Allowed:
    names = listed.split()

    def hint(value: str) -> str:
        reason = t2t_names.why_absent("optimizer", t2t_names.snake_case(value))
        return f" ({reason})" if reason else _nearest_of(value, names)

    words = f"one of {', '.join(names)}"
    return Allowed(lambda value: t2t_names.snake_case(value) in names, words, hint)


def _factors(listed: str) -> Allowed:
    """T2T's `learning_rate_schedule`: factors joined by *."""
    names = listed.split()

    def unknown(value: str) -> list[str]:
        factors = [factor.strip() for factor in value.split("*")]
        return [factor for factor in factors if factor and factor not in names]

    return Allowed(
        lambda value: not unknown(value),
        f"factors joined by *, of {', '.join(names)}",
        lambda value: "".join(_nearest_of(factor, names) for factor in unknown(value)[:1]),
    )


_NETWORK = {
    "num_hidden_layers": declare(6, _COUNT, "layers of the encoder and of the decoder"),
    "num_encoder_layers": declare(0, _COUNT, "layers of the encoder; 0: `num_hidden_layers`"),
    "num_decoder_layers": declare(0, _COUNT, "layers of the decoder; 0: `num_hidden_layers`"),
    "hidden_size": declare(512, at_least(1), "width of embeddings and layers", "training"),
    "filter_size": declare(2048, at_least(1), "width inside the feed-forward layer"),
    "num_heads": declare(8, at_least(1), "attention heads; the channels must be a multiple"),
    "attention_key_channels": declare(0, _COUNT, "width of all heads' keys; 0: `hidden_size`"),
    "attention_value_channels": declare(0, _COUNT, "width of all heads' values; 0: `hidden_size`"),
    "ffn_layer": declare(
        "dense_relu_dense", one_of("dense_relu_dense", "conv_hidden_relu"), "both mean the same"
    ),
    "layer_preprocess_sequence": declare(
        "none", _letters("nd"), "before each sublayer: n normalises, d drops out"
    ),
    "layer_postprocess_sequence": declare(
        "dan", _letters("nda"), "after each sublayer; a adds the sublayer's input"
    ),
    "norm_type": declare("layer", one_of("layer"), "kind of normalisation"),
    "norm_epsilon": declare(1e-6, at_least(0), "added to the variance in layer normalisation"),
    "pos": declare(
        "timing",
        one_of("timing", "timing_paper", "emb", None),
        "positions: T2T's sinusoids, the paper's, a learned table, or none",
        optional=True,
    ),
    "self_attention_type": declare(
        "dot_product",
        one_of("dot_product", "dot_product_relative"),
        "plain, or with relative positions (Shaw et al. 2018)",
    ),
    "max_relative_position": declare(0, _COUNT, "where `dot_product_relative` clips distances"),
    "proximity_bias": declare(False, text="attention favours nearby positions"),
    "unidirectional_encoder": declare(False, text="the encoder sees no later positions"),
    "use_target_space_embedding": declare(True, text="add the target space's embedding to sources"),
    "use_pad_remover": declare(
        True,
        text="the encoder's feed-forward output is 0 at padding; `relu_dropout_broadcast_dims` of the "
        "encoder are axes of [1, tokens, F]",
    ),
    "prepend_mode": declare(
        "none",
        one_of("none", "prepend_inputs_masked_attention", "prepend_inputs_full_attention"),
        "the decoder reads inputs, a 0 and targets in one sequence; inputs see earlier ones, or all",
        "data",
    ),
    "activation_dtype": declare(
        "float32", one_of("float32", "bfloat16", "float16"), "precision of activations", "training"
    ),
    "initializer": declare(
        "uniform_unit_scaling",
        one_of("uniform_unit_scaling", "normal_unit_scaling", "orthogonal", "uniform"),
        "initial values of all matrices except embeddings",
    ),
    "initializer_gain": declare(1.0, above(0), "scale of the initializer"),
    "shared_embedding": declare(False, text="source and target share an embedding table"),
    "shared_embedding_and_softmax_weights": declare(
        True, text="source, target and softmax share an embedding table"
    ),
    "symbol_modality_num_shards": declare(
        16, at_least(1), "variables per embedding table in checkpoints", "training"
    ),
    "multiply_embedding_mode": declare(
        "sqrt_depth", one_of("sqrt_depth", "none"), "multiply embeddings by sqrt(`hidden_size`)"
    ),
    "vocab_divisor": declare(1, at_least(1), "tables are padded to a multiple of this many rows"),
    "attention_dropout": declare(0.0, _FRACTION, "dropout of attention weights"),
    "attention_dropout_broadcast_dims": declare("", _axes(4), "axes sharing its mask"),
    "relu_dropout": declare(0.0, _FRACTION, "dropout inside the feed-forward layer"),
    "relu_dropout_broadcast_dims": declare("", _axes(3), "axes sharing its mask"),
    "layer_prepostprocess_dropout": declare(0.1, _FRACTION, "dropout of embeddings, and letter d"),
    "layer_prepostprocess_dropout_broadcast_dims": declare("", _axes(3), "axes sharing its mask"),
}

_DATA = {
    "batch_size": declare(
        4096, at_least(1), "padded tokens per batch and device, on the longer side", "training"
    ),
    "batch_shuffle_size": declare(
        512, text="batches in the shuffle buffer of `--on_the_fly`; 0 or less: no shuffling"
    ),
    "min_length": declare(0, text="shortest example, in evaluation too: tokens on the longer side"),
    "max_length": declare(
        256, _COUNT, "longest training example; 0: `batch_size`. Positions of `pos=emb`", "network"
    ),
    "min_length_bucket": declare(8, at_least(1), "longest example of the first bucket"),
    "length_bucket_step": declare(1.1, above(1), "ratio of the lengths of neighbouring buckets"),
    "length_bucket_multiple": declare(
        1, at_least(1), "round buckets up to its multiples: fewer for XLA to compile, more padding"
    ),
    "eval_drop_long_sequences": declare(False, text="apply `max_length` in evaluation too"),
    "max_input_seq_length": declare(0, text="tokens kept of a source; 0 or less: no limit"),
    "max_target_seq_length": declare(0, text="tokens kept of a target; 0 or less: no limit"),
    "subword_sampling": declare(
        0.0,
        _FRACTION,
        "random SentencePiece pieces with `--on_the_fly`: BPE drops this fraction of its merges, "
        "unigram samples by probabilities to this power; 0: no sampling",
    ),
    "t2t_batches": declare(False, text="T2T's buckets and its batch sizes, which are rounded down"),
}

_TRAINING = {
    "label_smoothing": declare(0.1, _FRACTION, "probability of the other tokens in training"),
    "weight_decay": declare(0.0, at_least(0), "weight of L2 loss; with `adam_w` also its decay"),
    "clip_grad_norm": declare(0.0, at_least(0), "largest norm of the gradients; 0: no limit"),
    "tokens_per_update": declare(0, _COUNT, "target tokens summed per update; 0: one batch"),
}

_OPTIMIZERS = {
    "optimizer": declare(
        "adam",
        _optimizer("adam true_adam multistep_adam adam_w adafactor momentum sgd"),
        "how weights are updated",
    ),
    "optimizer_adam_beta1": declare(0.9, _FRACTION, "decay of the mean gradient"),
    "optimizer_adam_beta2": declare(0.98, _FRACTION, "decay of the mean squared gradient"),
    "optimizer_adam_epsilon": declare(1e-9, above(0), "added to the root of that mean square"),
    "optimizer_adafactor_beta1": declare(0.0, _FRACTION, "decay of the mean update; 0: none"),
    "optimizer_adafactor_beta2": declare(0.999, _FRACTION, "decay of the mean square in `adam`"),
    "optimizer_adafactor_clipping_threshold": declare(1.0, above(0), "largest RMS of an update"),
    "optimizer_adafactor_decay_type": declare(
        "pow", one_of("pow", "adam"), "how the decay of the mean squared gradient grows"
    ),
    "optimizer_adafactor_factored": declare(True, text="store means of rows and columns only"),
    "optimizer_adafactor_memory_exponent": declare(
        0.8, at_least(0), "with `pow` the decay is 1 - step^-exponent"
    ),
    "optimizer_adafactor_multiply_by_parameter_scale": declare(
        True, text="multiply updates by the size of the weights"
    ),
    "optimizer_momentum_momentum": declare(0.9, _FRACTION, "decay of the sum of gradients"),
    "optimizer_momentum_nesterov": declare(False, text="Nesterov momentum"),
    "optimizer_multistep_accumulate_steps": declare(0, _COUNT, "batches per update", optional=True),
}

_LEARNING_RATE = {
    "learning_rate_schedule": declare(
        "legacy",
        _factors(
            "constant linear_warmup linear_decay rsqrt_decay rsqrt_normalized_decay rsqrt_hidden_size "
            "exp_decay cosdecay single_cycle_cos_decay multi_cycle_cos_decay legacy"
        ),
        "factors whose product is the learning rate",
    ),
    "learning_rate": declare(0.1, at_least(0), "factor of `legacy`; other factors ignore it"),
    "learning_rate_constant": declare(1.0, at_least(0), "value of the factor `constant`"),
    "learning_rate_warmup_steps": declare(4000, _STEPS, "steps of warm-up"),
    "learning_rate_decay_scheme": declare(
        "noam",
        one_of("none", "noam", "exp", "piecewise", "cosine", "cyclelinear10x", "sqrt", ""),
        "scheme of `legacy`; empty: `none`",
    ),
    "learning_rate_decay_steps": declare(5000, _STEPS, "length of a decay in steps"),
    "learning_rate_decay_rate": declare(
        1.0, at_least(0), "factor of `exp_decay` and `exp` over `learning_rate_decay_steps`"
    ),
    "learning_rate_decay_staircase": declare(
        False, text="decay once every `learning_rate_decay_steps`, not at each step"
    ),
    "learning_rate_cosine_cycle_steps": declare(250000, _STEPS, "half a period of `cosine`"),
    "learning_rate_boundaries": declare([], text="steps at which `piecewise` changes", kind=float),
    "learning_rate_multiples": declare([], at_least(0), "factor after each boundary", kind=float),
}

GROUPS: dict[str, tuple[str, dict[str, Setting]]] = {
    "The network": ("network", _NETWORK),
    "Data and batches": ("data", _DATA),
    "Loss and updates": ("training", _TRAINING),
    "Optimizers": ("training", _OPTIMIZERS),
    "Learning rate": ("training", _LEARNING_RATE),
}
"""The settings that have an effect: title -> reader of the group, and its settings."""

OURS = (
    *("learning_rate_boundaries", "learning_rate_multiples"),  # in T2T, of the sets that add them
    *("length_bucket_multiple", "subword_sampling", "t2t_batches", "tokens_per_update"),
)
"""Settings that T2T's Transformer sets do not have."""

FORMER = {"restricted_neighborhood": 0}
"""Settings of 0.1.0 that are no more, with the only value in its files that means nothing."""

OTHER_NETWORK = tuple(sorted(known.name for known in t2t_names.table("network setting")))
"""Inert settings whose other values give a different network in T2T."""

OTHER_TRAINING = tuple(sorted(known.name for known in t2t_names.table("training setting")))
"""Inert settings whose other values make T2T train the same network differently."""


def _table() -> dict[str, Setting]:
    table = {
        name: setting._replace(readers=(reader, *setting.readers))
        for reader, group in GROUPS.values()
        for name, setting in group.items()
    }
    for kind in ("setting", "network setting", "training setting"):
        for name, reason, values in t2t_names.table(kind):
            default, reader = json.loads(values[0]), ("network",) * (kind == "network setting")
            number, unset = (float, True) if default is None else (type(default), False)
            table[name] = Setting(default, number, one_of(default), "", reader, unset, reason)
    return dict(sorted(table.items()))


SETTINGS: Mapping[str, Setting] = _table()
"""The settings by name, in alphabetical order."""

# name=[elements], name=value
_ITEM = re.compile(r"([A-Za-z][\w.]*)\s*=\s*(?:\[([^\]]*)\]|([^\[]*))")


class HParams:
    """The settings of a model and its training: T2T's `HParams`, but immutable.

    Each of `SETTINGS` is an attribute, such as `hp.hidden_size`. `replace` and `override` return a
    changed copy. A `SettingError`, a one-line `UserError`, is raised for a name that does not exist, for
    a change to a setting that has no effect here, for a value of the wrong type or out of range, and
    for text that cannot be read. An int is accepted for a float.

    Two objects are equal if all their values are; `set_name` does not count.

    Args:
        set_name: the name of the set that these settings come from.
        **values: settings that differ from the defaults, those of `transformer_base_v1`.
    """

    __slots__ = ("_added", "_values", "set_name")

    _values: Mapping[str, Any]
    _added: Mapping[str, Any]  # defaults of the settings from `add_hparam`
    set_name: str

    def __init__(self, set_name: str = "", **values: Any):
        object.__setattr__(self, "set_name", set_name)
        object.__setattr__(self, "_added", {})
        object.__setattr__(self, "_values", {n: s.default for n, s in SETTINGS.items()})
        if values:
            object.__setattr__(self, "_values", self.replace(**values)._values)

    def __getattr__(self, name: str) -> Any:
        if name not in self._values:
            self._setting(name)  # raises the error
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """Iterates over the names of the settings, in alphabetical order."""
        return iter(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def get(self, name: str, default: Any = None) -> Any:
        """Returns a setting, or the default if there is none of this name, as T2T's."""
        return self._values.get(name, default)

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), *self._values])

    def to_dict(self) -> dict[str, Any]:
        """Returns all settings by name, as JSON values (lists, not tuples)."""
        return {name: _plain(value) for name, value in self._values.items()}

    def diff(self, other: HParams | Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Returns the differences from `other` (settings or a dict): name -> (mine, theirs).

        A setting that one side lacks counts as None there.
        """
        mine, theirs = self.to_dict(), other.to_dict() if isinstance(other, HParams) else other
        names = sorted({*mine, *theirs})
        pairs = {name: (mine.get(name), _plain(theirs.get(name))) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HParams) and self._values == other._values

    def __hash__(self) -> int:
        return hash(tuple(self._values.items()))

    def __repr__(self) -> str:
        changed = {n: v for n, v in self._values.items() if v != self._setting(n).default}
        parts = [repr(self.set_name), *(f"{n}={_plain(v)!r}" for n, v in changed.items())]
        return f"HParams({', '.join(parts)})"

    def replace(self, **values: Any) -> HParams:
        """Returns a copy with some values changed."""
        new = dict(self._values)
        for name, value in values.items():
            setting = self._setting(name)
            if not setting.inert:
                new[name] = setting.checked(name, value)
            elif setting._replace(allowed=ANY).checked(name, value) != self._values[name]:
                reason, kept = setting.inert, _plain(self._values[name])
                raise SettingError(
                    f"hparam {name} has no effect here ({reason}): leave it at {kept!r}"
                )
        return self._of(new, self.set_name, self._added)

    def override(self, text: str) -> HParams:
        """Returns a copy with T2T's override string applied: "a=1,b=x,l=[1,2]".

        A bool is true, false or an int (0 is false); "none" sets an optional setting to None. A string
        with commas needs brackets, too: "attention_dropout_broadcast_dims=[0,1]". Spaces around names
        and values are ignored. Of a name that is given twice, an error in T2T, the later value counts.
        """
        values: dict[str, Any] = {}
        for item in split_items(text):
            if not (match := _ITEM.fullmatch(item)):
                problem = f"cannot read {item!r} in the hparams {text!r}: write name=value"
                raise SettingError(problem)
            name, elements, written = match.groups()
            setting = self._setting(name)
            try:
                if elements is None:
                    values[name] = setting.parse(written)
                elif setting.is_list:
                    each = (element for element in re.split("[ ,]", elements) if element)
                    values[name] = [setting.parse(element) for element in each]
                elif setting.kind is str:
                    values[name] = elements
                else:
                    raise ValueError
            except ValueError:
                written = written if elements is None else f"[{elements}]"
                raise setting.refusal(name, written) from None
        return self.replace(**values)

    def check(self, reader: str) -> None:
        """Checks the values that "network", "data" or "training" reads.

        `replace` has already checked its values; `from_dict` has not. With a wrong value of an inert
        setting, T2T would build another network.
        """
        for name, setting in SETTINGS.items():
            if reader in setting.readers:
                setting.checked(name, self._values[name])

    def named(self, set_name: str) -> HParams:
        """Returns a copy with another `set_name`."""
        return self._of(self._values, set_name, self._added)

    def add_hparam(self, name: str, value: Any) -> HParams:
        """Returns a copy with a new setting, for problems in a user directory.

        The default also sets the type: a bool, int, float, str or a list of these.
        """
        if name in self._values:
            raise SettingError(f"hparam {name} exists already: use replace({name}=...)")
        elements = value if isinstance(value, list | tuple) else [value]
        if not name.isidentifier() or not all(type(e) in (bool, int, float, str) for e in elements):
            wrong = f"cannot add hparam {name!r} with the default {value!r}"
            raise SettingError(f"{wrong}: it must be a bool, int, float, str or a list of one")
        new = sorted({**self._values, name: declare(value).checked(name, value)}.items())
        return self._of(dict(new), self.set_name, {**self._added, name: value})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], set_name: str = "") -> HParams:
        """Returns the settings recorded by `to_dict`; missing ones get their defaults.

        Types are checked (T2T's files may have 0 for false, 8.0 for 8), allowed values are not; see `check`.
        """
        new = HParams()
        recorded = dict(new._values)
        for name, value in values.items():
            setting = new._setting(name)._replace(allowed=ANY)
            is_whole = type(value) is float and value.is_integer()
            if (setting.kind is bool and value in (0, 1)) or (setting.kind is int and is_whole):
                value = setting.kind(value)
            recorded[name] = setting.checked(name, value)
        return cls._of(recorded, set_name, {})

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        self._setting(name)
        raise SettingError(f"settings cannot be changed in place: use replace({name}={value!r})")

    def __delattr__(self, name: str) -> NoReturn:
        raise SettingError(f"settings cannot be changed in place: {name!r} cannot be deleted")

    def __reduce__(self):
        return self._of, (self._values, self.set_name, self._added)

    @staticmethod
    def _of(values: Mapping[str, Any], set_name: str, added: Mapping[str, Any]) -> HParams:
        """Returns the settings with these values, which have been checked."""
        hp = HParams(set_name)
        object.__setattr__(hp, "_values", values)
        object.__setattr__(hp, "_added", added)
        return hp

    def _setting(self, name: str) -> Setting:
        if name in self._added:
            return declare(self._added[name])
        if name not in SETTINGS:
            raise SettingError(f"unknown hparam {name!r}.{nearest(name, self._values)}")
        return SETTINGS[name]


def split_items(text: str) -> list[str]:
    """Splits "a,b=[1,2],c" at the commas outside brackets; a trailing comma is allowed.

    As in T2T, a bracket ends at the first "]", and an unopened "]" is an ordinary character.
    """
    bracket = r"\[[^\]]*\]?"
    if any(each[-1] != "]" for each in re.findall(bracket, text)):
        raise SettingError(f"the brackets in {text!r} do not match")
    *found, _ = re.findall(rf"((?:{bracket}|[^,])*)(?:,|\Z)", text.rstrip())
    items = [item.strip() for item in found]
    if not all(items):
        raise SettingError(f"there is nothing between two commas in {text!r}")
    return items


def recorded_settings(values: Mapping[str, Any], set_name: str = "") -> HParams:
    """Returns settings recorded by `to_dict`, including those that `add_hparam` added."""
    hp = HParams.from_dict({n: v for n, v in values.items() if n in SETTINGS}, set_name)
    for name in sorted(values.keys() - SETTINGS.keys()):
        if name not in FORMER:
            hp = hp.add_hparam(name, values[name])
        elif values[name] != FORMER[name]:
            wrong = f"hparam {name} must be {FORMER[name]}, got {values[name]!r}"
            raise SettingError(f"{wrong}: it is no longer supported")
    return hp


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
