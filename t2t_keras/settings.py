"""`HParams`, the immutable object of all settings, and T2T's grammar for overriding them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from t2t_keras.allowed_values import Setting, SettingError, declare
from t2t_keras.errors import nearest
from t2t_keras.setting_table import FORMER, SETTINGS

__all__ = ["HParams"]

# name=[elements], name=value
_ITEM = re.compile(r"([A-Za-z][\w.]*)\s*=\s*(?:\[([^\]]*)\]|([^\[]*))")


class HParams:
    """The settings of a model and its training: T2T's `HParams`, but immutable.

    Every setting of tensor2tensor's Transformer sets is an attribute (`hp.hidden_size`), declared in
    `t2t_keras.setting_table`. `replace` and `override` return a changed copy. A `SettingError`, a
    one-line `UserError`, is raised for a name that does not exist, for a change to a setting that has
    no effect here, and for a value of the wrong type or out of range. An int is accepted for a float.

    Two objects are equal if all their values are; `set_name` does not count.

    Args:
        set_name: the name of the set that these settings come from.
        **values: settings that differ from the defaults, which are the paper's base model
            (T2T's `transformer_base_v1`).
    """

    __slots__ = ("_settings", "_values", "set_name")

    _settings: Mapping[str, Setting]
    _values: Mapping[str, Any]
    set_name: str

    def __init__(self, set_name: str = "", **values: Any):
        defaults = {name: setting.default for name, setting in SETTINGS.items()}
        self._fill(SETTINGS, defaults, set_name)
        if values:
            self._fill(SETTINGS, self.replace(**values)._values, set_name)

    # Reading

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy and pickle ask an object that has no `_settings` yet
            raise AttributeError(name)
        self._setting(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """Iterates over the names of the settings, in alphabetical order."""
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

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
        changed = {n: v for n, v in self._values.items() if v != self._settings[n].default}
        parts = [repr(self.set_name), *(f"{n}={_plain(v)!r}" for n, v in changed.items())]
        return f"HParams({', '.join(parts)})"

    # Changed copies

    def replace(self, **values: Any) -> HParams:
        """Returns a copy with some values changed.

        Raises:
            SettingError: a name is unknown, a value has the wrong type or is not allowed, or the
                change is to a setting that has no effect here.
        """
        new = dict(self._values)
        for name, value in values.items():
            setting = self._setting(name)
            if not setting.inert:
                new[name] = setting.checked(name, value)
            elif setting.recorded(name, value) != self._values[name]:
                raise SettingError(
                    f"hparam {name} has no effect here ({setting.inert}): "
                    f"leave it at {_plain(self._values[name])!r}"
                )
        return self._like(self._settings, new, self.set_name)

    def override(self, text: str) -> HParams:
        """Returns a copy with T2T's override string applied: "a=1,b=x,l=[1,2]".

        A bool is true, false or an int (0 is false); "none" sets an optional setting to None. A string
        with commas needs brackets, too: "attention_dropout_broadcast_dims=[0,1]". Spaces around names
        and values are ignored.

        Raises:
            SettingError: as for `replace`, or the text cannot be read.
        """
        values: dict[str, Any] = {}
        for item in split_items(text):
            match = _ITEM.fullmatch(item)
            if not match:
                raise SettingError(
                    f"cannot read {item!r} in the hparams {text!r}: write name=value"
                )
            name, elements, written = match.groups()
            if name in values:
                raise SettingError(f"hparam {name} is set twice in {text!r}: set it once")
            values[name] = _parsed(name, self._setting(name), elements, written)
        return self.replace(**values)

    def check(self, reader: str) -> None:
        """Checks the values that "network", "data" or "training" reads.

        `replace` has already checked its values; `from_dict` has not.

        Raises:
            SettingError: a value is not allowed, or T2T would build another network with it.
        """
        for name, setting in self._settings.items():
            if reader in setting.readers:
                setting.checked(name, self._values[name])

    def named(self, set_name: str) -> HParams:
        """Returns a copy with another `set_name`."""
        return self._like(self._settings, self._values, set_name)

    def add_hparam(self, name: str, value: Any) -> HParams:
        """Returns a copy with a new setting, for problems in a user directory.

        Args:
            name: an unused name.
            value: the default, which also sets the type: a bool, int, float, str or a list of these.
        """
        if name in self._settings:
            raise SettingError(f"hparam {name} exists already: use replace({name}=...)")
        elements = value if isinstance(value, list | tuple) else [value]
        if not name.isidentifier() or not all(type(e) in (bool, int, float, str) for e in elements):
            raise SettingError(
                f"cannot add hparam {name!r} with the default {value!r}: "
                "it must be a bool, int, float, str or a list of one of them"
            )
        setting = declare(value)
        new = {**self._values, name: setting.checked(name, value)}
        return self._like(
            {**self._settings, name: setting}, dict(sorted(new.items())), self.set_name
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], set_name: str = "") -> HParams:
        """Returns the settings recorded by `to_dict`; missing ones get their defaults.

        Types are checked, allowed values are not; see `check`.
        """
        new = HParams()
        recorded = {name: new._setting(name).recorded(name, v) for name, v in values.items()}
        return cls._like(SETTINGS, {**new._values, **recorded}, set_name)

    @classmethod
    def from_t2t_json(cls, values: Mapping[str, Any]) -> tuple[HParams, list[str]]:
        """Reads the settings in a `hparams.json` that tensor2tensor wrote beside a run.

        Returns:
            The settings, and the sorted names in `values` that do not exist here (T2T's files also
            hold directories, step counts, and settings of older and other models).
        """
        known = {name: value for name, value in values.items() if name in SETTINGS}
        return cls.from_dict(known), sorted(set(values) - set(known))

    # Immutability

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        self._setting(name)
        raise SettingError(f"settings cannot be changed in place: use replace({name}={value!r})")

    def __delattr__(self, name: str) -> NoReturn:
        raise SettingError(f"settings cannot be changed in place: {name!r} cannot be deleted")

    def __reduce__(self):
        added = {n: s.default for n, s in self._settings.items() if n not in SETTINGS}
        return _restored, (self._values, self.set_name, added)

    @staticmethod
    def _like(settings: Mapping, values: Mapping, set_name: str) -> HParams:
        hp = HParams.__new__(HParams)
        hp._fill(settings, values, set_name)
        return hp

    def _fill(self, settings: Mapping, values: Mapping, set_name: str) -> None:
        object.__setattr__(self, "_settings", settings)
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "set_name", set_name)

    def _setting(self, name: str) -> Setting:
        if name not in self._settings:
            raise SettingError(f"unknown hparam {name!r}.{nearest(name, self._settings)}")
        return self._settings[name]


def split_items(text: str) -> list[str]:
    """Splits "a,b=[1,2],c" at the commas outside brackets; a trailing comma is allowed.

    As in T2T, a bracket ends at the first "]", and an unopened "]" is an ordinary character.
    """
    items, inside = [""], False
    for char in text:
        inside = char != "]" if inside else char == "["
        if char == "," and not inside:
            items.append("")
        else:
            items[-1] += char
    if inside:
        raise SettingError(f"the brackets in {text!r} do not match")
    items = [item.strip() for item in items]
    if not items[-1]:
        items.pop()
    if not all(items):
        raise SettingError(f"there is nothing between two commas in {text!r}")
    return items


def recorded_settings(values: Mapping[str, Any], set_name: str = "") -> HParams:
    """Returns settings recorded by `to_dict`, including those that `add_hparam` added."""
    values = dict(values)
    for name, unused in FORMER.items():
        value = values.pop(name, unused)
        if value != unused:
            raise SettingError(
                f"hparam {name} must be {unused}, got {value!r}: it is no longer supported"
            )
    declared = {name: value for name, value in values.items() if name in SETTINGS}
    hp = HParams.from_dict(declared, set_name)
    for name in sorted(set(values) - set(declared)):
        hp = hp.add_hparam(name, values[name])
    return hp


def _restored(values: Mapping, set_name: str, added: Mapping[str, Any]) -> HParams:
    """Unpickles settings; `added` has the defaults of those from `add_hparam`."""
    settings = {**SETTINGS, **{name: declare(default) for name, default in added.items()}}
    return HParams._like(settings, values, set_name)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _parsed(name: str, setting: Setting, elements: str | None, written: str) -> Any:
    """Returns the value of "[elements]" or, without brackets, of `written`; not yet checked."""
    text = written if elements is None else f"[{elements}]"
    try:
        if elements is None:
            return setting.parse(written)
        if setting.is_list:
            return [setting.parse(element) for element in re.split("[ ,]", elements) if element]
        if setting.kind is str:
            return elements
    except ValueError:
        pass
    raise setting.refusal(name, text)
