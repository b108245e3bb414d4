"""The mean of several checkpoints (section 6.1 of the paper)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from t2t_keras.checkpoints.average_settings import choose_place, require_alike
from t2t_keras.checkpoints.names import SCOPE, is_slot
from t2t_keras.checkpoints.t2t import each_variable, resolve, variable_shapes, write
from t2t_keras.errors import UserError

STEP = "global_step"


def average(prefixes: Sequence[str], output: str) -> int:
    """Writes the mean of the model variables of checkpoints, with their settings beside it.

    The result is for inference alone: it has no optimizer slots, and `run.json` beside it says so
    and names the checkpoints. The sums are float64, the result float32. Memory is 12 bytes a
    parameter and one variable, however many checkpoints there are.

    Args:
        prefixes: the checkpoints, such as `dir/model.ckpt-1000`, of our runs or T2T's.
        output: prefix of the result.

    Returns:
        The `global_step` of the result: that of the newest checkpoint. (T2T writes 0.)

    Raises:
        UserError: a checkpoint cannot be read, or differs from the first in names, shapes or in
            settings that decide the logits; or `output` cannot be written, or is among others
            that it must not be mixed with.
    """
    prefixes = [resolve(prefix) for prefix in prefixes]
    _require_different(prefixes)
    shapes = {prefix: _model_shapes(prefix) for prefix in prefixes}
    for prefix in prefixes[1:]:
        _require_shapes(shapes[prefixes[0]], shapes[prefix], prefixes[0], prefix)
    require_alike(prefixes)
    place = choose_place(output, prefixes)

    sums = {name: np.zeros(shape, np.float64) for name, shape in shapes[prefixes[0]].items()}
    step = 0
    for prefix in prefixes:
        for name, array in each_variable(prefix, lambda name: name in sums or name == STEP):
            if name == STEP:
                step = max(step, int(array))
            else:
                sums[name] += array
    mean = {name: (sums.pop(name) / len(prefixes)).astype(np.float32) for name in list(sums)}
    place.write_settings()
    write(output, {**mean, STEP: np.asarray(step, np.int64)})
    place.point_to_result()
    return step


def _require_different(prefixes: Sequence[str]) -> None:
    if not prefixes:
        raise UserError("there is no checkpoint to average: name one or more.")
    for number, prefix in enumerate(prefixes):
        if prefix in prefixes[:number]:
            raise UserError(f"checkpoint {prefix} is named twice: name each one once.")


def _model_shapes(prefix: str) -> dict[str, list[int]]:
    shapes = variable_shapes(prefix)
    ours = {
        name: list(shape)
        for name, shape in shapes.items()
        if name.startswith(SCOPE + "/") and not is_slot(name)
    }
    if not ours:
        raise UserError(
            f"checkpoint {prefix} has no variable {SCOPE}/...: it is no Transformer of T2T."
        )
    return ours


def _require_shapes(first: Mapping, other: Mapping, first_prefix: str, prefix: str) -> None:
    for name in sorted({*first, *other}):
        here, there = (shapes.get(name, "absent") for shapes in (other, first))
        if here != there:
            raise UserError(
                f"checkpoint {prefix} is of another model than {first_prefix}: {name} is {here}, "
                f"not {there}."
            )
