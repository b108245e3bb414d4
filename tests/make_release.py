"""Writes `tests/data/release_VERSION`, which `test_versioning.py` holds all later versions to.

`python tests/make_release.py [DIRECTORY]`; a directory that is there is not touched.
"""

import importlib
import json
import re
import sys
from pathlib import Path

import corpus_files
import numpy as np
from networks import small_model

import t2t_keras as t2t
from t2t_keras.settings import HParams

ROOT = Path(__file__).parents[1]
DATA = Path(__file__).parent / "data"
PROBLEM = "text2text_tmpdir"
SIDES = ("inputs", "targets")


def main(directory: Path) -> None:
    directory.mkdir()
    random = np.random.default_rng(0)
    model = small_model("num_hidden_layers=1,symbol_modality_num_shards=2")
    t2t.checkpoints.save_t2t(model, str(directory / "model.ckpt-0"))
    t2t.checkpoints.write_settings(str(directory), model.hp, model.description())
    model.save(directory / "model.keras")
    batch = {name: random.integers(2, 23, (3, 9)).astype(np.int32) for name in SIDES}
    np.savez_compressed(directory / "logits.npz", **batch, logits=model(batch))

    rows = [{name: [*map(int, random.integers(2, 23, 5)), 1] for name in SIDES} for _ in range(9)]
    corpus_files.write_shards(directory, PROBLEM, "dev", rows, shards=2)
    (directory / "rows.json").write_text(json.dumps(rows) + "\n")
    read_rows(directory)  # makes the index
    (directory / "names.json").write_text(json.dumps(names(), indent=1, sort_keys=True) + "\n")


def read_rows(directory: Path) -> list[dict[str, list[int]]]:
    """The examples in the shards of a directory, without padding, sorted."""
    hp = t2t.registry.hparams("transformer_tiny").replace(batch_size=64, max_length=8)
    problem = t2t.registry.problem(PROBLEM)
    rows = []
    for batch in t2t.data.dataset(problem, "dev", str(directory), hp):
        sides = {name: batch[name].numpy().tolist() for name in SIDES}
        for pair in zip(*sides.values(), strict=True):
            rows.append({side: [*filter(None, ids)] for side, ids in zip(SIDES, pair, strict=True)})
    return sorted(rows, key=lambda row: row["inputs"])


def public_names() -> list[str]:
    """Every public name, such as `t2t_keras.layers.FeedForward`; docs/api.md lists the modules."""
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    modules = re.findall(r"^::: (\S+)$", page, re.MULTILINE)
    return [f"{name}.{each}" for name in modules for each in importlib.import_module(name).__all__]


def names() -> dict:
    """All names that are promised, and the values of the sets."""
    return {
        "api": public_names(),
        "problems": t2t.registry.list_problems(),
        "settings": sorted(HParams().to_dict()),
        "sets": {
            name: {k: v for k, (v, _) in t2t.registry.hparams(name).diff(HParams()).items()}
            for name in t2t.registry.list_hparams()
        },
        "signatures": sorted(t2t.export.SIGNATURES),
    }


if __name__ == "__main__":
    where = sys.argv[1:] or [DATA / f"release_{t2t.__version__}"]
    main(Path(where[0]))
