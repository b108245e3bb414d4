"""Reads T2T's own numbers, in `tests/data/golden`: see `test_golden.py` for what they are.

TensorFlow is imported where it is used: `golden_on_backend.py` has none.
"""

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np

import t2t_keras as t2t
from t2t_keras.settings import HParams

FOLDER = Path(__file__).parent / "data" / "golden"

RELATIVE = 1e-5
"""Agreement that float32 allows: error of a tensor over its largest element."""

FIRST_STEP = 4000
"""Global step at which T2T's three optimizer steps begin."""

MODELS = (
    *("base_prenorm", "base_v1_postnorm", "separate_embeddings"),
    *("learned_positions", "key_channels", "relative"),
)
"""Tiny models that T2T trained for 300 steps to reverse their input, without dropout."""

OTHERS = ("language_model", "language_model_relative", "classifier")
"""Tiny models of T2T's without inputs, or with a class as target."""

RELEASE = FOLDER / "t2t_release"
"""T2T's released test checkpoint: `transformer_test`, `translate_ende_wmt8k`."""

ALL = (*MODELS, *OTHERS, RELEASE.name)

NO_DROPOUT = "layer_prepostprocess_dropout=0,attention_dropout=0,relu_dropout=0"


def relative_error(ours, theirs) -> float:
    """Returns the relative error of a tensor, which must stay below `RELATIVE`."""
    ours, theirs = keras.ops.convert_to_numpy(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-9))


class Golden(NamedTuple):
    """One of `ALL`: how T2T was called, and what came out."""

    new_model: Callable  # with weights of its own
    hp: HParams
    extra_length: int
    arrays: dict[str, np.ndarray]
    checkpoint: str

    def model(self, weights=None):
        """A new model with T2T's weights, as arrays where there is no TensorFlow to read them."""
        model = self.new_model()
        if weights is None:
            t2t.checkpoints.load_t2t(model, self.checkpoint)
        else:
            t2t.checkpoints.t2t.assign(model, weights, self.checkpoint)
        return model

    @property
    def batch(self) -> dict:
        return {side: self.arrays[side] for side in ("inputs", "targets") if side in self.arrays}

    @property
    def source(self) -> np.ndarray:
        """What searches go on from."""
        return self.arrays["prompts" if "prompts" in self.arrays else "inputs"]

    def optimizer(self):
        """With new moments, but the learning rates from `FIRST_STEP` on."""
        optimizer = t2t.optimizers.create(self.hp)
        schedule = t2t.schedules.learning_rate_schedule(self.hp)
        optimizer.learning_rate = lambda: schedule(optimizer.iterations + FIRST_STEP)
        return optimizer

    def search_error(self, model, top_beams=4, **settings) -> float:
        """The error of a beam search's scores, infinity if the ids are not T2T's."""
        kind = "beam_top1" if top_beams == 1 else "beam_all"
        settings |= {"beam_size": 4, "alpha": 0.6, "extra_length": self.extra_length}
        found = t2t.decoding.beam_search(model, self.source, top_beams=top_beams, **settings)
        ids, scores = map(keras.ops.convert_to_numpy, found)
        if up_to_eos(ids) != up_to_eos(self.arrays[f"{kind}/outputs"]):
            return float("inf")
        return relative_error(scores.ravel(), self.arrays[f"{kind}/scores"].ravel())

    def update_errors(self, model) -> tuple[float, float]:
        """The errors of three steps: how many elements are off, and the furthest in learning rates."""
        wanted = self.variables("after3")
        away = np.concatenate(
            [
                np.abs(keras.ops.convert_to_numpy(variable) - wanted[name]).ravel()
                for name, variable in t2t.checkpoints.t2t_variables(model).items()
            ]
        )
        rates = 3 * self.arrays["learning_rates"].max()
        return float(np.mean(away > RELATIVE)), float(away.max() / rates)

    def variables(self, kind: str) -> dict[str, np.ndarray]:
        """T2T's arrays `<kind>/<variable>` by variable, embedding tables joined."""
        prefix = kind + "/"
        return join_tables(
            {n.removeprefix(prefix): a for n, a in self.arrays.items() if n.startswith(prefix)}
        )


@functools.cache
def load(name: str) -> Golden:
    folder = FOLDER / name
    if folder == RELEASE:
        hp, _ = t2t.checkpoints.read_settings(str(folder))
        arrays = read_arrays(folder / "expected.npz")
        space, size = int(arrays["target_space_id"]), arrays["logits"].shape[-1]
        new = functools.partial(t2t.Transformer.of_sizes, hp, size, size, target_space_id=space)
        return Golden(new, hp, 10, arrays, str(folder / "model.ckpt-1"))
    config = json.loads((folder / "config.json").read_text())
    arrays = read_arrays(folder / "golden.npz")
    source, target = None, arrays["logits"].shape[-1]
    if name in MODELS:
        hp, source = HParams.from_dict(config["hparams"]), config["vocab_size"]["inputs"]
    else:
        hp = t2t.registry.hparams(config["hparams_set"], f"{config['overrides']},{NO_DROPOUT}")
    kind = t2t.Transformer
    if name == "classifier":
        kind, source = t2t.TransformerClassifier, config["vocab_size"]
    new = functools.partial(kind.of_sizes, hp, source, target)
    return Golden(new, hp, config["decode_length_extra"], arrays, str(folder / "model.ckpt-0"))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by one name each, which differ between files."""
    names = {"training_loss": "loss"}
    for field in ("outputs", "scores"):
        names |= {f"beam/{field}": f"beam_all/{field}", f"beam_{field}": f"beam_top1/{field}"}
    return {names.get(name, name): array for name, array in np.load(path).items()}


def join_tables(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Joins `<table>/weights_0`, `<table>/weights_1`, ... in that order to `<table>`."""
    joined, shards = {}, {}
    for name, array in arrays.items():
        table, is_shard, number = re.fullmatch(r"(.*?)(/weights_(\d+))?", name).groups()
        if is_shard:
            shards.setdefault(table, {})[int(number)] = array
        else:
            joined[name] = array
    for table, pieces in shards.items():
        joined[table] = np.concatenate([pieces[i] for i in range(len(pieces))])
    return joined


def stored(prefix: str) -> dict[str, np.ndarray]:
    """Every variable in the files of a checkpoint, as TensorFlow reads them."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(prefix)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def up_to_eos(ids) -> list:
    """Cuts every row along the last axis after its first end of sentence (1)."""
    rows = [list(map(int, row)) for row in np.reshape(ids, (-1, np.shape(ids)[-1]))]
    return [row[: row.index(1) + 1] if 1 in row else row for row in rows]
