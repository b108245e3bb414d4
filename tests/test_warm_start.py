"""Fine-tuning: rows of tables follow their tokens into another vocabulary, and parts stay frozen."""

import re

import networks
import numpy as np
import pytest
import tensorflow as tf
import toy

import t2t_keras as t2t
from t2t_keras import checkpoints, registry
from t2t_keras.checkpoints.names import t2t_variables
from t2t_keras.data import Problem
from t2t_keras.errors import UserError
from t2t_keras.settings import HParams
from t2t_keras.text import ClassLabelEncoder, TokenTextEncoder
from t2t_keras.training import Engine, EngineSettings
from t2t_keras.training.warm_start import warm_start

OLD, NEW = ["a", "b", "c", "d"], ["d", "e", "b", "f", "g"]
SEPARATE = "shared_embedding_and_softmax_weights=false,num_hidden_layers=1"
SHARED = "shared_embedding_and_softmax_weights=true,num_hidden_layers=1"
TWO_SCOPES = f"{SEPARATE},shared_embedding=true"  # "shared", once or once per side, and "softmax"


class Words(Problem):
    """Its vocabularies are files of words, one for each side."""

    name = "words"

    def feature_encoders(self, data_dir):
        try:
            return {side: TokenTextEncoder(f"{data_dir}/{side}") for side in ("inputs", "targets")}
        except OSError as error:
            raise UserError("absent") from error


def encoders_of(source, target):
    sides = {"inputs": source, "targets": target}
    return {side: TokenTextEncoder(vocab_list=words) for side, words in sides.items()}


def model_of(encoders, overrides, seed):
    return networks.small_model(
        overrides, encoders["inputs"].vocab_size, encoders["targets"].vocab_size, seed=seed
    )


@pytest.fixture
def old(tmp_path):
    """Saves a model as moving averages, with its vocabulary, as a run that records neither."""

    def save(source, target, overrides):
        encoders = encoders_of(source, target)
        for side, encoder in encoders.items():
            encoder.store_to_file(tmp_path / side)
        model = model_of(encoders, overrides, seed=1)
        averages = {f"engine/{name}/ema": array for name, array in arrays_of(model).items()}
        averages["engine/ema_updates"] = np.int64(1)
        others = model_of(encoders, overrides, seed=3)
        checkpoints.save_t2t(others, str(tmp_path / "model.ckpt-3"), averages)
        return model

    return save


def arrays_of(model):
    return {name: np.array(variable) for name, variable in t2t_variables(model).items()}


def warmed(directory, source, target, overrides, *vocabulary):
    """A new model, warmed from the old one in a directory, and the report."""
    encoders = encoders_of(source, target)
    model = model_of(encoders, overrides, seed=2)
    return model, warm_start(model, str(directory), encoders, Words(), *vocabulary)


@pytest.mark.parametrize("overrides", [f"{SEPARATE},vocab_divisor=4", TWO_SCOPES])
def test_tokens_of_both_keep_their_rows(overrides, old, tmp_path):
    before, new = old(OLD, ["x", "y"], overrides), (NEW, ["y", "z", "x", "w"])
    as_made = model_of(encoders_of(*new), overrides, seed=2)
    first = [np.array(each.table) for each in as_made.embeddings]
    model, report = warmed(tmp_path, *new, overrides, str(tmp_path))
    assert report == (
        f"vocabulary or tables are not those of {tmp_path}: 4 of 7 source tokens and 4 of 6 target tokens "
        "keep their embeddings, the others start with random ones"
    )
    # by the new id: the old one, None: as it was
    inputs, targets = [0, 1, 5, None, 3, None, None], [0, 1, 3, None, 2, None]
    for number, rows in enumerate((inputs, targets, targets)):
        for place, known in enumerate(rows):
            wanted = first[number] if known is None else before.embeddings[number].table
            array = model.embeddings[number].table[place]
            np.testing.assert_array_equal(array, wanted[place if known is None else known])
    for name, array in arrays_of(model).items():
        if "symbol_modality" not in name:
            np.testing.assert_array_equal(array, arrays_of(before)[name])


def test_a_softmax_of_its_own_keeps_its_rows(old, tmp_path):
    """The same size and other tokens are no mistake."""
    before = old(OLD, OLD, TWO_SCOPES)
    model, report = warmed(tmp_path, OLD[::-1], OLD[::-1], TWO_SCOPES, str(tmp_path))
    assert "6 of 6 tokens keep their embeddings" in report
    for ours, theirs in zip(model.embeddings, before.embeddings, strict=True):
        np.testing.assert_array_equal(ours.table, np.array(theirs.table)[[0, 1, 5, 4, 3, 2]])


def test_one_table_may_become_two(old, tmp_path):
    before = old(OLD, OLD, SHARED)
    model, report = warmed(tmp_path, OLD, NEW, SEPARATE, str(tmp_path))
    assert "6 of 6 source tokens and 4 of 7 target tokens" in report
    table = np.array(before.softmax.table)
    np.testing.assert_array_equal(model.embeddings[0].table, table)
    np.testing.assert_array_equal(np.array(model.softmax.table)[[0, 1, 2, 4]], table[[0, 1, 5, 3]])
    model, _ = warmed(tmp_path, OLD, OLD, SEPARATE, str(tmp_path))
    np.testing.assert_array_equal(model.softmax.table, table)


def test_without_the_vocabulary_the_size_must_be_the_same(old, tmp_path, capsys):
    before = old(OLD, OLD, SHARED)
    model, report = warmed(tmp_path, OLD[::-1], OLD[::-1], SHARED)
    assert report == ""  # nothing is recorded
    np.testing.assert_array_equal(model.softmax.table, before.softmax.table)
    checkpoints.write_settings(str(tmp_path), before.hp.replace(num_heads=1), {})
    assert warmed(tmp_path, OLD, OLD, SHARED, str(tmp_path))[1] == ""  # there is nothing to match
    assert f"{tmp_path} has num_heads=1, not 2: its weights mean" in capsys.readouterr().err
    with pytest.raises(UserError, match="does not fit the model"):
        warmed(tmp_path, NEW, NEW, SHARED)
    other = "shared_embedding_and_softmax_weights=true,num_hidden_layers=2"
    with pytest.raises(UserError, match=r"does not fit the model \(missing:"):
        warmed(tmp_path, NEW, NEW, other, str(tmp_path))
    for side in ("inputs", "targets"):
        TokenTextEncoder(vocab_list=list("abcdefg")).store_to_file(tmp_path / side)
    with pytest.raises(UserError, match=r"of 6 tokens, but the vocabulary .* has 9: give"):
        warmed(tmp_path, NEW, NEW, SHARED, str(tmp_path))
    (tmp_path / "run.json").write_text('{"vocabulary": {"targets": "the digest of another"}}')
    with pytest.raises(UserError, match=r"vocabulary of the targets .* is not found, only another"):
        warmed(tmp_path, OLD, OLD, SHARED)


def test_other_classes_are_told(tmp_path, capsys):
    encoders = encoders_of(OLD, OLD) | {"targets": ClassLabelEncoder(["good", "bad"])}
    problem = Words()
    problem.num_classes, problem.feature_encoders = 2, lambda data_dir: encoders
    hp = registry.hparams("transformer_tiny", SHARED)
    model = t2t.TransformerClassifier(hp, source_vocab_size=len(OLD) + 2, num_classes=2)
    checkpoints.save_t2t(model, str(tmp_path / "model.ckpt-3"))
    for labels in (["good", "bad"], ["bad", "good"]):
        assert "other classes" not in capsys.readouterr().err
        others = encoders | {"targets": ClassLabelEncoder(labels)}
        assert warm_start(model, str(tmp_path), others, problem, str(tmp_path)) == ""
    assert "has other classes: each begins with" in capsys.readouterr().err


def test_frozen_weights_stay_and_have_no_slots(eagerly):
    hp = registry.hparams(toy.hparams(num_hidden_layers=1, hidden_size=16, filter_size=16))
    settings = EngineSettings(freeze="encoder/|symbol_modality", xla=False)
    engine = Engine(hp, source_vocab_size=12, target_vocab_size=12, settings=settings)
    before = arrays_of(engine.model)
    ids = np.array([[3, 4, 1], [5, 1, 0]], np.int32)
    engine.train(iter([{"inputs": tf.constant(ids), "targets": tf.constant(ids)}] * 2), 2)
    trained = [name for name in before if not re.search("encoder/|symbol_modality", name)]
    assert any("target_space" in name for name in trained)
    for name, array in arrays_of(engine.model).items():
        assert (name in trained) != np.array_equal(array, before[name]), name
    slots = [slot for of_kind in engine.optimizer.t2t_slots().values() for slot in of_kind]
    assert len(slots) == 2 * len(trained)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("encodr", r"freeze='encodr' matches no names of weights, such as transformer/"),
        (".", r"matches all names of weights"),
        ("(", r"freeze='\(' is not a regular expression"),
    ],
)
def test_mistakes_of_freezing_end_in_one_line(pattern, message, eagerly):
    hp = HParams(hidden_size=8, filter_size=8, num_heads=1, num_hidden_layers=1)
    made = {"source_vocab_size": 5, "target_vocab_size": 5}
    with pytest.raises(UserError, match=message):
        Engine(hp, **made, settings=EngineSettings(freeze=pattern))


def test_by_flags(tmp_path):
    """The vocabulary of the first run is in the directory that its `run.json` records."""
    for name, letters in (("one", "abcdefgh"), ("two", "abcdxyz")):
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}.txt").write_text("\n".join(letters * 40) + "\n")
    files = [str(tmp_path / "one.txt")] * 2
    problem = registry.problem("translate_files")
    problem.use_files(files, files, vocab_size=1)
    size = problem.get_or_create_vocab(tmp_path / "one", tmp_path).vocab_size
    hp = toy.hparams(num_hidden_layers=1)
    model = t2t.Transformer(registry.hparams(hp), source_vocab_size=size, target_vocab_size=size)
    run = {**model.description(), "problem": "translate_files"}
    start = {"started": "2026-01-31T12:00:00+00:00", "started_seconds": 0, "host": "a"}
    run["starts"] = [{**start, "data_dir": str(tmp_path / "one"), "replicas": 1}]
    checkpoints.write_settings(str(tmp_path / "run"), model.hp, run)
    checkpoints.save_t2t(model, str(tmp_path / "run" / "model.ckpt-1"))
    done = toy.ran(
        *("train", "--problem=translate_files", "--on_the_fly", "--vocab_size=1", "--freeze=/ffn/"),
        *(f"--hparams={hp}", "--train_files=two.txt,two.txt", "--dev_files=two.txt,two.txt"),
        *("--data_dir=two", "--warm_start_from=run", "--output_dir=new", "--train_steps=1"),
        *("--eval_steps=1", "--decode_hparams=beam_size=1,extra_length=1"),
        cwd=tmp_path,
    )
    counts = re.search(r"tables are not those of .*: (\d+) of (\d+) tokens keep", done.stderr)
    assert counts and 2 < int(counts[1]) < int(counts[2])
    _, recorded = checkpoints.read_settings(f"{tmp_path}/new")
    assert recorded["freeze"] == "/ffn/"
    assert f" --warm_start_from={tmp_path}/run" in recorded["starts"][0]["command"]
    arrays = checkpoints.read(f"{tmp_path}/new/model.ckpt-1")
    name = "transformer/body/encoder/layer_0/ffn/conv1/kernel"
    np.testing.assert_array_equal(arrays[name], t2t_variables(model)[name])
    assert any("/q/kernel/Adam" in name for name in arrays)
    assert not any("/conv1/kernel/Adam" in name for name in arrays)
