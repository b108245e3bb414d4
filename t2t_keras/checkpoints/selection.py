"""Which checkpoints of a directory to average."""

from __future__ import annotations

import os
import sys

from t2t_keras.checkpoints.t2t import checkpoints_in, require_whole, step_in_name
from t2t_keras.errors import UserError

SLACK = 0.95
"""A checkpoint may be so much of the minutes older: writing one does not always take as long."""


def last_checkpoints(
    prefix: str,
    count: int = 0,
    *,
    min_steps: int = 0,
    max_steps: int = 0,
    minutes: float = 0.0,
) -> list[str]:
    """The newest checkpoints whose names begin with `prefix`, oldest first.

    One that cannot be read to its end is left out, with a warning on standard error, for the one
    before it.

    Args:
        prefix: a directory, or a directory and the beginning of a name (T2T's `--prefix`).
        count: how many; 0: all that there are.
        min_steps: of fewer steps, none (T2T's `--min_steps`).
        max_steps: of more steps, none; 0: no limit.
        minutes: how much older than the one after it each must be, by the times of the files;
            five hundredths less will do.

    Raises:
        UserError: there are fewer, or none.
    """
    directory, start = (prefix, "") if os.path.isdir(prefix) else os.path.split(prefix)
    directory = directory or "."
    found = checkpoints_in(directory, start) if os.path.isdir(directory) else []
    chosen: list[str] = []
    before = float("inf")
    for candidate in reversed(found):
        step = step_in_name(candidate)
        if step < min_steps or (max_steps and step > max_steps):
            continue
        try:
            written = _written(candidate)
            if written > before - minutes * 60 * SLACK:
                continue
            require_whole(candidate)
        except UserError as error:
            print(f"warning: {error}; it is left out", file=sys.stderr, flush=True)
            continue
        chosen.append(candidate)
        before = written
        if len(chosen) == count:
            break
    if len(chosen) < max(count, 1):
        steps = f" to {max_steps}" if max_steps else " or more"
        among = f" of {min_steps}{steps} steps" if min_steps or max_steps else ""
        apart = f" at least {minutes:g} minutes apart" if minutes else ""
        raise UserError(
            f"{prefix} has {len(chosen)} whole checkpoints{among}{apart}, "
            f"{count or 'one or more'} were asked for."
        )
    return chosen[::-1]


def _written(prefix: str) -> float:
    try:
        return os.path.getmtime(prefix + ".index")
    except OSError as error:  # a run removes old ones while it goes on
        raise UserError(f"checkpoint {prefix} cannot be read: {error.strerror}") from error
