"""Every set of tensor2tensor 1.15.7's models/transformer.py, against the values T2T resolves.

`data/hparams_sets.json` was written by tensor2tensor: all settings of transformer_base, what each
other supported set has different, and the names of the rest.
"""

import json
from pathlib import Path

import pytest

from t2t_keras import registry
from t2t_keras.errors import UserError
from t2t_keras.settings import OURS, SETTINGS, HParams

T2T = json.loads((Path(__file__).parent / "data" / "hparams_sets.json").read_text())


@pytest.mark.parametrize("name", T2T["differences"])
def test_set_has_the_values_of_tensor2tensor(name):
    expected = {**T2T["base"], **T2T["differences"][name]}
    hp = registry.hparams(name)
    ours = {name: value for name, value in HParams().to_dict().items() if name in OURS}
    assert hp.to_dict() == {**expected, **ours}
    assert hp.set_name == name


def test_every_setting_has_the_type_of_tensor2tensor():
    assert len(SETTINGS) == 148 + len(OURS)
    assert SETTINGS.keys() - T2T["base"].keys() == {*OURS}
    for name, value in T2T["base"].items():
        assert value is None or SETTINGS[name].kind is type(value), name


@pytest.mark.parametrize("name", T2T["unsupported"])
def test_other_sets_are_known_and_say_why(name):
    with pytest.raises(UserError) as caught:
        registry.hparams(name)
    start = f"hparams set {name!r} of tensor2tensor is not supported: it"
    assert str(caught.value).startswith(start)
