"""The network on Keras's JAX and PyTorch backends, in a process that has no TensorFlow."""

import json
import os
import subprocess
import sys
from pathlib import Path

import golden
import keras
import numpy as np
import pytest
from golden_on_backend import PACKED

import t2t_keras as t2t

TESTS = Path(__file__).parent
ATTENDING = ("base_prenorm", "relative")
"""Models whose weights of attention are compared with those on TensorFlow."""

WITHOUT_TENSORFLOW = """
import sys
sys.modules |= dict.fromkeys(["tensorflow", "tensorflow_text", "tensorflow_datasets"])
import golden_on_backend
golden_on_backend.main()
"""
"""Importing a module for which None stands fails."""


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """What `golden_on_backend.py` needs and cannot read or make."""
    given = {}
    for name in golden.MODELS:
        case = golden.load(name)
        given |= arrays(name, case.checkpoint)
        if name in ATTENDING:
            _, attention = case.model()(case.batch, return_attention_weights=True)
            for kind, layers in attention.items():
                for layer, weights in enumerate(layers):
                    given[f"{name}/attention/{kind}/{layer}"] = np.asarray(weights)
    for name in golden.OTHERS:
        given |= arrays(name, golden.other(name)[-1])
    given |= arrays("release", str(golden.RELEASE / "model.ckpt-1"))
    path = tmp_path_factory.mktemp("given") / "given.npz"
    np.savez(path, **given)
    return path


@pytest.fixture(scope="module", params=["jax", "torch"])
def backend(request):
    return request.param


@pytest.fixture(scope="module")
def directory(backend, tmp_path_factory):
    return tmp_path_factory.mktemp(backend)


@pytest.fixture(scope="module")
def errors(backend, given, directory):
    """Runs `golden_on_backend.py` and returns the errors that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TENSORFLOW, given, directory],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "KERAS_BACKEND": backend,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_backend_optimization_level=0",  # all runs shorter than it compiles
            "PYTHONPATH": f"{TESTS}:{TESTS.parent / 'examples'}",
        },
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def arrays(name, checkpoint):
    """Returns T2T's variables, each under the name of the model."""
    read = t2t.checkpoints.read(checkpoint)
    return {f"{name}/{variable}": array for variable, array in read.items()}


@pytest.mark.parametrize("name", (*golden.MODELS, *golden.OTHERS))
def test_logits_and_loss(name, errors):
    for of in ("logits", "loss"):
        assert errors[name][of] <= golden.RELATIVE, of


@pytest.mark.parametrize("name", ATTENDING)
def test_attention(name, errors):
    assert errors[name]["attention"] <= golden.RELATIVE


def test_every_gradient(errors):
    assert errors["relative"]["gradients"] <= golden.RELATIVE


def test_three_steps_of_the_example(errors):
    """As `test_golden.py` says of updates, a few elements may differ by the learning rate."""
    assert errors["base_prenorm"]["updates off"] <= 1e-3
    assert errors["base_prenorm"]["furthest update"] <= 1


def test_decoding_step_by_step(errors):
    assert errors["base_prenorm"]["decoding"] <= golden.RELATIVE


@pytest.mark.parametrize("name", (*ATTENDING, golden.OTHERS[1]))
def test_beam_search(name, errors):
    assert errors[name]["search"] <= golden.RELATIVE


def test_searches_call_what_a_subclass_overrides(errors):
    assert max(errors["subclasses"].values()) <= 1e-4 and len(errors["subclasses"]) == 6


def test_logits_of_the_released_checkpoint(errors):
    assert errors["release"]["logits"] <= golden.RELATIVE


def test_packed_rows(errors):
    assert errors["packed"]["logits"] <= golden.RELATIVE


def test_fit(errors):
    assert errors["losses"][-1] < 0.8 * errors["losses"][0]  # 0.13 to 0.49 of it, by eight seeds


def test_saved_models_give_the_same_on_tensorflow(errors, directory):
    model = keras.models.load_model(directory / "fit.keras", compile=False)
    wanted = np.load(directory / "logits.npz")["fit"]
    assert golden.relative_error(model(PACKED), wanted) <= golden.RELATIVE


def test_so_do_quantized_ones(errors, directory):
    """Between two integers, a difference of a millionth rounds an activation to another one.

    Seldom, and then for few positions, whose logits may be far off: by 8 % of the largest, once seen.
    """
    model = keras.models.load_model(directory / "int8.keras", compile=False)
    wanted = np.load(directory / "logits.npz")["int8"]
    off = np.abs(model(PACKED) - wanted).max(-1)  # [B, T]
    assert np.median(off) <= 0.02 * np.abs(wanted).max()
