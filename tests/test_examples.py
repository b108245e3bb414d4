"""The examples run, learn, and survive a `.keras` file."""

import importlib.util
import re
from pathlib import Path

import keras
import numpy as np

import t2t_keras as t2t

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def saved_and_loaded(model, directory):
    model.save(directory / "model.keras")
    return keras.models.load_model(directory / "model.keras")


def test_subclass_attention(tmp_path, capsys):
    model = load("subclass_attention").main()
    ids = np.random.default_rng(1).integers(1, 16, (64, 10))
    logits = model(ids).numpy()
    assert np.mean(logits.argmax(-1) == ids[:, :1]) > 0.9  # by chance: 1/15
    printed = capsys.readouterr().out.rsplit("temperatures:", 1)[1]
    temperatures = np.array(printed.strip(" []\n").split(), float)
    assert temperatures.shape == (4,)
    assert np.all(np.abs(temperatures - 1) > 0)  # a gradient reached every head's
    np.testing.assert_array_equal(saved_and_loaded(model, tmp_path)(ids), logits)


def test_layers_in_keras(tmp_path):
    example = load("layers_in_keras")
    model = example.main()
    ids, classes = example.sentences(256)
    logits = model(ids).numpy()
    assert np.mean(logits.argmax(-1) == classes) > 0.9  # by chance: 1/2
    longer = np.pad(ids, [(0, 0), (0, 5)])
    np.testing.assert_allclose(model(longer), logits, atol=1e-5)
    np.testing.assert_array_equal(saved_and_loaded(model, tmp_path)(ids), logits)


def test_fit(tmp_path, capsys):
    example = load("fit")
    example.main(str(tmp_path), epochs=2)
    assert float(re.findall(r"val_accuracy: (\S+)", capsys.readouterr().out)[-1]) > 0.9
    steps = {path.stem for path in (tmp_path / "run").glob("*.index")}
    assert steps == {f"model.ckpt-{200 * epoch}" for epoch in (1, 2)}
    example.main(str(tmp_path), epochs=2)  # nothing is left to do
    assert "Epoch" not in capsys.readouterr().out


def test_own_transformer(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    example = load("own_transformer")
    monkeypatch.setattr(example.fit, "STEPS_AN_EPOCH", 20)
    model = example.main(str(tmp_path), epochs=1)
    temperatures = [layer.self_attention.temperature.numpy() for layer in model.encoder.layers]
    assert np.all(np.abs(np.array(temperatures) - 1) > 0)  # a gradient reached every head's

    batch = {"inputs": np.array([[100, 34, 101, 1]]), "targets": np.array([[101, 34, 100, 1]])}
    logits = model(batch).numpy()
    again = example.TemperatureTransformer(
        model.hp, source_vocab_size=258, target_vocab_size=258, name="again"
    )
    assert t2t.checkpoints.load_t2t(again, str(tmp_path / "run")) == 20
    np.testing.assert_array_equal(again(batch), logits)
    np.testing.assert_array_equal(saved_and_loaded(model, tmp_path)(batch), logits)
