"""The weights that a new run begins with, where the vocabulary need not be the one they were trained on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from t2t_keras.checkpoints import load_t2t, read, resolve
from t2t_keras.checkpoints.names import is_table, t2t_variables
from t2t_keras.checkpoints.t2t import assign
from t2t_keras.errors import UserError
from t2t_keras.serving.ctranslate2 import tokens
from t2t_keras.trained_model import recorded_encoders

_OF_TARGETS = ("target_emb", "softmax")  # T2T's scopes of tables
_TOLD = {"inputs": "source ", "targets": "target "}


def warm_start(
    model, path: str, encoders: Mapping[str, Any], problem, data_dir: str | None = None
) -> str:
    """Gives a model the weights of a checkpoint; rows of embedding tables follow their tokens.

    If the checkpoint's vocabulary is found and is another one, a token that both have keeps its row, and
    the rows of the others stay as they are. If it is not found, it must be of the same size.

    Args:
        model: a `Transformer` with its first weights.
        path: a checkpoint of ours or T2T's, or a directory of them.
        encoders: "inputs" and "targets" text encoders of the model.
        problem: whose vocabulary the checkpoint has where no problem is recorded beside it.
        data_dir: directory of the checkpoint's vocabulary; None: where it was recorded.

    Returns:
        A line on the tokens that were found; "" where the vocabulary is the same.
    """
    prefix = resolve(path)
    before = recorded_encoders(prefix, problem, data_dir)
    names = {side: _names(encoder) for side, encoder in encoders.items()}
    if before is None or names == (old := {side: _names(e) for side, e in before.items()}):
        load_t2t(model, path)
        return ""
    arrays = read(path)
    tables = {name: arrays.pop(name) for name in list(arrays) if is_table(name)}
    told = {}
    for name, variable in t2t_variables(model).items():
        if not is_table(name):
            continue
        scope = name.rpartition("/")[2]
        side = "inputs" if "inputs" in names and scope not in _OF_TARGETS else "targets"
        of_old = [table for table in tables if table.endswith((f"/{scope}", "/shared"))]
        if not of_old or tables[of_old[0]].shape[1:] != variable.shape[1:]:
            load_t2t(model, path)  # says all that does not fit
        table, rows = tables[of_old[0]], np.array(variable)
        theirs = old.get(side, old["targets"])
        if len(theirs) > len(table):
            raise UserError(
                f"{prefix} has embeddings of {len(table)} tokens, and the vocabulary that is recorded for "
                f"it has {len(theirs)}: name the directory of its own, --warm_start_vocab=DIRECTORY."
            )
        places = {token: i for i, token in enumerate(theirs)}
        found = [(i, places[token]) for i, token in enumerate(names[side]) if token in places]
        for new, known in found:
            rows[new] = table[known]
        arrays[name] = rows
        label = "" if all(each == names[side] for each in names.values()) else _TOLD[side]
        told[label] = f"{len(found):,} of {len(names[side]):,} {label}tokens"
    assign(model, arrays, path)
    return (
        f"the vocabulary is not that of {os.fspath(path)}: "
        f"{' and '.join(told.values())} keep their embeddings, the others begin with random ones"
    )


def _names(encoder) -> list[str]:
    return tokens(encoder, encoder.vocab_size)
