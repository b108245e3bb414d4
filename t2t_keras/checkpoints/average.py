"""The mean of several checkpoints (section 6.1 of the paper)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

import numpy as np

from t2t_keras.checkpoints.names import SCOPE, is_slot
from t2t_keras.checkpoints.run_directory import HPARAMS_FILE, RUN_FILE
from t2t_keras.checkpoints.t2t import checkpoints_in, read_variables, write
from t2t_keras.errors import UserError


def average(prefixes: Sequence[str], output: str) -> None:
    """Writes the mean of the model variables of checkpoints, with their settings beside it.

    Optimizer slots are left out: the result is for decoding. Its `global_step` is the last
    checkpoint's.

    Args:
        prefixes: the checkpoints, such as `dir/model.ckpt-1000`.
        output: prefix of the result.

    Raises:
        UserError: a checkpoint cannot be read, or differs in names or shapes from the first.
    """
    sums: dict[str, np.ndarray] = {}
    step = 0
    for prefix in prefixes:
        arrays = read_variables(prefix)
        step = int(arrays.get("global_step", 0))
        arrays = {n: a for n, a in arrays.items() if n.startswith(SCOPE + "/") and not is_slot(n)}
        sums = sums or {name: np.zeros(a.shape, np.float64) for name, a in arrays.items()}
        _require_alike(sums, arrays, prefixes[0], prefix)
        for name, array in arrays.items():
            sums[name] += array
    mean = {name: (total / len(prefixes)).astype(np.float32) for name, total in sums.items()}
    write(output, {**mean, "global_step": np.asarray(step, np.int64)})
    for name in (HPARAMS_FILE, RUN_FILE):
        source = os.path.join(os.path.dirname(prefixes[-1]), name)
        target = os.path.join(os.path.dirname(output), name)
        if os.path.exists(source) and not os.path.exists(target):
            shutil.copyfile(source, target)


def last_checkpoints(prefix: str, count: int) -> list[str]:
    """The `count` newest checkpoints whose names begin with `prefix`, oldest first.

    Args:
        prefix: a directory, or a directory and the beginning of a name (T2T's `--prefix`).

    Raises:
        UserError: there are fewer.
    """
    directory, start = (prefix, "") if os.path.isdir(prefix) else os.path.split(prefix)
    found = checkpoints_in(directory, start) if os.path.isdir(directory) else []
    if len(found) < count:
        raise UserError(f"{prefix} has {len(found)} checkpoints, {count} were asked for.")
    return found[-count:]


def _require_alike(sums, arrays, first: str, other: str) -> None:
    for name in sorted({*sums, *arrays}):
        shapes = [list(a[name].shape) if name in a else "absent" for a in (sums, arrays)]
        if shapes[0] != shapes[1]:
            raise UserError(
                f"{first} and {other} are of different models: {name} is {shapes[0]} in the "
                f"first and {shapes[1]} in the second."
            )
