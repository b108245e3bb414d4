"""Starts a run from trained weights, whose vocabulary may be another one."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from t2t_keras.checkpoints import load_t2t, read, read_settings, resolve
from t2t_keras.checkpoints.names import is_table, t2t_variables
from t2t_keras.checkpoints.t2t import assign, with_averages
from t2t_keras.errors import UserError, warn
from t2t_keras.network_settings import INFERENCE_SETTINGS
from t2t_keras.text.encoders import tokens, vocabulary_digest
from t2t_keras.trained_model import recorded_encoders


def warm_start(
    model, path: str, encoders: Mapping[str, Any], problem, data_dir: str | None = None
) -> str:
    """Loads a checkpoint into a model; rows of embedding tables are matched by token.

    If the checkpoint's vocabulary is found and differs, tokens in both keep their rows, and the rows of
    other tokens do not change. If it is not found, it must be the same.

    Args:
        model: a `Transformer` with its initial weights.
        path: a checkpoint, ours or T2T's, or a directory of them.
        encoders: "inputs" and "targets" text encoders of the model.
        problem: the problem of the checkpoint if none is recorded beside it.
        data_dir: directory of the checkpoint's vocabulary; None: the recorded directory.

    Returns:
        A line about the tokens that were found; "" if the vocabulary is the same.
    """
    prefix = resolve(path)
    recorded, run = read_settings(os.path.dirname(prefix))
    changed = recorded.diff(model.hp) if recorded else {}
    for name, (theirs, ours) in changed.items():
        if name in INFERENCE_SETTINGS and not name.startswith("shared"):  # tables: may be joined
            warn(f"{path} has {name}={theirs}, not {ours}: its weights mean another network")
    before = recorded_encoders(prefix, problem, data_dir)
    for side, each in (before or encoders).items():
        digest = vocabulary_digest(each)
        if run.get("vocabulary", {}).get(side, digest) != digest:
            raise UserError(
                f"the vocabulary of the {side} that {prefix} was trained with is not found, only another: "
                "give the directory of its own, --warm_start_vocab=DIRECTORY."
            )
        if each.vocab_size == problem.num_classes and digest != vocabulary_digest(encoders[side]):
            warn(f"{path} has other classes: each begins with the weights of the one of its number")
    names = {side: tokens(each, each.vocab_size) for side, each in encoders.items()}
    old = {side: tokens(each, each.vocab_size) for side, each in (before or {}).items()}
    arrays = with_averages(read(path))
    if before is None or (names == old and t2t_variables(model).keys() <= arrays.keys()):
        assign(model, arrays, path)
        return ""
    tables = {name: arrays.pop(name) for name in list(arrays) if is_table(name)}
    counts = {}
    for name, variable in t2t_variables(model).items():
        if not is_table(name):
            continue
        is_source = model.source_embedding and variable is model.source_embedding.table
        side = "inputs" if is_source else "targets"
        theirs = old.get(side, old["targets"])
        table = _matching(tables, name.rpartition("/")[2], len(theirs))
        if table is None or table.shape[1:] != variable.shape[1:]:
            load_t2t(model, path)  # raises an error with everything that does not fit
        rows = np.array(variable)
        if len(theirs) > len(table):
            raise UserError(
                f"{prefix} has embeddings of {len(table)} tokens, but the vocabulary recorded for it "
                f"has {len(theirs)}: give the directory of its own, --warm_start_vocab=DIRECTORY."
            )
        places = {token: i for i, token in enumerate(theirs)}
        found = [(i, places[token]) for i, token in enumerate(names[side]) if token in places]
        for new, known in found:
            rows[new] = table[known]
        arrays[name] = rows
        is_shared = all(each == names[side] for each in names.values())
        label = "" if is_shared else "source " if is_source else "target "
        counts[label] = f"{len(found):,} of {len(names[side]):,} {label}tokens"
    assign(model, arrays, path)
    return (
        f"vocabulary or tables are not those of {os.fspath(path)}: "
        f"{' and '.join(counts.values())} keep their embeddings, the others start with random ones"
    )


def _matching(tables: Mapping[str, Any], scope: str, size: int) -> Any:
    """Returns the table of a scope, or else one for several scopes; None without either.

    Source and target may have a shared one each: it is the smallest that has rows for `size` tokens.
    """
    for known in (scope, "shared"):
        if found := [table for name, table in tables.items() if name.endswith(f"/{known}")]:
            return min(found, key=lambda table: (len(table) < size, len(table)))
    return None
