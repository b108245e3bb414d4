"""Reads T2T's own numbers, in `tests/data/golden`: see `test_golden.py` for what they are.

TensorFlow is imported where it is used: `golden_on_backend.py` has none.
"""

import functools
import json
import re
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

RELEASE = FOLDER / "t2t_release"
"""T2T's released test checkpoint: `transformer_test`, `translate_ende_wmt8k`."""

MODELS = (
    "base_prenorm",
    "base_v1_postnorm",
    "separate_embeddings",
    "learned_positions",
    "key_channels",
    "relative",
)
"""Tiny models that T2T trained for 300 steps to reverse their input, without dropout."""


OTHERS = ("language_model", "language_model_relative", "classifier")
"""Tiny models of T2T's without inputs, or with a class as target."""

NO_DROPOUT = "layer_prepostprocess_dropout=0,attention_dropout=0,relu_dropout=0"


def relative_error(ours, theirs) -> float:
    """Returns the relative error of a tensor, which must stay below `RELATIVE`."""
    ours, theirs = keras.ops.convert_to_numpy(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-9))


class Golden(NamedTuple):
    """One of `MODELS`: how T2T was called, and what came out."""

    hp: HParams
    vocab_size: dict[str, int]
    extra_length: int
    arrays: dict[str, np.ndarray]
    checkpoint: str

    def model(self, **kwargs):
        """A new `Transformer` with T2T's weights."""
        model = self.new_model(**kwargs)
        t2t.checkpoints.load_t2t(model, self.checkpoint)
        return model

    def new_model(self, **kwargs):
        """A new `Transformer` with weights of its own."""
        return t2t.Transformer(
            self.hp,
            source_vocab_size=self.vocab_size["inputs"],
            target_vocab_size=self.vocab_size["targets"],
            **kwargs,
        )

    @property
    def batch(self) -> dict:
        """The ids of both sides, tensors of TensorFlow."""
        import tensorflow as tf

        return {name: tf.constant(self.arrays[name]) for name in ("inputs", "targets")}

    def variables(self, kind: str) -> dict[str, np.ndarray]:
        """T2T's arrays `<kind>/<variable>` by variable, embedding tables joined."""
        prefix = kind + "/"
        return join_tables(
            {n.removeprefix(prefix): a for n, a in self.arrays.items() if n.startswith(prefix)}
        )


@functools.cache
def load(name: str) -> Golden:
    folder = FOLDER / name
    config = json.loads((folder / "config.json").read_text())
    return Golden(
        hp=HParams.from_dict(config["hparams"]),
        vocab_size=config["vocab_size"],
        extra_length=config["decode_length_extra"],
        arrays=dict(np.load(folder / "golden.npz")),
        checkpoint=str(folder / "model.ckpt-0"),
    )


@functools.cache
def other(name):
    """One of `OTHERS`: a new model, T2T's arrays, how many tokens follow a prompt, and the checkpoint."""
    folder = FOLDER / name
    config = json.loads((folder / "config.json").read_text())
    hp = t2t.registry.hparams(config["hparams_set"], f"{config['overrides']},{NO_DROPOUT}")
    kind, source = "transformer", None
    if name == "classifier":
        kind, source = "transformer_encoder", config["vocab_size"]
    target = config["classes"] or config["vocab_size"]
    model = t2t.registry.model(kind).of_sizes(hp, source, target)
    arrays = dict(np.load(folder / "golden.npz"))
    return model, arrays, config["decode_length_extra"], str(folder / "model.ckpt-0")


def new_release_model():
    """A new `Transformer` of the settings of `RELEASE`, and what T2T makes with its weights."""
    hp, _ = HParams.from_t2t_json(json.loads((RELEASE / "hparams.json").read_text()))
    expected = dict(np.load(RELEASE / "expected.npz"))
    vocab_size = expected["logits"].shape[-1]
    model = t2t.Transformer(
        hp,
        source_vocab_size=vocab_size,
        target_vocab_size=vocab_size,
        target_space_id=int(expected["target_space_id"]),
    )
    return model, expected


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
