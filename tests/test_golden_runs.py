"""T2T's own trainings, batch by batch, through the engine: loss, learning rate, norm, weights.

tensor2tensor 1.15.7 trained these models by its own `optimize` (`tests/data/golden/runs`), without dropout.
"""

import json

import golden
import numpy as np
import pytest
import replicas
import toy

import t2t_keras as t2t
from t2t_keras.checkpoints.t2t import model_arrays
from t2t_keras.training import Engine, EngineSettings

RUNS = ("adafactor", "characters_clipped", "clip_and_decay", "multistep8", "multistep8_clipped")
ADAFACTOR = 5e-4
"""Of its weights: it divides a gradient by its own size, so that rounding of small ones counts too."""
NO_DROPOUT = "attention_dropout=0.0,relu_dropout=0.0,layer_prepostprocess_dropout=0.0"


def engine_of(folder, **settings):
    """Makes the engine of a run with its settings, before the first step."""
    config = json.loads((folder / "config.json").read_text())
    hp = t2t.registry.hparams(config["hparams_set"], config["overrides"]).override(NO_DROPOUT)
    hp = hp.override(f"optimizer={config['optimizer']}")
    engine = Engine(
        hp,
        source_vocab_size=config["vocab_size"],
        target_vocab_size=config["vocab_size"],
        target_space_id=config["target_space_id"],
        settings=EngineSettings(**settings),
        train_steps=config["steps"],
        loss_multiplier=config["loss_multiplier"],
    )
    t2t.checkpoints.load_t2t(engine.model, str(folder / "model.ckpt-0"))
    return engine


def differences(folder, **settings):
    """Returns the largest relative errors of a run, by quantity."""
    engine, run = engine_of(folder, **settings), np.load(folder / "run.npz")
    steps = sum(name.startswith("inputs/") for name in run)
    found = {"loss": 0.0, "learning rate": 0.0, "norm": 0.0, "weights": 0.0}

    def compare(what, ours, theirs):
        found[what] = max(found[what], golden.relative_error(ours, theirs))

    for step in range(steps):
        compare("learning rate", engine.learning_rate, run[f"learning_rate/{step}"])
        batch = {side: run[f"{side}/{step}"] for side in ("inputs", "targets")}
        rows = -(-len(batch["inputs"]) // engine.replicas) * engine.replicas
        batch = {side: np.pad(ids, [(0, rows - len(ids)), (0, 0)]) for side, ids in batch.items()}
        totals = engine.train(replicas.iterator([batch]), 1)
        compare("loss", totals.loss / totals.tokens, run[f"loss/{step}"])
        if engine.steps_per_update == 1 and not engine.model.hp.weight_decay:
            compare("norm", totals.gradient_norm, run[f"norm/{step}"])
        weights = f"weights/{step + 1}/"
        wanted = {name[len(weights) :]: run[name] for name in run if name.startswith(weights)}
        if wanted:
            ours = model_arrays(engine.model)
            assert wanted.keys() <= ours.keys()
            for name, value in wanted.items():
                compare("weights", ours[name], value)
    return found


@pytest.mark.parametrize("name", RUNS)
def test_trains_as_t2t_did(name):
    found = differences(golden.FOLDER / "runs" / name, distribute="none")
    if name == "adafactor":
        assert found.pop("weights") < ADAFACTOR
        assert found.pop("norm") < ADAFACTOR
    assert max(found.values()) < golden.RELATIVE, found


def test_accumulates_on_two_replicas_as_t2t_did():
    """Rows of padding make halves of the batches that have an odd number of rows.

    With clipping two replicas are as one device: `test_distribution.py`.
    """
    code = (
        "import json, sys\n"
        "import tensorflow as tf\n"
        "tf.config.set_logical_device_configuration(\n"
        "    tf.config.list_physical_devices('CPU')[0], [tf.config.LogicalDeviceConfiguration()] * 2)\n"
        f"sys.path.insert(0, {str(golden.FOLDER.parents[1])!r})\n"
        "import golden, test_golden_runs\n"
        "folder = golden.FOLDER / 'runs' / 'multistep8'\n"
        "print(json.dumps(test_golden_runs.differences(folder, distribute='mirrored')))\n"
    )
    done = toy.python("-c", code)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert max(found.values()) < golden.RELATIVE, found
