"""The examples run, learn, and survive a `.keras` file."""

import functools
import importlib.util
import json
import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import toy

import t2t_keras as t2t
from t2t_keras import registry
from t2t_keras.decoding import DecodeSettings, Translator

EXAMPLES = Path(__file__).parents[1] / "examples"
OWN = f"--t2t_usr_dir={EXAMPLES / 'own_transformer'}"
DECODE = "--decode_hparams=beam_size=1,extra_length=1"


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


def test_layers_in_keras(tmp_path, monkeypatch):
    example = load("layers_in_keras")
    before, losses = {}, []

    rows, following = example.rows(256, step=1)
    turned_rows, turned = example.rows(256, step=-1)

    def freeze(model, rank):
        correct = model(rows).numpy().argmax(-1) == following
        assert np.mean(correct[:, 4:]) > 0.8  # by chance: 1/11
        losses.append(model.evaluate(turned_rows, turned, verbose=0)[0])
        freeze_all_but_lora(model, rank)
        before.update({v.path: np.array(v) for v in model.weights})

    freeze_all_but_lora = example.freeze_all_but_lora
    monkeypatch.setattr(example, "freeze_all_but_lora", freeze)
    model, turns = example.main()
    ids, classes = example.sentences(256)
    logits = model(ids).numpy()
    assert np.mean(logits.argmax(-1) == classes) > 0.9  # by chance: 1/2
    np.testing.assert_allclose(model(np.pad(ids, [(0, 0), (0, 5)])), logits, atol=1e-5)
    np.testing.assert_array_equal(saved_and_loaded(model, tmp_path)(ids), logits)

    changed = [v.path for v in turns.weights if not np.array_equal(before[v.path], v)]
    assert len(changed) == 8 and all("lora_kernel" in path for path in changed)
    assert turns.evaluate(turned_rows, turned, verbose=0)[0] < 0.7 * losses[0]
    loaded = saved_and_loaded(turns, tmp_path)
    np.testing.assert_allclose(loaded(turned_rows), turns(turned_rows), atol=1e-5)


def test_fit(tmp_path, capsys):
    example = load("fit")
    example.main(str(tmp_path), epochs=2)
    assert float(re.findall(r"val_accuracy: (\S+)", capsys.readouterr().out)[-1]) > 0.9
    steps = {path.stem for path in (tmp_path / "run").glob("*.index")}
    assert steps == {f"model.ckpt-{200 * epoch}" for epoch in (1, 2)}
    example.main(str(tmp_path), epochs=2)  # nothing is left to do
    assert "Epoch" not in capsys.readouterr().out


def of_run(directory):
    return f"--data_dir={directory / 'data'}", f"--output_dir={directory / 'run'}"


@pytest.fixture(scope="module")
def own_run(tmp_path_factory):
    """A run of `--model=temperature_transformer`."""
    directory = tmp_path_factory.mktemp("own")
    toy.generate(directory)
    given = (OWN, "--model=temperature_transformer", f"--problem={toy.PROBLEM}", *of_run(directory))
    steps = ("--train_steps=4", "--local_eval_frequency=2", "--eval_steps=1", DECODE)
    toy.ran("train", *given, f"--hparams={toy.hparams(num_hidden_layers=1)}", *steps, eagerly=True)
    return directory


@pytest.fixture(scope="module")
def own_model(own_run):
    registry.import_user_directory(str(EXAMPLES / "own_transformer"))
    return t2t.checkpoints.load_model(str(own_run / "run"))


BATCH = {"inputs": np.array([[6, 4, 7, 1]]), "targets": np.array([[7, 4, 6, 1]])}


def test_a_model_of_ones_own_is_trained_by_its_name(own_run, own_model):
    recorded = json.loads((own_run / "run" / "run.json").read_text())
    assert recorded["model"] == "temperature_transformer"
    assert type(own_model).__name__ == "TemperatureTransformer"
    for layer in own_model.encoder.layers:  # a gradient reached every head's
        assert np.all(np.abs(layer.self_attention.temperature - 1) > 0)
    sizes = {name: getattr(own_model, name) for name in ("source_vocab_size", "target_vocab_size")}
    again = type(own_model)(own_model.hp, **sizes)
    assert t2t.checkpoints.load_t2t(again, str(own_run / "run")) == 4
    np.testing.assert_array_equal(again(BATCH), own_model(BATCH))


def test_a_model_of_ones_own_is_found_by_every_command(own_run, own_model):
    """It is the one that is asked: its temperatures are set so that the result tells."""
    model_dir, source = own_run / "set", own_run / "source.txt"
    source.write_text("a b c d\n")
    weights = own_model.get_weights()
    own_model.encoder.layers[0].self_attention.temperature.assign(np.full((4, 1, 1), -8.0))
    prefix = str(model_dir / "model.ckpt-4")
    model_dir.mkdir()
    for name in ("run.json", "hparams.json"):
        (model_dir / name).write_text((own_run / "run" / name).read_text())
    t2t.checkpoints.save_t2t(own_model, prefix)
    logits = np.asarray(own_model(BATCH))
    own_model.set_weights(weights)
    assert np.abs(logits - own_model(BATCH)).max() > 1e-3

    checkpoint = f"--checkpoint_path={prefix}"
    data = f"--data_dir={own_run / 'data'}"
    page = ("--text=a b c", "--target_text=c b a", f"--npz={own_run / 'weights.npz'}")
    for command, *given in (
        ("decode", OWN, data, checkpoint, f"--decode_from_file={source}", f"--decode_to_file={own_run / 'out'}", DECODE),
        ("eval", OWN, data, checkpoint, "--eval_steps=1", DECODE),
        ("export", OWN, data, checkpoint, f"--export_dir={own_run / 'export'}", DECODE),
        ("convert", OWN, checkpoint, f"--output_path={own_run / 'model.keras'}"),
        ("inspect", "attention", OWN, data, checkpoint, *page),
        ("avg", f"--checkpoints={prefix}", f"--output_path={own_run / 'mean' / 'm'}"),
    ):  # fmt: skip
        toy.ran(command, *given, eagerly=command != "export")

    encoders = registry.problem(toy.PROBLEM).get_feature_encoders(str(own_run / "data"))
    loaded = [keras.models.load_model(own_run / "model.keras")]
    loaded.append(t2t.checkpoints.load_model(str(own_run / "mean")))
    for model in loaded:
        np.testing.assert_array_equal(model(BATCH), logits)
    settings = DecodeSettings.parse("beam_size=1,extra_length=1")
    [translation] = Translator(loaded[0], encoders, settings).translate(["a b c d"])
    assert (own_run / "out").read_text() == translation.texts[0] + "\n"
    served = tf.saved_model.load(str(own_run / "export" / "1")).signatures["translate"]
    [[text]] = served(tf.constant(["a b c d"]))["translations"].numpy()
    assert text.decode() == translation.texts[0]
    weights = np.load(own_run / "weights.npz")["encoder"]
    texts = {"inputs": "a b c", "targets": "c b a"}
    batch = {side: np.array([[*encoders[side].encode(text), 1]]) for side, text in texts.items()}
    _, expected = loaded[0](batch, return_attention_weights=True)
    np.testing.assert_allclose(weights[0], np.asarray(expected["encoder"][0])[0], atol=1e-5)


@pytest.mark.parametrize(
    ("command", "flags", "expected"),
    [
        ("decode", [], "Registered: transformer, transformer_encoder; load the package of another with --t2t_usr_dir"),
        ("decode", [OWN, "--model=transformer"], "was trained with --model=temperature_transformer"),
        ("decode", [OWN, "--model=temperatur"], "Did you mean 'temperature_transformer'?"),
        ("export", [OWN, "--format=ctranslate2"], "CTranslate2 does not support a model of your own; got Temp"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_model_is_one_line(own_run, command, flags, expected):
    (own_run / "line").write_text("a\n")
    source = [f"--decode_from_file={own_run / 'line'}"] * (command == "decode")
    assert expected in toy.complaint(toy.command(command, *of_run(own_run), *flags, *source))


def test_keras_trains_a_model_of_ones_own(tmp_path, monkeypatch, eagerly):
    registry.import_user_directory(str(EXAMPLES / "own_transformer"))
    fit = load("fit")
    monkeypatch.setattr(fit, "STEPS_PER_EPOCH", 2)
    greedy = functools.partial(DecodeSettings, beam_size=1, extra_length=1)
    monkeypatch.setattr(t2t.decoding, "DecodeSettings", greedy)
    model = fit.main(str(tmp_path), 1, registry.model("temperature_transformer"))
    loaded = t2t.checkpoints.load_model(str(tmp_path / "run"))
    assert type(loaded) is type(model)
    np.testing.assert_array_equal(loaded(BATCH), model(BATCH))
