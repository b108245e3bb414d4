"""Every name of tensor2tensor's is here, or known with the reason why it is not."""

import json
from pathlib import Path

import pytest

from t2t_keras import registry, t2t_names
from t2t_keras.errors import UserError

NAMES = Path(__file__).parents[2] / "shared" / "spec" / "t2t-names.json"

needs_names = pytest.mark.skipif(
    not NAMES.exists(), reason="needs the names of tensor2tensor in ../shared"
)


def names(*kinds):
    registered = json.loads(NAMES.read_text())
    return [name for kind in kinds for name in registered[kind]]


def assert_answered(name, make):
    try:
        made = make(name)
    except UserError as error:
        assert f"{name!r} of tensor2tensor is not supported: " in str(error)
    else:
        assert name in (getattr(made, "name", None), getattr(made, "set_name", None))


@needs_names
def test_every_problem_has_an_answer():
    for name in names("problems"):
        assert_answered(name, registry.problem)


@needs_names
def test_every_set_and_range_has_an_answer():
    for name in names("hparams", "hparams_ranges"):
        assert_answered(name, registry.hparams)


@needs_names
def test_every_model_has_an_answer():
    refused = []
    for name in names("models"):
        try:
            registry.require_model(name)
        except UserError as error:
            assert f"model {name!r} of tensor2tensor is not supported: " in str(error)
            refused.append(name)
    assert set(names("models")) - set(refused) == {"transformer"}


@needs_names
def test_what_is_here_is_not_said_to_be_absent():
    for name in registry.list_problems():
        assert not t2t_names.unsupported_problem(name)
    for name in registry.list_hparams():
        assert not t2t_names.unsupported_set(name)


@pytest.mark.parametrize(
    ("make", "name", "reason"),
    [
        (registry.hparams, "universal_transformer_base", "it is of the Universal Transformer"),
        (registry.problem, "languagemodel_lm1b32k", "it is a language model"),
        (registry.problem, "sentiment_imdb", "it gives a class to a text"),
        (registry.problem, "image_mnist_rev", "it has images or video"),
        (registry.model, "slice_net", "it is another network than the Transformer"),
    ],
)
def test_other_families_suggest_nothing_of_ours(make, name, reason):
    with pytest.raises(UserError, match=reason) as caught:
        make(name)
    assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize("name", ["transformer_bse", "transformer_natbase", "translate_endewmt"])
def test_a_misspelt_name_is_none_of_tensor2tensor_s(name):
    for make in (registry.hparams, registry.problem, registry.model):
        with pytest.raises(UserError, match="unknown"):
            make(name)
