"""The settings beside checkpoints, of a run or of tensor2tensor, when a training goes on."""

import json
import shutil
from pathlib import Path

import golden
import networks
import numpy as np
import pytest
import run_files

from t2t_keras import checkpoints, registry
from t2t_keras.checkpoints.average import files_beside
from t2t_keras.checkpoints.run_directory import describe, left_out_of_t2t
from t2t_keras.errors import UserError
from t2t_keras.training.evaluation import EvaluationHistory
from t2t_keras.training.reporting import RunRecord
from t2t_keras.training.run_checkpoint import read_best
from t2t_keras.transformer import Transformer

OLD = (
    "transformer_test,learning_rate_schedule=legacy,learning_rate=0.2,learning_rate_constant=1,"
    "learning_rate_warmup_steps=8000,optimizer_adam_beta2=0.98"
)
"""Values of `transformer_test` when T2T trained its released test checkpoint."""


@pytest.fixture
def directory(tmp_path):
    """T2T's, whose `hparams.json` is older than half of the settings."""
    shutil.copy(golden.FOLDER / "t2t_release" / "hparams.json", tmp_path)
    return str(tmp_path)


def test_a_run_of_t2t_goes_on_with_its_settings(directory):
    recorded, _ = checkpoints.read_settings(directory)
    hp = registry.hparams(OLD)
    assert recorded.moe_loss_coef != hp.moe_loss_coef  # which has no effect
    change(directory, optimizer="Adam")  # as T2T wrote it before 1.13
    checkpoints.write_settings(directory, hp, {"problem": "translate_ende_wmt8k"})
    found, run = checkpoints.read_settings(directory)
    assert (found, run["problem"]) == (hp, "translate_ende_wmt8k")


def test_a_run_of_t2t_is_resumed_by_what_the_error_says(directory):
    """T2T's own command names the set alone, whose values of today are others."""
    for given in (OLD + ",num_heads=4", "transformer_test"):
        with pytest.raises(UserError) as caught:
            checkpoints.write_settings(directory, registry.hparams(given), {})
        message, _, remedy = str(caught.value).partition(": give --hparams=")
        heads = message.endswith("other settings (num_heads was 2 and is now 4)")
        assert heads == ("heads" in given)
        old = registry.hparams(remedy.partition(" to resume it")[0].strip("'"))
    checkpoints.write_settings(directory, old, {})


def test_settings_of_a_users_own_are_compared_too(tmp_path):
    hp = registry.hparams(OLD).add_hparam("my_rate", 0.5)
    for _ in range(2):
        checkpoints.write_settings(str(tmp_path), hp, {})
    with pytest.raises(UserError, match=r"my_rate was 0\.5 and is now 0\.25"):
        checkpoints.write_settings(str(tmp_path), hp.replace(my_rate=0.25), {})
    new = r"second was None and is now 3\): give the same ones to resume it"
    with pytest.raises(UserError, match=new):
        checkpoints.write_settings(str(tmp_path), hp.add_hparam("second", 3), {})


def test_settings_of_a_users_own_are_in_the_model_of_a_run(tmp_path, capsys):
    hp = registry.hparams("transformer_base_v1", networks.SMALL).replace(shared_embedding=True)
    common = hp.replace(num_hidden_layers=0, num_decoder_layers=11)  # the encoder has no weights
    hp = common.add_hparam("my_rate", 0.5)
    model = Transformer(hp, source_vocab_size=20, target_vocab_size=10)
    checkpoints.write_settings(str(tmp_path), model.hp, describe(model))
    checkpoints.save_t2t(model, str(tmp_path / "model.ckpt-1"))
    assert checkpoints.load_model(str(tmp_path)).hp.my_rate == 0.5
    checkpoints.write_settings(str(tmp_path), common, {})  # the set may lose what it had
    assert describe(networks.small_model(model_class=type("Own", (Transformer,), {})))["model"]
    assert "Own is recorded as model transformer: give it a name" in capsys.readouterr().err


def change(directory, **settings):
    path = Path(directory) / "hparams.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


def test_what_t2t_had_on_and_we_have_not_is_reported(directory):
    hp = registry.hparams(OLD)
    flags = "--problem=translate_ende_wmt8k\n--worker_gpu=0\n--worker_replicas=1\n"
    (Path(directory) / "flags.txt").write_text(flags)
    assert left_out_of_t2t(directory, hp, "translate_ende_wmt8k", 1) == []
    off = {"scheduled_sampling_prob": 0.0, "my_switch": False, "problem_choice": "adaptive"}
    unused = {"moe_k": 7, "train_steps": 300}  # the first: of an ffn_layer that is not in use
    change(directory, grad_noise_scale=0.1, symbol_dropout=0.1, my_rate=0.5, **off, **unused)
    (Path(directory) / "flags.txt").write_text(
        flags.replace("gpu=0", "gpu=8").replace("problem=", "problems=")
    )
    assert left_out_of_t2t(directory, hp, "translate_ende_wmt32k", 2) == [
        "grad_noise_scale=0.1 (noise on gradients and weights is not supported)",
        "symbol_dropout=0.1 (dropout of whole tokens is not supported)",
        "my_rate=0.5 (there is no such setting)",
        "--problem=translate_ende_wmt8k (it is translate_ende_wmt32k now)",
        "--worker_gpu=8 --worker_replicas=1 (batches of a step now: 2)",
    ]
    mine = hp.add_hparam("my_rate", 0.5)
    assert len(left_out_of_t2t(directory, mine, "translate_ende_wmt8k", 8)) == 2
    checkpoints.write_settings(directory, hp, {})  # from here on it is a run of ours
    assert left_out_of_t2t(directory, hp, "translate_ende_wmt32k", 2) == []


def test_another_network_of_the_same_weights_is_refused(tmp_path):
    shutil.copytree(golden.RELEASE, tmp_path, dirs_exist_ok=True)
    change(tmp_path, hard_attention_k=5)
    refused = (
        r"hparams\.json has hard_attention_k=5, a network that is not supported \(hard and noisy "
        r"attention are not supported\): train a model with hard_attention_k=0"
    )
    with pytest.raises(UserError, match=refused):
        checkpoints.load_model(str(tmp_path))
    with pytest.raises(UserError, match=refused):
        checkpoints.write_settings(str(tmp_path), registry.hparams(OLD), {})


def test_what_matters_in_training_alone_does_not_keep_a_model_from_decoding(tmp_path):
    shutil.copytree(golden.RELEASE, tmp_path, dirs_exist_ok=True)
    batch = {"inputs": np.array([[5, 9, 1]]), "targets": np.array([[7, 1]])}
    wanted = checkpoints.load_model(str(tmp_path))(batch)
    noise = {"symbol_dropout": 0.1, "scheduled_sampling_prob": 0.5, "grad_noise_scale": 0.1}
    earlier_name = {"ffn_layer": "conv_hidden_relu"}  # of dense_relu_dense
    change(tmp_path, initializer="normal", **noise, **earlier_name)
    np.testing.assert_array_equal(checkpoints.load_model(str(tmp_path))(batch), wanted)
    recorded, _ = checkpoints.read_settings(str(tmp_path))
    with pytest.raises(UserError, match=r"initializer must be one of .*, got 'normal'"):
        Transformer(recorded, source_vocab_size=9, target_vocab_size=9)


@pytest.mark.parametrize(
    ("name", "value", "there"),
    [
        ("hidden_size", 2**30, 16),
        ("filter_size", 2**30, 8),
        ("attention_key_channels", 2**30, 16),
        *[(f"num_{part}_layers", 3000, 2) for part in ("hidden", "decoder")],
        ("vocab_divisor", 2**30, 8190),
        *[(f"{side}_vocab_size", 2**31 - 1, 8190) for side in ("source", "target")],
    ],
)
def test_what_is_larger_than_the_checkpoint_is_not_built(name, value, there, tmp_path, monkeypatch):
    shutil.copytree(golden.RELEASE, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(Transformer, "of_sizes", lambda *args, **kwargs: pytest.fail("is built"))
    if name.endswith("vocab_size"):
        sizes = {"source_vocab_size": there, "target_vocab_size": there, name: value}
        (tmp_path / "run.json").write_text(json.dumps(sizes))
    else:
        change(tmp_path, **{name: value})
    name = {"num_hidden_layers": "num_encoder_layers"}.get(name, name)
    refused = rf"does not fit the settings: {name}.* is {there:,} there and [\d,]+ here"
    with pytest.raises(UserError, match=refused):
        checkpoints.load_model(str(tmp_path))


# Files that are damaged


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run.json", "[" * 100_000, "run.json is not JSON: maximum recursion depth"),
        ("run.json", '{"starts": [{"started": 5}]}', r"run.json: starts\[0\] has no started_seconds"),
        ("run.json", json.dumps({"starts": [{"started_seconds": 5, "replicas": 1, "command": 3}]}), r"starts\[0\].command must be a string"),
        ("run.json", '{"averages": {"a": "b"}}', r"run.json: averages.a must be a list"),
        ("run.json", '{"source_vocab_size": 0}', r"run.json: source_vocab_size must be an integer"),
        ("hparams.json", "5", "hparams.json must be an object, got 5"),
        ("hparams.json", '{"num_heads": [2]}', "hparams.json: hparam num_heads must be an integer"),
        ("best", b"\xff", r"best cannot be read \(it is not UTF-8\): remove it to continue"),
        ("best", "../x", "best must hold the name of a checkpoint, got '../x'"),
        ("checkpoint", b"\xff\xfe", "checkpoint names no checkpoint: remove it"),
        ("checkpoint", "model.ckpt-2", "checkpoint names no checkpoint: remove it"),
        ("flags.txt", "--worker_gpu=many", "flags.txt: --worker_gpu must be an integer, got 'many'"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_named_with_its_field(name, content, message, tmp_path, refused):
    read_all(run_files.write_run(tmp_path))
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    if name == "flags.txt":
        (tmp_path / "run.json").unlink()
    with refused(message):
        read_all(tmp_path)


def read_all(directory):
    """Reads the small files of a run as every command does."""
    checkpoints.resolve(str(directory))
    hp, run = checkpoints.read_settings(str(directory))
    EvaluationHistory(str(directory), until=10**9).best("loss")
    read_best(str(directory))
    left_out_of_t2t(str(directory), hp or registry.hparams(OLD), "p", 1)
    starts = run.get("starts") or [{}]
    record = RunRecord(str(directory), write=False, replicas=starts[-1].get("replicas"))
    assert record.first_started == float(starts[0].get("started_seconds", record.first_started))
    record.note(step=record.first_started)
    files_beside(str(directory / "averaged.ckpt"), [str(directory / "model.ckpt-200")])
